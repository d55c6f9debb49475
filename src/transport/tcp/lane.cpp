// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/lane.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/assert.hpp"
#include "base/log.hpp"

namespace orbite::transport::tcp {
namespace {

constexpr std::size_t kReceiveBufferBytes = 16 * 1024;
constexpr std::size_t kFramesInFlightMax = 256;
constexpr std::size_t kPartsPerCall = 1024;
constexpr base::Nanoseconds kRetryAfterRefusal = 50 * base::kMillisecond;
constexpr base::Nanoseconds kRetryDrain = base::kSecond;

}  // namespace

// ---- LaneDirectory

std::uint64_t LaneDirectory::enter(Lane& lane, std::weak_ptr<transfer::Flow> channel) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t id = next_id_++;
  entries_.emplace(id, Entry{&lane, std::move(channel)});
  return id;
}

void LaneDirectory::leave(std::uint64_t lane_id) {
  const std::lock_guard lock(mutex_);
  entries_.erase(lane_id);
}

Lane* LaneDirectory::find(std::uint64_t lane_id, std::shared_ptr<transfer::Flow>& keep_alive) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(lane_id);
  if (found == entries_.end()) {
    return nullptr;
  }
  keep_alive = found->second.channel.lock();
  return keep_alive == nullptr ? nullptr : found->second.lane;
}

// ---- Lane: driving

Lane::Lane(Environment& environment, transfer::Planner& planner, LaneDirectory& directory,
           Channel& channel, wire::LaneClass lane_class)
    : CompletionPath(planner),
      environment_(environment),
      directory_(directory),
      channel_(channel),
      class_(lane_class),
      received_(kReceiveBufferBytes) {}

Lane::~Lane() { close_socket(); }

void Lane::drive(transfer::WorkLimit& limit, transfer::Driver driver) {
  // Two rounds at most: others who kick must not keep one caller here.
  for (int round = 0; round < 2 && !limit.exhausted(); ++round) {
    if (!drive_mutex_.try_lock()) {
      // Tells the holder that there is more to do; if it let go meanwhile, we do it.
      kicked_.store(true, std::memory_order_seq_cst);
      if (!drive_mutex_.try_lock()) {
        return;
      }
    }
    {
      const std::lock_guard lock(drive_mutex_, std::adopt_lock);
      kicked_.store(false, std::memory_order_seq_cst);
      if (driver == transfer::Driver::kCaller) {
        armed_ = false;
      }
      limit.spend(0);
      step(limit);
      update_interest();
      publish();
    }
    if (!kicked_.load(std::memory_order_seq_cst)) {
      return;
    }
  }
}

/// Whoever found the mutex taken while the worker held it has left its work to the worker.
void Lane::answer_kick() {
  if (kicked_.load(std::memory_order_seq_cst)) {
    transfer::WorkLimit limit{kCallBytesMax, 8};
    drive(limit, transfer::Driver::kWorker);
  }
}

void Lane::on_event(transfer::WorkLimit& limit) {
  {
    const std::lock_guard lock(drive_mutex_);
    if (socket_ != platform::kNoSocket) {
      send_blocked_ = false;
      step(limit);
      // An idle lane has nothing to receive but its end.
      if (!limit.exhausted() && in_flight_.empty() && is_open()) {
        receive_some(limit);
      }
    }
    update_interest();
    publish();
  }
  answer_kick();
}

void Lane::on_tick(base::Nanoseconds now_ns, bool caller_is_active) {
  {
    const std::unique_lock lock(drive_mutex_, std::try_to_lock);
    if (!lock.owns_lock()) {
      return;
    }
    check_timers(now_ns);
    const bool connecting = state_ == State::kConnecting || state_ == State::kHello ||
                            (state_ == State::kClosed && wants_connection());
    const bool idle = in_flight_.empty() && state_ == State::kReady && !wants_connection();
    if (!caller_is_active) {
      armed_ = true;
    }
    // A caller that polls for other work of the peer does not connect lanes that it has no use for.
    if (connecting || (!caller_is_active && !idle)) {
      transfer::WorkLimit limit{kCallBytesMax, 8};
      step(limit);
    }
    update_interest();
    publish();
  }
  answer_kick();
}

void Lane::step(transfer::WorkLimit& limit) {
  if ((state_ == State::kClosed) && wants_connection() && !start_connect()) {
    return;
  }
  if (state_ == State::kConnecting) {
    finish_connect();
  }
  if (state_ == State::kHello && !receive_hello()) {
    return;
  }
  bool moved = true;
  while (moved && !limit.exhausted() && is_open()) {
    moved = send_some(limit);
    if (!in_flight_.empty() && is_open()) {
      moved |= receive_some(limit);
    }
  }
}

bool Lane::wants_connection() {
  if (class_ == wire::LaneClass::kControl) {
    return channel_.unproved() > 0;
  }
  return channel_.has_pending(qos()) || (class_ == wire::LaneClass::kLatency &&
                                         (channel_.connection_wanted() || channel_.has_describe()));
}

// ---- Lane: connecting

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
  const platform::SocketAddress& address = addresses[address_index_];
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
  lane_id_ = directory_.enter(*this, channel_self_);
  interest_ = 0;
  if (auto added =
          environment_.network.poller_add(environment_.poller, socket_, 0, kTokenLane | lane_id_);
      !added) {
    connect_failed(ErrorCode::kSystem, added.error().native_errno(), "poller");
    return false;
  }
  state_ = State::kConnecting;
  state_since_ns_ = now;
  // Relaxed: see busy(). Told before the step ends, so that nobody takes the channel for idle.
  busy_.store(true, std::memory_order_relaxed);
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
  log_end(base::LogLevel::kInfo, what, code, native_errno);
  if (address_index_ + 1 < channel_.addresses().size()) {
    ++address_index_;
    return;
  }
  address_index_ = 0;
  code = std::exchange(attempt_code_, ErrorCode::kOk);
  native_errno = std::exchange(attempt_errno_, 0);
  environment_.counters.lanes_failed.add();
  const bool is_control = class_ == wire::LaneClass::kControl;
  retry_after_ns_ = environment_.clock.now_ns() + (is_control ? kRetryDrain : kRetryAfterRefusal);
  if (is_control) {
    // Nobody listens there any more, or somebody else: the peer that reset a lane is gone, since it
    // ends its served lanes before it stops listening.
    if (code == ErrorCode::kPeerEpochChanged || native_errno == ECONNREFUSED) {
      for (const auto& lane : channel_.lanes()) {
        if (lane.get() != this) {
          lane->end_if_reset();
        }
      }
    }
    return;
  }
  channel_.report_unreachable(Error::make_native(code, native_errno, "peer '%.64s': %s",
                                                 channel_.peer_name().c_str(), what));
  if (class_ == wire::LaneClass::kLatency) {
    while (const auto call = channel_.pull_describe()) {
      call->report(code);
    }
  }
  fail_pending_if_alone(code, native_errno);
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
    connect_failed(refusal == ErrorCode::kEngineClosing ? ErrorCode::kPeerUnreachable : refusal, 0,
                   "handshake refused by the peer");
    return false;
  }
  if (server.server_epoch != channel_.connection().epoch ||
      !wire::verify_server(channel_.connection().secret, hello_, server)) {
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
  progress_ns_ = environment_.clock.now_ns();
  retry_after_ns_ = 0;
  attempt_code_ = ErrorCode::kOk;
  attempt_errno_ = 0;
  environment_.counters.lanes_connected.add();
  publish();
  channel_.report_connected();
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

// ---- Lane: sending

bool Lane::send_some(transfer::WorkLimit& limit) {
  if (send_errno_ != 0 || (send_blocked_ && armed_)) {
    return false;  // what the peer sent before its end is still to be received; or: the poller says
  }
  if (send_.done() && (state_ != State::kReady || !build_next_frame())) {
    return false;
  }
  const std::size_t bytes_max =
      frame_touched_ ? kCallBytesMax : first_call_bytes(send_.remaining());
  const auto parts = send_.next(bytes_max, scratch_, kPartsPerCall);
  const platform::IoResult result = environment_.network.send(socket_, parts);
  switch (result.kind) {
    case platform::IoResult::Kind::kBytes:
      send_.advance(result.bytes);
      frame_touched_ = true;
      limit.spend(result.bytes);
      progress_ns_ = environment_.clock.now_ns();
      send_blocked_ = false;
      return true;
    case platform::IoResult::Kind::kWouldBlock:
      send_blocked_ = true;
      return false;
    case platform::IoResult::Kind::kEnded:
    case platform::IoResult::Kind::kFailed:
      break;
  }
  // Responses that came before the end are in our socket buffer and tell what was done.
  send_errno_ = result.native_errno != 0 ? result.native_errno : EPIPE;
  return false;
}

/// False when there is nothing to send.
bool Lane::build_next_frame() {
  if (in_flight_.size() >= kFramesInFlightMax) {
    return false;
  }
  if (class_ == wire::LaneClass::kControl) {
    if (!drains_wanted_) {
      return false;
    }
    for (const auto& lane : channel_.lanes()) {
      const std::uint64_t id = lane.get() == this ? 0 : lane->unproved_lane_id();
      const bool asked = std::any_of(in_flight_.begin(), in_flight_.end(), [&](const Frame& frame) {
        return frame.drained_lane_id == id;
      });
      if (id != 0 && !asked) {
        build_drain_frame(id);
        return true;
      }
    }
    drains_wanted_ = false;
    return false;
  }
  if (class_ == wire::LaneClass::kLatency) {
    if (auto call = channel_.pull_describe()) {
      build_describe_frame(std::move(call));
      return true;
    }
  }
  while (true) {
    const std::uint64_t in_flight_max = environment_.config.tcp.lane_bytes_in_flight_max;
    transfer::Slice* const slice = channel_.pull(
        qos(), in_flight_bytes_ < in_flight_max ? in_flight_max - in_flight_bytes_ : 0);
    if (slice == nullptr) {
      return false;
    }
    if (slice->execution->stopped()) {
      drop_stopped(*slice);
      continue;
    }
    build_payload_frame(*slice);
    return true;
  }
}

void Lane::drop_stopped(transfer::Slice& slice) {
  complete(slice, {ErrorCode::kCanceled, 0, 0, RemoteEffect::kNone, false});
  retire(slice);
}

void Lane::add_local_parts(const transfer::Slice& slice, IoCursor& cursor) const {
  const auto& extents = slice.execution->prepared()->extents;
  std::uint64_t left = slice.bytes;
  std::uint64_t skip = slice.first_skip;
  for (std::uint32_t i = 0; i < slice.extent_count; ++i) {
    const transfer::Extent& extent = extents[slice.first_extent + i];
    const std::uint64_t length = std::min(extent.length - skip, left);
    cursor.add(extent.local_address + skip, length);
    left -= length;
    skip = 0;
  }
  ORBITE_CHECK(left == 0);
}

/// The tables of a frame: each change of range begins a new entry, as the planner counted them.
void Lane::fill_tables(const transfer::Slice& slice) {
  table_scratch_.clear();
  extent_scratch_.clear();
  std::uint64_t left = slice.bytes;
  std::uint64_t skip = slice.first_skip;
  std::uint32_t last_remote = UINT32_MAX;
  for (std::uint32_t i = 0; i < slice.extent_count; ++i) {
    const transfer::Prepared& prepared = *slice.execution->prepared();
    const transfer::Extent& extent = prepared.extents[slice.first_extent + i];
    const wire::RangeBlob& remote = prepared.remotes[extent.remote_index]->blob();
    if (extent.remote_index != last_remote) {
      wire::RegistrationRef& entry = table_scratch_.emplace_back();
      entry.index = remote.index;
      entry.generation = remote.generation;
      std::memcpy(entry.key, remote.key.bytes.data(), sizeof(entry.key));
      last_remote = extent.remote_index;
    }
    const std::uint64_t length = std::min(extent.length - skip, left);
    ORBITE_DCHECK(extent.remote_address + skip >= remote.address);
    extent_scratch_.push_back({extent.remote_address + skip - remote.address,
                               static_cast<std::uint32_t>(length),
                               static_cast<std::uint32_t>(table_scratch_.size() - 1)});
    left -= length;
    skip = 0;
  }
}

void Lane::build_payload_frame(transfer::Slice& slice) {
  const transfer::Execution& execution = *slice.execution;
  Frame frame;
  frame.slice = &slice;
  wire::FrameType type = wire::FrameType::kWrite;
  if (slice.bytes == 0) {
    frame.kind = FrameKind::kNotify;
    type = wire::FrameType::kNotify;
  } else if (execution.operation() == Operation::kRead) {
    frame.kind = FrameKind::kRead;
    type = wire::FrameType::kRead;
  }
  fill_tables(slice);
  trailer_.clear();
  if (slice.carries_notification) {
    const wire::Envelope envelope{environment_.epoch, environment_.name, *execution.notification()};
    trailer_.resize(wire::envelope_bytes(environment_.name, *execution.notification()));
    const auto written = wire::encode_envelope(envelope, trailer_);
    ORBITE_CHECK(written.has_value());  // its size was checked when it was posted
  }
  wire::RequestHeader header;
  header.type = static_cast<std::uint8_t>(type);
  header.payload_bytes = slice.bytes;
  header.extent_count = slice.extent_count;
  header.table_count = static_cast<std::uint16_t>(table_scratch_.size());
  header.trailer_bytes = static_cast<std::uint32_t>(trailer_.size());
  start_frame(std::move(frame), header);
  if (type == wire::FrameType::kWrite) {
    add_local_parts(slice, send_);
    send_payload_bytes_ = slice.bytes;
  }
  send_.add(trailer_.data(), trailer_.size());
  send_trailer_bytes_ = trailer_.size();
  in_flight_bytes_ += slice.bytes;
}

void Lane::build_describe_frame(std::shared_ptr<DescribeCall> call) {
  table_scratch_ = call->registrations();
  extent_scratch_.clear();
  wire::RequestHeader header;
  header.type = static_cast<std::uint8_t>(wire::FrameType::kDescribe);
  header.table_count = static_cast<std::uint16_t>(table_scratch_.size());
  Frame frame;
  frame.kind = FrameKind::kDescribe;
  frame.call = std::move(call);
  start_frame(std::move(frame), header);
}

void Lane::build_drain_frame(std::uint64_t lane_id) {
  table_scratch_.clear();
  extent_scratch_.clear();
  wire::RequestHeader header;
  header.type = static_cast<std::uint8_t>(wire::FrameType::kDrain);
  header.trailer_bytes = wire::kDrainTrailerBytes;
  Frame frame;
  frame.kind = FrameKind::kDrain;
  frame.drained_lane_id = lane_id;
  start_frame(std::move(frame), header);
  trailer_.resize(sizeof(lane_id));
  std::memcpy(trailer_.data(), &lane_id, sizeof(lane_id));
  send_.add(trailer_.data(), trailer_.size());
}

/// Header and tables into send_; payload and trailer follow.
void Lane::start_frame(Frame frame, wire::RequestHeader header) {
  header.frame_id = next_frame_id_++;
  head_.resize(sizeof(header) + wire::tables_bytes(header));
  std::uint8_t* out = head_.data();
  const auto put = [&out](const void* data, std::size_t bytes) {
    if (bytes > 0) {
      std::memcpy(out, data, bytes);
      out += bytes;
    }
  };
  put(&header, sizeof(header));
  put(table_scratch_.data(), table_scratch_.size() * sizeof(wire::RegistrationRef));
  put(extent_scratch_.data(), extent_scratch_.size() * sizeof(wire::WireExtent));
  send_.clear();
  send_.add(head_.data(), head_.size());
  send_payload_bytes_ = 0;
  send_trailer_bytes_ = 0;
  frame_touched_ = false;
  if (in_flight_.empty()) {
    progress_ns_ = environment_.clock.now_ns();
    busy_.store(true, std::memory_order_relaxed);  // as in start_connect()
  }
  frame.id = header.frame_id;
  in_flight_.push_back(std::move(frame));
}

// ---- Lane: receiving

bool Lane::receive_some(transfer::WorkLimit& limit) {
  const bool payload = in_response_ && !receive_.done();
  std::size_t payload_bytes = 0;
  scratch_.clear();
  if (payload) {
    // The buffer is empty here: what it held was copied out before.
    const auto parts = receive_.next(kCallBytesMax, scratch_, kPartsPerCall - 1);
    for (const iovec& part : parts) {
      payload_bytes += part.iov_len;
    }
  }
  scratch_.push_back(received_.tail(kHeadBytesMax));
  const platform::IoResult result = environment_.network.receive(socket_, scratch_);
  switch (result.kind) {
    case platform::IoResult::Kind::kWouldBlock:
      if (send_errno_ != 0) {
        lost(ErrorCode::kPeerDisconnected, send_errno_, "send");
      }
      return false;
    case platform::IoResult::Kind::kEnded:
      // After an error the end of the stream is the kernel's, not the peer's FIN.
      if (send_errno_ == 0) {
        peer_ended("the peer closed the connection");
      } else {
        lost(ErrorCode::kPeerDisconnected, send_errno_, "send");
      }
      return false;
    case platform::IoResult::Kind::kFailed:
      lost(ErrorCode::kPeerDisconnected, result.native_errno, "receive");
      return false;
    case platform::IoResult::Kind::kBytes:
      break;
  }
  limit.spend(result.bytes);
  progress_ns_ = environment_.clock.now_ns();
  const std::size_t direct = std::min(result.bytes, payload_bytes);
  receive_.advance(direct);
  received_.grown(result.bytes - direct);
  if (!handle_responses()) {
    environment_.counters.protocol_violations.add();
    lost(ErrorCode::kProtocolViolation, 0, "the peer broke the protocol");
    return false;
  }
  return true;
}

/// False when the peer broke the protocol.
bool Lane::handle_responses() {
  while (true) {
    if (!in_response_) {
      if (!received_.take(response_)) {
        return true;
      }
      if (!begin_response(response_)) {
        return false;
      }
      in_response_ = true;
    }
    received_.consume(receive_.copy_in(received_.data()));
    if (!receive_.done()) {
      return true;
    }
    in_response_ = false;
    if (!finish_front(response_)) {
      return false;
    }
  }
}

bool Lane::begin_response(const wire::ResponseHeader& header) {
  wire::FrameLimits limits;
  if (!wire::check_response_header(header, limits) || in_flight_.empty()) {
    return false;
  }
  const Frame& front = in_flight_.front();
  const bool front_is_being_sent = in_flight_.size() == 1 && !send_.done();
  if (header.frame_id != front.id || front_is_being_sent) {
    return false;
  }
  const std::uint64_t bytes = front.slice != nullptr ? front.slice->bytes : 0;
  const bool ok = header.status == 0;
  const bool complete = header.effect == static_cast<std::uint8_t>(wire::FrameEffect::kComplete);
  receive_.clear();
  switch (front.kind) {
    case FrameKind::kRead:
      if (header.type != static_cast<std::uint8_t>(wire::ResponseType::kReadData) ||
          header.payload_bytes != (ok ? bytes : 0)) {
        return false;
      }
      if (ok) {
        add_local_parts(*front.slice, receive_);
      }
      return true;
    case FrameKind::kWrite:
      return header.type == static_cast<std::uint8_t>(wire::ResponseType::kWriteAck) &&
             header.payload_bytes == 0 &&
             (complete ? header.prefix_bytes == bytes : header.prefix_bytes <= bytes);
    case FrameKind::kNotify:
      return header.type == static_cast<std::uint8_t>(wire::ResponseType::kNotifyAck) &&
             header.payload_bytes == 0;
    case FrameKind::kDescribe: {
      std::vector<wire::DescribedRange>& described = front.call->described();
      const std::size_t expected = ok ? described.size() * sizeof(described[0]) : 0;
      if (header.type != static_cast<std::uint8_t>(wire::ResponseType::kDescription) ||
          header.payload_bytes != expected) {
        return false;
      }
      receive_.add(described.data(), expected);
      return true;
    }
    case FrameKind::kDrain:
      return header.type == static_cast<std::uint8_t>(wire::ResponseType::kDrained) &&
             header.payload_bytes == 0;
  }
  return false;
}

bool Lane::finish_front(const wire::ResponseHeader& header) {
  const Frame front = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (state_ == State::kSilent && in_flight_.empty()) {
    state_ = State::kReady;
  }
  const auto code = static_cast<ErrorCode>(header.status);
  switch (front.kind) {
    case FrameKind::kDescribe:
      return finish_describe(*front.call, front.completed ? ErrorCode::kPeerSilent : code);
    case FrameKind::kDrain:
      finish_drain(front.drained_lane_id, code);
      return true;
    case FrameKind::kWrite:
    case FrameKind::kRead:
    case FrameKind::kNotify:
      finish_slice(front, header);
      return true;
  }
  return false;
}

void Lane::finish_drain(std::uint64_t lane_id, ErrorCode code) {
  if (code != ErrorCode::kOk) {
    drain_after_ns_ = environment_.clock.now_ns() + kRetryDrain;  // it cannot promise it now
    return;
  }
  for (const auto& lane : channel_.lanes()) {
    if (lane.get() != this) {
      lane->end_by_proof(lane_id);
    }
  }
}

void Lane::finish_slice(const Frame& front, const wire::ResponseHeader& header) {
  const auto code = static_cast<ErrorCode>(header.status);
  transfer::Slice& slice = *front.slice;
  in_flight_bytes_ -= slice.bytes;
  transfer::SliceResult result;
  result.code = code;
  result.notification_delivered = slice.carries_notification && code == ErrorCode::kOk;
  if (front.kind == FrameKind::kWrite) {
    result.prefix_bytes = header.prefix_bytes;
    result.effect = static_cast<RemoteEffect>(header.effect);
  } else if (front.kind == FrameKind::kRead && code == ErrorCode::kOk) {
    result.prefix_bytes = slice.bytes;
    result.effect = RemoteEffect::kComplete;
  }
  if (front.kind == FrameKind::kNotify && code != ErrorCode::kOk) {
    result.code = ErrorCode::kNotificationFailed;
  }
  if (!front.completed) {
    complete(slice, result);
  }
  // The response is the peer's word that it is done with its memory; ours was copied out by the
  // kernel (WRITE) or has just been filled (READ).
  retire(slice);
}

/// False when an answer breaks the protocol.
bool Lane::finish_describe(DescribeCall& call, ErrorCode code) {
  for (std::size_t i = 0; code == ErrorCode::kOk && i < call.described().size(); ++i) {
    const wire::DescribedRange& range = call.described()[i];
    const wire::RegistrationRef& asked = call.registrations()[i];
    if (!wire::check_described_range(range) || range.index != asked.index ||
        range.generation != asked.generation) {
      call.report(ErrorCode::kProtocolViolation);
      return false;
    }
  }
  call.report(code);
  return true;
}

// ---- Lane: ending

/// What is known of a frame without its response. `ended`: our socket is closed, so nothing of it
/// moves any more; before that, what is on the way may still land.
transfer::SliceResult Lane::failure_of(const Frame& frame, bool is_front, bool ended,
                                       ErrorCode code, int native_errno) const {
  transfer::SliceResult result{code, native_errno, 0, RemoteEffect::kUnknown, false};
  const bool is_being_sent = &frame == &in_flight_.back() && !send_.done();
  switch (frame.kind) {
    case FrameKind::kNotify:
      result.code = ErrorCode::kNotificationFailed;
      result.effect = RemoteEffect::kNone;
      break;
    case FrameKind::kWrite:
      // Without one payload byte the peer has nothing to write.
      if (ended && is_being_sent &&
          send_.remaining() >= send_payload_bytes_ + send_trailer_bytes_) {
        result.effect = RemoteEffect::kNone;
      }
      break;
    case FrameKind::kRead:
      if (is_front && in_response_) {
        result.prefix_bytes = frame.slice->bytes - receive_.remaining();
      }
      if (ended) {
        result.effect = result.prefix_bytes > 0 ? RemoteEffect::kPrefix : RemoteEffect::kNone;
      }
      break;
    case FrameKind::kDescribe:
    case FrameKind::kDrain:
      break;
  }
  return result;
}

/// A frame of which no byte was sent never happened.
void Lane::withdraw_untouched(ErrorCode code, int native_errno) {
  if (in_flight_.empty() || send_.done() || frame_touched_) {
    return;
  }
  const Frame frame = std::move(in_flight_.back());
  in_flight_.pop_back();
  send_.clear();
  if (frame.call != nullptr) {
    frame.call->report(code);
  }
  if (frame.slice != nullptr) {
    in_flight_bytes_ -= frame.slice->bytes;
    const bool notify = frame.kind == FrameKind::kNotify;
    complete(*frame.slice, {notify ? ErrorCode::kNotificationFailed : code, native_errno, 0,
                            RemoteEffect::kNone, false});
    retire(*frame.slice);
  }
}

void Lane::complete_all(bool ended, ErrorCode code, int native_errno) {
  bool is_front = true;
  for (Frame& frame : in_flight_) {
    if (!frame.completed) {
      frame.completed = true;
      if (frame.call != nullptr) {
        frame.call->report(code);
      } else if (frame.slice != nullptr) {
        complete(*frame.slice, failure_of(frame, is_front, ended, code, native_errno));
      }
    }
    is_front = false;
  }
}

void Lane::retire_all() {
  while (!in_flight_.empty()) {
    const Frame frame = std::move(in_flight_.front());
    in_flight_.pop_front();
    if (frame.slice != nullptr) {
      retire(*frame.slice);
    }
  }
  in_flight_bytes_ = 0;
}

void Lane::log_end(base::LogLevel level, const char* what, ErrorCode code, int native_errno) const {
  const auto& addresses = channel_.addresses();
  const std::string address =
      address_index_ < addresses.size() ? addresses[address_index_].text() : std::string("-");
  base::log(level, "lane to '%.64s' at %s: %s: %s", channel_.peer_name().c_str(), address.c_str(),
            what, Error(code, native_errno).message().c_str());
}

/// The peer sent FIN: it closes a lane only after its last receive into memory has ended.
void Lane::peer_ended(const char* what) {
  if (!in_flight_.empty()) {
    log_end(base::LogLevel::kInfo, what, ErrorCode::kPeerDisconnected, 0);
    environment_.counters.lanes_failed.add();
  }
  withdraw_untouched(ErrorCode::kPeerDisconnected, 0);
  end_unproved();
}

/// The connection is gone without the peer's FIN. A reset is its kernel's word, but what had
/// arrived before it can still be read there: it is proof only together with the end of its
/// listener.
void Lane::lost(ErrorCode code, int native_errno, const char* what) {
  log_end(in_flight_.empty() ? base::LogLevel::kInfo : base::LogLevel::kWarn, what, code,
          native_errno);
  environment_.counters.lanes_failed.add();
  withdraw_untouched(code, native_errno);
  complete_all(true, code, native_errno);
  // Descriptions and drains hold nothing.
  std::erase_if(in_flight_, [](const Frame& frame) { return frame.slice == nullptr; });
  close_socket();
  send_.clear();
  state_ = in_flight_.empty() ? State::kClosed : State::kLost;
  reset_by_peer_ = native_errno == ECONNRESET || native_errno == EPIPE;
  if (class_ == wire::LaneClass::kControl) {
    retry_after_ns_ = environment_.clock.now_ns() + kRetryDrain;
  }
}

void Lane::end_unproved() {
  complete_all(true, ErrorCode::kPeerDisconnected, 0);
  close_socket();
  send_.clear();
  state_ = State::kClosed;
  retire_all();
  publish();
}

void Lane::end_by_proof(std::uint64_t lane_id) {
  const std::lock_guard lock(drive_mutex_);
  if (lane_id_ == lane_id && (state_ == State::kSilent || state_ == State::kLost)) {
    environment_.counters.lanes_drained.add();
    end_unproved();
  }
}

void Lane::end_if_reset() {
  const std::lock_guard lock(drive_mutex_);
  if (state_ == State::kLost && reset_by_peer_) {
    end_unproved();
  }
}

void Lane::end_by_decree() {
  const std::lock_guard lock(drive_mutex_);
  if (!in_flight_.empty()) {
    end_unproved();
  }
}

void Lane::shut() {
  const std::lock_guard lock(drive_mutex_);
  close_socket();
  state_ = in_flight_.empty() ? State::kClosed : State::kLost;
  publish();
}

void Lane::want_drains() {
  const std::unique_lock lock(drive_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) {
    return;
  }
  drains_wanted_ = environment_.clock.now_ns() >= drain_after_ns_;
  armed_ = true;
  transfer::WorkLimit limit{1 << 16, 8};
  step(limit);
  update_interest();
  publish();
}

// ---- Lane: the worker's view

/// No byte moved for the progress timeout, unless it is we who did not look for so long.
void Lane::fall_silent() {
  transfer::WorkLimit limit{kCallBytesMax, 4};
  if (receive_some(limit) || !is_open() || in_flight_.empty()) {
    return;
  }
  if (class_ == wire::LaneClass::kControl) {
    lost(ErrorCode::kPeerSilent, 0, "drain");
    return;
  }
  log_end(base::LogLevel::kWarn, "no answer; asking over another connection",
          ErrorCode::kPeerSilent, 0);
  withdraw_untouched(ErrorCode::kPeerSilent, 0);
  complete_all(false, ErrorCode::kPeerSilent, 0);
  state_ = in_flight_.empty() ? State::kReady : State::kSilent;
}

void Lane::check_timers(base::Nanoseconds now_ns) {
  const Config::Tcp& tcp = environment_.config.tcp;
  const auto elapsed = [&](base::Nanoseconds since_ns) {
    return now_ns > since_ns ? now_ns - since_ns : 0;
  };
  switch (state_) {
    case State::kConnecting:
      if (elapsed(state_since_ns_) > tcp.connect_timeout_ms * base::kMillisecond) {
        connect_failed(ErrorCode::kPeerUnreachable, ETIMEDOUT, "connect");
      }
      return;
    case State::kHello:
      if (elapsed(state_since_ns_) > tcp.handshake_timeout_ms * base::kMillisecond) {
        connect_failed(ErrorCode::kPeerUnreachable, ETIMEDOUT, "handshake");
      }
      return;
    case State::kReady:
      if (!in_flight_.empty()) {
        if (elapsed(progress_ns_) > tcp.progress_timeout_ms * base::kMillisecond) {
          fall_silent();
        }
      } else if (elapsed(progress_ns_) > tcp.idle_lane_timeout_ms * base::kMillisecond) {
        environment_.counters.lanes_idle_closed.add();
        close_socket();
        state_ = State::kClosed;
      }
      return;
    case State::kSilent:
    case State::kLost:
      // What waits for this lane alone would wait for as long as the peer is silent.
      if (class_ != wire::LaneClass::kControl) {
        fail_pending_if_alone(ErrorCode::kPeerSilent, 0);
      }
      return;
    case State::kClosed:
      return;
  }
}

void Lane::update_interest() {
  if (socket_ == platform::kNoSocket) {
    return;
  }
  std::uint32_t wanted = 0;
  if (armed_) {
    wanted = state_ == State::kConnecting
                 ? platform::kPollOut
                 : platform::kPollIn | (send_blocked_ ? platform::kPollOut : 0);
  }
  if (wanted != interest_) {
    interest_ = wanted;
    environment_.network.poller_modify(environment_.poller, socket_, wanted, kTokenLane | lane_id_);
  }
}

void Lane::publish() {
  const bool stuck = state_ == State::kSilent || state_ == State::kLost;
  Fitness fitness = Fitness::kClosed;
  if (state_ == State::kReady) {
    fitness = Fitness::kReady;
  } else if (state_ == State::kConnecting || state_ == State::kHello) {
    fitness = Fitness::kConnecting;
  } else if (stuck) {
    fitness = Fitness::kStuck;
  }
  fitness_.store(fitness, std::memory_order_relaxed);
  has_socket_.store(socket_ != platform::kNoSocket, std::memory_order_relaxed);
  busy_.store(!in_flight_.empty() || fitness == Fitness::kConnecting, std::memory_order_relaxed);
  unproved_.store(stuck ? in_flight_.size() : 0, std::memory_order_relaxed);
  unproved_lane_id_.store(stuck && !in_flight_.empty() ? lane_id_ : 0, std::memory_order_relaxed);
}

}  // namespace orbite::transport::tcp
