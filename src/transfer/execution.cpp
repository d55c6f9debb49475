// SPDX-License-Identifier: Apache-2.0
#include "transfer/execution.hpp"

#include <algorithm>

#include "base/assert.hpp"
#include "base/planted.hpp"
#include "transfer/transport.hpp"

namespace orbite::transfer {

Execution::Execution(Options&& options)
    : prepared_(std::move(options.prepared)),
      peer_(std::move(options.peer)),
      route_(options.route),
      deadline_ns_(options.deadline_ns),
      posted_ns_(options.posted_ns),
      notification_(std::move(options.notification)),
      loans_(std::move(options.loans)),
      bytes_charge_(std::move(options.bytes_charge)),
      outbox_charge_(std::move(options.outbox_charge)),
      on_terminal_(std::move(options.on_terminal)),
      unplanned_(prepared_ != nullptr ? ExtentCursor(prepared_->extents) : ExtentCursor()) {
  ORBITE_CHECK(prepared_ != nullptr || (notification_.has_value() && peer_ != nullptr));
  if (notification_.has_value() && route_.control != route_.transport) {
    control_place_.emplace();
  }
}

Execution::~Execution() { ORBITE_CHECK(all_retired_locked()); }

bool Execution::has_unplanned() const {
  return has_unplanned_for(route_.transport) || has_unplanned_for(route_.control);
}

bool Execution::has_unplanned_for(policy::TransportKind transport) const {
  const std::lock_guard lock(mutex_);
  if (stopped() || logical_ != Logical::kNone) {
    return false;
  }
  return planned_bytes_ < bytes() ? transport == route_.transport
                                  : transport == route_.control && notification_is_next_locked();
}

bool Execution::only_notifies() const {
  const std::lock_guard lock(mutex_);
  return notification_planned_ && planned_bytes_ == bytes() && outstanding_ == 1;
}

/// All bytes are handed out and have retired.
bool Execution::notification_is_next_locked() const {
  const bool bytes_retired = outstanding_ == 0 || base::planted(base::Bug::kNotifyBeforeBytes);
  return planned_bytes_ == bytes() && notification_.has_value() && !notification_planned_ &&
         bytes_retired;
}

policy::QosClass Execution::next_qos() const {
  const std::lock_guard lock(mutex_);
  return planned_bytes_ < bytes() ? route_.qos : policy::QosClass::kLatency;
}

bool Execution::is_small(const SliceLimits& limits) const noexcept {
  // As if each of its descriptors were of another owner: cut_slice() counts them so at worst.
  return prepared_ != nullptr && route_.qos == policy::QosClass::kLatency &&
         prepared_->bytes <= limits.bytes_max && prepared_->tasks <= limits.extents_max &&
         prepared_->tasks <= limits.remotes_max;
}

bool Execution::cut_slice(const SliceLimits& limits, Slice& slice) {
  slice.extents = unplanned_;
  slice.offset = planned_bytes_;
  slice.bytes = 0;
  slice.extent_count = 0;
  std::uint32_t remotes = 0;
  std::uint32_t last_remote = UINT32_MAX;
  while (!unplanned_.at_end() && slice.bytes < limits.bytes_max &&
         slice.extent_count < limits.extents_max) {
    // Counts changes of owner, not owners: never less than the table that a frame needs.
    if (unplanned_.remote_index() != last_remote) {
      if (remotes == limits.remotes_max) {
        break;
      }
      ++remotes;
      last_remote = unplanned_.remote_index();
    }
    slice.bytes += unplanned_.take(limits.bytes_max - slice.bytes).length;
    ++slice.extent_count;
  }
  slice.extents.end_after(slice.bytes);
  planned_bytes_ += slice.bytes;
  return slice.bytes > 0;
}

bool Execution::next_slice(const SliceLimits& limits, Slice& slice) {
  const std::lock_guard lock(mutex_);
  if (stopped() || logical_ != Logical::kNone) {
    return false;
  }
  slice.carries_notification = false;
  slice.qos = planned_bytes_ < bytes() ? route_.qos : policy::QosClass::kLatency;
  slice.completed = false;
  slice.retired = false;
  if (planned_bytes_ < bytes()) {
    const bool first = planned_bytes_ == 0;
    ORBITE_CHECK(cut_slice(limits, slice));
    // A WRITE of one slice takes its notification along: the target delivers it after the bytes, on
    // the same lane, and one round trip is saved. A READ cannot: the target does not know when its
    // bytes have arrived here. Nor can bytes that go another way.
    if (first && planned_bytes_ == bytes() && operation() == Operation::kWrite &&
        notification_.has_value() && route_.control == route_.transport) {
      slice.carries_notification = true;
      notification_planned_ = true;
    }
  } else if (notification_is_next_locked()) {
    slice.extents = ExtentCursor();
    slice.extent_count = 0;
    slice.bytes = 0;
    slice.offset = bytes();
    slice.carries_notification = true;
    notification_planned_ = true;
  } else {
    return false;
  }
  ++outstanding_;
  slice.flow = &flow_of(peer(), slice.bytes > 0 ? route_.transport : route_.control);
  slice.execution = shared_from_this();
  return true;
}

void Execution::fail_locked(ErrorCode code, std::int32_t native_errno) {
  if (logical_ != Logical::kNone && !base::planted(base::Bug::kOutcomeSetTwice)) {
    return;
  }
  logical_ = code == ErrorCode::kCanceled ? Logical::kCanceled : Logical::kFailed;
  code_ = code;
  native_errno_ = native_errno;
  // Relaxed: see stopped().
  stopped_.store(true, std::memory_order_relaxed);
}

void Execution::set_success_if_done_locked() {
  const bool notified = !notification_.has_value() || notification_delivered_ ||
                        base::planted(base::Bug::kSuccessWithoutNotification);
  if (logical_ == Logical::kNone && landed_bytes_ == bytes() && notified) {
    logical_ = Logical::kSuccess;
  }
}

void Execution::complete_slice(Slice& slice, const SliceResult& result) {
  const std::lock_guard lock(mutex_);
  complete_locked(slice, result);
}

void Execution::complete_locked(Slice& slice, const SliceResult& result) {
  ORBITE_CHECK(!slice.completed && slice.execution.get() == this);
  ORBITE_CHECK(result.prefix_bytes <= slice.bytes);
  slice.completed = true;
  landed_bytes_ += result.prefix_bytes;
  if (result.prefix_bytes < slice.bytes) {
    first_gap_ = std::min(first_gap_, slice.offset + result.prefix_bytes);
  }
  if (slice.carries_notification && result.notification_delivered) {
    notification_delivered_ = true;
  }
  if (result.effect == RemoteEffect::kUnknown) {
    effect_unknown_ = true;
  }
  if (result.code == ErrorCode::kCanceled && !stopped()) {
    fail_locked(ErrorCode::kProtocolViolation, result.native_errno);
  } else if (result.code != ErrorCode::kOk) {
    fail_locked(result.code, result.native_errno);
  } else {
    ORBITE_CHECK(result.prefix_bytes == slice.bytes);
    set_success_if_done_locked();
  }
}

bool Execution::retire_slice(RetirementReceipt receipt) {
  return retire(std::move(receipt), std::unique_lock(mutex_));
}

bool Execution::end_slice(const SliceResult& result, RetirementReceipt receipt) {
  std::unique_lock lock(mutex_);
  complete_locked(*receipt.slice(), result);
  return retire(std::move(receipt), std::move(lock));
}

bool Execution::retire(RetirementReceipt receipt, std::unique_lock<std::mutex> lock) {
  Slice& slice = *receipt.slice();
  ORBITE_CHECK(slice.completed && !slice.retired && slice.execution.get() == this);
  ORBITE_CHECK(outstanding_ > 0);
  slice.retired = true;
  --outstanding_;
  const bool notification_due =
      logical_ == Logical::kNone && !stopped() && notification_is_next_locked();
  finish_if_done(std::move(lock));
  return notification_due;
}

void Execution::stop(ErrorCode code) {
  std::unique_lock lock(mutex_);
  // Relaxed: see stopped().
  stopped_.store(true, std::memory_order_relaxed);
  const bool all_handed_out =
      planned_bytes_ == bytes() && (!notification_.has_value() || notification_planned_);
  // A cancel that comes when everything is on its way changes nothing, unless the transport still
  // drops a slice; that slice then tells.
  if (code != ErrorCode::kCanceled || !all_handed_out) {
    fail_locked(code, 0);
  }
  finish_if_done(std::move(lock));
}

/// Nothing that was handed out can touch the buffers any more.
bool Execution::all_retired_locked() const {
  return outstanding_ == 0 ||
         (base::planted(base::Bug::kReleaseOnLogicalFailure) && logical_ == Logical::kFailed) ||
         (base::planted(base::Bug::kCancelClaimsDrained) && logical_ == Logical::kCanceled);
}

/// The one place where an execution becomes terminal.
void Execution::finish_if_done(std::unique_lock<std::mutex> lock) {
  if (!all_retired_locked() || logical_ == Logical::kNone ||
      terminal_.load(std::memory_order_relaxed)) {
    return;
  }
  loans_.clear();
  Charge bytes_charge = std::move(bytes_charge_);
  Charge outbox_charge = std::move(outbox_charge_);
  std::function<void(Execution&)> on_terminal = std::move(on_terminal_);
  on_terminal_ = nullptr;
  bytes_charge = Charge();
  outbox_charge = Charge();
  // Release: everything that was done to the buffers and to the outcome happens before. Pairs with
  // the acquire in terminal().
  terminal_.store(true, std::memory_order_release);
  lock.unlock();
  if (on_terminal) {
    on_terminal(*this);
  }
}

Outcome Execution::outcome_locked() const {
  Outcome outcome;
  outcome.logical = logical_;
  const bool retired =
      terminal_.load(std::memory_order_relaxed) ||
      (base::planted(base::Bug::kTerminalBeforeRetirement) && logical_ != Logical::kNone);
  outcome.drain = retired ? Drain::kRetired : Drain::kPending;
  outcome.code = code_;
  outcome.native_errno = native_errno_;
  outcome.bytes_total = bytes();
  outcome.route = policy::transport_name(route_.transport);
  if (logical_ == Logical::kSuccess) {
    outcome.bytes_prefix = bytes();
    outcome.effect = RemoteEffect::kComplete;
    return outcome;
  }
  // Exact once nothing is outstanding; until then slices are in flight on several lanes and only 0
  // is sure.
  const std::uint64_t prefix = base::planted(base::Bug::kPrefixTooLarge)
                                   ? landed_bytes_
                                   : std::min(first_gap_, planned_bytes_);
  outcome.bytes_prefix = outstanding_ == 0 ? prefix : 0;
  if (effect_unknown_ || outstanding_ != 0) {
    outcome.effect = planned_bytes_ == 0 ? RemoteEffect::kNone : RemoteEffect::kUnknown;
  } else if (landed_bytes_ == 0) {
    outcome.effect = RemoteEffect::kNone;
  } else if (landed_bytes_ == bytes()) {
    outcome.effect = RemoteEffect::kComplete;
  } else {
    // Slices behind the gap landed as well: what is in place is known to us, but is no prefix.
    outcome.effect = landed_bytes_ == prefix ? RemoteEffect::kPrefix : RemoteEffect::kUnknown;
  }
  return outcome;
}

Outcome Execution::outcome() const {
  // Nothing changes any more.
  if (terminal()) {
    return outcome_locked();
  }
  const std::lock_guard lock(mutex_);
  return outcome_locked();
}

}  // namespace orbite::transfer
