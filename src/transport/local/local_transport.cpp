// SPDX-License-Identifier: Apache-2.0
#include "transport/local/local_transport.hpp"

#include <algorithm>
#include <utility>

#include "base/assert.hpp"

namespace orbite::transport::local {
namespace {

constexpr std::uint32_t kQueueMax = 64;
// Extents that the copier is told of at a time.
constexpr std::uint32_t kPartsMax = 64;

/// SAFETY: both ranges were checked against their registrations, on which the execution holds loans
/// until it has retired.
copy::Part part_of(const transfer::Extent& extent, Operation operation) {
  std::uint64_t target = extent.local_address;
  std::uint64_t source = extent.remote_address;
  if (operation == Operation::kWrite) {
    std::swap(target, source);
  }
  return {reinterpret_cast<std::byte*>(target),        // NOLINT
          reinterpret_cast<const std::byte*>(source),  // NOLINT
          static_cast<std::size_t>(extent.length)};
}

}  // namespace

LocalTransport::LocalTransport(transfer::Planner& planner, std::uint64_t slice_bytes,
                               Deliver deliver, OnCopy on_copy, Copying copying)
    : CompletionPath(planner),
      slice_bytes_(slice_bytes),
      deliver_(std::move(deliver)),
      on_copy_(std::move(on_copy)),
      copying_(copying) {
  if (copying_.workers != nullptr) {
    copying_.workers->enroll(slices_);
  }
}

LocalTransport::~LocalTransport() {
  if (copying_.workers != nullptr) {
    copying_.workers->withdraw(slices_);
  }
}

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

/// Of the classes up to `last`.
transfer::Slice* LocalTransport::take_next(policy::QosClass last) {
  const std::lock_guard lock(mutex_);
  for (std::size_t qos = 0; qos <= static_cast<std::size_t>(last); ++qos) {
    if (transfer::Slice* const slice = queue_[qos].pop_front(); slice != nullptr) {
      return slice;
    }
  }
  return nullptr;
}

void LocalTransport::drive(transfer::Flow& /*flow*/, transfer::WorkLimit& limit,
                           transfer::Driver driver) {
  ask_for_help();
  const policy::QosClass last = driver == transfer::Driver::kLatencyCaller
                                    ? policy::QosClass::kLatency
                                    : policy::QosClass::kBulk;
  while (!limit.exhausted()) {
    transfer::Slice* const slice = take_next(last);
    if (slice == nullptr) {
      return;
    }
    limit.spend(slice->bytes);
    copy(*slice);
  }
}

void LocalTransport::ask_for_help() {
  if (copying_.workers == nullptr) {
    return;
  }
  std::uint64_t bytes = 0;
  std::size_t slices = 0;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& queue : queue_) {
      bytes += queue.bytes();
      slices += queue.count();
    }
  }
  if (slices > 1 && bytes >= copying_.workers_min_bytes) {
    copying_.workers->offer(slices_, slices - 1);
  }
}

bool LocalTransport::Slices::do_piece() noexcept {
  transfer::Slice* const slice = transport_.take_next(policy::QosClass::kBulk);
  if (slice != nullptr) {
    transport_.copy(*slice);
  }
  return slice != nullptr;
}

void LocalTransport::copy_extents(const transfer::Slice& slice) {
  const transfer::Execution& execution = *slice.execution;
  const transfer::Prepared& prepared = *execution.prepared();
  std::array<copy::Part, kPartsMax> parts;
  // Who is told of each copy is told just before it.
  const std::uint32_t parts_max = on_copy_ ? 1 : kPartsMax;
  for (transfer::ExtentCursor extents = slice.extents; !extents.at_end();) {
    std::uint32_t count = 0;
    std::uint64_t bytes = 0;
    while (count < parts_max && !extents.at_end()) {
      const transfer::Extent extent = extents.take();
      parts[count] = part_of(extent, execution.operation());
      bytes += extent.length;
      ++count;
    }
    if (on_copy_) {
      announce(parts[0]);
    }
    copy::PartCursor cursor({parts.data(), count});
    const std::uint64_t copied = copying_.copier.copy(cursor, bytes, prepared.bytes);
    ORBITE_CHECK(copied == bytes);
  }
}

void LocalTransport::announce(const copy::Part& part) const {
  on_copy_(reinterpret_cast<std::uint64_t>(part.target),  // NOLINT
           reinterpret_cast<std::uint64_t>(part.source),  // NOLINT
           part.bytes);
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
  if (slice.bytes != 0) {
    copy_extents(slice);
  }
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
