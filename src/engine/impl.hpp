// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/slot_map.hpp"
#include "copy/workers.hpp"
#include "engine/active_executions.hpp"
#include "engine/environment.hpp"
#include "engine/quarantine.hpp"
#include "engine/spin.hpp"
#include "memory/registry.hpp"
#include "notify/mailbox.hpp"
#include "orbite/engine.hpp"
#include "peer/borrow_link.hpp"
#include "peer/lender.hpp"
#include "peer/peer.hpp"
#include "platform/network.hpp"
#include "policy/route_table.hpp"
#include "telemetry/counters.hpp"
#include "telemetry/route_counters.hpp"
#include "transfer/admission.hpp"
#include "transfer/execution.hpp"
#include "transfer/transport.hpp"
#include "transport/cma/cma_transport.hpp"
#include "transport/local/local_transport.hpp"
#include "transport/shm/shm_transport.hpp"
#include "transport/tcp/tcp_transport.hpp"

namespace orbite {

class EngineAccess;

/// Of the name of an engine or a peer.
inline constexpr std::size_t kNameBytesMax = 256;

/// A prepared transfer and its current execution.
struct Request {
  std::shared_ptr<const transfer::Prepared> prepared;
  std::mutex mutex;
  std::shared_ptr<transfer::Execution> execution;  ///< under mutex; nullptr before the first post
  /// Under mutex; set once, before the handle ends: whoever found the request earlier must not post
  /// it any more.
  bool released = false;
};

/// Composes the rooms. One mutex for each kind of state, none of them held while another room is
/// asked to move bytes.
class TransferEngine::Impl {
 public:
  Impl(EngineOptions options, EngineEnvironment environment);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  Result<void> start();

  /// kForked in a child of fork(), kEngineClosing once a close has begun.
  [[nodiscard]] Result<void> check_usable() const;
  [[nodiscard]] Result<void> check_process() const;

  // Memory.
  Result<Handle> register_memory(const MemoryDescriptor& memory);
  Result<RegistrationState> deregister_memory(Handle registration);
  Result<std::vector<std::uint8_t>> export_memory(Handle registration) const;

  // Peers and ranges.
  Result<Handle> self_peer();
  Result<Handle> import_peer(std::string_view name, std::span<const std::uint8_t> blob);
  Result<void> connect_peer(Handle peer, std::uint64_t timeout_ns);
  Result<void> retire_peer(Handle peer);
  Result<void> confirm_peer_fenced(Handle peer);
  Result<void> confirm_epoch_fenced(const base::SourceEpoch& epoch);
  [[nodiscard]] std::vector<UnresolvedPeer> unresolved_peers() const;
  Result<Handle> import_range(Handle peer, std::span<const std::uint8_t> blob,
                              std::uint64_t address, std::uint64_t length);
  Result<Handle> local_range(Handle registration);
  Result<void> release_range(Handle range);

  // Requests.
  Result<Handle> prepare(const PrepareOptions& options);
  Result<Outcome> post(Handle handle, const PostOptions& options);
  Result<Outcome> check(Handle handle);
  Result<Outcome> query(Handle handle) const;
  Result<void> cancel(Handle handle);
  Result<void> release(Handle handle);
  Result<void> abandon(Handle handle);

  // Notifications.
  Result<void> send_notification(Handle peer, std::span<const std::uint8_t> message);

  // Closing.
  CloseStatus close(std::uint64_t timeout_ns);
  /// A neighbour may be inside of memory that was deregistered.
  [[nodiscard]] bool lends() const { return lender_ != nullptr && lender_->held() > 0; }
  /// Ends what peers do with our memory at once; what we do with theirs goes on.
  void abort_served();
  /// The engine outlives its owner; nobody will join its worker.
  /// What is lent to executions that are unresolved is never called retired from here on: nobody
  /// may be there any more to be told.
  void enter_quarantine();
  /// Nothing runs here any more. For the quarantine.
  [[nodiscard]] bool worker_ended() const noexcept {
    return worker_ended_.load(std::memory_order_acquire);
  }

  [[nodiscard]] std::string info_json() const;
  [[nodiscard]] Telemetry telemetry() const;

  EngineOptions options;
  const EngineEnvironment environment;
  platform::Network& network = environment.network;
  const base::Clock& clock = environment.clock;
  base::WatchedClock watched_clock{clock};
  base::RandomSource& random = environment.random;
  telemetry::Counters counters;
  memory::Registry registry;
  peer::SegmentManager peers;
  peer::RangeTable ranges;
  notify::Mailbox mailbox;
  std::vector<std::uint8_t> connection_blob;
  Quarantine::Place place_in_quarantine = Quarantine::make_place();

 private:
  friend class EngineAccess;
  struct Posting {
    std::optional<std::vector<std::uint8_t>> notification;
    transfer::Charge outbox_charge;
  };

  void start_copy_workers();
  [[nodiscard]] transport::Copying copying();
  void start_local();
  Result<void> start_tcp();
  void start_neighbors();
  [[nodiscard]] peer::LinkEnvironment link_environment();
  void lend(Handle registration) noexcept;
  [[nodiscard]] bool copies_wait_unwatched() const;
  [[nodiscard]] std::array<transport::CopyTransport*, 3> copy_transports() const noexcept {
    return {local_.get(), shm_.get(), cma_.get()};
  }
  [[nodiscard]] memory::SharedPart shared_part(const MemoryDescriptor& memory) const;
  [[nodiscard]] Result<peer::SharedRange> share(const wire::RegistrationRef& asked) const;
  Result<wire::ConnectionBlob> make_connection_blob() const;
  Result<std::shared_ptr<peer::Peer>> make_peer(std::string name,
                                                const wire::ConnectionBlob& connection, bool self);
  Result<std::shared_ptr<transfer::PeerFlows>> open_flows(const peer::Peer& peer,
                                                          const policy::Route& route);
  Result<void> verify_ranges(transfer::Transport& transport, transfer::Flow& flow,
                             const peer::Peer& peer, std::uint64_t timeout_ns);
  Result<Posting> accept_notification(std::optional<std::span<const std::uint8_t>> message,
                                      transfer::Share& share);
  Result<memory::RangeLoans> take_loans(const transfer::Prepared& prepared);
  [[nodiscard]] policy::Route route_now(const transfer::Prepared& prepared) const;
  Result<void> check_repostable(const Request& request) const;
  struct Admitted {
    std::shared_ptr<transfer::Execution> execution;
    bool is_next_deadline = false;  ///< the worker does not know of
  };
  Result<Admitted> admit(transfer::Execution::Options&& options);
  void launch(const Admitted& admitted);
  void drive(const transfer::Execution& execution, transfer::WorkLimit limit) noexcept;
  /// Stops all that are active, or those to one life of a peer, without a list of them.
  void stop_active(ErrorCode code, const base::SourceEpoch* epoch);
  /// The first active one whose number is above `number`, to any peer or to one life of one.
  [[nodiscard]] std::shared_ptr<transfer::Execution> next_active(
      std::uint64_t number, const base::SourceEpoch* epoch) const;
  void stop_planning(transfer::Execution& execution, ErrorCode code);
  /// And what of it waits in its transport is dropped.
  void stop_execution(transfer::Execution& execution, ErrorCode code);
  void on_terminal(transfer::Execution& execution) noexcept;
  void count_notification(const transfer::Execution& execution, const Outcome& outcome) noexcept;
  void count_end(const transfer::Execution& execution, const Outcome& outcome,
                 base::Nanoseconds now_ns) noexcept;
  [[nodiscard]] transfer::Transport& transport_of(const transfer::Execution& execution) const {
    return *planner_.transport(execution.route().transport);
  }
  [[nodiscard]] std::vector<std::shared_ptr<transfer::Execution>> active_executions() const;

  [[nodiscard]] std::string peers_json() const;
  [[nodiscard]] telemetry::RouteCounters& counters_of(
      const transfer::Execution& execution) noexcept {
    return route_counters_.at(route_index(execution));
  }
  [[nodiscard]] static std::size_t route_index(const transfer::Execution& execution) noexcept;
  [[nodiscard]] std::vector<RouteTelemetry> route_telemetry() const;
  [[nodiscard]] std::vector<BudgetTelemetry> budget_telemetry() const;
  [[nodiscard]] Telemetry::Counters counter_telemetry() const;
  [[nodiscard]] Telemetry::Gauges gauge_telemetry() const;

  void run_worker();
  /// One turn of the worker: the events that come within `sleep_ns`, then what is due. Returns how
  /// long to sleep at most.
  base::Nanoseconds turn_worker(base::Nanoseconds sleep_ns) noexcept;
  [[nodiscard]] bool worker_ends() const noexcept {
    return stop_worker_.load(std::memory_order_acquire);
  }
  base::Nanoseconds look_for_work();
  void take_events(base::Nanoseconds timeout_ns);
  void on_event(const platform::PollEvent& event);
  std::size_t wait_for_events(std::span<platform::PollEvent> events, base::Nanoseconds sleep_ns);
  void end_worker();
  base::Nanoseconds work_once(base::Nanoseconds now_ns);
  void wake_worker() noexcept;
  base::Nanoseconds expire_deadlines(base::Nanoseconds now_ns);
  base::Nanoseconds close_step();
  [[nodiscard]] transport::tcp::TcpTransport::Ending ending() const;
  void begin_close();
  [[nodiscard]] CloseStatus close_status() const;
  Result<void> connect_and_verify(Handle handle, std::uint64_t timeout_ns);

  const std::uint32_t process_generation_;
  base::SourceEpoch epoch_;
  wire::Secret secret_{};
  base::HostIdentity host_;
  wire::ConnectionBlob connection_;
  policy::RouteTable routes_;
  transfer::Admission admission_;
  std::array<telemetry::RouteCounters, policy::kTransportKinds * 2 * policy::kQosClasses>
      route_counters_;  ///< counted under active_mutex_
  transfer::Planner planner_;

  platform::Socket poller_ = platform::kNoSocket;
  platform::Socket wakeup_ = platform::kNoSocket;
  std::unique_ptr<copy::Workers> copy_workers_;  ///< outlives the transports that use it
  // What lends our memory to neighbours, and what borrows theirs; the transports use the latter.
  std::unique_ptr<peer::Lender> lender_;
  std::string lender_unavailable_;
  std::unique_ptr<peer::BorrowLinks> links_;
  std::unique_ptr<transport::cma::CmaTransport> cma_;
  std::unique_ptr<transport::shm::ShmTransport> shm_;
  std::unique_ptr<transport::local::LocalTransport> local_;
  std::unique_ptr<transport::tcp::TcpTransport> tcp_;
  std::string tcp_unavailable_;

  std::mutex self_mutex_;
  /// By connection blob, while somebody holds them: what one peer has of a pool is the same by
  /// whatever name it is imported. Under self_mutex_.
  std::unordered_map<std::string, std::weak_ptr<transfer::PeerFlows>> peer_flows_;

  base::SlotMap<Request> requests_;

  mutable std::mutex active_mutex_;
  std::condition_variable changed_;
  ActiveExecutions active_;
  std::uint32_t waiting_for_worker_ = 0;  ///< callers whose wait the worker ends
  std::uint32_t closers_ = 0;             ///< callers that wait in close()
  std::uint64_t changes_ = 0;             ///< rises with each notification of changed_
  /// Every lane that peers opened has ended, but those that only ask whether others have.
  bool served_ended_ = false;
  bool listening_ended_ = false;  ///< those too, and the listener is closed

  // Set under active_mutex_, read anywhere. Who launches reads it under the mutex: an execution is
  // either refused, or active before close() looks for those to stop.
  std::atomic<bool> closing_{false};
  std::atomic<bool> abort_served_{false};
  std::atomic<bool> quarantined_{false};
  std::atomic<bool> stop_worker_{false};
  /// The worker's last word; release, so that whoever sees it may destroy everything.
  std::atomic<bool> worker_ended_{false};
  std::atomic<bool> worker_sleeps_{false};
  std::atomic<bool> work_left_{false};
  base::Nanoseconds next_tick_ns_ = 0;  ///< the worker's
  bool memory_was_short_ = false;       ///< the worker's
  SpinPolicy spin_;                     ///< the worker's
  std::atomic<std::uint32_t> worker_boost_{0};
  std::thread worker_;
};

}  // namespace orbite
