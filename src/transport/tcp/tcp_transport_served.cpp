// SPDX-License-Identifier: Apache-2.0
// The lanes that peers open: who is let in, and what their drains are told.
#include <algorithm>
#include <exception>
#include <new>
#include <set>

#include "base/error_line.hpp"
#include "base/log.hpp"
#include "base/planted.hpp"
#include "transport/tcp/tcp_transport.hpp"

namespace orbite::transport::tcp {
namespace {

/// How long nothing is accepted after the system had no descriptor or no memory.
constexpr base::Nanoseconds kListenerRest = 100 * base::kMillisecond;
constexpr std::size_t kDrainedEpochsMin = 4096;
constexpr int kAcceptsPerEvent = 16;

}  // namespace

void TcpTransport::accept_waiting() {
  for (int i = 0; i < kAcceptsPerEvent; ++i) {
    platform::SocketAddress address;
    auto socket = environment_.network.accept(listener_, address);
    if (!socket) {
      if (socket.error().code() == ErrorCode::kSystem) {
        rest_listener(base::error_line(socket.error()).c_str());
      }
      return;
    }
    environment_.counters.served_accepted.add();
    served_pressing_ = true;
    make_room_for_handshake();
    if (!adopt(*socket, address)) {
      rest_listener("a connection could not be taken");
      return;
    }
    listener_rest_logged_ = false;
  }
}

/// The oldest connection that has not proved itself makes room: strangers who open many cannot
/// keep a peer out.
void TcpTransport::make_room_for_handshake() {
  std::uint64_t unproved = 0;
  ServedLane* oldest = nullptr;
  for (const auto& [id, lane] : served_) {
    if (!lane->authenticated() && !lane->ended()) {
      ++unproved;
      if (oldest == nullptr || lane->id() < oldest->id()) {
        oldest = lane.get();
      }
    }
  }
  if (oldest != nullptr && unproved >= environment_.config.tcp.handshakes_max) {
    oldest->end(ServedLane::End::kRejected, "too many connections in their handshake");
    reap_served();
  }
}

bool TcpTransport::adopt(platform::Socket socket, const platform::SocketAddress& peer) {
  bool owned = true;  // by us, until the lane has it
  try {
    const Config::Tcp& tcp = environment_.config.tcp;
    // Ending it is always safe for us, and a last answer that is never acknowledged would keep the
    // probes of an idle connection away: as long as these may take, at least what a stall in the
    // middle of a frame may.
    const std::uint64_t unacknowledged_max_ms =
        std::max(2 * tcp.keepalive_idle_ms, tcp.progress_timeout_ms);
    environment_.network.configure(
        socket, {tcp.keepalive_idle_ms * base::kMillisecond,
                 peer.is_loopback() ? tcp.loopback_congestion_control : std::string(),
                 unacknowledged_max_ms * base::kMillisecond});
    const std::uint64_t id = next_served_id_++;
    auto lane = std::make_unique<ServedLane>(environment_, callbacks_, trailer_budget_, socket, id,
                                             peer.text());
    owned = false;
    if (!environment_.network.poller_add(environment_.poller, socket, platform::kPollIn,
                                         kTokenServed | id)) {
      return false;
    }
    served_.emplace(id, std::move(lane));
  } catch (const std::exception&) {
    if (owned) {
      environment_.network.close(socket);
    }
    return false;
  }
  served_count_.store(static_cast<std::uint32_t>(served_.size()), std::memory_order_relaxed);
  return true;
}

/// A listener that cannot accept stays readable: the worker would do nothing else.
void TcpTransport::rest_listener(const char* why) {
  if (!listener_rest_logged_) {
    base::log(base::LogLevel::kError, "accepting on port %u rests and is tried again: %s",
              unsigned{listening_.port()}, why);
    listener_rest_logged_ = true;
  }
  listener_rests_until_ns_ = environment_.clock.now_ns() + kListenerRest;
  environment_.network.poller_modify(environment_.poller, listener_, 0, kTokenListener);
}

void TcpTransport::wake_listener(base::Nanoseconds now_ns) {
  if (listener_rests_until_ns_ == 0 || now_ns < listener_rests_until_ns_) {
    return;
  }
  listener_rests_until_ns_ = 0;
  environment_.network.poller_modify(environment_.poller, listener_, platform::kPollIn,
                                     kTokenListener);
}

void TcpTransport::reap_served() {
  for (auto it = served_.begin(); it != served_.end();) {
    if (it->second->ended()) {
      if (it->second->end_reason() == ServedLane::End::kRejected) {
        environment_.counters.served_rejected.add();
      }
      if (it->second->proved() && !it->second->is_control()) {
        proved_count_.fetch_sub(1, std::memory_order_relaxed);
      }
      it = served_.erase(it);
    } else {
      ++it;
    }
  }
  served_count_.store(static_cast<std::uint32_t>(served_.size()), std::memory_order_relaxed);
}

ErrorCode TcpTransport::admit(const wire::ClientHello& hello) {
  const bool is_control = hello.lane_class == static_cast<std::uint8_t>(wire::LaneClass::kControl);
  // While we close and still listen, drains are answered: the peer may be closing too, and wait for
  // the proof as we do.
  if (!accepting_ && !is_control) {
    return ErrorCode::kEngineClosing;
  }
  const auto drained = drained_.find(hello.client_epoch);
  if (drained != drained_.end() && hello.lane_id <= drained->second.lane_id &&
      !base::planted(base::Bug::kDrainNotRemembered)) {
    return ErrorCode::kHandshakeRejected;
  }
  // Control lanes carry drains, which free lanes: a full table must not keep them out.
  if (!is_control) {
    return check_room_for(hello.client_epoch);
  }
  return ErrorCode::kOk;
}

/// A client may have half of the lanes that the others leave.
ErrorCode TcpTransport::check_room_for(const base::SourceEpoch& client) {
  const auto held = static_cast<std::uint64_t>(
      std::count_if(served_.begin(), served_.end(), [&client](const auto& entry) {
        const ServedLane& lane = *entry.second;
        return lane.authenticated() && !lane.is_control() && lane.hello().client_epoch == client;
      }));
  if (base::share_allows(held, 1, count_proved(false), environment_.config.tcp.served_lanes_max)) {
    return ErrorCode::kOk;
  }
  out_of_room_.add();
  if (!out_of_room_logged_) {
    out_of_room_logged_ = true;
    base::log(base::LogLevel::kWarn,
              "a connection was refused: its peer has %llu of the %llu that are served "
              "(tcp.served_lanes_max is %llu); further ones are counted",
              static_cast<unsigned long long>(held),
              static_cast<unsigned long long>(count_proved(false)),
              static_cast<unsigned long long>(environment_.config.tcp.served_lanes_max));
  }
  return ErrorCode::kBudgetExhausted;
}

std::uint64_t TcpTransport::count_proved(bool control) const {
  return static_cast<std::uint64_t>(
      std::count_if(served_.begin(), served_.end(), [control](const auto& entry) {
        return entry.second->authenticated() && entry.second->is_control() == control;
      }));
}

ErrorCode TcpTransport::prove(const ServedLane& proving) {
  if (proving.is_control()) {
    make_room_for_control(proving);
    return ErrorCode::kOk;
  }
  if (!accepting_) {
    return ErrorCode::kEngineClosing;
  }
  const ErrorCode room = check_room_for(proving.hello().client_epoch);
  if (room == ErrorCode::kOk) {
    // Relaxed: the worker's own count, read by whoever wants to know.
    proved_count_.fetch_add(1, std::memory_order_relaxed);
  }
  return room;
}

/// A client epoch has one control lane, the newest. All of them are at most as many as the lanes
/// that they may drain: the oldest makes room, and its client connects again when it has need.
void TcpTransport::make_room_for_control(const ServedLane& proving) {
  ServedLane* oldest = nullptr;
  for (const auto& [id, lane] : served_) {
    if (!lane->authenticated() || !lane->is_control()) {
      continue;
    }
    if (lane->hello().client_epoch == proving.hello().client_epoch) {
      lane->end(ServedLane::End::kClosedByUs, "replaced by a new control lane");
    } else if (oldest == nullptr || lane->id() < oldest->id()) {
      oldest = lane.get();
    }
  }
  if (oldest != nullptr && count_proved(true) >= environment_.config.tcp.served_lanes_max) {
    oldest->end(ServedLane::End::kClosedByUs, "too many control lanes");
  }
}

/// Of a client without a connection, the one that drained least recently. Nothing is lost with it:
/// a lane becomes ready only by a proof over our nonce of that connection, every connection with
/// the drained id was ended at the drain, and a client never gives an id to two connections. The
/// memory is for a client that breaks this rule.
bool TcpTransport::forget_a_drained_epoch() {
  std::set<base::SourceEpoch> connected;
  for (const auto& [id, lane] : served_) {
    if (lane->has_hello()) {
      connected.insert(lane->hello().client_epoch);
    }
  }
  auto oldest = drained_.end();
  for (auto it = drained_.begin(); it != drained_.end(); ++it) {
    if (!connected.contains(it->first) &&
        (oldest == drained_.end() || it->second.order < oldest->second.order)) {
      oldest = it;
    }
  }
  if (oldest == drained_.end()) {
    return false;
  }
  drained_.erase(oldest);
  return true;
}

ErrorCode TcpTransport::drain(const base::SourceEpoch& client, std::uint64_t lane_id) {
  // More than can be connected at a time, so one that is not is there to be forgotten.
  const std::uint64_t epochs_max =
      std::max<std::uint64_t>(kDrainedEpochsMin, 2 * environment_.config.tcp.served_lanes_max +
                                                     environment_.config.tcp.handshakes_max);
  if (drained_.size() >= epochs_max && !drained_.contains(client) && !forget_a_drained_epoch()) {
    return ErrorCode::kBudgetExhausted;
  }
  Drained& drained = drained_[client];
  drained.lane_id = std::max(drained.lane_id, lane_id);
  drained.order = ++drains_;
  // Those in their handshake too: a proof that is on its way must not revive the lane.
  for (const auto& [id, lane] : served_) {
    if (lane->has_hello() && lane->hello().client_epoch == client &&
        lane->hello().lane_id == lane_id) {
      lane->end(ServedLane::End::kClosedByUs, "drained");
    }
  }
  return ErrorCode::kOk;
}

}  // namespace orbite::transport::tcp
