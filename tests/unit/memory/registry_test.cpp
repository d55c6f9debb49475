// SPDX-License-Identifier: Apache-2.0
#include "memory/registry.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "base/log.hpp"
#include "unit/memory/fixture.hpp"

namespace orbite::memory {
namespace {

using testing::range;
using testing::World;

static_assert(!std::is_copy_constructible_v<RangeLoan> && !std::is_copy_assignable_v<RangeLoan>);
static_assert(std::is_nothrow_move_constructible_v<RangeLoan> &&
              std::is_nothrow_move_assignable_v<RangeLoan>);
static_assert(!std::is_move_constructible_v<Registration>);

TEST(RegistryAdd, KeepsWhatWasSaid) {
  World world;
  MemoryDescriptor descriptor = World::descriptor(0x1000, 64, kAccessLocal | kAccessRemoteRead);
  descriptor.device_id = 7;
  const auto handle = world.registry.add(descriptor);
  ASSERT_TRUE(handle) << handle.error().message();
  const auto found = world.registry.find(*handle);
  ASSERT_TRUE(found);
  const Registration& registration = **found;
  EXPECT_EQ(registration.handle(), *handle);
  EXPECT_EQ(registration.range(), range(0x1000, 64));
  EXPECT_EQ(registration.device_id(), 7U);
  EXPECT_EQ(registration.kind(), MemoryKind::kDram);
  EXPECT_EQ(registration.access(), kAccessLocal | kAccessRemoteRead);
  EXPECT_FALSE(registration.fenced());
  EXPECT_NE(registration.key(), base::RegistrationKey());
  EXPECT_EQ(*world.registry.state(*handle), RegistrationState::kLive);
}

TEST(RegistryAdd, GivesEqualRangesHandlesAndKeysOfTheirOwn) {
  World world;
  const Handle first = *world.registry.add(World::descriptor(0x1000, 64));
  const Handle second = *world.registry.add(World::descriptor(0x1000, 64));
  EXPECT_NE(first, second);
  EXPECT_FALSE((*world.registry.find(first))->key() == (*world.registry.find(second))->key());
  EXPECT_EQ(world.registry.covering(range(0x1000, 64)), (std::vector{first, second}));
  EXPECT_EQ(*world.registry.deregister(first), RegistrationState::kRetired);
  EXPECT_EQ(world.registry.covering(range(0x1010, 1)), (std::vector{second}));
  EXPECT_EQ(*world.registry.state(second), RegistrationState::kLive);
}

TEST(RegistryAdd, RefusesBadDescriptors) {
  struct Row {
    std::uint64_t address;
    std::uint64_t length;
    std::uint8_t access;
    std::uint8_t kind;
    ErrorCode code;
    const char* text;
  };
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  constexpr Row kTable[] = {
      {0, 64, kAccessAll, 0, ErrorCode::kInvalidRange, "null"},
      {0x1000, 0, kAccessAll, 0, ErrorCode::kInvalidRange, "0x1000"},
      {kMax, 1, kAccessAll, 0, ErrorCode::kInvalidRange, "overflows"},
      {2, kMax, kAccessAll, 0, ErrorCode::kInvalidRange, "overflows"},
      {1, 1, 0, 0, ErrorCode::kInvalidArgument, "0x0"},
      {1, 1, kAccessRemoteRead | kAccessRemoteWrite, 0, ErrorCode::kInvalidArgument, "0x6"},
      {1, 1, kAccessAll | 8, 0, ErrorCode::kInvalidArgument, "0xf"},
      {1, 1, 0xff, 0, ErrorCode::kInvalidArgument, "0xff"},
      {1, 1, kAccessAll, 1, ErrorCode::kInvalidArgument, "memory kind 1"},
  };
  World world;
  for (const Row& row : kTable) {
    MemoryDescriptor descriptor = World::descriptor(row.address, row.length, row.access);
    descriptor.kind = static_cast<MemoryKind>(row.kind);
    descriptor.retired = [] { FAIL() << "a refused range was retired"; };
    const auto handle = world.registry.add(descriptor);
    ASSERT_FALSE(handle) << row.text;
    EXPECT_EQ(handle.error().code(), row.code) << handle.error().message();
    EXPECT_NE(handle.error().message().find(row.text), std::string::npos)
        << handle.error().message();
  }
  EXPECT_EQ(world.registry.counts().live, 0U);
  EXPECT_EQ(world.registry.counts().bytes_registered, 0U);
  // The largest range there is.
  EXPECT_TRUE(world.registry.add(World::descriptor(1, kMax - 1)));
}

TEST(RegistryQuarantine, OfAllTellsNobodyWhenALoanComesBackLater) {
  World world;
  int told = 0;
  MemoryDescriptor descriptor = World::descriptor(1, 1);
  descriptor.retired = [&told] { ++told; };
  const Handle lent = *world.registry.add(descriptor);
  const Handle idle = *world.registry.add(World::descriptor(2, 1));
  auto loan =
      world.registry.borrow(*world.registry.find(lent), Direction::kRead, Borrower::kRemote);
  ASSERT_TRUE(loan);
  EXPECT_EQ(*world.registry.deregister(lent), RegistrationState::kFenced);
  world.registry.quarantine_all();
  *loan = RangeLoan();
  world.registry.reap();
  EXPECT_EQ(told, 0);
  EXPECT_EQ(*world.registry.state(lent), RegistrationState::kUnquiesced);
  EXPECT_EQ(*world.registry.state(idle), RegistrationState::kUnquiesced);
}

TEST(RegistryAdd, StopsAtTheBudgetAndNamesIt) {
  World world(3);
  EXPECT_TRUE(world.registry.add(World::descriptor(3, 1)));
  world.registry.quarantine_all();
  const Handle live = *world.registry.add(World::descriptor(1, 1));
  const Handle lent = *world.registry.add(World::descriptor(2, 1));
  auto loan = world.registry.borrow(*world.registry.find(lent), Direction::kRead, Borrower::kLocal);
  EXPECT_EQ(*world.registry.deregister(lent), RegistrationState::kFenced);
  const auto refused = world.registry.add(World::descriptor(4, 1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kBudgetExhausted);
  EXPECT_NE(
      refused.error().message().find(
          "registrations: 3 of 3 held, 1 live, 1 fenced, 1 unquiesced (limits.registrations_max)"),
      std::string::npos)
      << refused.error().message();
  // A retirement makes room, a quarantined one never does.
  *loan = RangeLoan();
  world.registry.reap();
  EXPECT_TRUE(world.registry.add(World::descriptor(4, 1)));
  EXPECT_EQ(*world.registry.deregister(live), RegistrationState::kRetired);
  EXPECT_TRUE(world.registry.add(World::descriptor(5, 1)));
  EXPECT_FALSE(world.registry.add(World::descriptor(6, 1)));
}

TEST(RegistryAdd, StopsWhereTheSumOfBytesWouldWrap) {
  World world;
  constexpr std::uint64_t kHalf = std::uint64_t{1} << 63;
  const Handle first = *world.registry.add(World::descriptor(1, kHalf));
  ASSERT_TRUE(world.registry.add(World::descriptor(1, kHalf - 1)));
  const auto refused = world.registry.add(World::descriptor(1, 1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kBudgetExhausted);
  EXPECT_EQ(*world.registry.deregister(first), RegistrationState::kRetired);
  EXPECT_TRUE(world.registry.add(World::descriptor(1, 1)));
}

TEST(RegistryAdd, IsRefusedAfterFenceAll) {
  World world;
  world.registry.fence_all();
  const auto refused = world.registry.add(World::descriptor(1, 1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kEngineClosing);
}

TEST(RegistryHandle, IsNeverGivenTwice) {
  World world(2, 3);
  std::vector<Handle> given;
  // Three generations in each of many slots: a used-up slot is withdrawn for a new one.
  for (int i = 0; i < 30; ++i) {
    const Handle handle = *world.registry.add(World::descriptor(1, 1));
    EXPECT_NE(handle.generation, 0U);
    EXPECT_LE(handle.generation, 3U);
    EXPECT_EQ(std::find(given.begin(), given.end(), handle), given.end());
    given.push_back(handle);
    EXPECT_EQ(*world.registry.deregister(handle), RegistrationState::kRetired);
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto state = world.registry.state(given[i]);
    const bool slot_has_another_owner = given[i].generation < 3;
    EXPECT_EQ(state.has_value(), !slot_has_another_owner) << i;
    EXPECT_FALSE(world.registry.find(given[i]));
  }
  EXPECT_EQ(world.registry.counts().retired_total, 30U);
}

TEST(RegistryHandle, UnknownOnesAreStale) {
  World world;
  const Handle known = *world.registry.add(World::descriptor(1, 1));
  const Handle unknown[] = {
      {},                                   // never given out
      {known.index, 0},                     // no generation
      {known.index, known.generation + 1},  // not yet
      {known.index + 1, known.generation},  // no such slot
      {std::numeric_limits<std::uint32_t>::max(), std::numeric_limits<std::uint32_t>::max()}};
  for (const Handle handle : unknown) {
    EXPECT_EQ(world.registry.state(handle).error().code(), ErrorCode::kStaleHandle);
    EXPECT_EQ(world.registry.find(handle).error().code(), ErrorCode::kStaleHandle);
    EXPECT_EQ(world.registry.deregister(handle).error().code(), ErrorCode::kStaleHandle);
  }
  EXPECT_EQ(*world.registry.state(known), RegistrationState::kLive);
}

TEST(RegistryBorrow, LocalBorrowersNeedNoMoreThanLocalAccess) {
  World world;
  const auto registration =
      *world.registry.find(*world.registry.add(World::descriptor(1, 1, kAccessLocal)));
  for (const Direction direction : {Direction::kRead, Direction::kWrite}) {
    const auto local = world.registry.borrow(registration, direction, Borrower::kLocal);
    ASSERT_TRUE(local);
    EXPECT_EQ(&local->registration(), registration.get());
    EXPECT_EQ(local->direction(), direction);
    const auto remote = world.registry.borrow(registration, direction, Borrower::kRemote);
    ASSERT_FALSE(remote);
    EXPECT_EQ(remote.error().code(), ErrorCode::kNotAllowed);
  }
  EXPECT_EQ(world.registry.counts().loans, 0U);
}

TEST(RegistryBorrow, RemoteBorrowersNeedTheBitOfTheirDirection) {
  constexpr std::uint8_t kBoth = kAccessRemoteRead | kAccessRemoteWrite;
  constexpr std::uint8_t kTable[] = {0, kAccessRemoteRead, kAccessRemoteWrite, kBoth};
  for (const std::uint8_t bits : kTable) {
    World world;
    const auto access = static_cast<std::uint8_t>(kAccessLocal | bits);
    const auto registration =
        *world.registry.find(*world.registry.add(World::descriptor(1, 1, access)));
    for (const Direction direction : {Direction::kRead, Direction::kWrite}) {
      const bool allowed =
          (bits & (direction == Direction::kRead ? kAccessRemoteRead : kAccessRemoteWrite)) != 0;
      const auto by_pointer = world.registry.borrow(registration, direction, Borrower::kRemote);
      const auto by_handle =
          world.registry.borrow_remote(registration->handle(), registration->key(), direction);
      EXPECT_EQ(by_pointer.has_value(), allowed) << unsigned{access};
      EXPECT_EQ(by_handle.has_value(), allowed) << unsigned{access};
      if (!allowed) {
        EXPECT_EQ(by_pointer.error().code(), ErrorCode::kNotAllowed);
        EXPECT_EQ(by_handle.error().code(), ErrorCode::kNotAllowed);
      }
    }
  }
}

TEST(RegistryBorrowRemote, NeedsEveryBitOfTheKey) {
  World world;
  const Handle handle = *world.registry.add(World::descriptor(1, 1));
  const base::RegistrationKey key = (*world.registry.find(handle))->key();
  EXPECT_TRUE(world.registry.borrow_remote(handle, key, Direction::kWrite));
  for (std::size_t bit = 0; bit < 8 * key.bytes.size(); ++bit) {
    base::RegistrationKey wrong = key;
    wrong.bytes[bit / 8] = static_cast<std::uint8_t>(wrong.bytes[bit / 8] ^ (1U << (bit % 8)));
    const auto loan = world.registry.borrow_remote(handle, wrong, Direction::kWrite);
    ASSERT_FALSE(loan) << bit;
    EXPECT_EQ(loan.error().code(), ErrorCode::kNotAllowed);
  }
  // A stranger does not learn that it was fenced.
  auto loan = world.registry.borrow_remote(handle, key, Direction::kRead);
  ASSERT_TRUE(loan);
  EXPECT_EQ(*world.registry.deregister(handle), RegistrationState::kFenced);
  EXPECT_EQ(world.registry.borrow_remote(handle, {}, Direction::kRead).error().code(),
            ErrorCode::kNotAllowed);
  EXPECT_EQ(world.registry.borrow_remote(handle, key, Direction::kRead).error().code(),
            ErrorCode::kRegistrationFenced);
}

TEST(RegistryBorrowRemote, TellsAnUnknownSlotFromAnotherGeneration) {
  World world(1);
  const auto remote = [&](Handle handle) {
    return world.registry.borrow_remote(handle, {}, Direction::kRead).error().code();
  };
  EXPECT_EQ(remote({0, 1}), ErrorCode::kRegistrationFenced);
  const Handle first = *world.registry.add(World::descriptor(1, 1));
  EXPECT_EQ(remote({first.index + 1, 1}), ErrorCode::kRegistrationFenced);
  EXPECT_EQ(remote({first.index, first.generation + 1}), ErrorCode::kRegistrationChanged);
  EXPECT_EQ(remote({first.index, 0}), ErrorCode::kRegistrationChanged);
  EXPECT_EQ(*world.registry.deregister(first), RegistrationState::kRetired);
  EXPECT_EQ(remote(first), ErrorCode::kRegistrationFenced);
  const Handle second = *world.registry.add(World::descriptor(1, 1));
  EXPECT_EQ(second.index, first.index);
  EXPECT_EQ(remote(first), ErrorCode::kRegistrationChanged);
}

TEST(RangeLoan, MovesWithoutCounting) {
  World world;
  const auto registration = *world.registry.find(*world.registry.add(World::descriptor(1, 1)));
  const auto other = *world.registry.find(*world.registry.add(World::descriptor(2, 1)));
  const auto loans = [&] { return world.registry.counts().loans; };
  RangeLoan first = *world.registry.borrow(registration, Direction::kWrite, Borrower::kLocal);
  EXPECT_TRUE(first);
  RangeLoan second = std::move(first);
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): that it is empty is the contract
  EXPECT_TRUE(second);
  EXPECT_EQ(second.direction(), Direction::kWrite);
  EXPECT_EQ(loans(), 1U);
  RangeLoan third = *world.registry.borrow(other, Direction::kRead, Borrower::kLocal);
  EXPECT_EQ(loans(), 2U);
  third = std::move(second);  // gives back what it held
  EXPECT_EQ(loans(), 1U);
  EXPECT_EQ(&third.registration(), registration.get());
  RangeLoan& same = third;
  third = std::move(same);
  EXPECT_TRUE(third);
  EXPECT_EQ(loans(), 1U);
  third = RangeLoan();
  EXPECT_FALSE(third);
  EXPECT_EQ(loans(), 0U);
}

TEST(RangeLoanDeathTest, AnEmptyOneHasNoRegistration) {
  const RangeLoan empty;
  EXPECT_DEATH(static_cast<void>(empty.registration()), "check failed");
}

TEST(RegistryDeregister, DefersRetirementUntilTheLastLoanIsBack) {
  World world;
  const auto calls = std::make_shared<int>(0);
  const Handle handle = *world.registry.add(World::counting(1, 1, calls));
  const auto registration = *world.registry.find(handle);
  auto first = world.registry.borrow(registration, Direction::kRead, Borrower::kLocal);
  auto second = world.registry.borrow_remote(handle, registration->key(), Direction::kWrite);
  ASSERT_TRUE(first);
  ASSERT_TRUE(second);
  EXPECT_EQ(*world.registry.deregister(handle), RegistrationState::kFenced);
  EXPECT_TRUE(registration->fenced());
  *second = RangeLoan();
  world.registry.reap();
  EXPECT_EQ(*calls, 0);
  EXPECT_EQ(*world.registry.state(handle), RegistrationState::kFenced);
  EXPECT_EQ(world.registry.counts().fenced, 1U);
  *first = RangeLoan();
  EXPECT_EQ(*calls, 0) << "a loan's destructor called back";
  EXPECT_EQ(*world.registry.state(handle), RegistrationState::kRetired);
  EXPECT_EQ(*calls, 1);
  world.registry.reap();
  EXPECT_EQ(*world.registry.deregister(handle), RegistrationState::kRetired);
  EXPECT_EQ(*calls, 1);
  // Nothing is kept of the callback, though the facts are still readable.
  EXPECT_EQ(calls.use_count(), 1);
  EXPECT_EQ(registration->range(), range(1, 1));
}

TEST(RegistryRetired, RunsWithNoLockAndBeforeTheStateIsShown) {
  World world;
  Handle handle;
  std::optional<RegistrationState> seen;
  std::uint64_t held = 0;
  MemoryDescriptor descriptor = World::descriptor(1, 1);
  descriptor.retired = [&] {
    // Deadlocks when a lock is held.
    seen = *world.registry.state(handle);
    held = world.registry.counts().fenced;
  };
  handle = *world.registry.add(descriptor);
  EXPECT_EQ(*world.registry.deregister(handle), RegistrationState::kRetired);
  EXPECT_EQ(seen, RegistrationState::kFenced);
  EXPECT_EQ(held, 1U);
}

TEST(RegistryRetired, DestroysItsCapturesWithNoLock) {
  struct Asks {
    Registry* registry;
    std::uint64_t* answer;
    Asks(Registry* asked, std::uint64_t* where) : registry(asked), answer(where) {}
    Asks(const Asks&) = delete;
    Asks& operator=(const Asks&) = delete;
    ~Asks() { *answer = registry->counts().fenced; }
  };
  World world;
  std::uint64_t answer = 0;
  MemoryDescriptor descriptor = World::descriptor(1, 1);
  descriptor.retired = [asks = std::make_shared<Asks>(&world.registry, &answer)] {};
  const Handle handle = *world.registry.add(descriptor);
  descriptor.retired = nullptr;
  EXPECT_EQ(*world.registry.deregister(handle), RegistrationState::kRetired);
  EXPECT_EQ(answer, 1U);
}

TEST(RegistryRetired, AThrowingCallbackIsLoggedAndTheOthersAreCalled) {
  std::vector<std::string> lines;
  base::set_log_sink([&](base::LogLevel, std::string_view line) { lines.emplace_back(line); });
  const auto calls = std::make_shared<int>(0);
  {
    World world;
    for (int i = 0; i < 3; ++i) {
      MemoryDescriptor descriptor = World::descriptor(1, 1);
      descriptor.retired = [calls, i] {
        ++*calls;
        if (i == 0) {
          throw std::runtime_error("broken promise");
        }
        if (i == 1) {
          throw 1;
        }
      };
      ASSERT_TRUE(world.registry.add(descriptor));
    }
    world.registry.fence_all();
    EXPECT_EQ(world.registry.counts().retired_total, 3U);
  }
  base::set_log_sink(nullptr);
  EXPECT_EQ(*calls, 3);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_NE((lines[0] + lines[1]).find("broken promise"), std::string::npos);
}

TEST(RegistryQuarantine, KeepsSlotAndChargeForEver) {
  World world(2);
  const auto calls = std::make_shared<int>(0);
  const Handle handle = *world.registry.add(World::counting(1, 100, calls));
  auto loan =
      world.registry.borrow(*world.registry.find(handle), Direction::kRead, Borrower::kLocal);
  EXPECT_EQ(*world.registry.deregister(handle), RegistrationState::kFenced);
  world.registry.quarantine_all();
  world.registry.quarantine_all();
  *loan = RangeLoan();
  world.registry.reap();
  world.registry.fence_all();
  EXPECT_EQ(*world.registry.state(handle), RegistrationState::kUnquiesced);
  const auto counts = world.registry.counts();
  EXPECT_EQ(counts.unquiesced, 1U);
  EXPECT_EQ(counts.bytes_registered, 100U);
  EXPECT_EQ(counts.retired_total, 0U);
  EXPECT_EQ(*calls, 0);
}

TEST(RegistryQuarantine, WinsOverARetirementThatHasNotBegun) {
  World world;
  const auto calls = std::make_shared<int>(0);
  const Handle handle = *world.registry.add(World::counting(1, 1, calls));
  auto loan =
      world.registry.borrow(*world.registry.find(handle), Direction::kRead, Borrower::kLocal);
  EXPECT_EQ(*world.registry.deregister(handle), RegistrationState::kFenced);
  *loan = RangeLoan();
  world.registry.quarantine_all();
  EXPECT_EQ(*world.registry.state(handle), RegistrationState::kUnquiesced);
  EXPECT_EQ(*calls, 0);
}

TEST(RegistryQuarantine, ComesTooLateForARetirementThatHasBegun) {
  World world;
  Handle handle;
  MemoryDescriptor descriptor = World::descriptor(1, 1);
  descriptor.retired = [&] { world.registry.quarantine_all(); };
  handle = *world.registry.add(descriptor);
  EXPECT_EQ(*world.registry.deregister(handle), RegistrationState::kRetired);
  EXPECT_EQ(world.registry.counts().unquiesced, 0U);
}

TEST(RegistryFenceAll, FencesEverythingAndRetiresWhatIsFree) {
  World world;
  const auto calls = std::make_shared<int>(0);
  const Handle lent = *world.registry.add(World::counting(1, 10, calls));
  auto loan = world.registry.borrow(*world.registry.find(lent), Direction::kRead, Borrower::kLocal);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(world.registry.add(World::counting(1, 10, calls)));
  }
  world.registry.fence_all();
  world.registry.fence_all();
  EXPECT_EQ(*calls, 5);
  auto counts = world.registry.counts();
  EXPECT_EQ(counts.live, 0U);
  EXPECT_EQ(counts.fenced, 1U);
  EXPECT_EQ(counts.loans, 1U);
  EXPECT_EQ(counts.bytes_registered, 10U);
  EXPECT_TRUE(world.registry.covering(range(1, 1)).empty());
  *loan = RangeLoan();
  world.registry.reap();
  counts = world.registry.counts();
  EXPECT_EQ(*calls, 6);
  EXPECT_EQ(counts.fenced, 0U);
  EXPECT_EQ(counts.bytes_registered, 0U);
  EXPECT_EQ(counts.retired_total, 6U);
}

TEST(RegistryDestructor, RetiresWhatIsFree) {
  const auto calls = std::make_shared<int>(0);
  std::shared_ptr<Registration> registration;
  {
    World world;
    registration = *world.registry.find(*world.registry.add(World::counting(7, 1, calls)));
  }
  EXPECT_EQ(*calls, 1);
  EXPECT_EQ(calls.use_count(), 1);
  EXPECT_TRUE(registration->fenced());
  EXPECT_EQ(registration->range(), range(7, 1));
}

TEST(RegistryDestructor, LeavesWhatIsLentInMemory) {
  std::vector<std::string> lines;
  base::set_log_sink([&](base::LogLevel, std::string_view line) { lines.emplace_back(line); });
  const auto calls = std::make_shared<int>(0);
  RangeLoan loan;
  {
    World world;
    const Handle handle = *world.registry.add(World::counting(7, 1, calls));
    loan = *world.registry.borrow(*world.registry.find(handle), Direction::kRead, Borrower::kLocal);
    ASSERT_TRUE(world.registry.add(World::counting(8, 1, calls)));
  }
  base::set_log_sink(nullptr);
  EXPECT_EQ(*calls, 1);
  EXPECT_EQ(loan.registration().range(), range(7, 1));
  EXPECT_TRUE(loan.registration().fenced());
  loan = RangeLoan();
  EXPECT_EQ(*calls, 1);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("1 registrations fenced (1 loans out) and 0 unquiesced"),
            std::string::npos)
      << lines[0];
}

// The table of the design note.

/// One registration in a state of the table, with everything needed to do an event to it.
class Case {
 public:
  explicit Case(const std::string& state) {
    handle_ = *world_.registry.add(World::counting(0x1000, 64, calls_));
    registration_ = *world_.registry.find(handle_);
    if (state == "lent" || state == "fenced" || state == "unquiesced") {
      loan_ = *world_.registry.borrow(registration_, Direction::kRead, Borrower::kLocal);
    }
    if (state == "fenced" || state == "retired" || state == "reused") {
      EXPECT_TRUE(world_.registry.deregister(handle_));
    }
    if (state == "reused") {
      EXPECT_TRUE(world_.registry.add(World::descriptor(0x2000, 64)));
    }
    if (state == "unquiesced") {
      world_.registry.quarantine_all();
    }
  }

  std::string apply(const std::string& event) {
    Registry& registry = world_.registry;
    if (event == "find") {
      return answer(registry.find(handle_));
    }
    if (event == "borrow") {
      return keep(registry.borrow(registration_, Direction::kWrite, Borrower::kLocal));
    }
    if (event == "borrow_remote") {
      return keep(registry.borrow_remote(handle_, registration_->key(), Direction::kWrite));
    }
    if (event == "covering") {
      const auto found = registry.covering(registration_->range());
      return std::find(found.begin(), found.end(), handle_) == found.end() ? "no" : "yes";
    }
    if (event == "deregister") {
      const auto state = registry.deregister(handle_);
      return state ? state_name(*state) : std::string(error_name(state.error().code()));
    }
    if (event == "loan back") {
      loan_ = RangeLoan();
      registry.reap();
      return "ok";
    }
    if (event == "quarantine") {
      registry.quarantine_all();
      return "ok";
    }
    EXPECT_EQ(event, "fence_all");
    registry.fence_all();
    return "ok";
  }

  [[nodiscard]] std::string state() const {
    const auto state = world_.registry.state(handle_);
    if (!state) {
      return "reused";
    }
    if (*state == RegistrationState::kLive) {
      return world_.registry.counts().loans == 0 ? "live" : "lent";
    }
    return state_name(*state);
  }
  [[nodiscard]] int retired_calls() const { return *calls_; }

 private:
  static std::string state_name(RegistrationState state) {
    constexpr const char* kNames[] = {"live", "fenced", "retired", "unquiesced"};
    return kNames[static_cast<std::size_t>(state)];
  }
  template <typename T>
  static std::string answer(const Result<T>& result) {
    return result ? "ok" : std::string(error_name(result.error().code()));
  }
  std::string keep(Result<RangeLoan> result) {
    const std::string text = answer(result);
    if (result) {
      second_loan_ = std::move(*result);
    }
    return text;
  }

  World world_;
  std::shared_ptr<int> calls_ = std::make_shared<int>(0);
  Handle handle_;
  std::shared_ptr<Registration> registration_;
  RangeLoan loan_;
  RangeLoan second_loan_;
};

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream stream(line.substr(1));
  for (std::string cell; std::getline(stream, cell, '|');) {
    const std::size_t first = cell.find_first_not_of(' ');
    const std::size_t last = cell.find_last_not_of(' ');
    cells.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
  }
  return cells;
}

TEST(RegistryStates, AreThoseOfTheDesignNote) {
  std::ifstream note(ORBITE_MEMORY_NOTE);
  ASSERT_TRUE(note) << ORBITE_MEMORY_NOTE;
  std::vector<std::vector<std::string>> table;
  for (std::string line; std::getline(note, line);) {
    if (line.rfind("| ", 0) == 0) {
      table.push_back(cells_of(line));
    }
  }
  ASSERT_EQ(table.size(), 7U);
  ASSERT_EQ(table[0].size(), 9U);
  int done = 0;
  for (std::size_t row = 1; row < table.size(); ++row) {
    ASSERT_EQ(table[row].size(), table[0].size());
    for (std::size_t column = 1; column < table[row].size(); ++column) {
      const std::string& before = table[row][0];
      const std::string& cell = table[row][column];
      SCOPED_TRACE(before + ", " + table[0][column]);
      Case subject(before);
      ASSERT_EQ(subject.state(), before);
      if (cell == "–") {
        continue;
      }
      const std::string arrow = " → ";
      const std::size_t at = cell.find(arrow);
      const std::string after = at == std::string::npos ? before : cell.substr(at + arrow.size());
      EXPECT_EQ(subject.apply(table[0][column]), cell.substr(0, at));
      EXPECT_EQ(subject.state(), after);
      EXPECT_EQ(subject.retired_calls(), after == "retired" || after == "reused" ? 1 : 0);
      ++done;
    }
  }
  EXPECT_EQ(done, 45);
}

}  // namespace
}  // namespace orbite::memory
