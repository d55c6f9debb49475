// SPDX-License-Identifier: Apache-2.0
// Lane: how a connection ends, and what that proves of its frames.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/assert.hpp"
#include "base/error_line.hpp"
#include "base/log.hpp"
#include "base/planted.hpp"
#include "transport/tcp/lane.hpp"

namespace orbite::transport::tcp {
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
  const platform::SocketAddress address =
      address_index_ < addresses.size() ? addresses[address_index_] : platform::SocketAddress();
  base::log(level, "lane to '%.64s' at %s: %s: %s", channel_.peer_name().c_str(),
            address.line().c_str(), what, base::error_line(Error(code, native_errno)).c_str());
}

/// The peer sent FIN: it closes a lane only after its last receive into memory has ended.
void Lane::peer_ended(const char* what) {
  if (!in_flight_.empty()) {
    log_end(base::LogLevel::kInfo, what, ErrorCode::kPeerDisconnected, 0);
    environment_.counters.lanes_failed.add();
  }
  withdraw_untouched(ErrorCode::kPeerDisconnected, 0);
  end_unproved();
  if (class_ == wire::LaneClass::kControl) {
    rest_control();
  }
}

/// The connection is gone without the peer's FIN. A reset is its kernel's word, but what had
/// arrived before it can still be read there: it is proof only together with the end of its
/// listener.
void Lane::lost(ErrorCode code, int native_errno, const char* what) {
  log_end(in_flight_.empty() ? base::LogLevel::kInfo : base::LogLevel::kWarn, what, code,
          native_errno);
  environment_.counters.lanes_failed.add();
  withdraw_untouched(code, native_errno);
  std::erase_if(in_flight_, [this](const Frame& frame) {
    const bool replays =
        base::planted(base::Bug::kReplayAfterUnknown) && frame.slice != nullptr && !frame.completed;
    if (replays) {
      channel_.push(*frame.slice);
    }
    return replays;
  });
  complete_all(true, code, native_errno);
  // Descriptions and drains hold nothing.
  std::erase_if(in_flight_, [](const Frame& frame) { return frame.slice == nullptr; });
  close_socket();
  send_.clear();
  state_ = in_flight_.empty() ? State::kClosed : State::kLost;
  stuck_code_ = code;
  stuck_errno_ = native_errno;
  reset_by_peer_ = native_errno == ECONNRESET || native_errno == EPIPE;
  if (class_ == wire::LaneClass::kControl) {
    rest_control();
  }
}

/// All of it is answered after all. A drain that was asked for meanwhile may still reach the peer,
/// which ends this connection then with whatever it carries: it carries nothing more.
void Lane::end_silence() {
  channel_.end_silence();
  state_ = State::kReady;
  if (drain_asked_) {
    close_socket();
    state_ = State::kClosed;
  }
}

bool Lane::begin_drain(std::uint64_t lane_id) {
  const base::LogLater logs_later;
  const std::lock_guard lock(drive_mutex_);
  const bool stuck = state_ == State::kSilent || state_ == State::kLost;
  if (!stuck || lane_id_ != lane_id) {
    return false;
  }
  drain_asked_ = true;
  return true;
}

void Lane::end_unproved() {
  channel_.end_silence();
  complete_all(true, ErrorCode::kPeerDisconnected, 0);
  close_socket();
  send_.clear();
  state_ = State::kClosed;
  retire_all();
  publish();
}

void Lane::end_by_proof(std::uint64_t lane_id) {
  const base::LogLater logs_later;
  const std::lock_guard lock(drive_mutex_);
  if (lane_id_ == lane_id && (state_ == State::kSilent || state_ == State::kLost)) {
    environment_.counters.lanes_drained.add();
    end_unproved();
  }
}

void Lane::end_if_reset() {
  const base::LogLater logs_later;
  const std::lock_guard lock(drive_mutex_);
  if (state_ == State::kLost && reset_by_peer_) {
    end_unproved();
  }
}

void Lane::end_if_reset_at(std::size_t address_index) {
  const base::LogLater logs_later;
  const std::lock_guard lock(drive_mutex_);
  if (state_ == State::kLost && reset_by_peer_ && address_index_ == address_index) {
    end_unproved();
  }
}

void Lane::end_by_decree() {
  const base::LogLater logs_later;
  const std::lock_guard lock(drive_mutex_);
  if (!in_flight_.empty()) {
    end_unproved();
  }
}

void Lane::shut() {
  const base::LogLater logs_later;
  const std::lock_guard lock(drive_mutex_);
  close_socket();
  state_ = in_flight_.empty() ? State::kClosed : State::kLost;
  publish();
}

void Lane::rest_control() { retry_after_ns_ = environment_.clock.now_ns() + control_rest_.next(); }

/// The next trouble is another one: nothing of what was tried in this one counts for it.
void Lane::end_rest_of_control() {
  if (state_ == State::kClosed) {
    forget_attempt();
  }
  control_rest_.reset();
  retry_after_ns_ = 0;
  drain_after_ns_ = 0;
}

void Lane::want_drains() {
  const base::LogLater logs_later;
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

}  // namespace orbite::transport::tcp
