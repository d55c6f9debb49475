// SPDX-License-Identifier: Apache-2.0
#include "transport/copy_transport.hpp"

#include <algorithm>
#include <utility>

#include "base/assert.hpp"

namespace orbite::transport {
namespace {

/// Of one flow and class.
constexpr std::uint32_t kQueueMax = 64;
constexpr base::Nanoseconds kIdleSleep = base::kSecond;
/// What the worker copies before it looks after others.
constexpr transfer::WorkLimit kWorkerLimit{std::uint64_t{4} << 20, 16};

CopyFlow& copy_flow(transfer::Flow& flow) { return static_cast<CopyFlow&>(flow); }

}  // namespace

CopyTransport::CopyTransport(transfer::Planner& planner, const base::Clock& clock, Copying copying)
    : CompletionPath(planner),
      clock_(clock),
      copying_(std::move(copying)),
      patience_(copying_.processors_are_short) {}

CopyTransport::~CopyTransport() { ORBITE_CHECK(!workers_in_ && listed_.empty()); }

void CopyTransport::let_workers_in() {
  if (copying_.workers != nullptr) {
    copying_.workers->enroll(slices_);
    workers_in_ = true;
  }
}

void CopyTransport::keep_workers_out() {
  if (std::exchange(workers_in_, false)) {
    copying_.workers->withdraw(slices_);
  }
}

Result<std::vector<wire::DescribedRange>> CopyTransport::describe(
    transfer::Flow& /*flow*/, std::span<const wire::RegistrationRef> /*registrations*/,
    base::Nanoseconds /*timeout_ns*/) {
  return fail(ErrorCode::kUnsupported, "there is nobody to ask");
}

bool CopyTransport::has_room(transfer::Flow& flow, policy::QosClass qos) {
  const std::lock_guard lock(mutex_);
  return copy_flow(flow).queue_[static_cast<std::size_t>(qos)].count() < kQueueMax;
}

Result<void> CopyTransport::submit(transfer::Flow& flow, transfer::Slice& slice) {
  CopyFlow& its = copy_flow(flow);
  const std::lock_guard lock(mutex_);
  its.queue_[static_cast<std::size_t>(slice.qos)].push_back(slice);
  if (!std::exchange(its.listed_, true)) {
    listed_.splice(listed_.end(), its.place_);
  }
  return {};
}

/// Under mutex_. Of the classes up to `last`. Invariant: a flow is listed while it has slices, so
/// one that nobody holds any more, whose slices have all retired, is not.
transfer::Slice* CopyTransport::pop(CopyFlow& flow, policy::QosClass last) {
  transfer::Slice* slice = nullptr;
  bool more = false;
  for (std::size_t qos = 0; qos < flow.queue_.size(); ++qos) {
    if (slice == nullptr && qos <= static_cast<std::size_t>(last)) {
      slice = flow.queue_[qos].pop_front();
    }
    more = more || flow.queue_[qos].count() > 0;
  }
  if (!more && std::exchange(flow.listed_, false)) {
    flow.place_.splice(flow.place_.end(), listed_,
                       std::find(listed_.begin(), listed_.end(), &flow));
  }
  return slice;
}

transfer::Slice* CopyTransport::take_of(CopyFlow& flow, policy::QosClass last) {
  const std::lock_guard lock(mutex_);
  return pop(flow, last);
}

/// Of the flow whose turn it is.
transfer::Slice* CopyTransport::take_any() {
  const std::lock_guard lock(mutex_);
  if (listed_.empty()) {
    return nullptr;
  }
  CopyFlow& flow = *listed_.front();
  listed_.splice(listed_.end(), listed_, listed_.begin());
  return pop(flow, policy::QosClass::kBulk);
}

void CopyTransport::put_back(transfer::Slice& slice) {
  CopyFlow& flow = copy_flow(*slice.flow);
  const std::lock_guard lock(mutex_);
  flow.queue_[static_cast<std::size_t>(slice.qos)].push_front(slice);
  if (!std::exchange(flow.listed_, true)) {
    listed_.splice(listed_.end(), flow.place_);
  }
}

bool CopyTransport::busy() {
  const std::lock_guard lock(mutex_);
  return !listed_.empty();
}

void CopyTransport::drop_unposted(transfer::Flow& flow, const transfer::Execution& execution) {
  const auto of_it = [&](const transfer::Slice& slice) {
    return slice.execution.get() == &execution;
  };
  CopyFlow& its = copy_flow(flow);
  for (auto& queue : its.queue_) {
    transfer::Slice* slice = nullptr;
    {
      const std::lock_guard lock(mutex_);
      slice = queue.extract(of_it);
      const bool empty = std::all_of(its.queue_.begin(), its.queue_.end(),
                                     [](const auto& waiting) { return waiting.count() == 0; });
      if (empty && std::exchange(its.listed_, false)) {
        its.place_.splice(its.place_.end(), listed_,
                          std::find(listed_.begin(), listed_.end(), &its));
      }
    }
    while (slice != nullptr) {
      transfer::Slice* const next = slice->next;
      complete(*slice, {ErrorCode::kCanceled, 0, 0, RemoteEffect::kNone, false});
      retire(*slice);
      slice = next;
    }
  }
}

/// Nothing: not now.
std::optional<transfer::SliceResult> CopyTransport::move(transfer::Slice& slice) {
  if (slice.execution->stopped()) {
    return transfer::SliceResult{ErrorCode::kCanceled, 0, 0, RemoteEffect::kNone, false};
  }
  return copy(copy_flow(*slice.flow), slice);
}

bool CopyTransport::carry(transfer::Slice& slice) {
  const auto result = move(slice);
  if (result.has_value()) {
    end_carried(slice, *result);
  }
  return result.has_value();
}

bool CopyTransport::finish(transfer::Slice& slice) {
  const auto result = move(slice);
  if (!result.has_value()) {
    put_back(slice);
    return false;
  }
  complete(slice, *result);
  retire(slice);
  return true;
}

/// While a caller does bulk work, and for a while after it.
class CopyTransport::CallerInside {
 public:
  CallerInside(CopyTransport& transport, transfer::Driver driver)
      : transport_(driver == transfer::Driver::kCaller ? &transport : nullptr),
        seen_(transport_ != nullptr ? &transport.callers_ : nullptr, transport.clock_) {
    if (transport_ != nullptr) {
      transport_->callers_inside_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  CallerInside(const CallerInside&) = delete;
  CallerInside& operator=(const CallerInside&) = delete;
  ~CallerInside() {
    if (transport_ != nullptr) {
      transport_->callers_inside_.fetch_sub(1, std::memory_order_relaxed);
    }
  }

 private:
  CopyTransport* const transport_;
  const transfer::CallerSeen seen_;
};

void CopyTransport::drive(transfer::Flow& flow, transfer::WorkLimit& limit,
                          transfer::Driver driver) {
  const CallerInside inside(*this, driver);
  if (driver != transfer::Driver::kLatencyCaller) {
    ask_for_help();
  }
  const policy::QosClass last = driver == transfer::Driver::kLatencyCaller
                                    ? policy::QosClass::kLatency
                                    : policy::QosClass::kBulk;
  while (!limit.exhausted()) {
    transfer::Slice* const slice = take_of(copy_flow(flow), last);
    if (slice == nullptr) {
      return;
    }
    limit.spend(slice->bytes);
    if (!finish(*slice)) {
      return;
    }
  }
}

bool CopyTransport::caller_is_here(base::Nanoseconds now_ns) {
  return callers_inside_.load(std::memory_order_relaxed) > 0 || patience_.expects(callers_, now_ns);
}

bool CopyTransport::waits_unwatched() {
  return !watched_.load(std::memory_order_relaxed) && busy();
}

base::Nanoseconds CopyTransport::on_tick(base::Nanoseconds now_ns) {
  watched_.store(false, std::memory_order_relaxed);
  if (!busy()) {
    patience_.rest();
    return kIdleSleep;
  }
  if (!caller_is_here(now_ns)) {
    patience_.rest();
    ask_for_help();
    transfer::WorkLimit limit = kWorkerLimit;
    while (!limit.exhausted()) {
      transfer::Slice* const slice = take_any();
      if (slice == nullptr) {
        break;
      }
      limit.spend(slice->bytes);
      if (!finish(*slice)) {
        break;
      }
    }
  }
  if (!busy()) {
    return kIdleSleep;
  }
  watched_.store(true, std::memory_order_relaxed);
  return patience_.watch_ns();
}

void CopyTransport::ask_for_help() {
  if (copying_.workers == nullptr) {
    return;
  }
  std::uint64_t bytes = 0;
  std::size_t slices = 0;
  {
    const std::lock_guard lock(mutex_);
    for (const CopyFlow* const flow : listed_) {
      for (const auto& queue : flow->queue_) {
        bytes += queue.bytes();
        slices += queue.count();
      }
    }
  }
  if (slices > 1 && bytes >= copying_.workers_min_bytes) {
    copying_.workers->offer(slices_, slices - 1);
  }
}

bool CopyTransport::Slices::do_piece() noexcept {
  transfer::Slice* const slice = transport_.take_any();
  if (slice == nullptr) {
    return false;
  }
  const bool finished = transport_.finish(*slice);
  if (transport_.copying_.after_help) {
    transport_.copying_.after_help();
  }
  return finished;
}

}  // namespace orbite::transport
