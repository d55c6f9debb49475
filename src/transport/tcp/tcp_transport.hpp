// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "transfer/caller_patience.hpp"
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
  /// connect() and describe() answer kEngineClosing, those under way too. From any thread.
  void end_waits();
  /// No new connection passes its handshake, but those that may ask for a drain.
  void stop_accepting();
  enum class Ending : std::uint8_t {
    kBetweenFrames,  ///< those that are between frames; drains are still answered
    kDrainsToo,      ///< the same, and those that may ask for a drain; when none is left, we stop
                     ///< listening
    kAll             ///< at once, and we stop listening
  };
  /// Ends served lanes.
  void end_served(Ending ending);
  [[nodiscard]] bool is_listening() const noexcept { return listener_ != platform::kNoSocket; }
  /// Closes every socket. Unproved slices stay unproved.
  void shut();

  // For anybody.
  [[nodiscard]] std::uint16_t port() const noexcept { return listening_.port(); }
  [[nodiscard]] const platform::SocketAddress& listening() const noexcept { return listening_; }
  [[nodiscard]] std::uint32_t served_lanes() const noexcept {
    return served_count_.load(std::memory_order_relaxed);
  }
  /// Of these, those that have proved themselves and are not of class control: what
  /// tcp.served_lanes_max bounds.
  [[nodiscard]] std::uint32_t proved_lanes() const noexcept {
    return proved_count_.load(std::memory_order_relaxed);
  }
  /// Connections that were refused for want of room.
  [[nodiscard]] std::uint64_t lanes_out_of_room() const noexcept { return out_of_room_.value(); }
  [[nodiscard]] std::uint32_t lane_sockets() const;
  [[nodiscard]] Trouble trouble(const transfer::Flow& flow) const;
  /// Of all peers together; see unproved().
  [[nodiscard]] std::uint64_t unproved_slices() const;
  /// Set by submit(): whoever sleeps must look after the lanes. Reset by on_tick().
  [[nodiscard]] bool needs_worker() const noexcept {
    return needs_worker_.load(std::memory_order_seq_cst);
  }

 private:
  TcpTransport(Environment environment, transfer::Planner& planner, std::function<void()> wake);
  Result<void> listen();
  void accept_waiting();
  void make_room_for_handshake();
  /// False: out of descriptors or memory.
  bool adopt(platform::Socket socket, const platform::SocketAddress& peer);
  void rest_listener(const char* why);
  void wake_listener(base::Nanoseconds now_ns);
  void reap_served();
  template <typename Work>
  void guard_served(ServedLane& lane, Work work);
  [[nodiscard]] std::uint64_t count_proved(bool control) const;
  [[nodiscard]] ErrorCode check_room_for(const base::SourceEpoch& client);
  ErrorCode admit(const wire::ClientHello& hello);
  ErrorCode prove(const ServedLane& proving);
  void make_room_for_control(const ServedLane& proving);
  bool forget_a_drained_epoch();
  ErrorCode drain(const base::SourceEpoch& client, std::uint64_t lane_id);
  void list(const std::shared_ptr<Channel>& channel) noexcept;
  void see_latency_work() noexcept;
  [[nodiscard]] std::uint64_t bulk_step_bytes() const noexcept;
  void list_and_wake(Channel& channel);
  void unlist_idle(const std::shared_ptr<Channel>& channel);
  [[nodiscard]] bool leaves_to_caller(const Channel& channel, policy::QosClass qos,
                                      base::Nanoseconds now_ns);
  void look_after(Channel& channel, base::Nanoseconds now_ns);
  void forget_idle_channels();

  Environment environment_;
  transfer::Planner& planner_;
  const std::function<void()> wake_;
  LaneDirectory directory_;
  platform::SocketAddress listening_;
  platform::Socket listener_ = platform::kNoSocket;
  bool accepting_ = true;  ///< the worker's

  // Channels by connection blob: one epoch in two blobs is two peers. One that nobody holds and
  // that has no socket is let go of.
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Channel>> channels_;
  std::vector<std::shared_ptr<Channel>> listed_;  ///< those to look after at each tick
  std::atomic<bool> needs_worker_{false};

  // The worker's own.
  ServedLane::Callbacks callbacks_;
  TrailerBudget trailer_budget_;
  std::unordered_map<std::uint64_t, std::unique_ptr<ServedLane>> served_;
  std::uint64_t next_served_id_ = 1;
  /// Of each client epoch, the highest lane id that it was told will never act again. A client
  /// counts its ids up, so no lane that is to live says a hello with that id or a smaller one.
  struct Drained {
    std::uint64_t lane_id = 0;
    std::uint64_t order = 0;  ///< rises with each drain
  };
  std::map<base::SourceEpoch, Drained> drained_;
  std::uint64_t drains_ = 0;
  base::Nanoseconds listener_rests_until_ns_ = 0;  ///< 0: it does not
  bool out_of_room_logged_ = false;
  bool listener_rest_logged_ = false;  ///< since something was accepted
  /// When latency work was last seen, ours or a peer's. Relaxed: it only paces.
  std::atomic<base::Nanoseconds> latency_seen_ns_{0};
  base::Nanoseconds timers_checked_ns_ = 0;
  transfer::CallerPatience patience_{environment_.processors_are_short};
  base::Nanoseconds next_tick_ns_ = 0;  ///< when on_tick() asked to be called again; 0: never yet
  bool served_pressing_ = false;  ///< at the last look, some served lane had a timeout running
  std::atomic<std::uint32_t> served_count_{0};
  std::atomic<std::uint32_t> proved_count_{0};
  telemetry::Counter out_of_room_;
};

}  // namespace orbite::transport::tcp
