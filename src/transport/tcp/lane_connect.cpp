// SPDX-License-Identifier: Apache-2.0
// Lane: from Closed to Ready.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/assert.hpp"
#include "base/log.hpp"
#include "transport/tcp/lane.hpp"

namespace orbite::transport::tcp {
namespace {

constexpr base::Nanoseconds kRetryAfterRefusal = 50 * base::kMillisecond;

/// Nobody listens at that address any more, or an engine of another life does.
bool is_gone(ErrorCode code, int native_errno) {
  return code == ErrorCode::kPeerEpochChanged ||
         (code == ErrorCode::kPeerUnreachable && native_errno == ECONNREFUSED);
}

}  // namespace

bool Lane::start_connect() {
  const base::Nanoseconds now = environment_.clock.now_ns();
  if (now < retry_after_ns_) {
    if (class_ != wire::LaneClass::kControl) {
      fail_pending_if_alone(ErrorCode::kPeerUnreachable, ECONNREFUSED);
    }
    return false;
  }
  const auto& addresses = channel_.addresses();
  if (addresses.empty()) {
    connect_failed(ErrorCode::kPeerUnreachable, 0, "the peer advertises no address");
    return false;
  }
  try {
    if (!open_socket(addresses[address_index_])) {
      return false;
    }
  } catch (const std::bad_alloc&) {
    connect_failed(ErrorCode::kOutOfMemory, 0, "connect");
    return false;
  }
  state_ = State::kConnecting;
  state_since_ns_ = now;
  // Relaxed: see busy(). Told before the step ends, so that nobody takes the channel for idle.
  busy_.store(true, std::memory_order_relaxed);
  return true;
}

/// False when the attempt has failed. May throw std::bad_alloc, with the socket open.
bool Lane::open_socket(const platform::SocketAddress& address) {
  // What every call on the socket needs, so that none of them asks for memory.
  scratch_.reserve(kPartsPerCall + 1);
  std::optional<platform::SocketAddress> source;
  if (!environment_.config.tcp.source_address.empty() && !address.is_loopback()) {
    if (auto parsed = platform::SocketAddress::parse(environment_.config.tcp.source_address, 0)) {
      source = *parsed;
    }
  }
  auto socket = environment_.network.connect(address, source ? &*source : nullptr);
  if (!socket) {
    connect_failed(ErrorCode::kPeerUnreachable, socket.error().native_errno(), "connect");
    return false;
  }
  reset_io();
  socket_ = *socket;
  environment_.network.configure(
      socket_, {environment_.config.tcp.keepalive_idle_ms * base::kMillisecond,
                address.is_loopback() ? environment_.config.tcp.loopback_congestion_control
                                      : std::string()});
  lane_id_ = directory_.enter(*this, channel_.weak_from_this());
  interest_ = 0;
  if (auto added =
          environment_.network.poller_add(environment_.poller, socket_, 0, kTokenLane | lane_id_);
      !added) {
    connect_failed(ErrorCode::kSystem, added.error().native_errno(), "poller");
    return false;
  }
  return true;
}

void Lane::finish_connect() {
  const platform::IoResult result = environment_.network.connect_result(socket_);
  if (result.kind == platform::IoResult::Kind::kWouldBlock) {
    return;
  }
  if (result.kind != platform::IoResult::Kind::kBytes) {
    connect_failed(ErrorCode::kPeerUnreachable, result.native_errno, "connect");
    return;
  }
  send_hello();
}

/// The next address is tried at once; when none is left the attempt has failed, with the most
/// telling of the reasons: that somebody answered and refused says more than that nobody did.
void Lane::connect_failed(ErrorCode code, int native_errno, const char* what) {
  close_socket();
  state_ = State::kClosed;
  if (attempt_code_ == ErrorCode::kOk || attempt_code_ == ErrorCode::kPeerUnreachable) {
    attempt_code_ = code;
    attempt_errno_ = native_errno;
  }
  const bool gone = is_gone(code, native_errno);
  attempt_finds_nobody_ = attempt_finds_nobody_ && gone;
  log_end(base::LogLevel::kInfo, what, code, native_errno);
  const auto& addresses = channel_.addresses();
  if (class_ == wire::LaneClass::kControl && gone && channel_.is_local()) {
    // The address leads to our kernel for ever: who was reached there and is not any more is gone.
    // The other family tells nothing, this machine may not have it.
    for (const auto& lane : channel_.lanes()) {
      if (lane.get() != this) {
        lane->end_if_reset_at(address_index_);
      }
    }
    if (!wants_connection()) {
      environment_.counters.lanes_failed.add();
      end_rest_of_control();
      return;
    }
  }
  if (address_index_ + 1 < addresses.size()) {
    ++address_index_;
    return;
  }
  attempt_failed(attempt_code_, attempt_errno_, what);
}

void Lane::forget_attempt() {
  address_index_ = 0;
  attempt_code_ = ErrorCode::kOk;
  attempt_errno_ = 0;
  attempt_finds_nobody_ = true;
}

/// At none of the peer's addresses.
void Lane::attempt_failed(ErrorCode code, int native_errno, const char* what) {
  const bool finds_nobody = attempt_finds_nobody_;
  forget_attempt();
  environment_.counters.lanes_failed.add();
  if (class_ == wire::LaneClass::kControl) {
    control_attempt_failed(finds_nobody);
    return;
  }
  retry_after_ns_ = environment_.clock.now_ns() + kRetryAfterRefusal;
  if (class_ == wire::LaneClass::kLatency) {
    // Who waits for the peer waits for this lane.
    channel_.report_unreachable(Error::make_native(code, native_errno, "peer '%.64s': %s",
                                                   channel_.peer_name().c_str(), what));
    while (const auto call = channel_.pull_describe()) {
      call->report(code);
    }
  }
  fail_pending_if_alone(code, native_errno);
}

/// The peer that reset a lane is gone when it is found nowhere, since it ends its served lanes
/// before it stops listening. One address alone says nothing, it may never have been the peer's.
void Lane::control_attempt_failed(bool finds_nobody) {
  rest_control();
  if (!finds_nobody) {
    return;
  }
  for (const auto& lane : channel_.lanes()) {
    if (lane.get() != this) {
      lane->end_if_reset();
    }
  }
  if (!wants_connection()) {
    end_rest_of_control();
  }
}

/// Nothing of these slices was sent. Another lane of the class that is connected, or on the way to
/// it, still takes them; so does one that a silent lane leaves to connect.
void Lane::fail_pending_if_alone(ErrorCode code, int native_errno) {
  const bool we_are_stuck = state_ == State::kSilent || state_ == State::kLost;
  for (const auto& lane : channel_.lanes()) {
    const Fitness fitness = lane->fitness();
    if (lane.get() != this && lane->lane_class() == class_ &&
        (fitness == Fitness::kReady || fitness == Fitness::kConnecting ||
         (we_are_stuck && fitness == Fitness::kClosed))) {
      return;
    }
  }
  transfer::Slice* slice = channel_.extract_all_pending(qos());
  while (slice != nullptr) {
    transfer::Slice* const next = slice->next;
    complete(*slice, {code, native_errno, 0, RemoteEffect::kNone, false});
    retire(*slice);
    slice = next;
  }
}

bool Lane::send_hello() {
  hello_ = wire::ClientHello{};
  hello_.client_epoch = environment_.epoch;
  hello_.expected_epoch = channel_.connection().epoch;
  environment_.random.fill(hello_.nonce);
  hello_.lane_id = lane_id_;
  hello_.host = environment_.host;
  hello_.lane_class = static_cast<std::uint8_t>(class_);
  hello_.name_bytes = static_cast<std::uint16_t>(environment_.name.size());
  std::memcpy(hello_.name, environment_.name.data(), environment_.name.size());
  const iovec part{&hello_, sizeof(hello_)};
  const platform::IoResult result = environment_.network.send(socket_, {&part, 1});
  // A new connection's send buffer always has room for it.
  if (result.kind != platform::IoResult::Kind::kBytes || result.bytes != sizeof(hello_)) {
    connect_failed(ErrorCode::kPeerUnreachable, result.native_errno, "handshake");
    return false;
  }
  state_ = State::kHello;
  state_since_ns_ = environment_.clock.now_ns();
  return true;
}

/// True when the lane became ready.
bool Lane::receive_hello() {
  const iovec tail = received_.tail(kHeadBytesMax);
  const platform::IoResult result = environment_.network.receive(socket_, {&tail, 1});
  switch (result.kind) {
    case platform::IoResult::Kind::kWouldBlock:
      return false;
    case platform::IoResult::Kind::kEnded:
    case platform::IoResult::Kind::kFailed:
      connect_failed(ErrorCode::kPeerUnreachable,
                     result.native_errno == 0 ? ECONNRESET : result.native_errno, "handshake");
      return false;
    case platform::IoResult::Kind::kBytes:
      received_.grown(result.bytes);
      break;
  }
  wire::ServerHello server;
  if (!received_.take(server)) {
    return false;
  }
  if (auto valid = wire::check_server_hello(server); !valid) {
    connect_failed(valid.error().code(), 0, "handshake");
    return false;
  }
  if (server.status != 0) {
    // That it is closing is news of the peer, not of this engine.
    const auto refusal = static_cast<ErrorCode>(server.status);
    environment_.counters.lanes_refused.add();
    connect_failed(refusal == ErrorCode::kEngineClosing ? ErrorCode::kPeerUnreachable : refusal, 0,
                   "handshake refused by the peer");
    return false;
  }
  if (server.server_epoch != channel_.connection().epoch ||
      !wire::verify_server(channel_.connection().secret, hello_, server)) {
    environment_.counters.lanes_refused.add();
    connect_failed(ErrorCode::kHandshakeRejected, 0, "the peer did not prove its identity");
    return false;
  }
  wire::ClientProof proof;
  wire::sign_client(channel_.connection().secret, hello_, server, proof);
  const iovec part{&proof, sizeof(proof)};
  const platform::IoResult sent = environment_.network.send(socket_, {&part, 1});
  if (sent.kind != platform::IoResult::Kind::kBytes || sent.bytes != sizeof(proof)) {
    connect_failed(ErrorCode::kPeerUnreachable, sent.native_errno, "handshake");
    return false;
  }
  become_ready();
  return true;
}

void Lane::become_ready() {
  state_ = State::kReady;
  progress_ns_ = environment_.watched_clock.now_ns();
  retry_after_ns_ = 0;
  attempt_code_ = ErrorCode::kOk;
  attempt_errno_ = 0;
  attempt_finds_nobody_ = true;
  environment_.counters.lanes_connected.add();
  if (std::exchange(was_ready_, true)) {
    environment_.counters.lanes_reconnected.add();
  }
  publish();
  // A peer has several lanes; one of them tells of it, and is what callers wait for.
  const bool is_told = class_ == wire::LaneClass::kLatency;
  base::log(is_told ? base::LogLevel::kInfo : base::LogLevel::kDebug,
            "peer '%.64s' is connected at %s", channel_.peer_name().c_str(),
            channel_.addresses()[address_index_].line().c_str());
  if (is_told) {
    channel_.report_connected();
  }
}

void Lane::reset_io() {
  ORBITE_CHECK(in_flight_.empty());
  send_.clear();
  send_payload_bytes_ = 0;
  send_trailer_bytes_ = 0;
  in_flight_bytes_ = 0;
  received_.clear();
  receive_.clear();
  in_response_ = false;
  send_blocked_ = false;
  frame_touched_ = false;
  send_errno_ = 0;
  reset_by_peer_ = false;
  drain_asked_ = false;
}

void Lane::close_socket() {
  if (socket_ == platform::kNoSocket) {
    return;
  }
  environment_.network.poller_remove(environment_.poller, socket_);
  environment_.network.close(socket_);
  directory_.leave(lane_id_);
  socket_ = platform::kNoSocket;
  interest_ = 0;
}

}  // namespace orbite::transport::tcp
