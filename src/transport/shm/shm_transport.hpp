// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "transport/borrow_flow.hpp"

namespace orbite::transport::shm {

/// Shared allocations of a neighbour, through a mapping of the same pages: a copy within our own
/// address space, made by whoever drives. Never ordinary memory.
class ShmTransport final : public CopyTransport {
 public:
  ShmTransport(transfer::Planner& planner, const base::Clock& clock, std::uint64_t slice_bytes,
               peer::BorrowLinks& links, OnCopy on_copy, Copying copying);
  ~ShmTransport() override;

  [[nodiscard]] policy::TransportKind kind() const noexcept override {
    return policy::TransportKind::kShm;
  }
  /// nullptr for a peer that is no neighbour.
  Result<std::shared_ptr<transfer::Flow>> open(const peer::Peer& peer) override;
  [[nodiscard]] transfer::SliceLimits slice_limits() const noexcept override;
  [[nodiscard]] bool reaches(transfer::Flow& flow, const transfer::Prepared& prepared) override;
  /// Has a range mapped, if `flow` is one of ours and not nullptr.
  void want(transfer::Flow* flow, const std::shared_ptr<peer::RemoteRange>& range);
  /// Waits until what was imported so far is mapped, or cannot be.
  Result<void> connect(transfer::Flow& flow, base::Nanoseconds timeout_ns) override;

 protected:
  std::optional<transfer::SliceResult> copy(CopyFlow& flow, const transfer::Slice& slice) override;

 private:
  const std::uint64_t slice_bytes_;
  peer::BorrowLinks& links_;
  const OnCopy on_copy_;
};

}  // namespace orbite::transport::shm
