// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "memory/registry.hpp"
#include "sim/allocation_fault.hpp"
#include "unit/memory/fixture.hpp"

namespace orbite::memory {
namespace {

using testing::range;
using testing::World;

/// The answer of `call` when its allocation number `number` fails.
template <typename Call>
auto with_failure(int number, Call&& call) {
  const sim::AllocationFault fault(static_cast<std::uint64_t>(number), 1);
  return call();
}

TEST(RegistryAddAllocation, AFailureAtAnyPointLeavesNothing) {
  World world(1000);
  const auto calls = std::make_shared<int>(0);
  std::vector<Handle> added;
  // So many that both tables are full at times.
  int failures_max = 0;
  for (int i = 0; i < 40; ++i) {
    MemoryDescriptor descriptor = World::descriptor(0x1000, 64);
    // A capture that needs memory of its own.
    descriptor.retired = [calls, padding = std::array<std::uint64_t, 8>()] { ++*calls; };
    int failures = 0;
    for (;; ++failures) {
      ASSERT_LT(failures, 20);
      const auto handle = with_failure(failures, [&] { return world.registry.add(descriptor); });
      if (handle) {
        added.push_back(*handle);
        break;
      }
      ASSERT_EQ(handle.error().code(), ErrorCode::kOutOfMemory);
      const auto counts = world.registry.counts();
      ASSERT_EQ(counts.live, added.size());
      ASSERT_EQ(counts.bytes_registered, 64 * added.size());
      ASSERT_EQ(world.registry.covering(range(0x1000, 64)), added);
      ASSERT_EQ(*calls, 0);
    }
    failures_max = std::max(failures_max, failures);
    EXPECT_EQ(added.back(), (Handle{static_cast<std::uint32_t>(i), 1}));
  }
  // The registration, its callback, and room in both tables.
  EXPECT_GE(failures_max, 4);
  world.registry.fence_all();
  EXPECT_EQ(*calls, 40);
}

TEST(RegistryAllocation, OnlyAddAndCoveringAllocate) {
  World world;
  const Handle handle = *world.registry.add(World::descriptor(1, 1));
  EXPECT_TRUE(world.registry.add(World::descriptor(1, 1)));
  std::optional<sim::AllocationFault> fault;
  fault.emplace(0, UINT64_MAX);
  const auto registration = world.registry.find(handle);
  auto first = world.registry.borrow(*registration, Direction::kRead, Borrower::kLocal);
  auto second = world.registry.borrow_remote(handle, (*registration)->key(), Direction::kWrite);
  const auto fenced = world.registry.deregister(handle);
  const auto refused = world.registry.borrow(*registration, Direction::kRead, Borrower::kLocal);
  *first = RangeLoan();
  *second = RangeLoan();
  world.registry.reap();
  world.registry.quarantine_all();
  const auto state = world.registry.state(handle);
  const auto counts = world.registry.counts();
  world.registry.fence_all();
  fault.reset();
  EXPECT_EQ(*fenced, RegistrationState::kFenced);
  EXPECT_FALSE(refused);
  EXPECT_EQ(*state, RegistrationState::kRetired);
  EXPECT_EQ(counts.unquiesced, 1U);
}

}  // namespace
}  // namespace orbite::memory
