// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/lane.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/assert.hpp"
#include "base/log.hpp"
#include "base/planted.hpp"

namespace orbite::transport::tcp {
namespace {

constexpr std::size_t kReceiveBufferBytes = std::size_t{16} << 10;

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
  const base::LogLater logs_later;  // than the answer to who kicked meanwhile
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
      if (driver != transfer::Driver::kWorker) {
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
  const base::LogLater logs_later;
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
  const base::LogLater logs_later;
  {
    const std::unique_lock lock(drive_mutex_, std::try_to_lock);
    if (!lock.owns_lock()) {
      return;
    }
    check_timers(now_ns);
    const bool connecting = state_ == State::kConnecting || state_ == State::kHello ||
                            (state_ == State::kClosed && wants_connection());
    const bool idle = in_flight_.empty() && state_ == State::kReady && !wants_connection();
    if (class_ == wire::LaneClass::kControl && !wants_connection()) {
      end_rest_of_control();
    }
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
  // Once for the peer, not for each of its lanes.
  log_end(channel_.begin_silence() ? base::LogLevel::kWarn : base::LogLevel::kDebug,
          "no answer; asking over another connection", ErrorCode::kPeerSilent, 0);
  withdraw_untouched(ErrorCode::kPeerSilent, 0);
  complete_all(false, ErrorCode::kPeerSilent, 0);
  if (base::planted(base::Bug::kLocalTimeoutAsProof)) {
    retire_all();
  }
  stuck_code_ = ErrorCode::kPeerSilent;
  stuck_errno_ = 0;
  state_ = in_flight_.empty() ? State::kReady : State::kSilent;
}

void Lane::check_timers(base::Nanoseconds now_ns) {
  const Config::Tcp& tcp = environment_.config.tcp;
  const base::Nanoseconds watched_ns = environment_.watched_clock.now_ns();
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
      // What came right after we had stood still is not of the future.
      progress_ns_ = std::min(progress_ns_, watched_ns);
      if (!in_flight_.empty()) {
        if (watched_ns - progress_ns_ > tcp.progress_timeout_ms * base::kMillisecond) {
          fall_silent();
        }
      } else if (watched_ns - progress_ns_ > tcp.idle_lane_timeout_ms * base::kMillisecond) {
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
  publish_trouble(stuck && !in_flight_.empty());
}

void Lane::publish_trouble(bool stuck) {
  if (!stuck && !in_trouble_) {
    return;
  }
  const auto& addresses = channel_.addresses();
  const std::lock_guard lock(trouble_mutex_);
  if (!stuck) {
    trouble_ = {};
  } else if (!in_trouble_) {
    trouble_.since_ns = environment_.clock.now_ns();
    if (address_index_ < addresses.size()) {
      trouble_.address = addresses[address_index_];
    }
  }
  if (stuck) {
    trouble_.slices = in_flight_.size();
    trouble_.code = stuck_code_;
    trouble_.native_errno = stuck_errno_;
  }
  in_trouble_ = stuck;
}

}  // namespace orbite::transport::tcp
