// SPDX-License-Identifier: Apache-2.0
#include "transport/local/local_transport.hpp"

#include <utility>

#include "base/assert.hpp"
#include "transport/copied_extents.hpp"

namespace orbite::transport::local {

LocalTransport::LocalTransport(transfer::Planner& planner, const base::Clock& clock,
                               std::uint64_t slice_bytes, Deliver deliver, OnCopy on_copy,
                               Copying copying)
    : CopyTransport(planner, clock, std::move(copying)),
      slice_bytes_(slice_bytes),
      deliver_(std::move(deliver)),
      on_copy_(std::move(on_copy)) {
  let_workers_in();
}

LocalTransport::~LocalTransport() { keep_workers_out(); }

Result<std::shared_ptr<transfer::Flow>> LocalTransport::open(const peer::Peer& peer) {
  ORBITE_CHECK(peer.is_self());
  return std::shared_ptr<transfer::Flow>(flow_);
}

transfer::SliceLimits LocalTransport::slice_limits() const noexcept {
  return {slice_bytes_, 4096, UINT32_MAX};
}

std::optional<transfer::SliceResult> LocalTransport::copy(CopyFlow& /*flow*/,
                                                          const transfer::Slice& slice) {
  const transfer::Execution& execution = *slice.execution;
  transfer::SliceResult result;
  if (slice.bytes != 0) {
    // SAFETY: both ranges were checked against their registrations, on which the execution holds
    // loans until it has retired.
    copy_extents(slice, copying().copier, on_copy_,
                 [](const transfer::Extent& extent) { return extent.remote_address; });
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
  return result;
}

}  // namespace orbite::transport::local
