// SPDX-License-Identifier: Apache-2.0
// Small work that its caller moves himself: Planner::begin and Transport::carry.
#include <gtest/gtest.h>

#include <cerrno>
#include <optional>

#include "sim/allocation_fault.hpp"
#include "unit/transfer/execution_world.hpp"

namespace orbite::transfer {
namespace {

using testing::FakeTransport;
using testing::World;

constexpr auto kLatency = policy::QosClass::kLatency;
constexpr auto kBulk = policy::QosClass::kBulk;

class Carry : public ::testing::Test {
 protected:
  Carry() {
    world_.transport.carry_with = [](const Slice& slice) { return FakeTransport::whole(slice); };
  }
  std::shared_ptr<Execution> begin(const World::Work& work) {
    auto execution = world_.make(work);
    world_.planner.begin(world_.transport, *world_.flow, execution);
    return execution;
  }
  void refuse_to_carry() {
    world_.transport.carry_with = [](const Slice&) { return std::optional<SliceResult>(); };
  }
  void TearDown() override {
    while (!world_.transport.accepted.empty()) {
      world_.transport.finish_front();
    }
    EXPECT_EQ(world_.planner.slices_out(), 0U);
    EXPECT_FALSE(world_.planner.waiting(*world_.flow));
    EXPECT_EQ(world_.held(), 0U);
  }

  World world_;
};

TEST_F(Carry, SmallWorkIsOverOnReturnAndPassesWhatWaits) {
  world_.transport.room = {0, 0};
  const auto waiting = begin({.extents = {50}, .qos = kBulk});
  const auto small = begin({.extents = {50, 20}, .qos = kLatency});
  EXPECT_TRUE(small->succeeded());
  EXPECT_EQ(small->outcome().bytes_prefix, 70U);
  EXPECT_EQ(world_.planner.slices_out(), 0U);
  EXPECT_FALSE(waiting->terminal());
  ASSERT_EQ(world_.endings.size(), 1U);
  EXPECT_TRUE(world_.endings[0].published);
  world_.transport.room = {10, 10};
  world_.planner.pump(world_.transport, *world_.flow);
}

TEST_F(Carry, TakesItsNotificationAlong) {
  const auto small = begin({.extents = {50}, .notifies = true, .qos = kLatency});
  EXPECT_TRUE(small->succeeded());
}

TEST_F(Carry, ANotificationThatCannotGoAlongFollowsByTheQueue) {
  const auto read =
      begin({.extents = {50}, .operation = Operation::kRead, .notifies = true, .qos = kLatency});
  EXPECT_FALSE(read->terminal());
  EXPECT_TRUE(read->only_notifies());
  ASSERT_EQ(world_.transport.accepted.size(), 1U);
  EXPECT_TRUE(world_.transport.accepted.front()->carries_notification);
  world_.transport.finish_front();
  EXPECT_TRUE(read->succeeded());
}

TEST_F(Carry, BulkAndWhatMayNotFitASliceAreQueued) {
  world_.transport.limits = {100, 4, 3};
  begin({.extents = {50}, .qos = kBulk});
  begin({.extents = {101}, .qos = kLatency});            // bytes
  begin({.extents = {1, 1, 1, 1, 1}, .qos = kLatency});  // extents
  begin({.extents = {1, 1, 1, 1}, .qos = kLatency});     // owners, if each had one
  EXPECT_EQ(world_.transport.carry_calls, 0);
  EXPECT_EQ(world_.transport.accepted.size(), 6U);
  EXPECT_TRUE(begin({.extents = {1, 98, 1}, .qos = kLatency})->succeeded());
}

TEST_F(Carry, AFailureTellsItsPrefix) {
  world_.transport.carry_with = [](const Slice&) {
    return SliceResult{ErrorCode::kPeerDisconnected, ESRCH, 20, RemoteEffect::kPrefix, false};
  };
  const Outcome outcome = begin({.extents = {50}, .qos = kLatency})->outcome();
  EXPECT_EQ(outcome.logical, Logical::kFailed);
  EXPECT_EQ(outcome.code, ErrorCode::kPeerDisconnected);
  EXPECT_EQ(outcome.native_errno, ESRCH);
  EXPECT_EQ(outcome.bytes_prefix, 20U);
  EXPECT_EQ(outcome.effect, RemoteEffect::kPrefix);
  EXPECT_TRUE(outcome.terminal());
}

TEST_F(Carry, WhatCannotBeCarriedNowIsHandedToTheTransport) {
  refuse_to_carry();
  const auto small = begin({.extents = {50}, .qos = kLatency});
  EXPECT_FALSE(small->terminal());
  ASSERT_EQ(world_.transport.accepted.size(), 1U);
  EXPECT_EQ(world_.transport.accepted.front()->bytes, 50U);
  world_.transport.finish_front();
  EXPECT_TRUE(small->succeeded());
}

TEST_F(Carry, WhatNobodyTakesFailsWithoutEffect) {
  refuse_to_carry();
  world_.transport.refuse_next = Error(ErrorCode::kPeerDisconnected);
  const Outcome outcome = begin({.extents = {50}, .qos = kLatency})->outcome();
  EXPECT_EQ(outcome.code, ErrorCode::kPeerDisconnected);
  EXPECT_EQ(outcome.effect, RemoteEffect::kNone);
  EXPECT_TRUE(outcome.terminal());
}

TEST_F(Carry, FailsWhereThereIsNoMemoryToWait) {
  refuse_to_carry();
  begin({.extents = {50}, .qos = kLatency});  // has the slice that there is
  const auto small = world_.make({.extents = {50}, .qos = kLatency});
  {
    const sim::AllocationFault fault(0, UINT64_MAX);
    world_.planner.begin(world_.transport, *world_.flow, small);
  }
  EXPECT_EQ(small->outcome().code, ErrorCode::kOutOfMemory);
  EXPECT_TRUE(small->outcome().terminal());
}

TEST_F(Carry, WhatWasStoppedBeforeIsNotBegun) {
  const auto small = world_.make({.extents = {50}, .qos = kLatency});
  small->stop(ErrorCode::kCanceled);
  world_.planner.begin(world_.transport, *world_.flow, small);
  EXPECT_EQ(world_.transport.carry_calls, 0);
  EXPECT_EQ(small->outcome().logical, Logical::kCanceled);
}

}  // namespace
}  // namespace orbite::transfer
