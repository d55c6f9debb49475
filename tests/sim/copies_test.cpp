// SPDX-License-Identifier: Apache-2.0
// Copies between processes of one simulated machine, and those who die in the middle of one.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <optional>
#include <set>
#include <span>

#include "base/random.hpp"
#include "memory/registry.hpp"
#include "peer/borrow_ledger.hpp"
#include "street.hpp"

namespace orbite::test {
namespace {

using platform::Neighbors;
using Touched = std::vector<std::string>;

std::byte* bytes_of(const std::unique_ptr<platform::PageMapping>& mapping) {
  return mapping->pages().data();
}

/// Process 0 copies from and to process 1.
class SimCopies : public ::testing::Test {
 protected:
  platform::ProcessCopy read(const iovec& near, const iovec& far) {
    return target_->read({&near, 1}, {&far, 1});
  }
  platform::ProcessCopy write(const iovec& near, const iovec& far) {
    return target_->write({&near, 1}, {&far, 1});
  }
  iovec near(std::uint64_t offset, std::uint64_t length) { return street_.part(0, offset, length); }
  iovec far(std::uint64_t offset, std::uint64_t length) { return street_.part(1, offset, length); }
  std::string text(std::uint32_t index, std::uint64_t offset, std::uint64_t length) {
    const auto first = street_.memory(index).begin() + static_cast<std::ptrdiff_t>(offset);
    return {first, first + static_cast<std::ptrdiff_t>(length)};
  }

  Street street_;
  std::unique_ptr<platform::Process> target_ = street_.process(1, 0);
};

TEST_F(SimCopies, MoveBytesBothWaysAndTellBothSides) {
  EXPECT_EQ(read(near(10, 3), far(20, 3)).bytes, 3U);
  EXPECT_EQ(text(0, 9, 5), "abbba");
  EXPECT_EQ(write(near(100, 2), far(200, 2)).bytes, 2U);
  EXPECT_EQ(text(1, 199, 4), "baab");
  EXPECT_EQ(street_.touched,
            (Touched{"1 reads 20+3", "0 lands 10+3", "0 reads 100+2", "1 lands 200+2"}));
  EXPECT_EQ(street_.neighborhood.counts.copies, 2U);
  EXPECT_EQ(street_.neighborhood.counts.bytes_copied, 5U);
}

TEST_F(SimCopies, GoThroughListsOfDifferentParts) {
  for (std::uint64_t i = 0; i < 8; ++i) {
    street_.memory(1)[i] = static_cast<std::uint8_t>('0' + i);
  }
  const std::array near_parts{near(0, 1), near(50, 0), near(10, 5), near(20, 2)};
  const std::array far_parts{far(0, 4), far(4, 4)};
  const platform::ProcessCopy copied = target_->read(near_parts, far_parts);
  EXPECT_EQ(copied.bytes, 8U);
  EXPECT_EQ(copied.native_errno, 0);
  EXPECT_EQ(text(0, 0, 2), "0a");
  EXPECT_EQ(text(0, 10, 6), "12345a");
  EXPECT_EQ(text(0, 20, 3), "67a");
}

TEST_F(SimCopies, EndWhereNothingIsMapped) {
  const std::array far_parts{far(0, 100), far(Street::kBytes - 50, 60), far(0, 40)};
  const std::array near_parts{near(0, 200)};
  const platform::ProcessCopy copied = target_->read(near_parts, far_parts);
  EXPECT_EQ(copied.bytes, 150U);
  EXPECT_EQ(copied.native_errno, EFAULT);
  EXPECT_EQ(text(0, 148, 4), "bbaa");
  // Nor is there what only another process has.
  const iovec foreign = street_.part(2, 0, 16);
  EXPECT_EQ(read(near(0, 16), foreign).native_errno, EFAULT);
  EXPECT_EQ(write(near(0, 16), foreign).native_errno, EFAULT);
  EXPECT_EQ(text(2, 0, 16), std::string(16, 'c'));
}

TEST_F(SimCopies, ReachPagesAsTheirOwnerMapsThem) {
  const auto pages = street_.of(1).make_pages("p", 4096, {}).value();
  const auto map = [&](std::uint32_t who, Neighbors::PageAccess access) {
    return street_.of(who).map(*pages, access, Neighbors::AfterFork::kAbsent).value();
  };
  auto theirs = map(1, Neighbors::PageAccess::kReadWrite);
  const auto readable = map(1, Neighbors::PageAccess::kRead);
  const auto ours = map(0, Neighbors::PageAccess::kReadWrite);
  const auto part = [](const std::unique_ptr<platform::PageMapping>& mapping) {
    return iovec{mapping->pages().data() + 8, 16};
  };
  EXPECT_EQ(write(near(0, 16), part(theirs)).bytes, 16U);
  EXPECT_EQ(static_cast<char>(bytes_of(ours)[23]), 'a');
  EXPECT_EQ(read(near(0, 16), part(readable)).bytes, 16U);
  EXPECT_EQ(write(near(0, 16), part(readable)).native_errno, EFAULT);
  EXPECT_EQ(read(near(0, 16), part(ours)).native_errno, EFAULT) << "an address of ours is not one "
                                                                   "of theirs";
  const iovec gone = part(theirs);
  theirs = nullptr;
  EXPECT_EQ(read(near(0, 16), gone).native_errno, EFAULT);
}

/// With it an engine proves whose memory it is.
TEST_F(SimCopies, ReadAWordOfTheProcessItself) {
  std::uint64_t word = 0x1122334455667788;
  std::uint64_t seen = 0;
  const iovec near{&seen, sizeof(seen)};
  const iovec far{&word, sizeof(word)};
  EXPECT_EQ(read(near, far).bytes, sizeof(word));
  EXPECT_EQ(seen, word);
  EXPECT_EQ(write(near, far).native_errno, EFAULT);
  const iovec nowhere{reinterpret_cast<void*>(16), sizeof(word)};
  EXPECT_EQ(read(near, nowhere).native_errno, EFAULT);
  std::vector<std::uint8_t> much(65);
  EXPECT_EQ(read(this->near(0, 65), {much.data(), 65}).native_errno, EFAULT);
  EXPECT_TRUE(street_.touched.empty());
}

TEST_F(SimCopies, AreForbiddenByAMachineOrAProcess) {
  const auto back = street_.process(0, 1);
  const iovec near = street_.part(1, 0, 4);
  const iovec far = street_.part(0, 0, 4);
  street_.of(1).forbid_copies(true);
  const platform::ProcessCopy refused = read(far, near);
  EXPECT_EQ(refused.bytes, 0U);
  EXPECT_EQ(refused.native_errno, EPERM);
  EXPECT_EQ(back->read({&near, 1}, {&far, 1}).bytes, 4U);
  street_.of(1).forbid_copies(false);
  EXPECT_EQ(read(far, near).bytes, 4U);
  street_.neighborhood.kernel(0).forbids_copies = true;
  EXPECT_EQ(read(far, near).native_errno, EPERM);
  EXPECT_EQ(back->write({&near, 1}, {&far, 1}).native_errno, EPERM);
}

TEST_F(SimCopies, AKillInsideOneLeavesAPrefix) {
  std::set<std::uint64_t> prefixes;
  for (int i = 0; i < 40; ++i) {
    street_.start(0);
    street_.run();
    target_ = street_.process(1, 0);
    std::fill(street_.memory(1).begin(), street_.memory(1).end(), std::uint8_t{'b'});
    street_.touched.clear();
    street_.of(0).lay({.copies_before = 1, .kills = true});
    EXPECT_EQ(write(near(0, 1), far(4000, 1)).bytes, 1U);
    EXPECT_NE(write(near(0, 100), far(0, 100)).native_errno, 0);
    const std::uint64_t prefix = street_.killed_at;
    prefixes.insert(prefix);
    EXPECT_EQ(street_.killed_of, 100U);
    EXPECT_EQ(text(1, 0, 100), std::string(prefix, 'a') + std::string(100 - prefix, 'b'));
    EXPECT_EQ(street_.touched.size(), prefix > 0 ? 4U : 2U);
    // What its code does from here on is nothing.
    EXPECT_EQ(write(near(0, 100), far(0, 100)).bytes, 0U);
    EXPECT_EQ(read(near(0, 100), far(0, 100)).bytes, 0U);
    EXPECT_EQ(text(1, prefix, 1), "b");
    EXPECT_TRUE(street_.network(0).dead());
  }
  EXPECT_GT(prefixes.size(), 20U);
  EXPECT_EQ(street_.neighborhood.counts.killed_inside, 40U);
}

TEST_F(SimCopies, AKillWaitsUntilNobodyStandsInsideTheProcess) {
  street_.may_die = false;
  street_.of(0).lay({.kills = true});
  EXPECT_EQ(write(near(0, 100), far(0, 100)).bytes, 100U);
  street_.may_die = true;
  EXPECT_EQ(write(near(0, 100), far(0, 100)).bytes, 0U);
  EXPECT_TRUE(street_.network(0).dead());
}

TEST_F(SimCopies, AnAmbushCanBeCalledOff) {
  street_.of(0).lay({.kills = true});
  street_.of(0).call_off();
  EXPECT_EQ(write(near(0, 100), far(0, 100)).bytes, 100U);
}

TEST_F(SimCopies, AProcessStandsStillBeforeOrBehindOne) {
  const base::Nanoseconds begin_ns = street_.scheduler.now_ns();
  std::string seen;
  street_.while_stopped = [&] { seen += text(1, 0, 1); };
  street_.of(0).lay({.stop_before_ns = 5000});
  EXPECT_EQ(write(near(0, 10), far(0, 10)).bytes, 10U);
  EXPECT_EQ(street_.scheduler.now_ns(), begin_ns + 5000);
  street_.of(0).lay({.stop_after_ns = 3000});
  std::fill(street_.memory(0).begin(), street_.memory(0).end(), std::uint8_t{'z'});
  EXPECT_EQ(write(near(0, 10), far(0, 10)).bytes, 10U);
  EXPECT_EQ(street_.scheduler.now_ns(), begin_ns + 8000);
  EXPECT_EQ(seen, "bz");
  EXPECT_EQ(street_.neighborhood.counts.stopped_inside, 2U);
}

TEST_F(SimCopies, TheTargetMayDieWhileTheOtherStandsStill) {
  street_.while_stopped = [&] { street_.end(1); };
  street_.of(0).lay({.stop_before_ns = 5000});
  const platform::ProcessCopy copied = write(near(0, 10), far(0, 10));
  EXPECT_EQ(copied.bytes, 0U);
  EXPECT_EQ(copied.native_errno, ESRCH);
  EXPECT_EQ(text(1, 0, 1), "b");
}

// ---- A borrower that dies

TEST_F(SimCopies, PagesAreAsTheyWereWhenTheProcessDied) {
  const auto pages = street_.of(1).make_pages("seats", 4096, {}).value();
  const auto map = [&](std::uint32_t who, Neighbors::PageAccess access) {
    return street_.of(who).map(*pages, access, Neighbors::AfterFork::kAbsent).value();
  };
  const auto theirs = map(1, Neighbors::PageAccess::kRead);
  auto ours = map(0, Neighbors::PageAccess::kReadWrite);
  bytes_of(ours)[1] = std::byte{1};
  street_.of(0).lay({.kills = true});
  (void)write(near(0, 10), far(0, 10));
  bytes_of(ours)[1] = std::byte{9};
  bytes_of(ours)[2] = std::byte{9};
  ours = nullptr;
  street_.of(0).bury();
  EXPECT_EQ(bytes_of(theirs)[1], std::byte{1});
  EXPECT_EQ(bytes_of(theirs)[2], std::byte{0});
  // It was the end of the process, not of what others may write since.
  street_.end(0);
  EXPECT_EQ(bytes_of(theirs)[1], std::byte{1});
}

/// Owner and borrower as engines have them: a directory that the borrower can only read, seats that
/// the owner can only read.
class SimBorrower : public SimCopies {
 protected:
  static constexpr std::size_t kWords = 64;
  static constexpr std::size_t kSeats = 8;
  static constexpr std::uint64_t kPage = 4096;

  std::unique_ptr<platform::PageMapping> map(std::uint32_t who, const platform::PageFile& pages,
                                             Neighbors::PageAccess access) {
    return street_.of(who).map(pages, access, Neighbors::AfterFork::kAbsent).value();
  }
  template <typename T>
  static std::span<T> words_of(const platform::PageMapping& mapping, std::size_t count) {
    return {std::launder(reinterpret_cast<T*>(mapping.pages().data())), count};
  }
  Handle add() {
    MemoryDescriptor memory;
    memory.address = street_.address(1);
    memory.length = Street::kBytes;
    const Handle handle = registry_.add(memory).value();
    EXPECT_TRUE(ledger_.reserve().has_value());
    EXPECT_TRUE(ledger_.open(handle));
    return handle;
  }
  RegistrationState deregister(Handle handle) {
    const auto registration = registry_.find(handle).value();
    ledger_.close(
        registry_.borrow(registration, memory::Direction::kWrite, memory::Borrower::kRemote)
            .value());
    EXPECT_TRUE(registry_.deregister(handle).has_value());
    ledger_.reconcile();
    return registry_.state(handle).value();
  }

  base::SeededRandom random_{1};
  memory::Registry registry_{{.registrations_max = kWords}, random_};
  std::shared_ptr<const platform::PageFile> directory_ =
      street_.of(1).make_pages("directory", kPage, {}).value();
  std::shared_ptr<const platform::PageFile> seats_ =
      street_.of(1).make_pages("seats", kPage, {}).value();
  std::unique_ptr<platform::PageMapping> owners_directory_ =
      map(1, *directory_, Neighbors::PageAccess::kReadWrite);
  std::unique_ptr<platform::PageMapping> owners_seats_ =
      map(1, *seats_, Neighbors::PageAccess::kRead);
  std::unique_ptr<platform::PageMapping> borrowers_directory_ =
      map(0, *directory_, Neighbors::PageAccess::kRead);
  std::unique_ptr<platform::PageMapping> borrowers_seats_ =
      map(0, *seats_, Neighbors::PageAccess::kReadWrite);
  peer::BorrowLedger ledger_{words_of<peer::borrowing::DirectoryWord>(*owners_directory_, kWords)};
  std::optional<peer::BorrowSeats> borrower_{
      std::in_place, words_of<const peer::borrowing::DirectoryWord>(*borrowers_directory_, kWords),
      words_of<peer::borrowing::Seat>(*borrowers_seats_, kSeats)};
  const std::uint64_t borrower_id_ =
      ledger_.add_borrower(words_of<const peer::borrowing::Seat>(*owners_seats_, kSeats)).value();
  std::unique_ptr<platform::Process> borrower_process_ = street_.process(0, 1);
};

TEST_F(SimBorrower, ThatCopiesHoldsARegistrationUntilItLeaves) {
  const Handle handle = add();
  {
    const auto stay = borrower_->enter(std::array{handle});
    ASSERT_TRUE(stay.has_value());
    EXPECT_EQ(write(near(0, 100), far(0, 100)).bytes, 100U);
    EXPECT_EQ(deregister(handle), RegistrationState::kFenced);
  }
  EXPECT_FALSE(ledger_.reconcile());
  EXPECT_EQ(registry_.state(handle).value(), RegistrationState::kRetired);
}

TEST_F(SimBorrower, ThatStandsStillInsideHoldsIt) {
  const Handle handle = add();
  RegistrationState meanwhile{};
  street_.while_stopped = [&] { meanwhile = deregister(handle); };
  street_.of(0).lay({.stop_before_ns = base::kSecond});
  {
    const auto stay = borrower_->enter(std::array{handle});
    ASSERT_TRUE(stay.has_value());
    EXPECT_EQ(write(near(0, 100), far(0, 100)).bytes, 100U);
    EXPECT_EQ(meanwhile, RegistrationState::kFenced);
    EXPECT_EQ(registry_.state(handle).value(), RegistrationState::kFenced);
  }
  EXPECT_FALSE(ledger_.reconcile());
  EXPECT_EQ(registry_.state(handle).value(), RegistrationState::kRetired);
}

TEST_F(SimBorrower, ThatIsKilledInsideHoldsItUntilItsDeathIsKnown) {
  const Handle handle = add();
  const Handle other = add();
  street_.of(0).lay({.kills = true});
  {
    const auto stay = borrower_->enter(std::array{handle});
    ASSERT_TRUE(stay.has_value());
    EXPECT_NE(write(near(0, 100), far(0, 100)).native_errno, 0);
    // The code of the dead goes on to leave its seat.
  }
  borrower_.reset();
  borrowers_seats_ = nullptr;
  street_.of(0).bury();
  street_.end(0);
  EXPECT_EQ(deregister(other), RegistrationState::kRetired);
  EXPECT_EQ(deregister(handle), RegistrationState::kFenced);
  EXPECT_EQ(ledger_.held_by(borrower_id_), 1U);
  base::Nanoseconds waited_ns = 0;
  while (!borrower_process_->ended()) {
    ASSERT_TRUE(ledger_.reconcile());
    ASSERT_EQ(registry_.state(handle).value(), RegistrationState::kFenced);
    ASSERT_LT(waited_ns, base::kSecond);
    waited_ns += base::kMicrosecond;
    street_.run(base::kMicrosecond);
  }
  ledger_.remove_borrower(borrower_id_);
  EXPECT_FALSE(ledger_.reconcile());
  EXPECT_EQ(registry_.state(handle).value(), RegistrationState::kRetired);
}

}  // namespace
}  // namespace orbite::test
