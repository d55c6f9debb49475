// SPDX-License-Identifier: Apache-2.0
// Lane: frames out, responses in.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/assert.hpp"
#include "transport/tcp/lane.hpp"

namespace orbite::transport::tcp {
namespace {

constexpr std::size_t kFramesInFlightMax = 256;

}  // namespace

bool Lane::send_some(transfer::WorkLimit& limit) {
  if (send_errno_ != 0 || (send_blocked_ && armed_)) {
    return false;  // what the peer sent before its end is still to be received; or: the poller says
  }
  if (send_.done() && (state_ != State::kReady || !build_next_frame())) {
    return false;
  }
  const std::size_t bytes_max =
      frame_touched_ ? call_bytes(limit)
                     : std::min(call_bytes(limit), first_call_bytes(send_.remaining()));
  const auto parts = send_.next(bytes_max, scratch_, kPartsPerCall);
  const platform::IoResult result = environment_.network.send(socket_, parts);
  switch (result.kind) {
    case platform::IoResult::Kind::kBytes:
      send_.advance(result.bytes);
      frame_touched_ = true;
      limit.spend(result.bytes);
      progress_ns_ = environment_.watched_clock.now_ns();
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
      if (id != 0 && !asked && lane->begin_drain(id)) {
        return try_build([&] { build_drain_frame(id); });  // else it is wanted again soon
      }
    }
    drains_wanted_ = false;
    return false;
  }
  // Before anything leaves the channel's queues: see Channel::busy(). The step's publish() tells
  // what is so in the end.
  busy_.store(true, std::memory_order_relaxed);
  if (class_ == wire::LaneClass::kLatency) {
    if (const auto call = channel_.pull_describe()) {
      const bool built = try_build([&] { build_describe_frame(call); });
      if (!built) {
        call->report(ErrorCode::kOutOfMemory);
      }
      return built;
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
      drop_unsent(*slice, ErrorCode::kCanceled);
    } else if (!try_build([&] { build_payload_frame(*slice); })) {
      drop_unsent(*slice,
                  slice->bytes == 0 ? ErrorCode::kNotificationFailed : ErrorCode::kOutOfMemory);
    } else {
      return true;
    }
  }
}

/// False: there was no memory for the frame, and nothing of it is left.
template <typename Build>
bool Lane::try_build(Build build) {
  try {
    build();
    return true;
  } catch (const std::bad_alloc&) {
    send_.clear();
    return false;
  }
}

void Lane::drop_unsent(transfer::Slice& slice, ErrorCode code) {
  complete(slice, {code, 0, 0, RemoteEffect::kNone, false});
  retire(slice);
}

void Lane::add_local_parts(const transfer::Slice& slice, IoCursor& cursor) const {
  for (transfer::ExtentCursor extents = slice.extents; !extents.at_end();) {
    const transfer::Extent extent = extents.take();
    cursor.add(extent.local_address, extent.length);
  }
}

/// The tables of a frame: each change of range begins a new entry, as the planner counted them.
void Lane::fill_tables(const transfer::Slice& slice) {
  table_scratch_.clear();
  extent_scratch_.clear();
  std::uint32_t last_remote = UINT32_MAX;
  for (transfer::ExtentCursor extents = slice.extents; !extents.at_end();) {
    const transfer::Extent extent = extents.take();
    const transfer::Prepared& prepared = *slice.execution->prepared();
    const wire::RangeBlob& remote = prepared.remotes[extent.remote_index]->blob();
    if (extent.remote_index != last_remote) {
      wire::RegistrationRef& entry = table_scratch_.emplace_back();
      entry.index = remote.index;
      entry.generation = remote.generation;
      std::memcpy(entry.key, remote.key.bytes.data(), sizeof(entry.key));
      last_remote = extent.remote_index;
    }
    ORBITE_DCHECK(extent.remote_address >= remote.address);
    extent_scratch_.push_back({extent.remote_address - remote.address,
                               static_cast<std::uint32_t>(extent.length),
                               static_cast<std::uint32_t>(table_scratch_.size() - 1)});
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
  const auto& notification = execution.notification();
  if (slice.carries_notification && notification.has_value()) {
    const wire::Envelope envelope{environment_.epoch, environment_.name, *notification};
    trailer_.resize(wire::envelope_bytes(environment_.name, *notification));
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
  in_flight_bytes_ += slice.bytes;
}

void Lane::build_describe_frame(std::shared_ptr<DescribeCall> call) {
  table_scratch_ = call->registrations();
  extent_scratch_.clear();
  trailer_.clear();
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
  trailer_.resize(sizeof(lane_id));
  std::memcpy(trailer_.data(), &lane_id, sizeof(lane_id));
  start_frame(std::move(frame), header);
}

/// Header, tables, payload and trailer_ into send_. All the memory that the frame and its response
/// need is asked for before it is in flight: from then on nothing of it can fail for want of some.
void Lane::start_frame(Frame frame, wire::RequestHeader header) {
  const bool is_read = frame.kind == FrameKind::kRead;
  const bool is_write = frame.kind == FrameKind::kWrite;
  receive_.reserve(is_read ? frame.slice->extent_count : 1);
  frame.id = header.frame_id = next_frame_id_;
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
  if (is_write) {
    add_local_parts(*frame.slice, send_);
  }
  send_.add(trailer_.data(), trailer_.size());
  send_payload_bytes_ = is_write ? frame.slice->bytes : 0;
  send_trailer_bytes_ = trailer_.size();
  const bool is_first = in_flight_.empty();
  in_flight_.push_back(std::move(frame));
  ++next_frame_id_;
  frame_touched_ = false;
  if (is_first) {
    progress_ns_ = environment_.watched_clock.now_ns();
  }
}

bool Lane::receive_some(transfer::WorkLimit& limit) {
  const bool payload = in_response_ && !receive_.done();
  std::size_t payload_bytes = 0;
  scratch_.clear();
  if (payload) {
    // The buffer is empty here: what it held was copied out before.
    const auto parts = receive_.next(call_bytes(limit), scratch_, kPartsPerCall - 1);
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
  progress_ns_ = environment_.watched_clock.now_ns();
  const std::size_t direct = std::min(result.bytes, payload_bytes);
  receive_.advance(direct);
  received_.grown(result.bytes - direct);
  if (!handle_responses()) {
    environment_.counters.protocol_violations.add();
    lost(ErrorCode::kProtocolViolation, 0, "the peer broke the protocol");
    return false;
  }
  if (state_ == State::kSilent && in_flight_.empty()) {
    end_silence();
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
    // It cannot promise it now. The refusals of one look at it are one.
    const base::Nanoseconds now = environment_.clock.now_ns();
    if (now >= drain_after_ns_) {
      drain_after_ns_ = now + control_rest_.next();
    }
    return;
  }
  end_rest_of_control();
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

}  // namespace orbite::transport::tcp
