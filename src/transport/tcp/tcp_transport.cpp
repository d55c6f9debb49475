// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/tcp_transport.hpp"

#include <algorithm>
#include <exception>
#include <new>

#include "base/assert.hpp"
#include "base/at_exit.hpp"

namespace orbite::transport::tcp {
namespace {

/// After latency work more of it is expected for so long.
constexpr base::Nanoseconds kLatencyLinger = 2 * base::kMillisecond;
// One call of kCallBytesMin, or two when the first moves little.
constexpr std::uint64_t kShortStepBytes = kCallBytesMin / 2;
/// A channel without work is looked after this long, then only its sockets' ends are waited for.
constexpr base::Nanoseconds kLinger = 10 * base::kMillisecond;
constexpr base::Nanoseconds kTimersPeriod = 10 * base::kMillisecond;
/// While the proof of something is sought.
constexpr base::Nanoseconds kDrainPeriod = 10 * base::kMillisecond;
constexpr base::Nanoseconds kIdleSleep = base::kSecond;
/// While a handshake or a frame of a peer is under way, so that its timeout is kept.
constexpr base::Nanoseconds kPressingSleep = 100 * base::kMillisecond;

std::string key_of(const wire::ConnectionBlob& connection) {
  const std::vector<std::uint8_t> bytes = wire::encode(connection);
  return {bytes.begin(), bytes.end()};
}

Channel& channel_of(transfer::Flow& flow) { return static_cast<Channel&>(flow); }

}  // namespace

TcpTransport::TcpTransport(Environment environment, transfer::Planner& planner,
                           std::function<void()> wake)
    : environment_(std::move(environment)),
      planner_(planner),
      wake_(std::move(wake)),
      // As much as the inbox would take. A message that grows holds up to twice its size, and what
      // one client holds at most leaves another as much.
      trailer_budget_(
          std::max<std::uint64_t>(environment_.config.notifications.inbox_bytes_max,
                                  8 * (environment_.config.notifications.message_bytes_max +
                                       wire::kEnvelopeHeadBytes + wire::kEnvelopeNameBytesMax))) {
  callbacks_.admit = [this](const wire::ClientHello& hello) { return admit(hello); };
  callbacks_.prove = [this](const ServedLane& proving) { return prove(proving); };
  callbacks_.drain = [this](const base::SourceEpoch& client, std::uint64_t lane_id) {
    return drain(client, lane_id);
  };
}

TcpTransport::~TcpTransport() { shut(); }

Result<std::unique_ptr<TcpTransport>> TcpTransport::create(Environment environment,
                                                           transfer::Planner& planner,
                                                           std::function<void()> wake) {
  std::unique_ptr<TcpTransport> transport(
      new TcpTransport(std::move(environment), planner, std::move(wake)));
  ORBITE_TRY(transport->listen());
  return transport;
}

Result<void> TcpTransport::listen() {
  const Config::Listen& wanted = environment_.config.listen;
  const std::uint16_t last = std::max(wanted.port, wanted.port_max);
  for (std::uint32_t port = wanted.port; port <= last; ++port) {
    platform::SocketAddress address =
        platform::SocketAddress::any(6, static_cast<std::uint16_t>(port));
    if (!wanted.address.empty()) {
      ORBITE_ASSIGN_OR_RETURN(address, platform::SocketAddress::parse(
                                           wanted.address, static_cast<std::uint16_t>(port)));
    }
    auto listener = environment_.network.listen(address);
    if (!listener) {
      if (listener.error().code() == ErrorCode::kAddressInUse && port < last) {
        continue;
      }
      return fail(Error::make(listener.error().code(), "%.*s (%s)",
                              static_cast<int>(listener.error().context().size()),
                              listener.error().context().data(),
                              listener.error().code() == ErrorCode::kAddressInUse
                                  ? "listen.port; listen.port_max allows a range"
                                  : "listen.address"));
    }
    listener_ = *listener;
    break;
  }
  ORBITE_ASSIGN_OR_RETURN(listening_, environment_.network.local_address(listener_));
  return environment_.network.poller_add(environment_.poller, listener_, platform::kPollIn,
                                         kTokenListener);
}

// ---- Transport

Result<std::shared_ptr<transfer::Flow>> TcpTransport::open(const peer::Peer& peer) {
  const std::lock_guard lock(mutex_);
  const std::string key = key_of(peer.connection());
  if (const auto found = channels_.find(key); found != channels_.end()) {
    return std::shared_ptr<transfer::Flow>(found->second);
  }
  auto channel =
      std::make_shared<Channel>(environment_, planner_, directory_, peer.name(), peer.connection());
  // list() must not fail: who is on the list is in here.
  if (listed_.capacity() <= channels_.size()) {
    listed_.reserve(2 * channels_.size() + 1);
  }
  channels_.emplace(key, channel);
  return std::shared_ptr<transfer::Flow>(std::move(channel));
}

transfer::SliceLimits TcpTransport::slice_limits() const noexcept {
  const wire::FrameLimits limits;
  return {environment_.config.tcp.slice_bytes, limits.extents_max, limits.table_max};
}

bool TcpTransport::has_room(transfer::Flow& flow, policy::QosClass qos) {
  return channel_of(flow).has_room(qos);
}

Result<void> TcpTransport::submit(transfer::Flow& flow, transfer::Slice& slice) {
  // Before the push: from then on another thread may retire the slice.
  const std::shared_ptr<Channel> channel = channel_of(flow).shared_from_this();
  channel->push(slice);
  list(channel);
  return {};
}

void TcpTransport::list(const std::shared_ptr<Channel>& channel) noexcept {
  // With unlist_idle(), through the mutex of the channel's queues, which it takes after it has put
  // the flag down: whoever left work there before is seen by it, and whoever leaves some later sees
  // the flag down.
  if (channel->listed.load(std::memory_order_acquire)) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (!channel->listed.exchange(true, std::memory_order_acq_rel)) {
    ORBITE_CHECK(listed_.size() < listed_.capacity());  // see open()
    listed_.push_back(channel);
    needs_worker_.store(true, std::memory_order_seq_cst);
  }
}

/// Takes an idle channel off the list, unless work came meanwhile.
void TcpTransport::unlist_idle(const std::shared_ptr<Channel>& channel) {
  {
    const std::lock_guard lock(mutex_);
    std::erase(listed_, channel);
    channel->listed.store(false, std::memory_order_release);
  }
  if (channel->busy() || planner_.waiting(*channel)) {
    list(channel);
  }
}

void TcpTransport::drop_unposted(transfer::Flow& flow, const transfer::Execution& execution) {
  /// Nothing of these slices was sent, which is the proof.
  class Dropped final : public transfer::CompletionPath {
   public:
    using CompletionPath::CompletionPath;
    void drop(transfer::Slice& slice) {
      complete(slice, {ErrorCode::kCanceled, 0, 0, RemoteEffect::kNone, false});
      retire(slice);
    }
  };
  Dropped path(planner_);
  transfer::Slice* slice = channel_of(flow).extract_pending_of(execution);
  while (slice != nullptr) {
    transfer::Slice* const next = slice->next;
    path.drop(*slice);
    slice = next;
  }
}

void TcpTransport::drive(transfer::Flow& flow, transfer::WorkLimit& limit,
                         transfer::Driver driver) {
  if (driver == transfer::Driver::kLatencyCaller) {
    see_latency_work();
    channel_of(flow).drive_while_waiting(limit, patience_.crowded());
  } else {
    limit.bytes_max = std::min(limit.bytes_max, bulk_step_bytes());
    channel_of(flow).drive(limit, driver);
  }
}

void TcpTransport::see_latency_work() noexcept {
  latency_seen_ns_.store(environment_.clock.now_ns(), std::memory_order_relaxed);
}

/// What a bulk lane may move before somebody looks at the others: short while there is latency work
/// about, which would wait for all of it.
std::uint64_t TcpTransport::bulk_step_bytes() const noexcept {
  const base::Nanoseconds seen_ns = latency_seen_ns_.load(std::memory_order_relaxed);
  return environment_.clock.now_ns() < seen_ns + kLatencyLinger ? kShortStepBytes
                                                                : 2 * kCallBytesMax;
}

/// The worker does what is wanted of the channel, although no slice was submitted.
void TcpTransport::list_and_wake(Channel& channel) {
  list(channel.shared_from_this());
  needs_worker_.store(true, std::memory_order_seq_cst);
  wake_();
}

Result<void> TcpTransport::connect(transfer::Flow& flow, base::Nanoseconds timeout_ns) {
  Channel& channel = channel_of(flow);
  channel.want_connection();
  const base::AtExit unwant([&channel] { channel.unwant_connection(); });
  list_and_wake(channel);
  return channel.wait_connected(timeout_ns);
}

Result<std::vector<wire::DescribedRange>> TcpTransport::describe(
    transfer::Flow& flow, std::span<const wire::RegistrationRef> registrations,
    base::Nanoseconds timeout_ns) {
  Channel& channel = channel_of(flow);
  const base::Nanoseconds deadline_ns = environment_.clock.now_ns() + timeout_ns;
  std::vector<wire::DescribedRange> all;
  while (all.size() < registrations.size()) {
    const std::size_t table_max = wire::FrameLimits{}.table_max;
    const auto part =
        registrations.subspan(all.size(), std::min(table_max, registrations.size() - all.size()));
    const auto call = std::make_shared<DescribeCall>(part);
    channel.push_describe(call);
    list_and_wake(channel);
    const base::Nanoseconds now_ns = environment_.clock.now_ns();
    ORBITE_TRY(call->wait(environment_.waiter, now_ns < deadline_ns ? deadline_ns - now_ns : 0));
    all.insert(all.end(), call->described().begin(), call->described().end());
  }
  return all;
}

void TcpTransport::confirm_fenced(transfer::Flow& flow) { channel_of(flow).confirm_fenced(); }

std::uint64_t TcpTransport::unproved(transfer::Flow& flow) { return channel_of(flow).unproved(); }

Trouble TcpTransport::trouble(const transfer::Flow& flow) const {
  return static_cast<const Channel&>(flow).trouble();
}

std::uint32_t TcpTransport::lane_sockets() const {
  const std::lock_guard lock(mutex_);
  std::uint32_t count = 0;
  for (const auto& [epoch, channel] : channels_) {
    count += channel->sockets();
  }
  return count;
}

std::uint64_t TcpTransport::unproved_slices() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t count = 0;
  for (const auto& [key, channel] : channels_) {
    count += channel->unproved();
  }
  return count;
}

// ---- The worker

/// Nothing may be thrown at the worker, least of all on behalf of one peer.
template <typename Work>
void TcpTransport::guard_served(ServedLane& lane, Work work) {
  try {
    work(lane);
  } catch (const std::exception& thrown) {
    lane.end(ServedLane::End::kThrown, thrown.what());
  }
}

void TcpTransport::on_event(std::uint64_t token, std::uint32_t /*events*/) {
  const std::uint64_t id = token & ~kTokenKindMask;
  switch (token & kTokenKindMask) {
    case kTokenListener:
      try {
        accept_waiting();
      } catch (const std::exception& thrown) {
        rest_listener(thrown.what());
      }
      return;
    case kTokenServed: {
      const auto found = served_.find(id);
      if (found != served_.end()) {
        guard_served(*found->second, [this](ServedLane& lane) {
          if (lane.is_latency()) {
            see_latency_work();
          }
          transfer::WorkLimit limit{bulk_step_bytes(), 64};
          lane.on_event(limit);
        });
        if (found->second->ended()) {
          reap_served();
        }
      }
      return;
    }
    case kTokenLane: {
      std::shared_ptr<transfer::Flow> keep_alive;
      if (Lane* const lane = directory_.find(id, keep_alive); lane != nullptr) {
        transfer::WorkLimit limit{bulk_step_bytes(), 64};
        lane->on_event(limit);
      }
      return;
    }
    default:
      return;
  }
}

bool TcpTransport::leaves_to_caller(const Channel& channel, policy::QosClass qos,
                                    base::Nanoseconds now_ns) {
  return patience_.expects(channel.callers(policy::QosClass::kBulk), now_ns) ||
         (qos == policy::QosClass::kLatency &&
          patience_.expects(channel.callers(policy::QosClass::kLatency), now_ns));
}

void TcpTransport::look_after(Channel& channel, base::Nanoseconds now_ns) {
  planner_.pump(*this, channel);
  const bool busy = channel.busy();
  for (const auto& lane : channel.lanes()) {
    const policy::QosClass qos = lane->lane_class() == wire::LaneClass::kLatency
                                     ? policy::QosClass::kLatency
                                     : policy::QosClass::kBulk;
    lane->on_tick(now_ns, busy && leaves_to_caller(channel, qos, now_ns));
  }
  if (channel.unproved() > 0) {
    channel.control_lane().want_drains();
  }
}

base::Nanoseconds TcpTransport::on_tick(base::Nanoseconds now_ns) {
  // A little late is how every worker wakes up, and would make the clock slow.
  if (next_tick_ns_ != 0 && now_ns > next_tick_ns_ + kTimersPeriod) {
    environment_.watched_clock.miss(now_ns - next_tick_ns_);
  }
  std::size_t left = 0;
  {
    const std::lock_guard lock(mutex_);
    needs_worker_.store(false, std::memory_order_seq_cst);
    left = listed_.size();
  }
  base::Nanoseconds sleep_ns = kIdleSleep;
  bool left_to_callers = false;
  // From the end: only we take channels off the list, and what comes meanwhile asks for us again.
  while (left > 0) {
    std::shared_ptr<Channel> channel;
    {
      const std::lock_guard lock(mutex_);
      channel = listed_[--left];
    }
    look_after(*channel, now_ns);
    if (channel->unproved() > 0) {
      sleep_ns = std::min(sleep_ns, kDrainPeriod);
    } else if (channel->busy() || planner_.waiting(*channel)) {
      left_to_callers =
          left_to_callers || leaves_to_caller(*channel, policy::QosClass::kLatency, now_ns);
      sleep_ns = std::min(sleep_ns, kTimersPeriod);
    } else if (now_ns < channel->caller_seen_ns() + kLinger) {
      sleep_ns = std::min(sleep_ns, kLinger);
    } else {
      unlist_idle(channel);
    }
  }
  if (left_to_callers) {
    sleep_ns = std::min(sleep_ns, patience_.watch_ns());
  } else {
    patience_.rest();
  }
  if (now_ns >= timers_checked_ns_ + kTimersPeriod) {
    timers_checked_ns_ = now_ns;
    served_pressing_ = false;
    for (const auto& [id, lane] : served_) {
      guard_served(*lane, [now_ns](ServedLane& checked) { checked.check_timers(now_ns); });
      served_pressing_ = served_pressing_ || !lane->authenticated() || lane->in_frame();
    }
    reap_served();
    forget_idle_channels();
  }
  wake_listener(now_ns);
  if (served_pressing_ || listener_rests_until_ns_ != 0) {
    sleep_ns = std::min(sleep_ns, kPressingSleep);
  }
  next_tick_ns_ = now_ns + sleep_ns;
  return sleep_ns;
}

void TcpTransport::forget_idle_channels() {
  std::vector<std::shared_ptr<Channel>> with_sockets;
  std::vector<std::shared_ptr<Channel>> gone;
  try {
    const std::lock_guard lock(mutex_);
    for (auto it = channels_.begin(); it != channels_.end();) {
      const std::shared_ptr<Channel>& channel = it->second;
      const bool listed = channel->listed.load(std::memory_order_acquire);
      const bool connected = channel->sockets() > 0;
      if (!listed && connected) {
        with_sockets.push_back(channel);
      }
      if (!listed && !connected && channel.use_count() == 1 && !channel->busy() &&
          channel->unproved() == 0) {
        gone.push_back(std::move(it->second));
        it = channels_.erase(it);
      } else {
        ++it;
      }
    }
  } catch (const std::bad_alloc&) {
    return;  // the next look finds them again
  }
  // Idle lanes close by their own timer; nobody else looks at those that are not listed.
  const base::Nanoseconds now_ns = environment_.clock.now_ns();
  for (const auto& channel : with_sockets) {
    for (const auto& lane : channel->lanes()) {
      lane->on_tick(now_ns, false);
    }
  }
}

// ---- Closing

void TcpTransport::stop_accepting() { accepting_ = false; }

void TcpTransport::end_waits() {
  const Error closing(ErrorCode::kEngineClosing);
  const std::lock_guard lock(mutex_);
  for (const auto& [key, channel] : channels_) {
    channel->end_waits(closing);
  }
}

/// The listener goes last: a peer that finds nobody at our address takes it as the end of all that
/// we served (Lane::end_if_reset).
void TcpTransport::end_served(Ending ending) {
  const bool answers_drains = ending == Ending::kBetweenFrames;
  for (const auto& [id, lane] : served_) {
    // Who has not said hello yet may be about to ask for a drain.
    const bool may_drain = lane->is_control() || !lane->has_hello();
    if (ending == Ending::kAll || (!lane->in_frame() && !(answers_drains && may_drain))) {
      lane->end(ServedLane::End::kClosedByUs, "closing");
    }
  }
  reap_served();
  if (!accepting_ && !answers_drains && served_.empty() && listener_ != platform::kNoSocket) {
    environment_.network.poller_remove(environment_.poller, listener_);
    environment_.network.close(listener_);
    listener_ = platform::kNoSocket;
    listener_rests_until_ns_ = 0;
  }
}

void TcpTransport::shut() {
  stop_accepting();
  end_served(Ending::kAll);
  // One by one, since a lane's mutex is never taken under ours. None connects any more.
  const auto next_with_socket = [this]() -> std::shared_ptr<Channel> {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, channel] : channels_) {
      if (channel->sockets() > 0) {
        return channel;
      }
    }
    return nullptr;
  };
  while (const auto channel = next_with_socket()) {
    for (const auto& lane : channel->lanes()) {
      lane->shut();
    }
  }
}

}  // namespace orbite::transport::tcp
