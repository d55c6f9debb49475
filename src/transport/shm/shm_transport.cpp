// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/shm_transport.hpp"

#include <algorithm>
#include <utility>

#include "base/planted.hpp"
#include "transport/copied_extents.hpp"

namespace orbite::transport::shm {
namespace {

/// Extents of one slice. A copy of ours asks for no list of them.
constexpr std::uint32_t kExtentsMax = 4096;

}  // namespace

ShmTransport::ShmTransport(transfer::Planner& planner, const base::Clock& clock,
                           std::uint64_t slice_bytes, peer::BorrowLinks& links, OnCopy on_copy,
                           Copying copying)
    : CopyTransport(planner, clock, std::move(copying)),
      slice_bytes_(slice_bytes),
      links_(links),
      on_copy_(std::move(on_copy)) {
  let_workers_in();
}

ShmTransport::~ShmTransport() { keep_workers_out(); }

Result<std::shared_ptr<transfer::Flow>> ShmTransport::open(const peer::Peer& peer) {
  return open_borrow_flow(kind(), links_, peer);
}

transfer::SliceLimits ShmTransport::slice_limits() const noexcept {
  return {slice_bytes_, kExtentsMax, peer::BorrowSeats::kNamesMax};
}

bool ShmTransport::reaches(transfer::Flow& flow, const transfer::Prepared& prepared) {
  return static_cast<BorrowFlow&>(flow).link().ready() &&
         std::all_of(prepared.remotes.begin(), prepared.remotes.end(),
                     [](const auto& remote) { return remote->mapped_at() != 0; });
}

void ShmTransport::want(transfer::Flow* flow, const std::shared_ptr<peer::RemoteRange>& range) {
  if (flow != nullptr) {
    links_.fetch(static_cast<BorrowFlow&>(*flow).link(), range);
  }
}

Result<void> ShmTransport::connect(transfer::Flow& flow, base::Nanoseconds timeout_ns) {
  links_.connect_and_fetch(static_cast<BorrowFlow&>(flow).link(), timeout_ns);
  return {};
}

std::optional<transfer::SliceResult> ShmTransport::copy(CopyFlow& flow,
                                                        const transfer::Slice& slice) {
  peer::BorrowLink& link = static_cast<BorrowFlow&>(flow).link();
  auto stay = enter(link, slice);
  if (!stay) {
    return not_entered(stay.error());
  }
  if (base::planted(base::Bug::kMappedCopyLeavesEarly)) {
    const peer::BorrowSeats::Stay left = std::move(*stay);
  }
  const transfer::Prepared& prepared = *slice.execution->prepared();
  // SAFETY: ours was checked against its registration, on which the execution holds a loan; theirs
  // lies in the pages that the range holds, and stays the registration's while we are inside.
  copy_extents(slice, copying().copier, on_copy_, [&](const transfer::Extent& extent) {
    const peer::RemoteRange& range = *prepared.remotes[extent.remote_index];
    return range.mapped_at() + (extent.remote_address - range.blob().address);
  });
  return transfer::SliceResult{ErrorCode::kOk, 0, slice.bytes, RemoteEffect::kComplete, false};
}

}  // namespace orbite::transport::shm
