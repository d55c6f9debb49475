// SPDX-License-Identifier: Apache-2.0
// The state table of an execution as data: what happens to it, and what may be shown after each
// step.
#include <gtest/gtest.h>

#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "unit/transfer/execution_world.hpp"

namespace orbite::transfer {
namespace {

using testing::FakeTransport;
using testing::World;

enum class Act : std::uint8_t {
  kHandOut,  ///< the next slice goes to the transport
  kWhole,    ///< slice `slice` completes, all of it in place, its notification delivered
  kResult,   ///< slice `slice` completes with `result`
  kRetire,   ///< slice `slice` retires
  kStop      ///< the caller (or the deadline) stops it with `result.code`
};

struct Step {
  Act act;
  std::size_t slice;
  SliceResult result;
  // What outcome() says from now on.
  Logical logical;
  RemoteEffect effect;
  ErrorCode code;
  std::uint64_t prefix;
  bool terminal;
};

struct Row {
  const char* name;
  Operation operation;
  bool notifies;
  /// 100 bytes a slice: 2 slices and 50 bytes.
  std::vector<std::uint64_t> extents;
  std::vector<Step> steps;
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

constexpr SliceResult kNothing{};
constexpr auto kWrite = Operation::kWrite;
constexpr auto kRead = Operation::kRead;
constexpr auto kNone = Logical::kNone;
constexpr auto kSuccess = Logical::kSuccess;
constexpr auto kCanceled = Logical::kCanceled;
constexpr auto kFailed = Logical::kFailed;
constexpr auto kNoEffect = RemoteEffect::kNone;
constexpr auto kPrefix = RemoteEffect::kPrefix;
constexpr auto kComplete = RemoteEffect::kComplete;
constexpr auto kUnknown = RemoteEffect::kUnknown;
constexpr auto kOk = ErrorCode::kOk;

Step hand_out(std::size_t slice, Logical logical = kNone) {
  return {Act::kHandOut, slice, kNothing, logical, kUnknown, kOk, 0, false};
}
SliceResult with(ErrorCode code, std::uint64_t prefix, RemoteEffect effect) {
  return {code, 0, prefix, effect, false};
}

constexpr auto fenced = ErrorCode::kRegistrationFenced;
constexpr auto epoch = ErrorCode::kPeerEpochChanged;
constexpr auto gone = ErrorCode::kPeerDisconnected;
constexpr auto unreachable = ErrorCode::kPeerUnreachable;
constexpr auto deadline = ErrorCode::kDeadlineExceeded;
constexpr auto canceled = ErrorCode::kCanceled;
constexpr auto shortage = ErrorCode::kShortTransfer;
constexpr auto silent = ErrorCode::kPeerSilent;
constexpr auto untold = ErrorCode::kNotificationFailed;
constexpr auto violation = ErrorCode::kProtocolViolation;

const std::vector<Row> kTable = {
    {"QueuedAndRunningAreInProgress", kWrite, false, {100, 50}, {hand_out(0), hand_out(1)}},
    {"EveryByteInPlaceAndRetiredIsSuccess",
     kWrite,
     false,
     {250},
     {hand_out(0),
      hand_out(1),
      hand_out(2),
      {Act::kWhole, 1, {}, kNone, kUnknown, kOk, 0, false},
      {Act::kWhole, 0, {}, kNone, kUnknown, kOk, 0, false},
      {Act::kRetire, 1, {}, kNone, kUnknown, kOk, 0, false},
      {Act::kWhole, 2, {}, kSuccess, kComplete, kOk, 250, false},
      {Act::kRetire, 0, {}, kSuccess, kComplete, kOk, 250, false},
      {Act::kRetire, 2, {}, kSuccess, kComplete, kOk, 250, true}}},
    {"OutcomeKnownButAccessNotRetiredIsInProgress",
     kRead,
     false,
     {80},
     {hand_out(0), {Act::kWhole, 0, {}, kSuccess, kComplete, kOk, 80, false}}},
    {"SuccessNeedsTheNotification",
     kRead,
     true,
     {80},
     {hand_out(0),
      {Act::kWhole, 0, {}, kNone, kUnknown, kOk, 0, false},
      // Every byte is in place and known to be; the notification is not on its way yet.
      {Act::kRetire, 0, {}, kNone, kComplete, kOk, 80, false},
      hand_out(1),
      {Act::kWhole, 1, {}, kSuccess, kComplete, kOk, 80, false},
      {Act::kRetire, 1, {}, kSuccess, kComplete, kOk, 80, true}}},
    {"WriteOfOneSliceTakesItsNotificationAlong",
     kWrite,
     true,
     {80},
     {hand_out(0),
      {Act::kWhole, 0, {}, kSuccess, kComplete, kOk, 80, false},
      {Act::kRetire, 0, {}, kSuccess, kComplete, kOk, 80, true}}},
    {"NotificationRefusedFailsWithEveryByteInPlace",
     kWrite,
     true,
     {80},
     {hand_out(0),
      {Act::kResult, 0, with(untold, 80, kComplete), kFailed, kUnknown, untold, 0, false},
      {Act::kRetire, 0, {}, kFailed, kComplete, untold, 80, true}}},
    {"CanceledWhileQueued",
     kWrite,
     true,
     {100, 100},
     {{Act::kStop, 0, with(canceled, 0, kNoEffect), kCanceled, kNoEffect, canceled, 0, true}}},
    {"CanceledWhileRunningWaitsForWhatIsOut",
     kWrite,
     false,
     {250},
     {hand_out(0),
      {Act::kStop, 0, with(canceled, 0, kNoEffect), kCanceled, kUnknown, canceled, 0, false},
      {Act::kWhole, 0, {}, kCanceled, kUnknown, canceled, 0, false},
      {Act::kRetire, 0, {}, kCanceled, kPrefix, canceled, 100, true}}},
    {"CanceledWhenAllIsOnItsWayMayStillSucceed",
     kWrite,
     false,
     {150},
     {hand_out(0),
      hand_out(1),
      {Act::kStop, 0, with(canceled, 0, kNoEffect), kNone, kUnknown, kOk, 0, false},
      {Act::kWhole, 0, {}, kNone, kUnknown, kOk, 0, false},
      {Act::kRetire, 0, {}, kNone, kUnknown, kOk, 0, false},
      {Act::kWhole, 1, {}, kSuccess, kComplete, kOk, 150, false},
      {Act::kRetire, 1, {}, kSuccess, kComplete, kOk, 150, true}}},
    {"CanceledWhenTheTransportDropsTheLastSlice",
     kWrite,
     false,
     {150},
     {hand_out(0),
      hand_out(1),
      {Act::kStop, 0, with(canceled, 0, kNoEffect), kNone, kUnknown, kOk, 0, false},
      {Act::kResult, 1, with(canceled, 0, kNoEffect), kCanceled, kUnknown, canceled, 0, false},
      {Act::kRetire, 1, {}, kCanceled, kUnknown, canceled, 0, false},
      {Act::kWhole, 0, {}, kCanceled, kUnknown, canceled, 0, false},
      {Act::kRetire, 0, {}, kCanceled, kPrefix, canceled, 100, true}}},
    {"CancellationThatNobodyAskedForIsAFailure",
     kWrite,
     false,
     {80},
     {hand_out(0),
      {Act::kResult, 0, with(canceled, 0, kNoEffect), kFailed, kUnknown, violation, 0, false},
      {Act::kRetire, 0, {}, kFailed, kNoEffect, violation, 0, true}}},
    {"CancelBeforeTheNotificationIsOutStopsIt",
     kRead,
     true,
     {80},
     {hand_out(0),
      {Act::kStop, 0, with(canceled, 0, kNoEffect), kCanceled, kUnknown, canceled, 0, false},
      {Act::kWhole, 0, {}, kCanceled, kUnknown, canceled, 0, false},
      {Act::kRetire, 0, {}, kCanceled, kComplete, canceled, 80, true}}},
    {"DeadlineWhileQueued",
     kWrite,
     false,
     {80},
     {{Act::kStop, 0, with(deadline, 0, kNoEffect), kFailed, kNoEffect, deadline, 0, true}}},
    {"DeadlineWhileRunningStaysInProgressUntilRetired",
     kWrite,
     false,
     {80},
     {hand_out(0),
      {Act::kStop, 0, with(deadline, 0, kNoEffect), kFailed, kUnknown, deadline, 0, false},
      {Act::kWhole, 0, {}, kFailed, kUnknown, deadline, 0, false},
      {Act::kRetire, 0, {}, kFailed, kComplete, deadline, 80, true}}},
    {"DeadlineAfterSuccessChangesNothing",
     kWrite,
     false,
     {80},
     {hand_out(0),
      {Act::kWhole, 0, {}, kSuccess, kComplete, kOk, 80, false},
      {Act::kStop, 0, with(deadline, 0, kNoEffect), kSuccess, kComplete, kOk, 80, false},
      {Act::kRetire, 0, {}, kSuccess, kComplete, kOk, 80, true},
      {Act::kStop, 0, with(canceled, 0, kNoEffect), kSuccess, kComplete, kOk, 80, true}}},
    {"RegistrationGone",
     kWrite,
     false,
     {80},
     {hand_out(0),
      {Act::kResult, 0, with(fenced, 0, kNoEffect), kFailed, kUnknown, fenced, 0, false},
      {Act::kRetire, 0, {}, kFailed, kNoEffect, fenced, 0, true}}},
    {"PeerEpochChanged",
     kRead,
     false,
     {150},
     {hand_out(0),
      hand_out(1),
      {Act::kResult, 0, with(epoch, 0, kNoEffect), kFailed, kUnknown, epoch, 0, false},
      {Act::kRetire, 0, {}, kFailed, kUnknown, epoch, 0, false},
      {Act::kResult, 1, with(gone, 0, kNoEffect), kFailed, kUnknown, epoch, 0, false},
      {Act::kRetire, 1, {}, kFailed, kNoEffect, epoch, 0, true}}},
    {"PeerGoneBeforeAnythingWasPosted",
     kWrite,
     true,
     {80},
     {hand_out(0),
      {Act::kResult, 0, with(unreachable, 0, kNoEffect), kFailed, kUnknown, unreachable, 0, false},
      {Act::kRetire, 0, {}, kFailed, kNoEffect, unreachable, 0, true}}},
    {"ShortTransferKeepsItsExactPrefix",
     kRead,
     false,
     {250},
     {hand_out(0),
      hand_out(1),
      {Act::kWhole, 0, {}, kNone, kUnknown, kOk, 0, false},
      {Act::kResult, 1, with(shortage, 30, kPrefix), kFailed, kUnknown, shortage, 0, false},
      {Act::kRetire, 1, {}, kFailed, kUnknown, shortage, 0, false},
      {Act::kRetire, 0, {}, kFailed, kPrefix, shortage, 130, true}}},
    {"PeerLostMidWriteIsUnknownUntilAndAfterRetirement",
     kWrite,
     false,
     {150},
     {hand_out(0),
      hand_out(1),
      {Act::kWhole, 0, {}, kNone, kUnknown, kOk, 0, false},
      {Act::kRetire, 0, {}, kNone, kUnknown, kOk, 0, false},
      {Act::kResult, 1, with(gone, 20, kUnknown), kFailed, kUnknown, gone, 0, false},
      {Act::kRetire, 1, {}, kFailed, kUnknown, gone, 120, true}}},
    {"WhatCannotBeProvedRetiredStaysInProgress",
     kWrite,
     true,
     {80},
     {hand_out(0),
      {Act::kResult, 0, with(silent, 0, kUnknown), kFailed, kUnknown, silent, 0, false},
      {Act::kStop, 0, with(canceled, 0, kNoEffect), kFailed, kUnknown, silent, 0, false}}},
    {"LandedBehindAGapIsNoPrefix",
     kWrite,
     false,
     {200},
     {hand_out(0),
      hand_out(1),
      {Act::kResult, 0, with(gone, 0, kNoEffect), kFailed, kUnknown, gone, 0, false},
      {Act::kRetire, 0, {}, kFailed, kUnknown, gone, 0, false},
      {Act::kWhole, 1, {}, kFailed, kUnknown, gone, 0, false},
      {Act::kRetire, 1, {}, kFailed, kUnknown, gone, 0, true}}},
    {"TheFirstFailureIsTheOutcome",
     kRead,
     false,
     {200},
     {hand_out(0),
      hand_out(1),
      {Act::kResult, 1, with(shortage, 60, kPrefix), kFailed, kUnknown, shortage, 0, false},
      {Act::kResult, 0, with(gone, 40, kPrefix), kFailed, kUnknown, shortage, 0, false},
      {Act::kRetire, 1, {}, kFailed, kUnknown, shortage, 0, false},
      {Act::kRetire, 0, {}, kFailed, kUnknown, shortage, 40, true}}},
};

class ExecutionState : public ::testing::TestWithParam<Row> {
 protected:
  /// What NIXL would be told: terminal needs both facts.
  void expect_shown(const Step& step) {
    const Outcome outcome = execution_->outcome();
    EXPECT_EQ(outcome.logical, step.logical);
    EXPECT_EQ(outcome.effect, step.effect);
    EXPECT_EQ(outcome.code, step.code) << error_text(outcome.code);
    EXPECT_EQ(outcome.bytes_prefix, step.prefix);
    EXPECT_EQ(outcome.drain, step.terminal ? Drain::kRetired : Drain::kPending);
    EXPECT_EQ(outcome.terminal(), step.terminal);
    EXPECT_EQ(execution_->terminal(), step.terminal);
    EXPECT_STREQ(outcome.route, "tcp");
    // Loans and charges are back at the terminal state and not a moment earlier.
    EXPECT_EQ(world_.held() == 0, step.terminal);
    EXPECT_EQ(world_.endings.size(), step.terminal ? 1U : 0U);
  }

  void act(const Step& step) {
    switch (step.act) {
      case Act::kHandOut:
        ASSERT_EQ(slices_.size(), step.slice);
        slices_.push_back(world_.transport.hand_out(*execution_));
        ASSERT_NE(slices_.back(), nullptr);
        return;
      case Act::kWhole:
        FakeTransport::complete_with(*slices_[step.slice],
                                     FakeTransport::whole(*slices_[step.slice]));
        return;
      case Act::kResult:
        FakeTransport::complete_with(*slices_[step.slice], step.result);
        return;
      case Act::kRetire:
        world_.transport.retire_now(*slices_[step.slice]);
        open_.erase(step.slice);
        return;
      case Act::kStop:
        execution_->stop(step.result.code);
        return;
    }
  }

  World world_;
  std::shared_ptr<Execution> execution_;
  std::vector<Slice*> slices_;
  std::set<std::size_t> open_;
};

TEST_P(ExecutionState, ShowsWhatTheTableSays) {
  const Row& row = GetParam();
  world_.transport.room = {0, 0};  // nothing is handed out but by the steps
  execution_ =
      world_.make({.extents = row.extents, .operation = row.operation, .notifies = row.notifies});
  expect_shown({Act::kHandOut, 0, {}, kNone, kNoEffect, kOk, 0, false});
  for (const Step& step : row.steps) {
    SCOPED_TRACE("step " + std::to_string(&step - row.steps.data()));
    act(step);
    if (step.act == Act::kHandOut) {
      open_.insert(step.slice);
    }
    expect_shown(step);
  }
  // A stopped or finished execution hands out nothing.
  if (execution_->outcome().logical != kNone) {
    EXPECT_FALSE(execution_->has_unplanned());
    EXPECT_EQ(world_.transport.hand_out(*execution_), nullptr);
  }
  if (execution_->terminal()) {
    ASSERT_EQ(world_.endings.size(), 1U);
    EXPECT_EQ(world_.endings[0].held, 0U);
    EXPECT_TRUE(world_.endings[0].published);
    EXPECT_EQ(world_.endings[0].outcome.logical, row.steps.back().logical);
  }
  for (const std::size_t slice : std::set<std::size_t>(open_)) {
    if (!slices_[slice]->completed) {
      FakeTransport::complete_with(*slices_[slice], FakeTransport::whole(*slices_[slice]));
    }
    world_.transport.retire_now(*slices_[slice]);
  }
  world_.planner.forget(*execution_);
}

INSTANTIATE_TEST_SUITE_P(Table, ExecutionState, ::testing::ValuesIn(kTable),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace orbite::transfer
