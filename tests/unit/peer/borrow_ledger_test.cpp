// SPDX-License-Identifier: Apache-2.0
#include "peer/borrow_ledger.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "memory/registry.hpp"

namespace orbite::peer {
namespace {

constexpr std::size_t kWords = 8;
constexpr std::size_t kSeats = 3;

class Ledger : public ::testing::Test {
 protected:
  Handle add() {
    MemoryDescriptor memory;
    memory.address = reinterpret_cast<std::uint64_t>(bytes_.data());
    memory.length = bytes_.size();
    const Handle handle = registry_.add(memory).value();
    EXPECT_TRUE(ledger_.reserve().has_value());
    EXPECT_TRUE(ledger_.open(handle));
    return handle;
  }
  /// As the engine does it.
  RegistrationState deregister(Handle handle) {
    const auto registration = registry_.find(handle).value();
    ledger_.close(
        registry_.borrow(registration, memory::Direction::kRead, memory::Borrower::kLocal).value());
    EXPECT_TRUE(registry_.deregister(handle).has_value());
    ledger_.reconcile();
    return registry_.state(handle).value();
  }

  base::SeededRandom random_{1};
  std::vector<std::uint8_t> bytes_ = std::vector<std::uint8_t>(4096);
  memory::Registry registry_{{.registrations_max = kWords}, random_};
  std::array<borrowing::DirectoryWord, kWords> directory_{};
  std::array<borrowing::Seat, kSeats> memory_of_seats_{};
  BorrowLedger ledger_{directory_};
  BorrowSeats seats_{directory_, memory_of_seats_};
};

TEST_F(Ledger, ARegistrationThatNobodyUsesRetiresAtOnce) {
  ASSERT_TRUE(ledger_.add_borrower(memory_of_seats_).has_value());
  EXPECT_EQ(deregister(add()), RegistrationState::kRetired);
  EXPECT_EQ(ledger_.held(), 0U);
}

TEST_F(Ledger, ABorrowerInsideKeepsItsRegistrationAndNoOther) {
  const std::uint64_t borrower = ledger_.add_borrower(memory_of_seats_).value();
  const std::array inside{add(), add()};
  const Handle other = add();
  {
    const auto stay = seats_.enter(inside);
    ASSERT_TRUE(stay.has_value());
    EXPECT_EQ(deregister(other), RegistrationState::kRetired);
    EXPECT_EQ(deregister(inside[1]), RegistrationState::kFenced);
    EXPECT_TRUE(ledger_.reconcile());
    EXPECT_EQ(ledger_.held(), 1U);
    EXPECT_EQ(ledger_.held_by(borrower), 1U);
    EXPECT_EQ(ledger_.held_by(borrower + 1), 0U);
    EXPECT_EQ(seats_.enter(inside).error().code(), ErrorCode::kRegistrationFenced);
    EXPECT_EQ(registry_.state(inside[1]).value(), RegistrationState::kFenced);
  }
  EXPECT_FALSE(ledger_.reconcile());
  EXPECT_EQ(registry_.state(inside[1]).value(), RegistrationState::kRetired);
  EXPECT_EQ(deregister(inside[0]), RegistrationState::kRetired);
}

/// A seat that was seen empty of it when it was closed is done with: the directory refuses it to
/// whoever comes later, and a name that is written there all the same keeps nothing.
TEST_F(Ledger, WhoWasInsideIsLookedAtAndNobodyElseAgain) {
  std::array<borrowing::Seat, kSeats> others{};
  ASSERT_TRUE(ledger_.add_borrower(others).has_value());
  ASSERT_TRUE(ledger_.add_borrower(memory_of_seats_).has_value());
  const Handle handle = add();
  {
    const auto stay = seats_.enter({&handle, 1});
    ASSERT_TRUE(stay.has_value());
    EXPECT_EQ(deregister(handle), RegistrationState::kFenced);
    others[1].names[0].store(handle.packed());
    EXPECT_TRUE(ledger_.reconcile());
  }
  EXPECT_FALSE(ledger_.reconcile());
  EXPECT_EQ(registry_.state(handle).value(), RegistrationState::kRetired);
}

TEST_F(Ledger, EachBorrowerThatIsInsideIsWaitedForInTurn) {
  constexpr std::size_t kBorrowers = 3;
  std::array<std::array<borrowing::Seat, kSeats>, kBorrowers> seats{};
  std::array<std::uint64_t, kBorrowers> ids{};
  const Handle handle = add();
  for (std::size_t i = 0; i < kBorrowers; ++i) {
    ids[i] = ledger_.add_borrower(seats[i]).value();
    seats[i][i].names[i].store(handle.packed());
  }
  EXPECT_EQ(deregister(handle), RegistrationState::kFenced);
  ledger_.remove_borrower(ids[0]);
  EXPECT_TRUE(ledger_.reconcile());
  seats[2][2].names[2].store(0);
  EXPECT_TRUE(ledger_.reconcile());
  seats[1][1].names[1].store(0);
  EXPECT_FALSE(ledger_.reconcile());
  EXPECT_EQ(registry_.state(handle).value(), RegistrationState::kRetired);
}

TEST_F(Ledger, AnotherGenerationInTheSlotIsAnotherRegistration) {
  ASSERT_TRUE(ledger_.add_borrower(memory_of_seats_).has_value());
  const Handle old = add();
  ASSERT_EQ(deregister(old), RegistrationState::kRetired);
  Handle again = add();
  while (again.index != old.index) {
    again = add();
  }
  EXPECT_NE(again.generation, old.generation);
  EXPECT_EQ(seats_.enter(std::array{old}).error().code(), ErrorCode::kRegistrationFenced);
  EXPECT_TRUE(seats_.enter(std::array{again}).has_value());
}

TEST_F(Ledger, WhatIsInNoDirectoryIsRefused) {
  const Handle live = add();
  for (const Handle wrong : {Handle{kWords, 1}, Handle{live.index, 0},
                             Handle{live.index, live.generation + 1}, Handle{UINT32_MAX, 1}}) {
    const auto refused = seats_.enter(std::array{live, wrong});
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), ErrorCode::kRegistrationFenced);
  }
  ASSERT_TRUE(ledger_.reserve().has_value());
  EXPECT_FALSE(ledger_.open(Handle{kWords, 1}));
  ASSERT_TRUE(ledger_.add_borrower(memory_of_seats_).has_value());
  EXPECT_EQ(deregister(live), RegistrationState::kRetired) << "a refused entry left its name";
}

TEST_F(Ledger, SeatsAreTakenAndGivenBack) {
  const Handle handle = add();
  std::vector<BorrowSeats::Stay> stays;
  for (std::size_t i = 0; i < kSeats; ++i) {
    auto stay = seats_.enter(std::array{handle});
    ASSERT_TRUE(stay.has_value());
    stays.push_back(std::move(*stay));
  }
  EXPECT_EQ(seats_.enter(std::array{handle}).error().code(), ErrorCode::kBudgetExhausted);
  stays.pop_back();
  EXPECT_TRUE(seats_.enter(std::array{handle}).has_value());
}

TEST_F(Ledger, ADeadBorrowerIsNowhere) {
  const std::uint64_t borrower = ledger_.add_borrower(memory_of_seats_).value();
  const Handle handle = add();
  // What a killed process leaves behind.
  memory_of_seats_[1].names[7].store(handle.packed(), std::memory_order_seq_cst);
  EXPECT_EQ(deregister(handle), RegistrationState::kFenced);
  ledger_.remove_borrower(borrower);
  EXPECT_FALSE(ledger_.reconcile());
  EXPECT_EQ(registry_.state(handle).value(), RegistrationState::kRetired);
}

TEST_F(Ledger, ALyingBorrowerDelaysWhatItNamesAndNothingElse) {
  std::array<borrowing::Seat, kSeats> of_another{};
  BorrowSeats honest(directory_, of_another);
  ASSERT_TRUE(ledger_.add_borrower(memory_of_seats_).has_value());
  ASSERT_TRUE(ledger_.add_borrower(of_another).has_value());
  const Handle named = add();
  const Handle other = add();
  for (auto& seat : memory_of_seats_) {
    for (std::size_t i = 0; i < seat.names.size(); ++i) {
      seat.names[i].store(i == 0 ? named.packed() : UINT64_MAX - i, std::memory_order_seq_cst);
    }
  }
  EXPECT_TRUE(honest.enter(std::array{other}).has_value());
  EXPECT_EQ(deregister(other), RegistrationState::kRetired);
  EXPECT_EQ(deregister(named), RegistrationState::kFenced);
}

/// Threads that copy what they have entered, and an owner who takes the memory back as soon as it
/// may: ThreadSanitizer sees whether their accesses are ordered.
TEST_F(Ledger, OrdersTheLastCopyBeforeTheOwnersNextUse) {
  ASSERT_TRUE(ledger_.add_borrower(memory_of_seats_).has_value());
  constexpr int kRounds = 100;
  std::atomic<std::uint64_t> offered{0};
  std::atomic<bool> ends{false};
  std::vector<std::thread> borrowers;
  std::atomic<std::uint64_t> copies{0};
  for (std::size_t number = 0; number < 2; ++number) {
    borrowers.emplace_back([&, number] {
      while (!ends.load(std::memory_order_acquire)) {
        const Handle handle = Handle::unpack(offered.load(std::memory_order_acquire));
        if (const auto stay = seats_.enter(std::array{handle}); stay.has_value()) {
          bytes_[number] = static_cast<std::uint8_t>(handle.generation);
          copies.fetch_add(1, std::memory_order_relaxed);
        }
      }
    });
  }
  for (int round = 0; round < kRounds; ++round) {
    const Handle handle = add();
    const std::uint64_t before = copies.load(std::memory_order_relaxed);
    offered.store(handle.packed(), std::memory_order_release);
    while (copies.load(std::memory_order_relaxed) == before) {
      std::this_thread::yield();
    }
    RegistrationState state = deregister(handle);
    while (state != RegistrationState::kRetired) {
      ledger_.reconcile();
      state = registry_.state(handle).value();
    }
    // Ours alone now.
    std::fill(bytes_.begin(), bytes_.end(), std::uint8_t{0});
    ASSERT_EQ(bytes_[0] + bytes_[1], 0);
  }
  ends.store(true, std::memory_order_release);
  for (std::thread& borrower : borrowers) {
    borrower.join();
  }
}

}  // namespace
}  // namespace orbite::peer
