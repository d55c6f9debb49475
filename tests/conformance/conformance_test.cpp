// SPDX-License-Identifier: Apache-2.0
// What every transport promises to the planner, on each of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "conformance/rig.hpp"
#include "support/honesty.hpp"
#include "support/tcp_node.hpp"

namespace orbite::test {
namespace {

constexpr std::size_t kBlocks = 100;
constexpr std::size_t kLengthMax = 1200;
const std::vector<std::uint8_t> kMessage = {'m', 0, 255};

class Conformance : public ::testing::TestWithParam<RigParam> {
 protected:
  using ExecutionPtr = std::shared_ptr<transfer::Execution>;

  void SetUp() override { start(1); }
  void start(std::uint64_t seed) {
    rig_ = make_rig(GetParam().kind, bytes_for(kBlocks, kLengthMax), seed);
    random_ = std::make_unique<base::SeededRandom>(seed + 1000);
  }

  Stage stage(Operation operation, std::size_t count = kBlocks,
              std::size_t length_max = kLengthMax) {
    return Stage(operation, draw_blocks(*random_, count, length_max), rig_->near(), rig_->far(),
                 random_->next_u64());
  }
  std::shared_ptr<const transfer::Prepared> prepare(
      const Stage& set, policy::QosClass qos = policy::QosClass::kBulk) {
    return rig_->caller().prepare(rig_->transport(), rig_->peer(), rig_->near(), rig_->far(),
                                  rig_->far_range(), {set.operation, set.blocks, qos});
  }
  ExecutionPtr launch(const Stage& set, Caller::Message message = {}) {
    return rig_->caller().launch(rig_->transport(), prepare(set), std::move(message));
  }
  /// Not in the planner's queue: the test hands its slices out itself.
  ExecutionPtr execution_of(const Stage& set) {
    auto prepared = prepare(set);
    const auto route = prepared->route;
    return rig_->caller().execute(std::move(prepared), rig_->peer(), route);
  }
  Result<transfer::Slice*> submit_next(transfer::Execution& execution) {
    transfer::Slice& slice = *rig_->caller().planner.acquire_slice();
    if (!execution.next_slice(rig_->transport().slice_limits(), slice)) {
      rig_->caller().planner.recycle_slice(slice);
      return nullptr;
    }
    auto accepted = rig_->transport().submit(rig_->flow(), slice);
    EXPECT_FALSE(slice.completed) << "completed inside submit";
    EXPECT_FALSE(slice.retired) << "retired inside submit";
    EXPECT_EQ(slice.execution.get(), &execution);
    if (!accepted) {
      refused_.push_back(&slice);
      return fail(accepted.error());
    }
    return &slice;
  }
  bool settle(const ExecutionPtr& execution) {
    return step_until([&] { rig_->step(); }, [&] { return execution->terminal(); });
  }
  void expect_all_given_back() { EXPECT_TRUE(rig_->caller().all_given_back()); }
  void expect_success_or_honest(const Stage& set, const ExecutionPtr& execution) {
    const Outcome outcome = execution->outcome();
    if (rig_->is_faultless()) {
      EXPECT_EQ(outcome.logical, Logical::kSuccess) << error_text(outcome.code);
    }
    set.expect_honest(outcome);
  }
  /// Nothing touches either buffer any more, whatever else goes on.
  void expect_left_alone(const Stage& set) {
    set.near.fill_as_target(7);
    set.far.fill_as_target(8);
    const auto near = set.near.bytes;
    const auto far = set.far.bytes;
    for (int i = 0; i < 50; ++i) {
      rig_->step();
    }
    EXPECT_TRUE(near == set.near.bytes && far == set.far.bytes)
        << "a buffer was touched after the terminal state";
  }

  /// Retires what submit() refused: nobody else has it.
  class RefusedPath final : public transfer::CompletionPath {
   public:
    using CompletionPath::CompletionPath;
    void end(transfer::Slice& slice) {
      complete(slice, {ErrorCode::kBudgetExhausted, 0, 0, RemoteEffect::kNone, false});
      retire(slice);
    }
  };
  void retire_refused() {
    RefusedPath path(rig_->caller().planner);
    for (transfer::Slice* const slice : refused_) {
      path.end(*slice);
    }
    refused_.clear();
  }

  std::unique_ptr<Rig> rig_;
  std::unique_ptr<base::SeededRandom> random_;
  std::vector<transfer::Slice*> refused_;
};

TEST_P(Conformance, MovesTheBytesOfAListAndLeavesItsGuardsAlone) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    start(seed);
    for (const Operation operation : {Operation::kWrite, Operation::kRead}) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      const Stage set = stage(operation);
      const auto execution = launch(set);
      ASSERT_TRUE(settle(execution));
      expect_success_or_honest(set, execution);
      EXPECT_EQ(execution->outcome().bytes_total, bytes_of(set.blocks));
      expect_left_alone(set);
      expect_all_given_back();
    }
  }
}

TEST_P(Conformance, MovesBlocksThatLieByARule) {
  // Blocks at constant strides, up and down; at pages on one side; of layers; half of them merged.
  using Place = std::size_t (*)(std::size_t block);
  const Place up = [](std::size_t block) { return 16 + block * 1000; };
  const Place down = [](std::size_t block) { return 16 + (kBlocks - 1 - block) * 900; };
  const Place pages = [](std::size_t block) { return block * 37 % kBlocks * 1024; };
  const Place layers = [](std::size_t block) { return block % 4 * 28'000 + block / 4 * 1100; };
  const Place pairs = [](std::size_t block) { return block / 2 * 2000 + block % 2 * 600; };
  const std::pair<Place, Place> lies[] = {{up, down},     {down, pages},   {pages, up},
                                          {pages, pages}, {layers, pairs}, {pairs, pairs}};
  for (std::size_t lie = 0; lie < std::size(lies); ++lie) {
    const auto& [local, remote] = lies[lie];
    for (const Operation operation : {Operation::kWrite, Operation::kRead}) {
      SCOPED_TRACE("lie " + std::to_string(lie));
      std::vector<Block> blocks;
      for (std::size_t i = 0; i < kBlocks; ++i) {
        blocks.push_back({local(i), remote(i), 600});
      }
      const Stage set(operation, blocks, rig_->near(), rig_->far(), 3);
      const auto execution = launch(set);
      ASSERT_TRUE(settle(execution));
      expect_success_or_honest(set, execution);
      expect_all_given_back();
    }
  }
}

TEST_P(Conformance, CompletesAndRetiresEachAcceptedSliceOnce) {
  const Stage set = stage(Operation::kWrite);
  const auto execution = execution_of(set);
  // Twice completed or retired, or retired first, aborts; never shows here.
  std::vector<transfer::Slice*> out;
  std::size_t accepted = 0;
  std::size_t retired = 0;
  const auto count_retired = [&] {
    retired += std::erase_if(out, [](const transfer::Slice* slice) {
      EXPECT_TRUE(!slice->retired || slice->completed);
      return slice->retired;
    });
  };
  ASSERT_TRUE(step_until(
      [&] {
        count_retired();
        if (execution->has_unplanned() &&
            rig_->transport().has_room(rig_->flow(), execution->route().qos)) {
          const auto slice = submit_next(*execution);
          if (slice) {
            ASSERT_NE(*slice, nullptr);
            EXPECT_EQ(std::count(out.begin(), out.end(), *slice), 0);
            out.push_back(*slice);
            ++accepted;
          }
          retire_refused();
        } else {
          rig_->step({std::uint64_t{1} << 14, 3});
        }
      },
      [&] { return execution->terminal(); }));
  count_retired();
  EXPECT_EQ(retired, accepted);
  EXPECT_GT(accepted, 1U);
  expect_success_or_honest(set, execution);
  expect_all_given_back();
}

TEST_P(Conformance, NeverCompletesInsideSubmit) {
  const Stage set = stage(Operation::kRead);
  const auto execution = execution_of(set);
  // A lane that is up and idle is no excuse either.
  const Stage first = stage(Operation::kRead, 1, 10);
  ASSERT_TRUE(settle(launch(first)));
  const Stage again(Operation::kRead, set.blocks, rig_->near(), rig_->far(), 5);
  const auto before = rig_->near().bytes;
  while (execution->has_unplanned() &&
         rig_->transport().has_room(rig_->flow(), execution->route().qos)) {
    if (!submit_next(*execution)) {
      break;
    }
  }
  EXPECT_TRUE(before == rig_->near().bytes) << "bytes moved inside submit";
  EXPECT_FALSE(execution->terminal());
  rig_->caller().stop(rig_->transport(), *execution, ErrorCode::kCanceled);
  retire_refused();
  ASSERT_TRUE(settle(execution));
  again.expect_honest(execution->outcome());
}

TEST_P(Conformance, TakesASliceWheneverItSaysThatThereIsRoom) {
  const Stage set = stage(Operation::kWrite, kBlocks, 40);
  std::vector<ExecutionPtr> executions;
  std::size_t accepted = 0;
  const auto qos = policy::QosClass::kBulk;
  while (rig_->transport().has_room(rig_->flow(), qos) && accepted < 100'000) {
    if (executions.empty() || !executions.back()->has_unplanned()) {
      executions.push_back(execution_of(set));
    }
    const auto slice = submit_next(*executions.back());
    if (rig_->is_faultless()) {
      ASSERT_TRUE(slice.has_value()) << slice.error().message();
    }
    retire_refused();
    ++accepted;
  }
  EXPECT_LT(accepted, 100'000U) << "room without end";
  // Another class does not wait for this one.
  EXPECT_TRUE(rig_->transport().has_room(rig_->flow(), policy::QosClass::kLatency));
  for (const auto& execution : executions) {
    rig_->caller().stop(rig_->transport(), *execution, ErrorCode::kCanceled);
    ASSERT_TRUE(settle(execution));
  }
  EXPECT_TRUE(rig_->transport().has_room(rig_->flow(), qos));
  expect_all_given_back();
}

TEST_P(Conformance, DropsWhatIsUnpostedAndOnlyThat) {
  const Stage kept = stage(Operation::kWrite, 30, 100);
  const Stage dropped(Operation::kWrite, kept.blocks, rig_->near(), rig_->far(), 3);
  // Both want the same bytes moved; only one of them may.
  const auto stays = launch(kept);
  const auto goes = launch(dropped);
  const auto bytes_before = rig_->far().bytes;
  rig_->caller().stop(rig_->transport(), *goes, ErrorCode::kCanceled);
  EXPECT_TRUE(goes->terminal());
  const Outcome outcome = goes->outcome();
  if (rig_->is_faultless()) {
    EXPECT_EQ(outcome.logical, Logical::kCanceled);
    EXPECT_EQ(outcome.code, ErrorCode::kCanceled);
  }
  EXPECT_EQ(outcome.effect, RemoteEffect::kNone);
  EXPECT_EQ(outcome.bytes_prefix, 0U);
  EXPECT_TRUE(bytes_before == rig_->far().bytes);
  ASSERT_TRUE(settle(stays));
  expect_success_or_honest(dropped, stays);
  expect_all_given_back();
}

TEST_P(Conformance, IsHonestAboutARequestStoppedAtAnyMoment) {
  for (int steps = 0; steps < 24; ++steps) {
    SCOPED_TRACE("after steps: " + std::to_string(steps));
    for (const Operation operation : {Operation::kWrite, Operation::kRead}) {
      for (const ErrorCode code : {ErrorCode::kCanceled, ErrorCode::kDeadlineExceeded}) {
        const Stage set = stage(operation, 60);
        const auto execution = launch(set, kMessage);
        for (int i = 0; i < steps; ++i) {
          rig_->step({std::uint64_t{1} << 13, 2});
        }
        rig_->caller().stop(rig_->transport(), *execution, code);
        ASSERT_TRUE(settle(execution));
        set.expect_honest(execution->outcome());
        expect_left_alone(set);
      }
    }
  }
  expect_all_given_back();
}

TEST_P(Conformance, HonoursTheWorkLimit) {
  const Stage set = stage(Operation::kRead);
  const auto execution = launch(set);
  const auto moved = [&] {
    return std::count_if(set.target().bytes.begin(), set.target().bytes.end(),
                         [](std::uint8_t byte) { return byte < 128; });
  };
  // One call may be the one that exhausts the limit, and no call moves more than this.
  const auto unit = static_cast<std::ptrdiff_t>(
      std::max<std::uint64_t>(rig_->transport().slice_limits().bytes_max, 32 << 10));
  ASSERT_GT(static_cast<std::ptrdiff_t>(bytes_of(set.blocks)), unit);
  ASSERT_TRUE(step_until(
      [&] {
        const auto before = moved();
        transfer::WorkLimit limit{1, 2};
        rig_->transport().drive(rig_->flow(), limit, transfer::Driver::kCaller);
        EXPECT_LE(moved() - before, unit);
        rig_->turn();
      },
      [&] { return execution->terminal(); }));
  expect_success_or_honest(set, execution);

  transfer::WorkLimit nothing{0, 0};
  const Stage idle = stage(Operation::kRead, 10, 10);
  const auto waits = launch(idle);
  rig_->transport().drive(rig_->flow(), nothing, transfer::Driver::kCaller);
  const auto in_place = idle.moved();
  EXPECT_EQ(std::count(in_place.begin(), in_place.end(), true), 0);
  ASSERT_TRUE(settle(waits));
}

TEST_P(Conformance, NotifiesOnceAndAfterTheBytes) {
  for (const Operation operation : {Operation::kWrite, Operation::kRead}) {
    for (const std::size_t count : {std::size_t{1}, kBlocks}) {
      const Stage set = stage(operation, count);
      rig_->inbox().clear();
      const auto execution = launch(set, kMessage);
      ASSERT_TRUE(step_until([&] { rig_->step(); },
                             [&] { return execution->terminal() || !rig_->inbox().empty(); }));
      if (!rig_->inbox().empty()) {
        const auto in_place = set.moved();
        EXPECT_EQ(std::count(in_place.begin(), in_place.end(), false), 0)
            << "notified before its bytes";
        EXPECT_EQ(rig_->inbox().front(), kMessage);
      }
      ASSERT_TRUE(settle(execution));
      expect_success_or_honest(set, execution);
      const bool succeeded = execution->outcome().logical == Logical::kSuccess;
      EXPECT_LE(rig_->inbox().size(), 1U);
      EXPECT_TRUE(!succeeded || rig_->inbox().size() == 1);
    }
  }
}

TEST_P(Conformance, SaysWhenANotificationWasRefused) {
  rig_->refuse_notifications(true);
  for (const Operation operation : {Operation::kWrite, Operation::kRead}) {
    const Stage set = stage(operation, 3);
    const auto execution = launch(set, kMessage);
    ASSERT_TRUE(settle(execution));
    const Outcome outcome = execution->outcome();
    EXPECT_EQ(outcome.logical, Logical::kFailed);
    if (rig_->is_faultless()) {
      EXPECT_EQ(outcome.code, ErrorCode::kNotificationFailed);
      EXPECT_EQ(outcome.effect, RemoteEffect::kComplete);
    }
    set.expect_honest(outcome);
  }
  EXPECT_TRUE(rig_->inbox().empty());
}

TEST_P(Conformance, SendsANotificationThatStandsAlone) {
  const policy::Route route{rig_->control().kind(), policy::QosClass::kLatency};
  const auto execution = rig_->caller().execute(nullptr, rig_->peer(), route, kMessage);
  rig_->caller().start(rig_->control(), execution);
  ASSERT_TRUE(settle(execution));
  const bool succeeded = execution->outcome().logical == Logical::kSuccess;
  EXPECT_TRUE(succeeded || !rig_->is_faultless());
  EXPECT_EQ(rig_->inbox().size(), succeeded ? 1U : 0U);
  expect_all_given_back();
}

TEST_P(Conformance, NoByteLandsAfterTheTargetRetired) {
  for (int steps = 0; steps < 24; ++steps) {
    SCOPED_TRACE("after steps: " + std::to_string(steps));
    start(static_cast<std::uint64_t>(steps) + 1);
    const Stage set = stage(Operation::kWrite);
    const auto execution = launch(set);
    for (int i = 0; i < steps; ++i) {
      rig_->step({std::uint64_t{1} << 13, 2});
    }
    ASSERT_TRUE(rig_->far().deregister().has_value());
    ASSERT_TRUE(settle(execution));
    rig_->turn();
    ASSERT_EQ(rig_->far().retirements.load(std::memory_order_acquire), 1);
    EXPECT_TRUE(rig_->far().at_retirement == rig_->far().bytes)
        << "a byte landed after the registration had retired";
    const Outcome outcome = execution->outcome();
    if (rig_->is_faultless() && outcome.logical != Logical::kSuccess) {
      EXPECT_EQ(outcome.code, ErrorCode::kRegistrationFenced);
    }
    set.expect_honest(outcome);
    expect_all_given_back();
  }
}

TEST_P(Conformance, ServesManyRequestsOfBothClassesAtOnce) {
  struct Running {
    ExecutionPtr execution;
    bool notifies;
  };
  std::vector<Running> running;
  const Stage set = stage(Operation::kWrite, kBlocks / 4);
  for (int i = 0; i < 40; ++i) {
    // Each request writes the same bytes to the same place.
    const auto qos = i % 3 == 0 ? policy::QosClass::kLatency : policy::QosClass::kBulk;
    const bool notifies = i % 2 == 0;
    running.push_back(
        {rig_->caller().launch(rig_->transport(), prepare(set, qos),
                               notifies ? Caller::Message(kMessage) : Caller::Message()),
         notifies});
  }
  std::size_t notified = 0;
  for (const Running& it : running) {
    ASSERT_TRUE(settle(it.execution));
    const bool succeeded = it.execution->outcome().logical == Logical::kSuccess;
    EXPECT_TRUE(succeeded || !rig_->is_faultless());
    notified += succeeded && it.notifies ? 1 : 0;
  }
  EXPECT_GE(rig_->inbox().size(), notified);
  EXPECT_TRUE(!rig_->is_faultless() || rig_->inbox().size() == 20);
  EXPECT_EQ(rig_->caller().terminals.load(std::memory_order_relaxed), 40);
  expect_all_given_back();
}

constexpr RigParam kEveryRig[] = {{"Local", RigKind::kLocal},
                                  {"Tcp", RigKind::kTcp},
                                  {"TcpShortIo", RigKind::kTcpShortIo},
                                  {"Sim", RigKind::kSim},
                                  {"SimLate", RigKind::kSimLate},
                                  {"SimFaulty", RigKind::kSimFaulty},
                                  {"Cma", RigKind::kCma},
                                  {"Shm", RigKind::kShm}};

INSTANTIATE_TEST_SUITE_P(Transports, Conformance, ::testing::ValuesIn(kEveryRig),
                         [](const auto& it) { return std::string(it.param.name); });

/// Transports whose far side can be lost. Of a neighbour that is another process:
/// tests/unit/engine/neighbor_test.cpp.
class ConformanceReset : public Conformance {};

TEST_P(ConformanceReset, APeerThatIsGoneEndsEverythingHonestly) {
  for (int steps = 0; steps < 32; ++steps) {
    for (const Operation operation : {Operation::kWrite, Operation::kRead}) {
      SCOPED_TRACE("after steps: " + std::to_string(steps));
      start(static_cast<std::uint64_t>(steps) + 1);
      const Stage set = stage(operation);
      const auto execution = launch(set, kMessage);
      for (int i = 0; i < steps; ++i) {
        rig_->step({std::uint64_t{1} << 13, 2});
      }
      rig_->reset_peer();
      ASSERT_TRUE(settle(execution)) << "not terminal within its bound";
      const Outcome outcome = execution->outcome();
      if (outcome.logical != Logical::kSuccess && rig_->is_faultless()) {
        EXPECT_TRUE(outcome.code == ErrorCode::kPeerDisconnected ||
                    outcome.code == ErrorCode::kPeerUnreachable ||
                    outcome.code == ErrorCode::kNotificationFailed)
            << error_text(outcome.code);
      }
      set.expect_honest(outcome);
      EXPECT_EQ(rig_->transport().unproved(rig_->flow()), 0U);
      expect_all_given_back();

      // What is posted once that is known fails as well, with no effect.
      for (int i = 0; i < 20; ++i) {
        rig_->step();
      }
      const Stage late = stage(operation, 3);
      const auto too_late = launch(late);
      ASSERT_TRUE(settle(too_late));
      EXPECT_EQ(too_late->outcome().logical, Logical::kFailed);
      EXPECT_EQ(too_late->outcome().effect, RemoteEffect::kNone);
      late.expect_honest(too_late->outcome());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, ConformanceReset,
                         ::testing::ValuesIn(kEveryRig + 1, kEveryRig + 6),
                         [](const auto& it) { return std::string(it.param.name); });

}  // namespace
}  // namespace orbite::test
