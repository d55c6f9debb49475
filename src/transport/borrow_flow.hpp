// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "peer/borrow_link.hpp"
#include "transport/copy_transport.hpp"

namespace orbite::transport {

/// To a neighbour whose memory we borrow.
class BorrowFlow final : public CopyFlow {
 public:
  BorrowFlow(policy::TransportKind kind, std::shared_ptr<peer::BorrowLink> link)
      : CopyFlow(kind), link_(std::move(link)) {}

  [[nodiscard]] peer::BorrowLink& link() const noexcept { return *link_; }

 private:
  const std::shared_ptr<peer::BorrowLink> link_;
};

/// nullptr for a peer that is no neighbour.
inline Result<std::shared_ptr<transfer::Flow>> open_borrow_flow(policy::TransportKind kind,
                                                                peer::BorrowLinks& links,
                                                                const peer::Peer& peer) {
  auto link = links.want(peer.connection());
  if (!link) {
    return std::shared_ptr<transfer::Flow>();
  }
  return std::shared_ptr<transfer::Flow>(std::make_shared<BorrowFlow>(kind, std::move(*link)));
}

/// The owner's registrations that a slice touches, each once. A slice has at most as many as a seat
/// has names: that is what the transports' limits are for.
class BorrowedNames {
 public:
  explicit BorrowedNames(const transfer::Slice& slice) {
    const transfer::Prepared& prepared = *slice.execution->prepared();
    for (transfer::ExtentCursor extents = slice.extents; !extents.at_end();) {
      const wire::RangeBlob& blob = prepared.remotes[extents.remote_index()]->blob();
      const Handle name{blob.index, blob.generation};
      if (std::find(names_.begin(), names_.begin() + count_, name) == names_.begin() + count_) {
        names_[static_cast<std::size_t>(count_++)] = name;
      }
      extents.take();
    }
  }
  [[nodiscard]] std::span<const Handle> get() const noexcept {
    return {names_.data(), static_cast<std::size_t>(count_)};
  }

 private:
  std::array<Handle, peer::BorrowSeats::kNamesMax> names_;
  std::ptrdiff_t count_ = 0;
};

/// While the result lives, what the slice touches of the owner's stays registered.
/// kPeerDisconnected: the owner is gone, or its process may be another program by now;
/// kRegistrationFenced; kBudgetExhausted: not at this moment.
inline Result<peer::BorrowSeats::Stay> enter(peer::BorrowLink& link, const transfer::Slice& slice) {
  if (!link.ready()) {
    return fail(ErrorCode::kPeerDisconnected, "its link has ended");
  }
  const BorrowedNames names(slice);
  auto stay = link.seats().enter(names.get());
  if (!stay && stay.error().code() == ErrorCode::kRegistrationFenced && link.owner_closes()) {
    return fail(ErrorCode::kPeerDisconnected, "its engine closes");
  }
  return stay;
}

/// Of a slice that could not enter: nothing of it was done. Nothing: its turn comes again.
inline std::optional<transfer::SliceResult> not_entered(const Error& error) {
  if (error.code() == ErrorCode::kBudgetExhausted) {
    return std::nullopt;
  }
  return transfer::SliceResult{error.code(), 0, 0, RemoteEffect::kNone, false};
}

}  // namespace orbite::transport
