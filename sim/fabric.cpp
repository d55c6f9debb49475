// SPDX-License-Identifier: Apache-2.0
#include "sim/fabric.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/assert.hpp"
#include "sim/host_network.hpp"

namespace orbite::sim {
namespace {

constexpr base::Nanoseconds kLoopbackLatency = 5 * base::kMicrosecond;
/// Between two deliveries of one connection.
constexpr base::Nanoseconds kSegmentGap = 2 * base::kMicrosecond;
/// A sender tries again at the latest so long after the way is free: its retransmission timer has
/// backed off meanwhile.
constexpr base::Nanoseconds kBackoffMax = 200 * base::kMillisecond;
constexpr base::Nanoseconds kConnectRetry = 100 * base::kMillisecond;
constexpr std::uint32_t kProbesMax = 5;

}  // namespace

Fabric::Fabric(Scheduler& scheduler, Trace& trace, std::uint64_t seed, std::uint32_t machines)
    : scheduler_(scheduler),
      trace_(trace),
      random_(seed),
      machines_(machines),
      links_(std::size_t{machines} * machines) {}

platform::SocketAddress Fabric::address_of(std::uint32_t machine, std::uint16_t port) {
  std::array<std::uint8_t, 16> bytes{10, 0, 0, static_cast<std::uint8_t>(machine + 1)};
  return platform::SocketAddress::from_bytes(4, bytes, port);
}

void Fabric::detach(HostNetwork& network) { std::erase(processes_, &network); }

bool Fabric::port_free(std::uint32_t machine, std::uint16_t port) const {
  const auto& taken = machines_[machine].ports_taken;
  return std::find(taken.begin(), taken.end(), port) == taken.end() &&
         std::none_of(processes_.begin(), processes_.end(), [&](const HostNetwork* process) {
           return process->machine() == machine &&
                  process->listener_at(port) != platform::kNoSocket;
         });
}

HostNetwork* Fabric::listening(std::uint32_t machine, std::uint16_t port,
                               platform::Socket& listener) {
  for (HostNetwork* const process : processes_) {
    if (process->machine() == machine) {
      listener = process->listener_at(port);
      if (listener != platform::kNoSocket) {
        return process;
      }
    }
  }
  return nullptr;
}

bool Fabric::passes(std::uint32_t from, std::uint32_t to) {
  return machines_[from].up && machines_[to].up && (from == to || !link(from, to).cut);
}

base::Nanoseconds Fabric::latency(std::uint32_t from, std::uint32_t to) {
  if (from == to) {
    return kLoopbackLatency;
  }
  const Link& way = link(from, to);
  return random_.between(way.latency_min_ns, way.latency_max_ns);
}

void Fabric::poke(End& end) {
  if (end.holder == End::Holder::kProcess && end.process != nullptr) {
    end.process->changed(end.socket);
  }
}

const std::vector<Fabric::ConnectionPtr>& Fabric::connections() {
  std::erase_if(connections_, [](const ConnectionPtr& connection) {
    return !connection->ends[0].exists && !connection->ends[1].exists &&
           connection->ends[0].holder == End::Holder::kNobody &&
           connection->ends[1].holder == End::Holder::kNobody;
  });
  return connections_;
}

// ---- Connecting

Fabric::ConnectionPtr Fabric::start_connect(HostNetwork& process, std::uint32_t machine,
                                            const platform::SocketAddress& address) {
  auto connection = std::make_shared<Connection>();
  connection->id = next_connection_++;
  End& client = connection->ends[0];
  End& server = connection->ends[1];
  client.machine = machine;
  client.exists = true;
  client.process = &process;
  const std::uint16_t port = machines_[machine].next_port++;
  client.address = address.is_loopback() ? platform::SocketAddress::loopback(address.family(), port)
                                         : address_of(machine, port);
  server.address = address;
  server.machine = machine;  // of a loopback address
  if (!address.is_loopback()) {
    server.machine = static_cast<std::uint32_t>(address.bytes()[3]) - 1;
    ORBITE_CHECK(server.machine < machines_.size());
  }
  connections_.push_back(connection);
  scheduler_.after(latency(client.machine, server.machine), Layer::kNetwork,
                   [this, connection] { request(connection); });
  return connection;
}

/// The connection request arrives, or not.
void Fabric::request(const ConnectionPtr& connection) {
  End& client = connection->ends[0];
  End& server = connection->ends[1];
  if (!client.exists || client.dead || client.connected || server.exists) {
    return;
  }
  const auto again = [&] {
    scheduler_.after(kConnectRetry + random_.below(kConnectRetry), Layer::kNetwork,
                     [this, connection] { request(connection); });
  };
  if (!passes(client.machine, server.machine) || machines_[server.machine].ignores_connects) {
    again();
    return;
  }
  platform::Socket listener = platform::kNoSocket;
  HostNetwork* const process = listening(server.machine, server.address.port(), listener);
  if (process == nullptr) {
    if (passes(server.machine, client.machine)) {
      scheduler_.after(latency(server.machine, client.machine), Layer::kNetwork,
                       [this, connection] {
                         if (!connection->ends[0].connected) {
                           fail_end(*connection, 0, ECONNREFUSED);
                         }
                       });
    } else {
      again();
    }
    return;
  }
  if (!process->backlog_has_room(listener)) {
    again();
    return;
  }
  server.exists = true;
  server.holder = End::Holder::kBacklog;
  server.process = process;
  server.listener = listener;
  confirm(connection);
}

/// The answer to a connection request goes back; repeated while it does not arrive.
void Fabric::confirm(const ConnectionPtr& connection) {
  End& client = connection->ends[0];
  End& server = connection->ends[1];
  if (!server.exists || server.dead || client.connected) {
    return;
  }
  if (!passes(server.machine, client.machine)) {
    scheduler_.after(kConnectRetry + random_.below(kConnectRetry), Layer::kNetwork,
                     [this, connection] { confirm(connection); });
    return;
  }
  scheduler_.after(latency(server.machine, client.machine), Layer::kNetwork, [this, connection] {
    End& connecting = connection->ends[0];
    if (!connecting.exists || connecting.dead) {
      send_reset(connection, 1);
      return;
    }
    connecting.connected = true;
    const End& accepting = connection->ends[1];
    connection->joins_neighbours =
        accepting.address.is_loopback() && connecting.process != accepting.process;
    ++counts_.connections;
    counts_.loopback_connections += connection->joins_neighbours ? 1 : 0;
    poke(connecting);
    scheduler_.after(latency(connecting.machine, connection->ends[1].machine), Layer::kNetwork,
                     [this, connection] { enter_backlog(connection); });
  });
}

/// The last word of the handshake, or the first data, has arrived: who listens can accept it.
void Fabric::enter_backlog(const ConnectionPtr& connection) {
  End& client = connection->ends[0];
  End& server = connection->ends[1];
  if (!server.exists || server.dead || server.connected || server.holder != End::Holder::kBacklog) {
    return;
  }
  if (!passes(client.machine, server.machine)) {
    scheduler_.after(kConnectRetry, Layer::kNetwork,
                     [this, connection] { enter_backlog(connection); });
    return;
  }
  server.connected = true;
  server.process->enter_backlog(server.listener, connection);
}

void Fabric::listener_closed(HostNetwork& process, platform::Socket listener) {
  for (const ConnectionPtr& connection : connections_) {
    End& server = connection->ends[1];
    if (server.holder != End::Holder::kBacklog || server.process != &process ||
        server.listener != listener) {
      continue;
    }
    server.holder = End::Holder::kNobody;
    server.process = nullptr;
    if (server.exists) {
      server.exists = false;
      send_reset(connection, 0);
    }
  }
}

// ---- Bytes

void Fabric::written(const ConnectionPtr& connection, std::uint32_t side) {
  schedule_delivery(connection, side, 0);
}

void Fabric::schedule_delivery(const ConnectionPtr& connection, std::uint32_t side,
                               base::Nanoseconds delay_ns) {
  End& from = connection->ends[side];
  if (from.delivery_scheduled) {
    return;
  }
  from.delivery_scheduled = true;
  base::Nanoseconds when_ns =
      scheduler_.now_ns() + delay_ns + latency(from.machine, connection->ends[1 - side].machine);
  when_ns = std::max(when_ns, from.last_arrival_ns + kSegmentGap);
  from.last_arrival_ns = when_ns;
  scheduler_.at(when_ns, Layer::kNetwork, [this, connection, side] {
    connection->ends[side].delivery_scheduled = false;
    deliver(connection, side);
  });
}

/// What that end has sent arrives at the other one.
void Fabric::deliver(const ConnectionPtr& connection, std::uint32_t side) {
  End& from = connection->ends[side];
  End& to = connection->ends[1 - side];
  const bool has_fin = from.fin_queued && !from.fin_delivered;
  if (!from.exists || from.dead || (from.sending.empty() && !has_fin)) {
    return;
  }
  if (!passes(from.machine, to.machine)) {
    return;  // retry() comes when it does
  }
  if (!to.exists || to.dead || (to.holder == End::Holder::kNobody && !from.sending.empty())) {
    // Its kernel knows no such connection, or has nobody to give the bytes to.
    to.exists = false;
    send_reset(connection, side);
    return;
  }
  if (!to.connected) {
    enter_backlog(connection);
  }
  const Link& way = link(from.machine, to.machine);
  const bool clogged = from.machine != to.machine && way.clogged;
  const std::size_t window = clogged || to.received.size() >= limits.receive_buffer_bytes
                                 ? 0
                                 : limits.receive_buffer_bytes - to.received.size();
  const std::size_t bytes = std::min<std::size_t>(
      {from.sending.size(), window, random_.between(1, way.segment_bytes_max)});
  if (bytes > 0) {
    from.sending.move_to(to.received, bytes);
    from.delivered += bytes;
    counts_.loopback_bytes += connection->joins_neighbours ? bytes : 0;
    trace_.mix(connection->id * 4 + side);
    trace_.mix(bytes);
  }
  if (from.sending.empty() && has_fin) {
    from.fin_delivered = true;
    to.fin_received = true;
    trace_.mix(connection->id * 4 + 2 + side);
    if (to.holder == End::Holder::kNobody && to.fin_delivered) {
      from.exists = from.holder != End::Holder::kNobody;
      to.exists = false;
    }
  }
  schedule_ack(connection, side);
  poke(to);
  const bool more = from.sending.empty() ? from.fin_queued && !from.fin_delivered : window > bytes;
  if (more) {
    schedule_delivery(connection, side, 0);
  }
}

void Fabric::schedule_ack(const ConnectionPtr& connection, std::uint32_t side) {
  End& from = connection->ends[side];
  const End& to = connection->ends[1 - side];
  if (from.ack_scheduled || from.acked == from.delivered || !from.exists) {
    return;
  }
  from.ack_scheduled = true;
  scheduler_.after(latency(to.machine, from.machine), Layer::kNetwork, [this, connection, side] {
    End& waiting = connection->ends[side];
    waiting.ack_scheduled = false;
    if (waiting.exists && passes(connection->ends[1 - side].machine, waiting.machine)) {
      waiting.acked = waiting.delivered;
      poke(waiting);
    }
  });
}

void Fabric::room_made(const ConnectionPtr& connection, std::uint32_t side) {
  const End& from = connection->ends[1 - side];
  if (!from.sending.empty()) {
    schedule_delivery(connection, 1 - side, 0);
  }
}

// ---- Ends of connections

void Fabric::close_end(const ConnectionPtr& connection, std::uint32_t side) {
  End& end = connection->ends[side];
  end.holder = End::Holder::kNobody;
  end.process = nullptr;
  if (!end.exists) {
    return;
  }
  if (end.dead || !end.connected) {
    end.exists = false;  // a request that is under way finds nobody
    if (!end.dead && connection->ends[1 - side].exists) {
      send_reset(connection, 1 - side);
    }
    return;
  }
  if (!end.received.empty()) {
    // Bytes are thrown away unread, and the peer is told so. What was sent before the reset arrives
    // before it, or is thrown away as well.
    end.received.clear();
    if (random_.chance(500)) {
      end.sending.clear();
      end.exists = false;
      send_reset(connection, 1 - side);
    } else {
      end.fin_queued = true;
      schedule_delivery(connection, side, 0);
      scheduler_.at(end.last_arrival_ns + kSegmentGap, Layer::kNetwork, [this, connection, side] {
        End& closed = connection->ends[side];
        closed.exists = false;
        if (passes(closed.machine, connection->ends[1 - side].machine)) {
          receive_reset(*connection, 1 - side);
        }
      });
    }
    return;
  }
  end.fin_queued = true;
  if (end.fin_received && end.fin_delivered) {
    end.exists = false;
    return;
  }
  schedule_delivery(connection, side, 0);
}

void Fabric::send_reset(const ConnectionPtr& connection, std::uint32_t to_side) {
  End& from = connection->ends[1 - to_side];
  End& to = connection->ends[to_side];
  if (!passes(from.machine, to.machine)) {
    return;  // lost; whatever that end sends next is answered with another one
  }
  base::Nanoseconds when_ns = scheduler_.now_ns() + latency(from.machine, to.machine);
  when_ns = std::max(when_ns, from.last_arrival_ns + kSegmentGap);
  from.last_arrival_ns = when_ns;
  scheduler_.at(when_ns, Layer::kNetwork, [this, connection, to_side] {
    if (passes(connection->ends[1 - to_side].machine, connection->ends[to_side].machine)) {
      receive_reset(*connection, to_side);
    }
  });
}

void Fabric::receive_reset(Connection& connection, std::uint32_t side) {
  const End& end = connection.ends[side];
  const bool refused = !end.connected && side == 0;
  fail_end(connection, side, refused ? ECONNREFUSED : end.fin_received ? EPIPE : ECONNRESET);
}

void Fabric::fail_end(Connection& connection, std::uint32_t side, int error) {
  End& end = connection.ends[side];
  if (!end.exists || end.dead) {
    return;
  }
  end.dead = true;
  end.error = error;
  end.sending.clear();
  trace_.mix(connection.id * 4 + side);
  trace_.mix(static_cast<std::uint64_t>(error));
  if (end.holder == End::Holder::kNobody) {
    end.exists = false;
  }
  poke(end);
}

// ---- Keepalive

void Fabric::keep_alive(const ConnectionPtr& connection, std::uint32_t side,
                        base::Nanoseconds idle_ns) {
  connection->ends[side].keepalive_idle_ns = idle_ns;
}

void Fabric::schedule_probe(const ConnectionPtr& connection, std::uint32_t side,
                            base::Nanoseconds delay_ns) {
  End& end = connection->ends[side];
  if (end.keepalive_idle_ns == 0 || end.probe_scheduled || !end.exists || end.dead) {
    return;
  }
  end.probe_scheduled = true;
  scheduler_.after(delay_ns, Layer::kNetwork, [this, connection, side] {
    connection->ends[side].probe_scheduled = false;
    probe(connection, side);
  });
}

/// After silence; the fabric asks for it where an answer may be missing.
void Fabric::probe(const ConnectionPtr& connection, std::uint32_t side) {
  End& end = connection->ends[side];
  const End& other = connection->ends[1 - side];
  if (!end.exists || end.dead || !end.connected) {
    return;
  }
  if (passes(end.machine, other.machine) && !other.exists) {
    send_reset(connection, side);
    return;
  }
  if (passes(end.machine, other.machine) && passes(other.machine, end.machine)) {
    end.probes_lost = 0;
    return;
  }
  // While bytes are outstanding the retransmission timer counts, not this one.
  if (end.acked != end.written) {
    schedule_probe(connection, side, end.keepalive_idle_ns);
    return;
  }
  if (++end.probes_lost >= kProbesMax) {
    fail_end(*connection, side, ETIMEDOUT);
    return;
  }
  schedule_probe(connection, side, end.keepalive_idle_ns / kProbesMax);
}

// ---- Faults

void Fabric::retry(const ConnectionPtr& connection, base::Nanoseconds delay_ns) {
  for (std::uint32_t side = 0; side < 2; ++side) {
    End& end = connection->ends[side];
    if (!end.exists || end.dead) {
      continue;
    }
    if (!end.sending.empty() || (end.fin_queued && !end.fin_delivered)) {
      schedule_delivery(connection, side, delay_ns);
    } else if (end.acked != end.delivered && !connection->ends[1 - side].exists) {
      // Retransmitted bytes find nobody.
      send_reset(connection, side);
    } else {
      schedule_ack(connection, side);
    }
    schedule_probe(connection, side, end.keepalive_idle_ns);
  }
}

void Fabric::link_changed(std::uint32_t a, std::uint32_t b) {
  for (const ConnectionPtr& connection : connections()) {
    const std::uint32_t first = connection->ends[0].machine;
    const std::uint32_t second = connection->ends[1].machine;
    if ((first == a && second == b) || (first == b && second == a)) {
      retry(connection, random_.below(kBackoffMax));
    }
  }
}

void Fabric::power_off(std::uint32_t machine) {
  machines_[machine].up = false;
  for (const ConnectionPtr& connection : connections()) {
    for (std::uint32_t side = 0; side < 2; ++side) {
      End& end = connection->ends[side];
      if (end.machine == machine) {
        end.exists = false;
        end.holder = End::Holder::kNobody;
        end.process = nullptr;
        end.sending.clear();
        end.received.clear();
      } else {
        schedule_probe(connection, side, end.keepalive_idle_ns);
      }
    }
  }
}

void Fabric::power_on(std::uint32_t machine) {
  machines_[machine].up = true;
  ++machines_[machine].boots;
  machines_[machine].ports_taken.clear();
  for (const ConnectionPtr& connection : connections()) {
    if (connection->ends[0].machine == machine || connection->ends[1].machine == machine) {
      retry(connection, random_.below(kBackoffMax));
    }
  }
}

void Fabric::reset(Connection& connection, std::uint32_t which) {
  for (std::uint32_t side = 0; side < 2; ++side) {
    if ((which == side || which == 2) && connection.ends[side].connected) {
      receive_reset(connection, side);
    }
  }
}

void Fabric::give_up(Connection& connection, std::uint32_t side) {
  if (connection.ends[side].connected) {
    fail_end(connection, side, ETIMEDOUT);
  }
}

}  // namespace orbite::sim
