// SPDX-License-Identifier: Apache-2.0
#include "transport/local/local_transport.hpp"

#include <algorithm>
#include <cstring>

#include "base/assert.hpp"

namespace orbite::transport::local {
namespace {

constexpr std::uint32_t kQueueMax = 64;

}  // namespace

Result<std::shared_ptr<transfer::Flow>> LocalTransport::open(const peer::Peer& peer) {
  ORBITE_CHECK(peer.is_self());
  return std::shared_ptr<transfer::Flow>(flow_);
}

transfer::SliceLimits LocalTransport::slice_limits() const noexcept {
  return {slice_bytes_, 4096, UINT32_MAX};
}

bool LocalTransport::has_room(transfer::Flow& /*flow*/, policy::QosClass qos) {
  const std::lock_guard lock(mutex_);
  return queue_[static_cast<std::size_t>(qos)].count() < kQueueMax;
}

Result<void> LocalTransport::submit(transfer::Flow& /*flow*/, transfer::Slice& slice) {
  const std::lock_guard lock(mutex_);
  queue_[static_cast<std::size_t>(slice.qos)].push_back(slice);
  return {};
}

bool LocalTransport::busy() {
  const std::lock_guard lock(mutex_);
  return std::any_of(queue_.begin(), queue_.end(), [](const auto& q) { return q.count() > 0; });
}

void LocalTransport::drop_unposted(transfer::Flow& /*flow*/, const transfer::Execution& execution) {
  const auto of_it = [&](const transfer::Slice& slice) {
    return slice.execution.get() == &execution;
  };
  for (auto& queue : queue_) {
    transfer::Slice* slice = nullptr;
    {
      const std::lock_guard lock(mutex_);
      slice = queue.extract(of_it);
    }
    while (slice != nullptr) {
      transfer::Slice* const next = slice->next;
      complete(*slice, {ErrorCode::kCanceled, 0, 0, RemoteEffect::kNone, false});
      retire(*slice);
      slice = next;
    }
  }
}

transfer::Slice* LocalTransport::take_next() {
  const std::lock_guard lock(mutex_);
  for (auto& queue : queue_) {
    if (transfer::Slice* const slice = queue.pop_front(); slice != nullptr) {
      return slice;
    }
  }
  return nullptr;
}

void LocalTransport::drive(transfer::Flow& /*flow*/, transfer::WorkLimit& limit,
                           transfer::Driver /*driver*/) {
  while (!limit.exhausted()) {
    transfer::Slice* const slice = take_next();
    if (slice == nullptr) {
      return;
    }
    limit.spend(slice->bytes);
    copy(*slice);
  }
}

void LocalTransport::copy(transfer::Slice& slice) {
  const transfer::Execution& execution = *slice.execution;
  transfer::SliceResult result;
  if (execution.stopped()) {
    result.code = ErrorCode::kCanceled;
    complete(slice, result);
    retire(slice);
    return;
  }
  std::uint64_t left = slice.bytes;
  std::uint64_t skip = slice.first_skip;
  for (std::uint32_t i = 0; i < slice.extent_count; ++i) {
    const transfer::Extent& extent = execution.prepared()->extents[slice.first_extent + i];
    const std::uint64_t length = std::min(extent.length - skip, left);
    // SAFETY: both ranges were checked against their registrations, on which the execution holds
    // loans until it has retired. They may overlap.
    std::uint64_t target = extent.local_address + skip;
    std::uint64_t source = extent.remote_address + skip;
    if (execution.operation() == Operation::kWrite) {
      std::swap(target, source);
    }
    if (on_copy_) {
      on_copy_(target, source, length);
    }
    std::memmove(reinterpret_cast<void*>(target),                 // NOLINT
                 reinterpret_cast<const void*>(source), length);  // NOLINT
    left -= length;
    skip = 0;
  }
  ORBITE_CHECK(left == 0);
  result.prefix_bytes = slice.bytes;
  result.effect = RemoteEffect::kComplete;
  const auto& notification = execution.notification();
  if (slice.carries_notification && notification.has_value()) {
    if (auto delivered = deliver_(*notification); delivered) {
      result.notification_delivered = true;
    } else {
      result.code = ErrorCode::kNotificationFailed;
    }
  }
  complete(slice, result);
  retire(slice);
}

}  // namespace orbite::transport::local
