// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "transport/borrow_flow.hpp"

namespace orbite::transport::cma {

/// Ordinary memory of a neighbour, through the kernel: one copy, made by whoever drives, of which
/// the neighbour's threads know nothing. Its deregistration is seen by the borrow ledger.
class CmaTransport final : public CopyTransport {
 public:
  CmaTransport(transfer::Planner& planner, const base::Clock& clock, std::uint64_t slice_bytes,
               peer::BorrowLinks& links, Copying copying);
  ~CmaTransport() override;

  [[nodiscard]] policy::TransportKind kind() const noexcept override {
    return policy::TransportKind::kCma;
  }
  /// nullptr for a peer that is no neighbour.
  Result<std::shared_ptr<transfer::Flow>> open(const peer::Peer& peer) override;
  [[nodiscard]] transfer::SliceLimits slice_limits() const noexcept override;
  [[nodiscard]] bool reaches(transfer::Flow& flow, const transfer::Prepared& prepared) override;
  /// Waits until that is decided.
  Result<void> connect(transfer::Flow& flow, base::Nanoseconds timeout_ns) override;

 protected:
  std::optional<transfer::SliceResult> copy(CopyFlow& flow, const transfer::Slice& slice) override;

 private:
  const std::uint64_t slice_bytes_;
  peer::BorrowLinks& links_;
};

}  // namespace orbite::transport::cma
