// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include "copy/copier.hpp"
#include "copy/workers.hpp"
#include "transfer/slice_queue.hpp"
#include "transfer/transport.hpp"
#include "wire/metadata.hpp"

namespace orbite::transport::local {

/// How bytes are copied, and who helps.
struct Copying {
  copy::Copier copier{copy::Thresholds()};
  copy::Workers* workers = nullptr;     ///< outlives the transport; nullptr: nobody helps
  std::uint64_t workers_min_bytes = 0;  ///< waiting, from which on they are asked
};

/// Transfers of an engine to itself: a copy within the process, in bounded steps, by whoever
/// drives, and by copy workers when much waits: each takes slices of its own. A copy that has
/// returned is its own proof of retirement.
class LocalTransport final : public transfer::Transport, private transfer::CompletionPath {
 public:
  /// Takes a notification to ourselves.
  using Deliver = std::function<Result<void>(std::span<const std::uint8_t> message)>;
  /// Told of each copy before it is made; may be empty.
  using OnCopy =
      std::function<void(std::uint64_t target, std::uint64_t source, std::uint64_t bytes)>;
  LocalTransport(transfer::Planner& planner, std::uint64_t slice_bytes, Deliver deliver,
                 OnCopy on_copy = {}, Copying copying = {});
  ~LocalTransport() override;

  [[nodiscard]] policy::TransportKind kind() const noexcept override {
    return policy::TransportKind::kLocal;
  }
  Result<std::shared_ptr<transfer::Flow>> open(const peer::Peer& peer) override;
  [[nodiscard]] transfer::SliceLimits slice_limits() const noexcept override;
  [[nodiscard]] bool has_room(transfer::Flow& flow, policy::QosClass qos) override;
  Result<void> submit(transfer::Flow& flow, transfer::Slice& slice) override;
  void drop_unposted(transfer::Flow& flow, const transfer::Execution& execution) override;
  void drive(transfer::Flow& flow, transfer::WorkLimit& limit, transfer::Driver driver) override;
  Result<void> connect(transfer::Flow& /*flow*/, base::Nanoseconds /*timeout_ns*/) override {
    return {};
  }
  Result<std::vector<wire::DescribedRange>> describe(
      transfer::Flow& /*flow*/, std::span<const wire::RegistrationRef> /*registrations*/,
      base::Nanoseconds /*timeout_ns*/) override {
    return fail(ErrorCode::kUnsupported, "our own registrations are not described");
  }
  void confirm_fenced(transfer::Flow& /*flow*/) override {}
  [[nodiscard]] std::uint64_t unproved(transfer::Flow& /*flow*/) override { return 0; }

  /// Slices wait and no caller is at them.
  [[nodiscard]] bool busy();
  [[nodiscard]] transfer::Flow* flow() const noexcept { return flow_.get(); }

 private:
  class LocalFlow final : public transfer::Flow {};
  /// For the workers.
  class Slices final : public copy::SharedWork {
   public:
    explicit Slices(LocalTransport& transport) : transport_(transport) {}
    bool do_piece() noexcept override;

   private:
    LocalTransport& transport_;
  };

  transfer::Slice* take_next(policy::QosClass last);
  void ask_for_help();
  void copy_extents(const transfer::Slice& slice);
  void announce(const copy::Part& part) const;
  void copy(transfer::Slice& slice);

  const std::uint64_t slice_bytes_;
  const Deliver deliver_;
  const OnCopy on_copy_;
  const Copying copying_;
  const std::shared_ptr<LocalFlow> flow_ = std::make_shared<LocalFlow>();
  std::mutex mutex_;
  std::array<transfer::SliceQueue, policy::kQosClasses> queue_;
  Slices slices_{*this};
};

}  // namespace orbite::transport::local
