// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/channel.hpp"

#include <algorithm>

#include "transport/tcp/lane.hpp"

namespace orbite::transport::tcp {
namespace {

/// Slices that wait for a lane, beyond what the lanes themselves hold.
constexpr std::uint32_t kPendingSlicesMax = 256;
/// Of bulk, moved by who waits for latency work: what delays his answer if it comes just then.
constexpr std::uint64_t kAsideBytes = std::uint64_t{64} << 10;

constexpr auto kLatency = static_cast<std::size_t>(policy::QosClass::kLatency);
constexpr auto kBulk = static_cast<std::size_t>(policy::QosClass::kBulk);

}  // namespace

void DescribeCall::report(ErrorCode code) {
  const std::lock_guard lock(mutex_);
  if (!code_.has_value()) {
    code_ = code;
    changed_.notify_all();
  }
}

Result<void> DescribeCall::wait(base::Waiter& waiter, base::Nanoseconds timeout_ns) {
  std::unique_lock lock(mutex_);
  if (!waiter.wait_for(lock, changed_, timeout_ns, [&] { return code_.has_value(); })) {
    return fail(ErrorCode::kPeerSilent, "no description within %llu ms",
                static_cast<unsigned long long>(timeout_ns / base::kMillisecond));
  }
  if (*code_ != ErrorCode::kOk) {
    return fail(*code_, "no description of its registrations");
  }
  return {};
}

Channel::Channel(Environment& environment, transfer::Planner& planner, LaneDirectory& directory,
                 const std::string& peer_name, const wire::ConnectionBlob& connection)
    : Flow(policy::TransportKind::kTcp),
      environment_(environment),
      peer_name_(peer_name),
      connection_(connection),
      is_local_(connection.loopback_reachable && connection.host == environment.host) {
  // Who shares our kernel's boot and network namespace is reached over loopback and never over an
  // interface.
  if (is_local_) {
    addresses_.push_back(platform::SocketAddress::loopback(4, connection.port));
    addresses_.push_back(platform::SocketAddress::loopback(6, connection.port));
  } else {
    for (const wire::Address& address : connection.addresses) {
      addresses_.push_back(
          platform::SocketAddress::from_bytes(address.family, address.bytes, connection.port));
    }
  }
  const auto add_lane = [&](wire::LaneClass lane_class) {
    lanes_.push_back(std::make_unique<Lane>(environment, planner, directory, *this, lane_class));
  };
  add_lane(wire::LaneClass::kLatency);
  for (std::uint64_t i = 0; i < environment.config.tcp.bulk_lanes_per_peer; ++i) {
    add_lane(wire::LaneClass::kBulk);
  }
  add_lane(wire::LaneClass::kControl);
}

Channel::~Channel() = default;

bool Channel::has_room(policy::QosClass qos) {
  const std::lock_guard lock(mutex_);
  const transfer::SliceQueue& queue = pending_[static_cast<std::size_t>(qos)];
  // A lane takes its own share; here only enough waits that no lane ever runs dry.
  return queue.count() < kPendingSlicesMax &&
         queue.bytes() < environment_.config.tcp.lane_bytes_in_flight_max;
}

void Channel::push(transfer::Slice& slice) {
  const std::lock_guard lock(mutex_);
  pending_[static_cast<std::size_t>(slice.qos)].push_back(slice);
}

transfer::Slice* Channel::pull(policy::QosClass qos, std::uint64_t bytes_max) {
  const std::lock_guard lock(mutex_);
  transfer::SliceQueue& queue = pending_[static_cast<std::size_t>(qos)];
  if (queue.front() == nullptr || queue.front()->bytes > bytes_max) {
    return nullptr;
  }
  return queue.pop_front();
}

bool Channel::has_pending(policy::QosClass qos) {
  const std::lock_guard lock(mutex_);
  return pending_[static_cast<std::size_t>(qos)].front() != nullptr;
}

void Channel::push_describe(std::shared_ptr<DescribeCall> call) {
  const std::lock_guard lock(mutex_);
  if (waits_ended_) {
    call->report(ErrorCode::kEngineClosing);
    return;
  }
  std::erase_if(describes_asked_, [](const auto& asked) { return asked.expired(); });
  describes_asked_.push_back(call);
  describes_.push_back(std::move(call));
}

std::shared_ptr<DescribeCall> Channel::pull_describe() {
  const std::lock_guard lock(mutex_);
  if (describes_.empty()) {
    return nullptr;
  }
  std::shared_ptr<DescribeCall> call = std::move(describes_.front());
  describes_.pop_front();
  return call;
}

bool Channel::has_describe() {
  const std::lock_guard lock(mutex_);
  return !describes_.empty();
}

transfer::Slice* Channel::extract_pending_of(const transfer::Execution& execution) {
  const std::lock_guard lock(mutex_);
  const auto of_it = [&](const transfer::Slice& slice) {
    return slice.execution.get() == &execution;
  };
  // Never in both: its notification comes when all its other slices have retired.
  transfer::Slice* const taken = pending_[0].extract(of_it);
  return taken != nullptr ? taken : pending_[1].extract(of_it);
}

transfer::Slice* Channel::extract_all_pending(policy::QosClass qos) {
  const std::lock_guard lock(mutex_);
  return pending_[static_cast<std::size_t>(qos)].extract(
      [](const transfer::Slice&) { return true; });
}

void Channel::drive(transfer::WorkLimit& limit, transfer::Driver driver) {
  const transfer::CallerSeen seen(driver == transfer::Driver::kCaller ? &callers_[kBulk] : nullptr,
                                  environment_.clock);
  // The latency lane first, and again at the end: a notification may have become due. The others in
  // turn, so that one that uses the limit up does not starve the next.
  drive_latency(limit, driver);
  drive_bulk(limit, driver);
  if (has_pending(policy::QosClass::kLatency)) {
    transfer::WorkLimit small{1 << 16, 4};
    lanes_.front()->drive(small, driver);
  }
}

void Channel::drive_while_waiting(transfer::WorkLimit& limit, bool alone) {
  constexpr transfer::Driver kDriver = transfer::Driver::kLatencyCaller;
  const transfer::CallerSeen seen(&callers_[kLatency], environment_.clock);
  drive_latency(limit, kDriver);
  // One who pauses would stop the worker at the bulk and then not be there.
  if (alone && callers_[kLatency].spins() && lanes_.front()->busy() && bulk_is_busy()) {
    const transfer::CallerSeen at_bulk(&callers_[kBulk], environment_.clock);
    transfer::WorkLimit aside{kAsideBytes, 4};
    drive_bulk(aside, kDriver);
    drive_latency(limit, kDriver);
  }
}

bool Channel::bulk_is_busy() {
  return std::any_of(lanes_.begin() + 1, lanes_.end(),
                     [](const auto& lane) { return lane->busy(); }) ||
         has_pending(policy::QosClass::kBulk);
}

void Channel::drive_latency(transfer::WorkLimit& limit, transfer::Driver driver) {
  Lane& latency = *lanes_.front();
  if (latency.busy() || connection_wanted() || has_describe() ||
      has_pending(policy::QosClass::kLatency)) {
    latency.drive(limit, driver);
  }
}

void Channel::drive_bulk(transfer::WorkLimit& limit, transfer::Driver driver) {
  const std::size_t others = lanes_.size() - 1;
  // Relaxed: any start is right.
  const std::size_t start = turn_.fetch_add(1, std::memory_order_relaxed);
  for (std::size_t i = 0; i < others && !limit.exhausted(); ++i) {
    Lane& lane = *lanes_[1 + (start + i) % others];
    if (lane.busy() ||
        (lane.lane_class() == wire::LaneClass::kBulk && has_pending(policy::QosClass::kBulk))) {
      lane.drive(limit, driver);
    }
  }
}

Result<void> Channel::wait_connected(base::Nanoseconds timeout_ns) {
  std::unique_lock lock(connect_mutex_);
  const std::uint64_t seen = connect_reports_;
  const auto reported = [&] {
    return lanes_.front()->ready() || connect_reports_ != seen || waits_error_.has_value();
  };
  const bool in_time = environment_.waiter.wait_for(lock, connect_changed_, timeout_ns, reported);
  if (waits_error_.has_value()) {
    return fail(*waits_error_);
  }
  if (connect_reports_ != seen && connect_error_.has_value() && !lanes_.front()->ready()) {
    return fail(*connect_error_);
  }
  if (in_time) {
    return {};  // it was connected meanwhile, whatever came then
  }
  return fail(ErrorCode::kPeerUnreachable, "no connection to peer '%.64s' within %llu ms",
              peer_name_.c_str(), static_cast<unsigned long long>(timeout_ns / base::kMillisecond));
}

void Channel::report_connected() {
  const std::lock_guard lock(connect_mutex_);
  ++connect_reports_;
  connect_error_.reset();
  connect_changed_.notify_all();
}

void Channel::end_waits(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    waits_ended_ = true;
    for (const auto& asked : describes_asked_) {
      if (const auto call = asked.lock()) {
        call->report(error.code());
      }
    }
  }
  const std::lock_guard lock(connect_mutex_);
  waits_error_ = error;
  connect_changed_.notify_all();
}

void Channel::report_unreachable(const Error& error) {
  const std::lock_guard lock(connect_mutex_);
  ++connect_reports_;
  connect_error_ = error;
  connect_changed_.notify_all();
}

void Channel::confirm_fenced() {
  for (const auto& lane : lanes_) {
    lane->end_by_decree();
  }
}

std::uint64_t Channel::unproved() const {
  std::uint64_t count = 0;
  for (const auto& lane : lanes_) {
    count += lane->unproved_count();
  }
  return count;
}

Trouble Channel::trouble() const {
  Trouble first;
  std::uint64_t slices = 0;
  for (const auto& lane : lanes_) {
    Trouble trouble = lane->trouble();
    slices += trouble.slices;
    if (trouble.slices > 0 && (first.slices == 0 || trouble.since_ns < first.since_ns)) {
      first = std::move(trouble);
    }
  }
  first.slices = slices;
  return first;
}

std::uint32_t Channel::sockets() const {
  std::uint32_t count = 0;
  for (const auto& lane : lanes_) {
    count += lane->has_socket() ? 1 : 0;
  }
  return count;
}

/// The queues first: what leaves them is a lane's from before it leaves, so it is seen here or
/// there; and whoever wants a connection says so under the queues' mutex.
bool Channel::busy() {
  if (has_describe() || has_pending(policy::QosClass::kLatency) ||
      has_pending(policy::QosClass::kBulk) || connection_wanted()) {
    return true;
  }
  return std::any_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return lane->busy(); });
}

void Channel::want_connection() noexcept {
  const std::lock_guard lock(mutex_);
  waiters_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace orbite::transport::tcp
