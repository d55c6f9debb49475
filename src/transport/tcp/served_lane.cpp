// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/served_lane.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/assert.hpp"
#include "base/error_line.hpp"
#include "base/log.hpp"
#include "base/planted.hpp"
#include "wire/envelope.hpp"

namespace orbite::transport::tcp {
namespace {

/// Holds the largest tables of a frame, so that they are parsed in place.
constexpr std::size_t kReceiveBufferBytes = std::size_t{32} << 10;
/// About 20 us of them.
constexpr int kMidFrameLooks = 48;
constexpr std::size_t kNameBytesShown = 64;
constexpr std::uint32_t kCallsOfLastLook = 8;
/// Responses are sent when this much waits, or when no more requests are buffered.
constexpr std::size_t kResponsesBytesMax = 4096;

using Sink = std::array<std::uint8_t, std::size_t{64} << 10>;

Sink& sink_storage() {
  thread_local Sink storage;
  return storage;
}

/// Any well-formed envelope is taken off the wire, whatever we make of it then.
wire::FrameLimits frame_limits() {
  wire::FrameLimits limits;
  limits.trailer_bytes_max = wire::kEnvelopeBytesMax;
  return limits;
}

bool is_for_control(wire::FrameType type) {
  return type == wire::FrameType::kDrain || type == wire::FrameType::kDescribe ||
         type == wire::FrameType::kPing;
}

}  // namespace

ServedLane::ServedLane(Environment& environment, const Callbacks& callbacks, TrailerBudget& budget,
                       platform::Socket socket, std::uint64_t id, std::string address)
    : environment_(environment),
      callbacks_(callbacks),
      budget_(budget),
      socket_(socket),
      id_(id),
      address_(std::move(address)),
      since_ns_(environment.clock.now_ns()),
      progress_ns_(environment.watched_clock.now_ns()),
      interest_(platform::kPollIn),
      received_(kReceiveBufferBytes) {}

int ServedLane::shown_name_bytes() const noexcept {
  return static_cast<int>(std::min<std::size_t>(hello_.name_bytes, kNameBytesShown));
}

ServedLane::~ServedLane() {
  if (socket_ != platform::kNoSocket) {
    end(End::kClosedByUs, "closed");
  }
}

/// The longest trailer that may hold a message that we take.
std::size_t ServedLane::trailer_bytes_max() const noexcept {
  return environment_.config.notifications.message_bytes_max + wire::kEnvelopeHeadBytes +
         wire::kEnvelopeNameBytesMax;
}

/// Stops receiving first, then gives the loans back: the order is what makes a peer's FIN proof.
void ServedLane::end(End reason, const char* what) noexcept {
  if (state_ == State::kEnded) {
    return;
  }
  if (reason == End::kRejected || reason == End::kViolation || reason == End::kTimedOut ||
      reason == End::kThrown) {
    // Strangers may make as much noise as they like; a peer that breaks the protocol is news.
    const base::LogLevel level = reason == End::kThrown      ? base::LogLevel::kError
                                 : reason == End::kViolation ? base::LogLevel::kWarn
                                                             : base::LogLevel::kInfo;
    base::log(level, "connection from '%.*s' at %s ended: %s", shown_name_bytes(), hello_.name,
              address_.c_str(), what);
  }
  environment_.network.poller_remove(environment_.poller, socket_);
  environment_.network.close(socket_);
  socket_ = platform::kNoSocket;
  state_ = State::kEnded;
  end_reason_ = reason;
  payload_.clear();
  send_.clear();
  read_payload_.clear();
  loans_.clear();
  waiting_read_loans_.clear();
  read_loans_.clear();
  drop_trailer();
}

void ServedLane::violation(const Error& error) {
  environment_.counters.protocol_violations.add();
  end(End::kViolation, base::error_line(error).c_str());
}

void ServedLane::on_event(transfer::WorkLimit& limit) {
  while (!ended()) {
    // All that is buffered is served before more is taken in: the poller knows nothing of it.
    if (!serve_buffered(limit) || limit.exhausted() || !receive_some(limit)) {
      break;
    }
  }
  update_interest();
}

/// True when everything buffered is served and everything owed is sent. When the limit ends it
/// before, something is owed, and the lane polls for room to send: that is how it is served again.
bool ServedLane::serve_buffered(transfer::WorkLimit& limit) {
  do {
    const bool owes_much = responses_.size() >= kResponsesBytesMax || !read_payload_.done();
    if (owes_much && (limit.exhausted() || !flush(limit))) {
      return false;
    }
  } while (parse());
  return flush(limit);
}

/// True when everything owed is sent.
bool ServedLane::flush(transfer::WorkLimit& limit) {
  std::size_t bytes_max = call_bytes(limit);
  while (!ended()) {
    if (send_.done()) {
      read_loans_.clear();
      if (responses_.empty()) {
        return true;
      }
      sending_.swap(responses_);
      responses_.clear();
      send_.clear();
      send_.add(sending_.data(), sending_.size());
      send_.append(read_payload_);
      read_payload_.clear();
      read_loans_.swap(waiting_read_loans_);
      bytes_max = std::min(call_bytes(limit), first_call_bytes(send_.remaining()));
    }
    const auto parts = send_.next(bytes_max, scratch_, kPartsPerCall);
    const platform::IoResult result = environment_.network.send(socket_, parts);
    switch (result.kind) {
      case platform::IoResult::Kind::kBytes:
        send_.advance(result.bytes);
        limit.spend(result.bytes);
        bytes_max = call_bytes(limit);
        progress_ns_ = environment_.watched_clock.now_ns();
        break;
      case platform::IoResult::Kind::kWouldBlock:
        return false;
      case platform::IoResult::Kind::kEnded:
      case platform::IoResult::Kind::kFailed:
        end(End::kFailed, "send failed");
        return false;
    }
    if (!send_.done() && limit.exhausted()) {
      return false;
    }
  }
  return false;
}

/// True when bytes arrived.
bool ServedLane::receive_some(transfer::WorkLimit& limit) {
  std::size_t payload_bytes = 0;
  const bool sinks = phase_ == Phase::kSink || phase_ == Phase::kTrailerSink;
  scratch_.clear();
  if (phase_ == Phase::kPayload) {
    for (const iovec& part : payload_.next(call_bytes(limit), scratch_, kPartsPerCall - 1)) {
      payload_bytes += part.iov_len;
    }
  } else if (sinks && sink_left_ > 0) {
    payload_bytes = std::min<std::uint64_t>(sink_left_, sink_storage().size());
    scratch_.push_back(iovec{sink_storage().data(), payload_bytes});
  } else if (phase_ == Phase::kTrailer) {
    payload_bytes = trailer_.size() - trailer_filled_;
    scratch_.push_back(iovec{trailer_.data() + trailer_filled_, payload_bytes});
  }
  scratch_.push_back(received_.tail(kHeadBytesMax));
  platform::IoResult result = environment_.network.receive(socket_, scratch_);
  if (phase_ == Phase::kPayload && result.kind == platform::IoResult::Kind::kWouldBlock) {
    // The rest of a frame is on its way: a short look costs less than a sleep and a wake-up.
    for (int look = 0;
         look < kMidFrameLooks && result.kind == platform::IoResult::Kind::kWouldBlock; ++look) {
      result = environment_.network.receive(socket_, scratch_);
    }
  }
  switch (result.kind) {
    case platform::IoResult::Kind::kWouldBlock:
      return false;
    case platform::IoResult::Kind::kEnded:
      end(state_ == State::kReady ? End::kPeerClosed : End::kRejected,
          "the peer closed the connection");
      return false;
    case platform::IoResult::Kind::kFailed:
      end(state_ == State::kReady ? End::kFailed : End::kRejected, "receive failed");
      return false;
    case platform::IoResult::Kind::kBytes:
      break;
  }
  limit.spend(result.bytes);
  progress_ns_ = environment_.watched_clock.now_ns();
  const std::size_t direct = std::min(result.bytes, payload_bytes);
  if (phase_ == Phase::kPayload) {
    payload_.advance(direct);
  } else if (sinks) {
    sink_left_ -= direct;
  } else if (phase_ == Phase::kTrailer) {
    trailer_filled_ += direct;
  }
  received_.grown(result.bytes - direct);
  return true;
}

bool ServedLane::parse() {
  switch (state_) {
    case State::kHello:
      return parse_hello();
    case State::kProof:
      return parse_proof();
    case State::kEnded:
      return false;
    case State::kReady:
      break;
  }
  switch (phase_) {
    case Phase::kHeader:
      return parse_header();
    case Phase::kTables:
      return parse_tables();
    case Phase::kPayload:
      return parse_payload();
    case Phase::kSink:
      return parse_sink();
    case Phase::kTrailer:
      return parse_trailer();
    case Phase::kTrailerSink:
      return parse_trailer_sink();
  }
  return false;
}

// ---- Handshake

bool ServedLane::parse_hello() {
  if (!received_.take(hello_)) {
    return false;
  }
  server_hello_ = wire::ServerHello{};
  ErrorCode status = ErrorCode::kOk;
  if (auto valid = wire::check_client_hello(hello_); !valid) {
    status = valid.error().code();
    if (status != ErrorCode::kIncompatible) {
      end(End::kRejected, base::error_line(valid.error()).c_str());
      return false;
    }
  } else if (hello_.expected_epoch != environment_.epoch &&
             !base::planted(base::Bug::kSkipEpochCheck)) {
    status = ErrorCode::kPeerEpochChanged;
  } else {
    status = callbacks_.admit(hello_);
  }
  server_hello_.status = static_cast<std::uint16_t>(status);
  server_hello_.server_epoch = environment_.epoch;
  if (status == ErrorCode::kOk) {
    environment_.random.fill(server_hello_.nonce);
    wire::sign_server(environment_.secret, hello_, server_hello_);
  }
  const iovec part{&server_hello_, sizeof(server_hello_)};
  const platform::IoResult sent = environment_.network.send(socket_, {&part, 1});
  if (status != ErrorCode::kOk) {
    end(End::kRejected, std::string(error_text(status)).c_str());
    return false;
  }
  // The first bytes on a new connection always fit its send buffer.
  if (sent.kind != platform::IoResult::Kind::kBytes || sent.bytes != sizeof(server_hello_)) {
    end(End::kRejected, "handshake could not be sent");
    return false;
  }
  state_ = State::kProof;
  return true;
}

bool ServedLane::parse_proof() {
  wire::ClientProof proof;
  if (!received_.take(proof)) {
    return false;
  }
  if (!wire::check_client_proof(proof) ||
      !wire::verify_client(environment_.secret, hello_, server_hello_, proof)) {
    end(End::kRejected, "the peer did not prove that it knows our secret");
    return false;
  }
  if (const ErrorCode status = callbacks_.prove(*this); status != ErrorCode::kOk) {
    end(End::kRejected, std::string(error_text(status)).c_str());
    return false;
  }
  state_ = State::kReady;
  proved_ = true;
  const bool is_first = is_latency();
  base::log(is_first ? base::LogLevel::kInfo : base::LogLevel::kDebug,
            "peer '%.*s' has connected from %s", shown_name_bytes(), hello_.name, address_.c_str());
  return true;
}

// ---- Frames

void ServedLane::next_frame() {
  phase_ = Phase::kHeader;
  refusal_ = ErrorCode::kOk;
  trailer_refusal_ = ErrorCode::kOk;
}

bool ServedLane::parse_header() {
  if (!received_.take(header_)) {
    return false;
  }
  if (auto valid = wire::check_request_header(header_, frame_limits()); !valid) {
    violation(valid.error());
    return false;
  }
  if (is_control() && !is_for_control(static_cast<wire::FrameType>(header_.type))) {
    violation(Error::make(ErrorCode::kProtocolViolation,
                          "a frame of type %u on a control lane, allowed: 4, 5 and 6",
                          unsigned{header_.type}));
    return false;
  }
  if (header_.frame_id <= last_frame_id_) {
    violation(Error::make(ErrorCode::kProtocolViolation,
                          "frame_id %llu after %llu: a frame that was sent before",
                          static_cast<unsigned long long>(header_.frame_id),
                          static_cast<unsigned long long>(last_frame_id_)));
    return false;
  }
  last_frame_id_ = header_.frame_id;
  environment_.counters.served_frames.add();
  phase_ = Phase::kTables;
  return true;
}

bool ServedLane::parse_tables() {
  const std::size_t bytes = wire::tables_bytes(header_);
  static_assert(kReceiveBufferBytes >=
                64 * sizeof(wire::RegistrationRef) + 1024 * sizeof(wire::WireExtent));
  if (received_.size() < bytes) {
    return false;
  }
  // Copied out: the buffer has no alignment to speak of.
  std::vector<wire::RegistrationRef> table(header_.table_count);
  std::vector<wire::WireExtent> extents(header_.extent_count);
  const std::uint8_t* const data = received_.data().data();
  if (!table.empty()) {
    std::memcpy(table.data(), data, table.size() * sizeof(table[0]));
  }
  if (!extents.empty()) {
    std::memcpy(extents.data(), data + table.size() * sizeof(table[0]),
                extents.size() * sizeof(extents[0]));
  }
  received_.consume(bytes);
  const auto type = static_cast<wire::FrameType>(header_.type);
  if (type == wire::FrameType::kWrite || type == wire::FrameType::kRead) {
    if (auto valid = wire::check_extents(header_, table, extents); !valid) {
      violation(valid.error());
      return false;
    }
    payload_.clear();
    const bool is_write = type == wire::FrameType::kWrite;
    refusal_ = borrow_and_map(table, extents,
                              is_write ? memory::Direction::kWrite : memory::Direction::kRead);
    if (refusal_ != ErrorCode::kOk) {
      environment_.counters.served_frames_refused.add();
      payload_.clear();
      loans_.clear();
    }
    if (!is_write) {
      serve_read(refusal_);
      return true;
    }
    sink_left_ = refusal_ != ErrorCode::kOk ? header_.payload_bytes : 0;
    phase_ = refusal_ != ErrorCode::kOk ? Phase::kSink : Phase::kPayload;
    if (base::planted(base::Bug::kAckBeforeFrameConsumed) && header_.trailer_bytes == 0) {
      acknowledge_write();
    }
    return true;
  }
  if (type == wire::FrameType::kDescribe) {
    serve_describe(table);
    return true;
  }
  serve_trailer_frame();
  return true;
}

ErrorCode ServedLane::borrow_and_map(std::span<const wire::RegistrationRef> table,
                                     std::span<const wire::WireExtent> extents,
                                     memory::Direction direction) {
  ORBITE_CHECK(loans_.empty());
  for (const wire::RegistrationRef& entry : table) {
    base::RegistrationKey key;
    std::memcpy(key.bytes.data(), entry.key, sizeof(entry.key));
    auto loan =
        environment_.registry.borrow_remote(Handle{entry.index, entry.generation}, key, direction);
    if (!loan) {
      return loan.error().code();
    }
    loans_.push_back(std::move(*loan));
  }
  for (const wire::WireExtent& extent : extents) {
    const base::ByteRange& range = loans_[extent.table_index].registration().range();
    if (extent.length > range.length() || extent.offset > range.length() - extent.length) {
      return ErrorCode::kInvalidRange;
    }
    payload_.add(range.address() + extent.offset, extent.length);
  }
  return ErrorCode::kOk;
}

void ServedLane::serve_read(ErrorCode refusal) {
  if (refusal != ErrorCode::kOk) {
    respond(wire::ResponseType::kReadData, refusal, RemoteEffect::kNone, 0, 0);
  } else {
    respond(wire::ResponseType::kReadData, ErrorCode::kOk, RemoteEffect::kNone, 0,
            static_cast<std::uint32_t>(header_.payload_bytes));
    std::swap(read_payload_, payload_);
    waiting_read_loans_.swap(loans_);
  }
  next_frame();
}

bool ServedLane::parse_payload() {
  received_.consume(payload_.copy_in(received_.data()));
  if (!payload_.done()) {
    return false;
  }
  // Every byte is in place: the borrow ends before anybody is told.
  loans_.clear();
  serve_write_end();
  return true;
}

/// True when all that was not wanted is gone.
bool ServedLane::sink_buffered() {
  const std::size_t step = std::min<std::uint64_t>(sink_left_, received_.size());
  received_.consume(step);
  sink_left_ -= step;
  return sink_left_ == 0;
}

bool ServedLane::parse_sink() {
  if (!sink_buffered()) {
    return false;
  }
  serve_write_end();
  return true;
}

void ServedLane::serve_write_end() {
  if (header_.trailer_bytes > 0) {
    begin_trailer();
    return;
  }
  if (!base::planted(base::Bug::kAckBeforeFrameConsumed)) {
    acknowledge_write();
  }
  next_frame();
}

void ServedLane::acknowledge_write() {
  const bool ok = refusal_ == ErrorCode::kOk;
  respond(wire::ResponseType::kWriteAck, refusal_,
          ok ? RemoteEffect::kComplete : RemoteEffect::kNone, ok ? header_.payload_bytes : 0, 0);
}

void ServedLane::serve_trailer_frame() {
  if (header_.trailer_bytes > 0) {
    begin_trailer();
    return;
  }
  ORBITE_CHECK(header_.type == static_cast<std::uint8_t>(wire::FrameType::kPing));
  respond(wire::ResponseType::kPong, ErrorCode::kOk, RemoteEffect::kNone, 0, 0);
  next_frame();
}

void ServedLane::serve_describe(std::span<const wire::RegistrationRef> table) {
  std::vector<wire::DescribedRange> described(table.size());
  for (std::size_t i = 0; i < table.size(); ++i) {
    wire::DescribedRange& range = described[i];
    range.index = table[i].index;
    range.generation = table[i].generation;
    const auto found = environment_.registry.find(Handle{table[i].index, table[i].generation});
    if (!found || std::memcmp((*found)->key().bytes.data(), table[i].key, 16) != 0) {
      continue;
    }
    range.live = 1;
    range.address = (*found)->range().address();
    range.length = (*found)->range().length();
    range.device_id = (*found)->device_id();
    range.kind = static_cast<std::uint8_t>((*found)->kind());
    range.access = (*found)->access();
  }
  const std::size_t bytes = described.size() * sizeof(described[0]);
  respond(wire::ResponseType::kDescription, ErrorCode::kOk, RemoteEffect::kNone, 0,
          static_cast<std::uint32_t>(bytes));
  const auto* const data = reinterpret_cast<const std::uint8_t*>(described.data());
  responses_.insert(responses_.end(), data, data + bytes);
  next_frame();
}

void ServedLane::respond(wire::ResponseType type, ErrorCode status, RemoteEffect effect,
                         std::uint64_t prefix_bytes, std::uint32_t payload_bytes) {
  wire::ResponseHeader response;
  response.type = static_cast<std::uint8_t>(type);
  response.effect = static_cast<std::uint8_t>(effect);
  response.status = static_cast<std::uint16_t>(status);
  response.payload_bytes = payload_bytes;
  response.frame_id = header_.frame_id;
  response.prefix_bytes = prefix_bytes;
  const auto* const data = reinterpret_cast<const std::uint8_t*>(&response);
  responses_.insert(responses_.end(), data, data + sizeof(response));
}

void ServedLane::update_interest() {
  if (ended()) {
    return;
  }
  // While we owe bytes that the peer does not take, nothing more of it is taken in.
  const std::uint32_t wanted = owes() ? platform::kPollOut : platform::kPollIn;
  if (wanted != interest_) {
    interest_ = wanted;
    environment_.network.poller_modify(environment_.poller, socket_, wanted, kTokenServed | id_);
  }
}

bool ServedLane::overdue(base::Nanoseconds now_ns) const noexcept {
  const Config::Tcp& tcp = environment_.config.tcp;
  if (state_ == State::kHello || state_ == State::kProof) {
    return now_ns > since_ns_ + tcp.handshake_timeout_ms * base::kMillisecond;
  }
  return in_frame() && environment_.watched_clock.now_ns() >
                           progress_ns_ + tcp.progress_timeout_ms * base::kMillisecond;
}

void ServedLane::check_timers(base::Nanoseconds now_ns) {
  // What came right after we had stood still is not of the future.
  progress_ns_ = std::min(progress_ns_, environment_.watched_clock.now_ns());
  if (!overdue(now_ns)) {
    return;
  }
  // Progress is what arrived, not what we found the time to look at.
  transfer::WorkLimit limit{kCallBytesMax, kCallsOfLastLook};
  on_event(limit);
  if (!overdue(now_ns)) {
    return;
  }
  // Loans are out for a peer that stalls in the middle of a frame: they come back now.
  if (state_ == State::kReady) {
    end(End::kTimedOut, "no progress in the middle of a frame");
  } else {
    end(End::kRejected, "handshake timed out");
  }
}

}  // namespace orbite::transport::tcp
