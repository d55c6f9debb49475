// SPDX-License-Identifier: Apache-2.0
#include "transfer/execution.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <vector>

#include "unit/transfer/drawn_extents.hpp"
#include "unit/transfer/execution_world.hpp"

namespace orbite::transfer {
namespace {

using testing::FakeTransport;
using testing::World;

SliceResult failure(ErrorCode code, std::uint64_t prefix, RemoteEffect effect) {
  return {code, 0, prefix, effect, false};
}

using Parts = std::vector<Extent>;

Parts parts(std::initializer_list<Extent> list) { return list; }

/// Its bytes from one to another.
Extent part(Extent extent, std::uint64_t begin, std::uint64_t end) {
  extent.local_address += begin;
  extent.remote_address += begin;
  extent.length = end - begin;
  return extent;
}

/// What a transport is told of a slice, as often as it asks.
Parts read(const Slice& slice) {
  Parts found;
  for (ExtentCursor extents = slice.extents; !extents.at_end();) {
    found.push_back(extents.take());
  }
  return found;
}

/// Completes and retires everything that is out, so that the world can go.
void finish(World& world, const std::vector<Slice*>& slices) {
  for (Slice* const slice : slices) {
    if (!slice->completed) {
      FakeTransport::complete_with(*slice, failure(ErrorCode::kCanceled, 0, RemoteEffect::kNone));
    }
    world.transport.retire_now(*slice);
  }
}

TEST(Execution, CutsAtEachOfItsLimits) {
  World world;
  const World::Work work{.extents = {10, 20, 30, 40}, .remotes = {0, 0, 1, 0}};
  const std::vector<Extent> extents = World::extents_of(work);
  const auto execution = world.make(work);
  std::vector<Slice*> slices;
  const auto next = [&](SliceLimits limits) -> Slice& {
    world.transport.limits = limits;
    slices.push_back(world.transport.hand_out(*execution));
    return *slices.back();
  };
  const Slice& by_bytes = next({5, 10, 10});
  EXPECT_EQ(by_bytes.bytes, 5U);
  EXPECT_EQ(by_bytes.extent_count, 1U);
  EXPECT_EQ(read(by_bytes), parts({part(extents[0], 0, 5)}));
  const Slice& by_extents = next({1000, 1, 10});
  EXPECT_EQ(by_extents.bytes, 5U);
  EXPECT_EQ(read(by_extents), parts({part(extents[0], 5, 10)}));
  EXPECT_EQ(by_extents.offset, 5U);
  const Slice& by_owners = next({1000, 10, 1});
  EXPECT_EQ(by_owners.bytes, 20U);
  EXPECT_EQ(read(by_owners), parts({extents[1]}));
  const Slice& by_changes = next({1000, 10, 2});
  EXPECT_EQ(by_changes.bytes, 70U);
  EXPECT_EQ(by_changes.extent_count, 2U);
  EXPECT_EQ(by_changes.offset, 30U);
  EXPECT_EQ(read(by_changes), parts({extents[2], extents[3]}));
  EXPECT_FALSE(execution->has_unplanned());
  EXPECT_EQ(world.transport.hand_out(*execution), nullptr);
  finish(world, slices);
}

TEST(Execution, OfANotificationAloneHasOneSliceWithoutBytes) {
  World world;
  const auto execution = world.make_notification();
  EXPECT_EQ(execution->operation(), Operation::kWrite);
  EXPECT_TRUE(execution->has_unplanned());
  Slice* const slice = world.transport.hand_out(*execution);
  ASSERT_NE(slice, nullptr);
  EXPECT_EQ(slice->bytes, 0U);
  EXPECT_EQ(slice->extent_count, 0U);
  EXPECT_TRUE(slice->extents.at_end());
  EXPECT_TRUE(slice->carries_notification);
  EXPECT_FALSE(execution->has_unplanned());
  FakeTransport::complete_with(*slice, FakeTransport::whole(*slice));
  EXPECT_EQ(execution->outcome().logical, Logical::kSuccess);
  EXPECT_FALSE(execution->terminal());
  world.transport.retire_now(*slice);
  EXPECT_TRUE(execution->terminal());
  EXPECT_EQ(execution->outcome().effect, RemoteEffect::kComplete);
}

TEST(Execution, SendsTheNotificationOfManySlicesAloneAndLast) {
  World world;
  const auto execution = world.make({.extents = {250}, .notifies = true});
  world.planner.enqueue(*world.flow, execution);
  world.planner.pump(world.transport, *world.flow);
  ASSERT_EQ(world.transport.accepted.size(), 3U);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(world.transport.accepted.front()->carries_notification);
    world.transport.finish_front();
  }
  ASSERT_EQ(world.transport.accepted.size(), 1U);
  EXPECT_TRUE(world.transport.accepted.front()->carries_notification);
  EXPECT_EQ(world.transport.accepted.front()->bytes, 0U);
  EXPECT_FALSE(execution->terminal());
  world.transport.finish_front();
  EXPECT_TRUE(execution->terminal());
  EXPECT_EQ(execution->outcome().logical, Logical::kSuccess);
}

TEST(Execution, KeepsItsOwnNotificationFromAFailedRequest) {
  World world;
  const auto execution = world.make({.extents = {150}, .notifies = true});
  world.planner.enqueue(*world.flow, execution);
  world.planner.pump(world.transport, *world.flow);
  ASSERT_EQ(world.transport.accepted.size(), 2U);
  Slice* const last = world.transport.accepted.back();
  world.transport.finish_front();
  FakeTransport::complete_with(*last,
                               failure(ErrorCode::kPeerDisconnected, 0, RemoteEffect::kNone));
  world.transport.accepted.clear();
  world.transport.retire_now(*last);
  EXPECT_TRUE(world.transport.accepted.empty());
  EXPECT_TRUE(execution->terminal());
  EXPECT_EQ(execution->outcome().effect, RemoteEffect::kPrefix);
}

TEST(Execution, OutlivesItsCallerWhileASliceIsOut) {
  World world;
  auto execution = world.make({.extents = {50}});
  Slice* const slice = world.transport.hand_out(*execution);
  const std::weak_ptr<Execution> watched = execution;
  execution.reset();
  ASSERT_FALSE(watched.expired());
  FakeTransport::complete_with(*slice, FakeTransport::whole(*slice));
  world.transport.retire_now(*slice);
  EXPECT_TRUE(watched.expired());
  ASSERT_EQ(world.endings.size(), 1U);
  EXPECT_EQ(world.endings[0].outcome.logical, Logical::kSuccess);
}

TEST(Execution, TellsTheNativeErrorOfItsFirstFailure) {
  World world;
  const auto execution = world.make({.extents = {50}});
  Slice* const slice = world.transport.hand_out(*execution);
  FakeTransport::complete_with(
      *slice, {ErrorCode::kPeerDisconnected, ECONNRESET, 0, RemoteEffect::kUnknown, false});
  EXPECT_EQ(execution->outcome().native_errno, ECONNRESET);
  world.transport.retire_now(*slice);
  EXPECT_EQ(execution->outcome().native_errno, ECONNRESET);
}

class ExecutionDeath : public ::testing::Test {
 protected:
  void SetUp() override {
    execution_ = world_.make({.extents = {50}});
    slice_ = world_.transport.hand_out(*execution_);
  }
  void TearDown() override { finish(world_, {slice_}); }

  World world_;
  std::shared_ptr<Execution> execution_;
  Slice* slice_ = nullptr;
};

TEST_F(ExecutionDeath, RetiringBeforeCompletionAborts) {
  EXPECT_DEATH(world_.transport.retire_now(*slice_), "slice.completed");
}

TEST_F(ExecutionDeath, CompletingTwiceAborts) {
  EXPECT_DEATH(
      {
        FakeTransport::complete_with(*slice_, FakeTransport::whole(*slice_));
        FakeTransport::complete_with(*slice_, FakeTransport::whole(*slice_));
      },
      "!slice.completed");
}

TEST_F(ExecutionDeath, PrefixPastTheSliceAborts) {
  EXPECT_DEATH(FakeTransport::complete_with(
                   *slice_, failure(ErrorCode::kShortTransfer, 51, RemoteEffect::kPrefix)),
               "prefix_bytes <= slice.bytes");
}

TEST_F(ExecutionDeath, SuccessOfAShortSliceAborts) {
  EXPECT_DEATH(
      FakeTransport::complete_with(*slice_, failure(ErrorCode::kOk, 49, RemoteEffect::kPrefix)),
      "prefix_bytes == slice.bytes");
}

TEST_F(ExecutionDeath, RetiringTwiceAborts) {
  const auto again = [this] {
    Slice copy = *slice_;
    FakeTransport::complete_with(copy, FakeTransport::whole(copy));
    world_.transport.retire_now(copy);
    copy.execution = execution_;
    world_.transport.retire_now(copy);
  };
  EXPECT_DEATH(again(), "!slice.retired");
}

// ---- Properties

using Choices = std::vector<std::array<std::uint8_t, 3>>;

RC_GTEST_PROP(ExecutionProperty, SlicesCoverEveryByteOnceInOrder, (const Choices& shape)) {
  World world;
  World::Work work;
  for (const auto& [length, remote, longer] : shape) {
    work.extents.push_back(1 + length + (longer % 8 == 0 ? 5000 : 0));
    work.remotes.push_back(remote % 3);
  }
  RC_PRE(!work.extents.empty());
  work.operation = *rc::gen::element(Operation::kRead, Operation::kWrite);
  work.notifies = *rc::gen::arbitrary<bool>();
  const auto shape_of_list = *rc::gen::inRange(0, 4);
  const std::vector<Extent> extents =
      shape_of_list == 0 ? World::extents_of(work) : testing::draw_extents();
  const auto execution = world.make_of(extents, work);
  std::vector<Slice*> slices;
  std::uint64_t offset = 0;
  std::size_t extent = 0;
  std::uint64_t skip = 0;
  while (offset < execution->bytes()) {
    const SliceLimits limits{*rc::gen::inRange<std::uint64_t>(1, 6000),
                             *rc::gen::inRange<std::uint32_t>(1, 40),
                             *rc::gen::inRange<std::uint32_t>(1, 5)};
    world.transport.limits = limits;
    RC_ASSERT(execution->has_unplanned());
    Slice* const slice = world.transport.hand_out(*execution);
    RC_ASSERT(slice != nullptr);
    slices.push_back(slice);
    RC_ASSERT(slice->bytes > 0U && slice->bytes <= limits.bytes_max);
    RC_ASSERT(slice->extent_count > 0U && slice->extent_count <= limits.extents_max);
    RC_ASSERT(slice->offset == offset);
    const Parts given = read(*slice);
    RC_ASSERT(given.size() == slice->extent_count);
    std::uint64_t left = slice->bytes;
    std::set<std::uint32_t> owners;
    for (const Extent& it : given) {
      owners.insert(it.remote_index);
      const Extent& whole = extents.at(extent);
      const std::uint64_t taken = std::min(left, whole.length - skip);
      RC_ASSERT(it == part(whole, skip, skip + taken));
      left -= taken;
      skip += taken;
      if (skip == whole.length) {
        skip = 0;
        ++extent;
      }
    }
    RC_ASSERT(left == 0U);
    RC_ASSERT(owners.size() <= limits.remotes_max);
    offset += slice->bytes;
    const bool alone = slices.size() == 1 && offset == execution->bytes();
    RC_ASSERT(slice->carries_notification ==
              (work.notifies && alone && work.operation == Operation::kWrite));
  }
  RC_ASSERT(!execution->has_unplanned());
  RC_ASSERT(world.transport.hand_out(*execution) == nullptr);
  finish(world, slices);
}

/// What is known of each byte of the request.
enum class Byte : std::uint8_t { kAbsent, kLanded, kUnknown };

struct Model {
  std::vector<Byte> bytes;
  ErrorCode first_failure = ErrorCode::kOk;

  void apply(const Slice& slice, const SliceResult& result) {
    for (std::uint64_t i = 0; i < slice.bytes; ++i) {
      bytes.at(slice.offset + i) = i < result.prefix_bytes                   ? Byte::kLanded
                                   : result.effect == RemoteEffect::kUnknown ? Byte::kUnknown
                                                                             : Byte::kAbsent;
    }
    if (first_failure == ErrorCode::kOk) {
      // Nobody stopped it: a cancellation is none of ours.
      first_failure =
          result.code == ErrorCode::kCanceled ? ErrorCode::kProtocolViolation : result.code;
    }
  }
  [[nodiscard]] std::uint64_t prefix() const {
    return static_cast<std::uint64_t>(
        std::find_if(bytes.begin(), bytes.end(), [](Byte b) { return b != Byte::kLanded; }) -
        bytes.begin());
  }
  [[nodiscard]] RemoteEffect effect(bool unknown) const {
    const auto landed =
        static_cast<std::uint64_t>(std::count(bytes.begin(), bytes.end(), Byte::kLanded));
    if (unknown) {
      return RemoteEffect::kUnknown;
    }
    if (landed == 0) {
      return RemoteEffect::kNone;
    }
    if (landed == bytes.size()) {
      return RemoteEffect::kComplete;
    }
    return landed == prefix() ? RemoteEffect::kPrefix : RemoteEffect::kUnknown;
  }
};

SliceResult draw_result(const Slice& slice) {
  const auto code = *rc::gen::element(ErrorCode::kPeerDisconnected, ErrorCode::kShortTransfer,
                                      ErrorCode::kCanceled);
  switch (*rc::gen::inRange(0, 6)) {
    case 0: {
      const auto prefix = *rc::gen::inRange<std::uint64_t>(0, slice.bytes);
      return failure(code, prefix, prefix > 0 ? RemoteEffect::kPrefix : RemoteEffect::kNone);
    }
    case 1:
      return failure(code, 0, RemoteEffect::kNone);
    case 2:
      return failure(code, *rc::gen::inRange<std::uint64_t>(0, slice.bytes + 1),
                     RemoteEffect::kUnknown);
    default:
      return FakeTransport::whole(slice);
  }
}

RC_GTEST_PROP(ExecutionProperty, PrefixAndEffectEqualTheModel, ()) {
  World world;
  const auto size = *rc::gen::inRange<std::uint64_t>(1, 600);
  const auto execution = world.make({.extents = {size}});
  std::vector<Slice*> slices;
  while (Slice* const slice = world.transport.hand_out(*execution)) {
    slices.push_back(slice);
  }
  Model model{std::vector<Byte>(size, Byte::kAbsent)};
  bool unknown = false;
  // Completions and retirements in any order that the contract allows.
  std::vector<Slice*> to_complete = slices;
  std::vector<Slice*> to_retire;
  while (!to_complete.empty() || !to_retire.empty()) {
    RC_ASSERT(!execution->terminal());
    RC_ASSERT(world.held() > 0U && world.endings.empty());
    const bool completes =
        to_retire.empty() || (!to_complete.empty() && *rc::gen::arbitrary<bool>());
    std::vector<Slice*>& from = completes ? to_complete : to_retire;
    const auto index = *rc::gen::inRange<std::size_t>(0, from.size());
    Slice* const slice = from[index];
    from.erase(from.begin() + static_cast<std::ptrdiff_t>(index));
    if (completes) {
      const SliceResult result = draw_result(*slice);
      model.apply(*slice, result);
      unknown = unknown || result.effect == RemoteEffect::kUnknown;
      FakeTransport::complete_with(*slice, result);
      to_retire.push_back(slice);
    } else {
      world.transport.retire_now(*slice);
    }
  }
  RC_ASSERT(execution->terminal() && world.held() == 0U && world.endings.size() == 1U);
  RC_ASSERT(world.endings[0].held == 0U);
  const Outcome outcome = execution->outcome();
  RC_ASSERT(outcome.bytes_total == size);
  if (model.first_failure == ErrorCode::kOk) {
    RC_ASSERT(outcome.logical == Logical::kSuccess);
    RC_ASSERT(outcome.bytes_prefix == size && outcome.effect == RemoteEffect::kComplete);
    return;
  }
  RC_ASSERT(outcome.code == model.first_failure);
  RC_ASSERT(outcome.logical == Logical::kFailed);
  RC_ASSERT(outcome.bytes_prefix == model.prefix());
  RC_ASSERT(outcome.effect == model.effect(unknown));
}

}  // namespace
}  // namespace orbite::transfer
