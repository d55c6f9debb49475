// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <new>

#include "base/assert.hpp"
#include "transfer/transport.hpp"

namespace orbite::transfer {
namespace {

/// A slice that no transport accepted: nothing ever touched its bytes, which is the proof.
class RefusedPath final : public CompletionPath {
 public:
  using CompletionPath::CompletionPath;
  static void complete_refused(Slice& slice, const Error& error) {
    complete(slice, result_of(error));
  }
  void retire_refused(Slice& slice) { retire(slice); }
  void end_refused(Slice& slice, const Error& error) { end_carried(slice, result_of(error)); }

 private:
  static SliceResult result_of(const Error& error) {
    return {error.code(), error.native_errno(), 0, RemoteEffect::kNone, false};
  }
};

}  // namespace

Slice* Planner::acquire_slice() noexcept {
  const std::lock_guard lock(slab_mutex_);
  if (free_ == nullptr) {
    try {
      free_ = &slab_.emplace_back();
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  Slice* const slice = free_;
  free_ = slice->next;
  slice->next = nullptr;
  ++out_;
  return slice;
}

void Planner::recycle_slice(Slice& slice) noexcept {
  // Outside the lock: it may be the last owner of the execution.
  const std::shared_ptr<Execution> execution = std::move(slice.execution);
  const std::lock_guard lock(slab_mutex_);
  ORBITE_CHECK(out_ > 0);
  --out_;
  slice.next = free_;
  free_ = &slice;
}

std::size_t Planner::slices_out() const {
  const std::lock_guard lock(slab_mutex_);
  return out_;
}

void Planner::begin(Transport& transport, Flow& flow, const std::shared_ptr<Execution>& execution) {
  if (!carry(transport, flow, *execution)) {
    enqueue(flow, execution);
    pump(transport, flow);
  }
}

/// False: nothing of it was handed out.
bool Planner::carry(Transport& transport, Flow& flow, Execution& execution) {
  const SliceLimits limits = transport.slice_limits();
  Slice slice;
  if (!transport.carries() || !execution.is_small(limits) || !execution.next_slice(limits, slice)) {
    return false;
  }
  if (transport.carry(slice)) {
    return true;
  }
  Slice* const kept = acquire_slice();
  if (kept == nullptr) {
    RefusedPath(*this).end_refused(slice, Error(ErrorCode::kOutOfMemory));
    return true;
  }
  *kept = std::move(slice);
  // Who stops it meanwhile finds it nowhere: it is dropped when its turn comes, without effect.
  if (auto accepted = transport.submit(flow, *kept); !accepted) {
    RefusedPath::complete_refused(*kept, accepted.error());
    RefusedPath(*this).retire_refused(*kept);
  }
  return true;
}

void Planner::enqueue(Flow& flow, std::shared_ptr<Execution> execution) noexcept {
  const policy::QosClass qos = execution->next_qos();
  ExecutionQueue& waiting = flow.waiting_[static_cast<std::size_t>(qos)];
  const std::lock_guard lock(flow.mutex_);
  // Whoever stopped it forgets it under this lock: either before, and it is seen stopped here, or
  // after.
  if (execution->stopped()) {
    return;
  }
  ORBITE_CHECK(execution->place_in(flow.kind()) != nullptr);
  Execution::Place& place = *execution->place_in(flow.kind());
  ORBITE_CHECK(!place.queued_in.has_value());
  place.queued_in = qos;
  waiting.push_back(place.at, std::move(execution));
}

/// Under flow.mutex_. Returns what the queue owned.
std::shared_ptr<Execution> Planner::leave_queue(Flow& flow, Execution& execution) noexcept {
  Execution::Place& place = *execution.place_in(flow.kind());
  ORBITE_CHECK(place.queued_in.has_value());
  ExecutionQueue& waiting = flow.waiting_[static_cast<std::size_t>(*place.queued_in)];
  place.queued_in.reset();
  return waiting.remove(place.at);
}

void Planner::forget(Execution& execution) {
  const std::shared_ptr<Execution> last = execution.shared_from_this();  // released after the lock
  const policy::Route& route = execution.route();
  for (const policy::TransportKind kind : {route.transport, route.control}) {
    const Execution::Place* const place = execution.place_in(kind);
    if (place == nullptr) {
      continue;
    }
    Flow& flow = flow_of(execution.peer(), kind);
    const std::lock_guard lock(flow.mutex_);
    if (place->queued_in.has_value()) {
      leave_queue(flow, execution);
    }
  }
}

bool Planner::waiting(Flow& flow) {
  const std::lock_guard lock(flow.mutex_);
  return std::any_of(flow.waiting_.begin(), flow.waiting_.end(),
                     [](const auto& queue) { return !queue.empty(); });
}

/// Under flow.mutex_. False when there is nothing to hand out or no room for it.
bool Planner::hand_out_next(Transport& transport, Flow& flow, std::size_t qos, Leftover& leftover) {
  ExecutionQueue& waiting = flow.waiting_[qos];
  while (!waiting.empty()) {
    if (!transport.has_room(flow, static_cast<policy::QosClass>(qos))) {
      return false;
    }
    Slice* const slice = acquire_slice();
    if (slice == nullptr) {
      leftover.starved = leave_queue(flow, waiting.front());
      return true;
    }
    if (!waiting.front().next_slice(transport.slice_limits(), *slice)) {
      recycle_slice(*slice);
      leave_queue(flow, waiting.front());
      continue;
    }
    if (!waiting.front().has_unplanned_for(flow.kind())) {
      leave_queue(flow, waiting.front());
    }
    if (auto accepted = transport.submit(flow, *slice); !accepted) {
      leftover.refused = slice;
      RefusedPath::complete_refused(*slice, accepted.error());
    }
    return true;
  }
  return false;
}

void Planner::pump(Transport& transport, Flow& flow) {
  for (std::size_t qos = 0; qos < policy::kQosClasses; ++qos) {
    bool more = true;
    while (more) {
      Leftover leftover;
      {
        const std::lock_guard lock(flow.mutex_);
        more = hand_out_next(transport, flow, qos, leftover);
      }
      if (leftover.refused != nullptr) {
        RefusedPath(*this).retire_refused(*leftover.refused);
      }
      if (leftover.starved != nullptr) {
        // Its slices that wait in the transport are dropped there, as those of any stopped one.
        leftover.starved->stop(ErrorCode::kOutOfMemory);
      }
    }
  }
}

void CompletionPath::retire(Slice& slice) {
  const std::shared_ptr<Execution> execution = slice.execution;
  Flow& flow = *slice.flow;
  const bool more = execution->retire_slice(RetirementReceipt(RetirementReceipt::Passkey(), slice));
  planner_.recycle_slice(slice);
  if (more) {
    Flow& control = flow_of(execution->peer(), execution->route().control);
    planner_.enqueue(control, execution);
    if (&control != &flow) {
      planner_.pump(*planner_.transport(control.kind()), control);
    }
  }
  planner_.pump(*planner_.transport(flow.kind()), flow);
}

void CompletionPath::end_carried(Slice& slice, const SliceResult& result) {
  Execution& execution = *slice.execution;
  if (execution.end_slice(result, RetirementReceipt(RetirementReceipt::Passkey(), slice))) {
    Flow& control = flow_of(execution.peer(), execution.route().control);
    planner_.enqueue(control, slice.execution);
    planner_.pump(*planner_.transport(control.kind()), control);
  }
}

}  // namespace orbite::transfer
