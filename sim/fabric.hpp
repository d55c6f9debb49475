// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "platform/network.hpp"
#include "sim/connection.hpp"
#include "sim/random.hpp"
#include "sim/scheduler.hpp"
#include "sim/trace.hpp"

namespace orbite::sim {

class HostNetwork;

/// One direction between two machines.
struct Link {
  base::Nanoseconds latency_min_ns = 10 * base::kMicrosecond;
  base::Nanoseconds latency_max_ns = 60 * base::kMicrosecond;
  bool cut = false;      ///< nothing arrives
  bool clogged = false;  ///< what arrives finds no room: the receiver's window is closed
  /// One delivery moves at most so much.
  std::uint32_t segment_bytes_max = 64 * 1024;
};

struct Machine {
  bool up = true;
  std::uint16_t boots = 1;
  /// Thousandths of accepts that fail for want of a descriptor.
  std::uint32_t accept_failures = 0;
  /// No connection request is answered.
  bool ignores_connects = false;
  /// Someone else listens on these ports.
  std::vector<std::uint16_t> ports_taken;
  std::uint16_t next_port = 40'000;
};

struct SocketLimits {
  std::uint32_t send_buffer_bytes = 64 * 1024;
  std::uint32_t receive_buffer_bytes = 64 * 1024;
  std::size_t backlog_max = 128;
  /// One call moves at most so much, drawn anew for each; 0: as much as it can. The first bytes
  /// that a connection sends always go whole, as in a kernel.
  std::uint32_t call_bytes_max = 0;
};

/// The machines, the links between them and every connection: TCP as its users see it. Inside a
/// connection bytes come in order and none is lost. A machine that has lost its memory answers what
/// it does not know with a reset; one that is down, or behind a cut, answers nothing.
class Fabric {
 public:
  using ConnectionPtr = std::shared_ptr<Connection>;

  Fabric(Scheduler& scheduler, Trace& trace, std::uint64_t seed, std::uint32_t machines);

  [[nodiscard]] std::uint32_t machines() const noexcept {
    return static_cast<std::uint32_t>(machines_.size());
  }
  [[nodiscard]] static platform::SocketAddress address_of(std::uint32_t machine,
                                                          std::uint16_t port = 0);
  [[nodiscard]] Machine& machine(std::uint32_t index) { return machines_[index]; }
  /// Change it, then call link_changed().
  [[nodiscard]] Link& link(std::uint32_t from, std::uint32_t to) {
    return links_[from * machines_.size() + to];
  }
  SocketLimits limits;

  struct Counts {
    std::uint64_t connections = 0;           ///< that were answered
    std::uint64_t loopback_connections = 0;  ///< of them, by loopback between two processes
    std::uint64_t loopback_bytes = 0;        ///< delivered on those
  };
  [[nodiscard]] const Counts& counts() const noexcept { return counts_; }

  // Faults.
  /// What waits in either direction between them is tried again.
  void link_changed(std::uint32_t a, std::uint32_t b);
  /// Power lost: every end on it vanishes without a word. Its processes must be dead by then.
  void power_off(std::uint32_t machine);
  void power_on(std::uint32_t machine);
  /// Somebody between the ends resets it, for one of them (0, 1) or both (2).
  void reset(Connection& connection, std::uint32_t which);
  /// The kernel of that end gives up retransmitting.
  void give_up(Connection& connection, std::uint32_t side);
  /// Those with a living end, oldest first.
  [[nodiscard]] const std::vector<ConnectionPtr>& connections();

  // For HostNetwork.
  [[nodiscard]] Scheduler& scheduler() noexcept { return scheduler_; }
  [[nodiscard]] Trace& trace() noexcept { return trace_; }
  [[nodiscard]] Random& random() noexcept { return random_; }
  void attach(HostNetwork& network) { processes_.push_back(&network); }
  void detach(HostNetwork& network);
  [[nodiscard]] bool port_free(std::uint32_t machine, std::uint16_t port) const;
  ConnectionPtr start_connect(HostNetwork& process, std::uint32_t machine,
                              const platform::SocketAddress& address);
  void written(const ConnectionPtr& connection, std::uint32_t side);
  void room_made(const ConnectionPtr& connection, std::uint32_t side);
  /// The process called close(), or died and its kernel closes for it.
  void close_end(const ConnectionPtr& connection, std::uint32_t side);
  void keep_alive(const ConnectionPtr& connection, std::uint32_t side, base::Nanoseconds idle_ns);
  /// Who waits at it, or is on the way to, is reset.
  void listener_closed(HostNetwork& process, platform::Socket listener);

 private:
  [[nodiscard]] bool passes(std::uint32_t from, std::uint32_t to);
  [[nodiscard]] base::Nanoseconds latency(std::uint32_t from, std::uint32_t to);
  void schedule_delivery(const ConnectionPtr& connection, std::uint32_t side,
                         base::Nanoseconds delay_ns);
  void deliver(const ConnectionPtr& connection, std::uint32_t side);
  void schedule_ack(const ConnectionPtr& connection, std::uint32_t side);
  void schedule_probe(const ConnectionPtr& connection, std::uint32_t side,
                      base::Nanoseconds delay_ns);
  void probe(const ConnectionPtr& connection, std::uint32_t side);
  /// A reset on its way to that end; a cut swallows it.
  void send_reset(const ConnectionPtr& connection, std::uint32_t to_side);
  void receive_reset(Connection& connection, std::uint32_t side);
  void fail_end(Connection& connection, std::uint32_t side, int error);
  void request(const ConnectionPtr& connection);
  void confirm(const ConnectionPtr& connection);
  void enter_backlog(const ConnectionPtr& connection);
  void retry(const ConnectionPtr& connection, base::Nanoseconds delay_ns);
  [[nodiscard]] HostNetwork* listening(std::uint32_t machine, std::uint16_t port,
                                       platform::Socket& listener);
  static void poke(End& end);

  Scheduler& scheduler_;
  Trace& trace_;
  Random random_;
  std::vector<Machine> machines_;
  std::vector<Link> links_;
  std::vector<ConnectionPtr> connections_;
  std::vector<HostNetwork*> processes_;
  std::uint64_t next_connection_ = 1;
  Counts counts_;
};

}  // namespace orbite::sim
