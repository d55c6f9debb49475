// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "transport/copy_transport.hpp"

namespace orbite::transport::local {

/// Transfers of an engine to itself: a copy within the process.
class LocalTransport final : public CopyTransport {
 public:
  /// Takes a notification to ourselves.
  using Deliver = std::function<Result<void>(std::span<const std::uint8_t> message)>;
  LocalTransport(transfer::Planner& planner, const base::Clock& clock, std::uint64_t slice_bytes,
                 Deliver deliver, OnCopy on_copy = {}, Copying copying = {});
  ~LocalTransport() override;

  [[nodiscard]] policy::TransportKind kind() const noexcept override {
    return policy::TransportKind::kLocal;
  }
  Result<std::shared_ptr<transfer::Flow>> open(const peer::Peer& peer) override;
  [[nodiscard]] transfer::SliceLimits slice_limits() const noexcept override;

 protected:
  std::optional<transfer::SliceResult> copy(CopyFlow& flow, const transfer::Slice& slice) override;

 private:
  const std::uint64_t slice_bytes_;
  const Deliver deliver_;
  const OnCopy on_copy_;
  const std::shared_ptr<CopyFlow> flow_ = std::make_shared<CopyFlow>(kind());
};

}  // namespace orbite::transport::local
