// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "transfer/transport.hpp"
#include "transport/tcp/channel.hpp"
#include "transport/tcp/environment.hpp"
#include "transport/tcp/lane.hpp"
#include "transport/tcp/served_lane.hpp"

namespace orbite::transport::tcp {

/// Bytes between engines over TCP. The lanes that we opened (Lane, by Channel) are driven by
/// callers and, when none is at it, by the engine's worker; those that peers opened (ServedLane) by
/// the worker alone.
class TcpTransport final : public transfer::Transport {
 public:
  /// Listens. kAddressInUse and kAddressNotLocal name the address.
  /// `wake` gets the worker out of its sleep.
  static Result<std::unique_ptr<TcpTransport>> create(Environment environment,
                                                      transfer::Planner& planner,
                                                      std::function<void()> wake);
  ~TcpTransport() override;

  // Transport.
  [[nodiscard]] policy::TransportKind kind() const noexcept override {
    return policy::TransportKind::kTcp;
  }
  Result<std::shared_ptr<transfer::Flow>> open(const peer::Peer& peer) override;
  [[nodiscard]] transfer::SliceLimits slice_limits() const noexcept override;
  [[nodiscard]] bool has_room(transfer::Flow& flow, policy::QosClass qos) override;
  Result<void> submit(transfer::Flow& flow, transfer::Slice& slice) override;
  void drop_unposted(transfer::Flow& flow, const transfer::Execution& execution) override;
  void drive(transfer::Flow& flow, transfer::WorkLimit& limit, transfer::Driver driver) override;
  Result<void> connect(transfer::Flow& flow, base::Nanoseconds timeout_ns) override;
  Result<std::vector<wire::DescribedRange>> describe(
      transfer::Flow& flow, std::span<const wire::RegistrationRef> registrations,
      base::Nanoseconds timeout_ns) override;
  void confirm_fenced(transfer::Flow& flow) override;
  [[nodiscard]] std::uint64_t unproved(transfer::Flow& flow) override;

  // For the worker alone.
  void on_event(std::uint64_t token, std::uint32_t events);
  /// Looks after lanes and timers; returns how long the worker may sleep at most.
  base::Nanoseconds on_tick(base::Nanoseconds now_ns);

  // Closing; from the worker, or once it has stopped.
  /// No new connection, no new frame served.
  void stop_accepting();
  /// Ends served lanes that are between frames, or all of them.
  void end_served(bool in_frame_too);
  /// Closes every socket. Unproved slices stay unproved.
  void shut();

  // For anybody.
  [[nodiscard]] std::uint16_t port() const noexcept { return listening_.port(); }
  [[nodiscard]] const platform::SocketAddress& listening() const noexcept { return listening_; }
  [[nodiscard]] std::uint32_t served_lanes() const noexcept {
    return served_count_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint32_t lane_sockets() const;
  /// Set by submit(): whoever sleeps must look after the lanes. Reset by on_tick().
  [[nodiscard]] bool needs_worker() const noexcept {
    return needs_worker_.load(std::memory_order_seq_cst);
  }

 private:
  TcpTransport(Environment environment, transfer::Planner& planner, std::function<void()> wake);
  Result<void> listen();
  void accept_waiting();
  void reap_served();
  ErrorCode admit(const wire::ClientHello& hello);
  ErrorCode drain(const base::SourceEpoch& client, std::uint64_t lane_id);
  void list(const std::shared_ptr<Channel>& channel);
  void list_and_wake(Channel& channel);
  void unlist_idle(const std::shared_ptr<Channel>& channel);
  void look_after(Channel& channel, base::Nanoseconds now_ns);
  void forget_idle_channels();

  Environment environment_;
  transfer::Planner& planner_;
  const std::function<void()> wake_;
  LaneDirectory directory_;
  platform::SocketAddress listening_;
  platform::Socket listener_ = platform::kNoSocket;

  // Channels by epoch; one that nobody holds and that has no socket is let go of.
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Channel>> channels_;
  std::vector<std::shared_ptr<Channel>> listed_;  ///< those to look after at each tick
  std::atomic<bool> needs_worker_{false};

  // The worker's own.
  ServedLane::Callbacks callbacks_;
  std::unordered_map<std::uint64_t, std::unique_ptr<ServedLane>> served_;
  std::uint64_t next_served_id_ = 1;
  /// Lanes that a peer was told will never act: a late proof of one must not revive it.
  std::set<std::pair<base::SourceEpoch, std::uint64_t>> drained_;
  base::Nanoseconds timers_checked_ns_ = 0;
  bool served_pressing_ = false;  ///< at the last look, some served lane had a timeout running
  std::atomic<std::uint32_t> served_count_{0};
};

}  // namespace orbite::transport::tcp
