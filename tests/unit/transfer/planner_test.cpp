// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <map>
#include <vector>

#include "unit/transfer/execution_world.hpp"

namespace orbite::transfer {
namespace {

using testing::FakeTransport;
using testing::World;

constexpr auto kLatency = policy::QosClass::kLatency;
constexpr auto kBulk = policy::QosClass::kBulk;

class PlannerTest : public ::testing::Test {
 protected:
  std::shared_ptr<Execution> enqueue(const World::Work& work) {
    auto execution = world_.make(work);
    world_.planner.enqueue(*world_.flow, execution);
    return execution;
  }
  void pump() { world_.planner.pump(world_.transport, *world_.flow); }
  [[nodiscard]] std::vector<const Execution*> accepted() const {
    std::vector<const Execution*> owners;
    for (const Slice* const slice : world_.transport.accepted) {
      owners.push_back(slice->execution.get());
    }
    return owners;
  }
  void set_room(policy::QosClass qos, int slices) {
    world_.transport.room.at(static_cast<std::size_t>(qos)) = slices;
  }
  void TearDown() override {
    set_room(kBulk, 1000);
    set_room(kLatency, 1000);
    pump();
    while (!world_.transport.accepted.empty()) {
      world_.transport.finish_front();
    }
    EXPECT_EQ(world_.planner.slices_out(), 0U);
    EXPECT_FALSE(world_.planner.waiting(*world_.flow));
    EXPECT_EQ(world_.held(), 0U);
  }

  World world_;
};

TEST_F(PlannerTest, HandsOutNothingBeforeItIsAsked) {
  enqueue({.extents = {50}});
  EXPECT_TRUE(world_.planner.waiting(*world_.flow));
  EXPECT_TRUE(accepted().empty());
  pump();
  EXPECT_EQ(accepted().size(), 1U);
  EXPECT_FALSE(world_.planner.waiting(*world_.flow));
}

TEST_F(PlannerTest, ServesFirstComeFirst) {
  const auto a = enqueue({.extents = {250}});
  const auto b = enqueue({.extents = {150}});
  pump();
  EXPECT_EQ(accepted(),
            (std::vector<const Execution*>{a.get(), a.get(), a.get(), b.get(), b.get()}));
}

TEST_F(PlannerTest, WithoutMemoryForASliceItsExecutionFailsWithWhatIsOnItsWay) {
  const auto first = enqueue({.extents = {100'000}});
  const auto second = enqueue({.extents = {50}});
  {
    const sim::AllocationFault fault(0, UINT64_MAX);
    pump();
    EXPECT_GE(fault.failed(), 2U);
  }
  EXPECT_FALSE(world_.planner.waiting(*world_.flow));
  EXPECT_TRUE(second->terminal());
  EXPECT_EQ(second->outcome().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(second->outcome().effect, RemoteEffect::kNone);
  const std::size_t handed_out = world_.transport.accepted.size();
  EXPECT_EQ(first->terminal(), handed_out == 0);
  while (!world_.transport.accepted.empty()) {
    world_.transport.finish_front();
  }
  EXPECT_TRUE(first->terminal());
  EXPECT_EQ(first->outcome().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(first->outcome().bytes_prefix, handed_out * 100);
  EXPECT_EQ(first->outcome().effect, handed_out == 0 ? RemoteEffect::kNone : RemoteEffect::kPrefix);
}

TEST_F(PlannerTest, QueuesAndForgetsWithoutMemory) {
  const auto first = world_.make({.extents = {250}});
  const auto second = world_.make({.extents = {250}});
  const sim::AllocationFault fault(0, UINT64_MAX);
  for (int round = 0; round < 3; ++round) {
    world_.planner.enqueue(*world_.flow, first);
    world_.planner.enqueue(*world_.flow, second);
    world_.planner.forget(*first);
    world_.planner.forget(*second);
  }
  EXPECT_FALSE(world_.planner.waiting(*world_.flow));
  first->stop(ErrorCode::kCanceled);
  second->stop(ErrorCode::kCanceled);
  EXPECT_TRUE(first->terminal());
  EXPECT_EQ(fault.seen(), 0U);
}

TEST_F(PlannerTest, LetsNeitherClassWaitForTheOther) {
  set_room(kBulk, 0);
  enqueue({.extents = {250}});
  const auto small = enqueue({.extents = {10}, .qos = kLatency});
  pump();
  EXPECT_EQ(accepted(), std::vector<const Execution*>{small.get()});
  EXPECT_TRUE(world_.planner.waiting(*world_.flow));
}

TEST_F(PlannerTest, StopsWithoutRoomAndGoesOnWhereItStopped) {
  set_room(kBulk, 2);
  const auto a = enqueue({.extents = {350}});
  const auto b = enqueue({.extents = {50}});
  pump();
  ASSERT_EQ(accepted().size(), 2U);
  pump();
  ASSERT_EQ(accepted().size(), 2U);
  set_room(kBulk, 100);
  pump();
  EXPECT_EQ(accepted(),
            (std::vector<const Execution*>{a.get(), a.get(), a.get(), a.get(), b.get()}));
  std::uint64_t offset = 0;
  for (const Slice* const slice : world_.transport.accepted) {
    if (slice->execution == a) {
      EXPECT_EQ(slice->offset, offset);
      offset += slice->bytes;
    }
  }
  EXPECT_EQ(offset, 350U);
}

TEST_F(PlannerTest, GoesOnByItselfWithTheRoomThatARetirementFrees) {
  set_room(kBulk, 1);
  const auto a = enqueue({.extents = {300}});
  pump();
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(accepted().size(), 1U);
    set_room(kBulk, 1);
    world_.transport.finish_front();
  }
  ASSERT_EQ(accepted().size(), 1U);
  EXPECT_FALSE(a->terminal());
  world_.transport.finish_front();
  EXPECT_TRUE(a->terminal());
}

TEST_F(PlannerTest, ForgetsAStoppedExecution) {
  set_room(kBulk, 1);
  const auto a = enqueue({.extents = {300}});
  const auto b = enqueue({.extents = {50}});
  pump();
  a->stop(ErrorCode::kCanceled);
  world_.planner.forget(*a);
  set_room(kBulk, 10);
  pump();
  EXPECT_EQ(accepted(), (std::vector<const Execution*>{a.get(), b.get()}));
  EXPECT_FALSE(a->terminal());
}

TEST_F(PlannerTest, SkipsAStoppedExecutionThatNobodyForgot) {
  const auto a = enqueue({.extents = {300}});
  const auto b = enqueue({.extents = {50}});
  a->stop(ErrorCode::kDeadlineExceeded);
  EXPECT_TRUE(a->terminal());
  pump();
  EXPECT_EQ(accepted(), std::vector<const Execution*>{b.get()});
}

TEST_F(PlannerTest, RetiresASliceThatTheTransportRefused) {
  const auto a = enqueue({.extents = {300}, .notifies = true});
  const auto b = enqueue({.extents = {50}});
  world_.transport.refuse_next = Error(ErrorCode::kPeerUnreachable, ENETUNREACH);
  pump();
  ASSERT_TRUE(a->terminal());
  const Outcome outcome = a->outcome();
  EXPECT_EQ(outcome.logical, Logical::kFailed);
  EXPECT_EQ(outcome.code, ErrorCode::kPeerUnreachable);
  EXPECT_EQ(outcome.native_errno, ENETUNREACH);
  EXPECT_EQ(outcome.effect, RemoteEffect::kNone);
  EXPECT_EQ(accepted(), std::vector<const Execution*>{b.get()});
  EXPECT_EQ(world_.planner.slices_out(), 1U);
}

TEST_F(PlannerTest, KeepsTheEffectOfWhatWasAcceptedBeforeARefusal) {
  const auto a = enqueue({.extents = {300}});
  set_room(kBulk, 1);
  pump();
  world_.transport.refuse_next = Error(ErrorCode::kBudgetExhausted);
  set_room(kBulk, 5);
  pump();
  EXPECT_EQ(a->outcome().logical, Logical::kFailed);
  EXPECT_FALSE(a->terminal());
  ASSERT_EQ(accepted().size(), 1U);
  world_.transport.finish_front();
  EXPECT_TRUE(a->terminal());
  EXPECT_EQ(a->outcome().effect, RemoteEffect::kPrefix);
  EXPECT_EQ(a->outcome().bytes_prefix, 100U);
}

TEST_F(PlannerTest, LetsADueNotificationNeverWaitBehindBulk) {
  const auto a = enqueue({.extents = {50}, .operation = Operation::kRead, .notifies = true});
  pump();
  EXPECT_EQ(world_.transport.accepted.front()->qos, kBulk);
  set_room(kBulk, 0);
  enqueue({.extents = {50}});
  world_.transport.finish_front();
  ASSERT_EQ(accepted(), std::vector<const Execution*>{a.get()});
  EXPECT_TRUE(world_.transport.accepted.back()->carries_notification);
  EXPECT_EQ(world_.transport.accepted.back()->qos, kLatency);
}

TEST_F(PlannerTest, PutsADueNotificationBehindOtherLatencyWork) {
  const auto a =
      enqueue({.extents = {50}, .operation = Operation::kRead, .notifies = true, .qos = kLatency});
  pump();
  set_room(kLatency, 0);
  const auto b = enqueue({.extents = {50}, .qos = kLatency});
  world_.transport.finish_front();
  EXPECT_TRUE(accepted().empty());
  EXPECT_FALSE(a->terminal());
  set_room(kLatency, 10);
  pump();
  EXPECT_EQ(accepted(), (std::vector<const Execution*>{b.get(), a.get()}));
}

TEST_F(PlannerTest, ForgetsANotificationThatIsDue) {
  const auto a = enqueue({.extents = {50}, .operation = Operation::kRead, .notifies = true});
  pump();
  set_room(kLatency, 0);
  world_.transport.finish_front();
  EXPECT_TRUE(world_.planner.waiting(*world_.flow));
  a->stop(ErrorCode::kCanceled);
  EXPECT_TRUE(a->terminal());
  EXPECT_EQ(a->outcome().effect, RemoteEffect::kComplete);
  world_.planner.forget(*a);
  world_.planner.forget(*a);
  EXPECT_FALSE(world_.planner.waiting(*world_.flow));
}

TEST_F(PlannerTest, TakesNoStoppedExecutionIn) {
  const auto a = world_.make({.extents = {50}});
  a->stop(ErrorCode::kCanceled);
  world_.planner.enqueue(*world_.flow, a);
  EXPECT_FALSE(world_.planner.waiting(*world_.flow));
}

TEST_F(PlannerTest, UsesASliceAgainOnlyAfterItsRetirement) {
  enqueue({.extents = {50}});
  enqueue({.extents = {50}});
  pump();
  Slice* const first = world_.transport.accepted.front();
  EXPECT_NE(first, world_.transport.accepted.back());
  FakeTransport::complete_with(*first, FakeTransport::whole(*first));
  enqueue({.extents = {50}});
  pump();
  EXPECT_NE(world_.transport.accepted.back(), first);
  world_.transport.accepted.pop_front();
  world_.transport.retire_now(*first);
  EXPECT_EQ(first->execution, nullptr);
  enqueue({.extents = {50}});
  pump();
  EXPECT_EQ(world_.transport.accepted.back(), first);
}

RC_GTEST_PROP(PlannerProperty, EachClassIsServedInOrderWhateverTheRoom,
              (const std::vector<std::array<std::uint8_t, 3>>& steps)) {
  World world;
  std::array<std::vector<const Execution*>, policy::kQosClasses> wanted;
  std::array<std::vector<const Execution*>, policy::kQosClasses> got;
  std::vector<std::shared_ptr<Execution>> all;
  std::map<const Execution*, std::uint64_t> offsets;
  world.transport.room = {0, 0};
  const auto serve = [&] {
    world.planner.pump(world.transport, *world.flow);
    while (!world.transport.accepted.empty()) {
      const Slice& front = *world.transport.accepted.front();
      const Execution* const owner = front.execution.get();
      auto& seen = got.at(static_cast<std::size_t>(owner->route().qos));
      RC_ASSERT(front.offset == offsets[owner]);
      offsets[owner] += front.bytes;
      if (seen.empty() || seen.back() != owner) {
        seen.push_back(owner);
      }
      world.transport.finish_front();
    }
  };
  for (const auto& [what, size, room] : steps) {
    if (what % 2 == 0) {
      const auto qos = static_cast<policy::QosClass>(what / 2 % 2);
      all.push_back(world.make({.extents = {1 + std::uint64_t{size}}, .qos = qos}));
      wanted.at(static_cast<std::size_t>(qos)).push_back(all.back().get());
      world.planner.enqueue(*world.flow, all.back());
    } else {
      world.transport.room = {room % 4, room / 4 % 4};
      serve();
    }
  }
  world.transport.room = {1'000'000, 1'000'000};
  serve();
  RC_ASSERT(got == wanted);
  RC_ASSERT(world.planner.slices_out() == 0U && world.held() == 0U);
  for (const auto& execution : all) {
    RC_ASSERT(execution->outcome().logical == Logical::kSuccess);
  }
}

TEST(WorkLimit, IsExhaustedByBytesOrByCalls) {
  WorkLimit limit{100, 3};
  EXPECT_FALSE(limit.exhausted());
  limit.spend(40);
  EXPECT_EQ(limit.bytes_max, 60U);
  EXPECT_EQ(limit.calls_max, 2U);
  limit.spend(1000);
  EXPECT_EQ(limit.bytes_max, 0U);
  EXPECT_TRUE(limit.exhausted());
  WorkLimit calls{100, 1};
  calls.spend(0);
  EXPECT_TRUE(calls.exhausted());
  calls.spend(0);
  EXPECT_EQ(calls.calls_max, 0U);
}

}  // namespace
}  // namespace orbite::transfer
