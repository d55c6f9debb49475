// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "base/at_exit.hpp"
#include "base/log.hpp"
#include "engine/impl.hpp"

namespace orbite {
namespace {

constexpr base::Nanoseconds kTickPeriod = 100 * base::kMicrosecond;
// While somebody waits in close(), and in a quarantine that nobody waits for.
constexpr base::Nanoseconds kCloseTick = base::kMillisecond;
constexpr base::Nanoseconds kQuarantineTick = 100 * base::kMillisecond;
constexpr base::Nanoseconds kIdleSleep = base::kSecond;
/// After a turn that had no memory for its work.
constexpr base::Nanoseconds kMemoryPause = base::kMillisecond;

}  // namespace

void TransferEngine::Impl::wake_worker() noexcept {
  // Pairs with look_for_work(): it announces its sleep, then looks for work; we leave work, then
  // look for its sleep. Sequentially consistent on both sides, so one of the two sees the other.
  // The flag stays up until the worker begins to look, so it also tells of work that came after its
  // look.
  work_left_.store(true, std::memory_order_seq_cst);
  if (worker_sleeps_.load(std::memory_order_seq_cst)) {
    network.signal(wakeup_);
  }
}

void TransferEngine::Impl::run_worker() {
  base::Nanoseconds sleep_ns = 0;
  while (!worker_ends()) {
    sleep_ns = turn_worker(sleep_ns);
  }
  end_worker();
}

/// Nothing may be thrown at the worker: what had no memory is found again at its next look, soon.
base::Nanoseconds TransferEngine::Impl::turn_worker(base::Nanoseconds sleep_ns) noexcept {
  try {
    take_events(sleep_ns);
    const base::Nanoseconds next_ns = look_for_work();
    memory_was_short_ = false;
    return next_ns;
  } catch (const std::bad_alloc&) {
    if (!std::exchange(memory_was_short_, true)) {
      base::log(base::LogLevel::kError, "engine '%.64s': no memory for its own work",
                options.name.c_str());
    }
    worker_sleeps_.store(false, std::memory_order_seq_cst);
    next_tick_ns_ = 0;
    return kMemoryPause;
  }
}

/// Does what is due and announces that the worker sleeps. Returns how long at most.
base::Nanoseconds TransferEngine::Impl::look_for_work() {
  const base::Nanoseconds now_ns = clock.now_ns();
  base::Nanoseconds sleep_ns = 0;
  if (work_left_.exchange(false, std::memory_order_seq_cst)) {
    next_tick_ns_ = 0;
  }
  if (now_ns >= next_tick_ns_ || (tcp_ != nullptr && tcp_->needs_worker())) {
    sleep_ns = work_once(now_ns);
    next_tick_ns_ = now_ns + std::min(sleep_ns, kTickPeriod);
  } else {
    sleep_ns = next_tick_ns_ - now_ns;
  }
  worker_sleeps_.store(true, std::memory_order_seq_cst);
  const bool more = (tcp_ != nullptr && tcp_->needs_worker()) ||
                    work_left_.load(std::memory_order_seq_cst) ||
                    stop_worker_.load(std::memory_order_seq_cst);
  return more ? 0 : sleep_ns;
}

void TransferEngine::Impl::take_events(base::Nanoseconds timeout_ns) {
  std::array<platform::PollEvent, 64> events;
  const std::size_t count = timeout_ns == 0 ? network.poller_wait(poller_, events, 0)
                                            : wait_for_events(events, timeout_ns);
  worker_sleeps_.store(false, std::memory_order_seq_cst);
  for (std::size_t i = 0; i < count; ++i) {
    if (events[i].token == 0) {
      network.clear(wakeup_);
      next_tick_ns_ = 0;
    } else {
      on_event(events[i]);
    }
  }
}

void TransferEngine::Impl::on_event(const platform::PollEvent& event) {
  switch (event.token & peer::kTokenKinds) {
    case peer::kTokenLenderListener:
    case peer::kTokenBorrower:
    case peer::kTokenBorrowerProcess:
      if (lender_ != nullptr) {
        lender_->on_event(event.token);
      }
      return;
    case peer::kTokenLink:
    case peer::kTokenLinkProcess:
      if (links_ != nullptr) {
        links_->on_event(event.token);
      }
      return;
    default:
      if (tcp_ != nullptr) {
        tcp_->on_event(event.token, event.events);
      }
  }
}

void TransferEngine::Impl::end_worker() {
  if (closing_.load(std::memory_order_acquire) && tcp_ != nullptr) {
    tcp_->shut();  // nobody is left who would close the sockets of idle lanes
  }
}

/// Looks for events while that is worth it, then sleeps. Who leaves work meanwhile signals, which
/// is an event too.
std::size_t TransferEngine::Impl::wait_for_events(std::span<platform::PollEvent> events,
                                                  base::Nanoseconds sleep_ns) {
  const base::Nanoseconds start_ns = clock.now_ns();
  base::Nanoseconds now_ns = start_ns;
  const base::Nanoseconds window_ns = std::min(spin_.window_ns(start_ns), sleep_ns);
  if (window_ns > 0) {
    std::size_t count = 0;
    base::Nanoseconds gap_ns = 0;
    do {
      const base::Nanoseconds before_ns = now_ns;
      count = network.poller_wait(poller_, events, 0);
      now_ns = clock.now_ns();
      gap_ns = std::max(gap_ns, now_ns - before_ns);
    } while (count == 0 && now_ns - start_ns < window_ns);
    spin_.looked(now_ns, count > 0, gap_ns);
    if (count > 0) {
      return count;
    }
  }
  const base::Nanoseconds looked_ns = std::min(now_ns - start_ns, sleep_ns);
  const std::size_t count = network.poller_wait(poller_, events, sleep_ns - looked_ns);
  if (count > 0) {
    spin_.slept(clock.now_ns() - start_ns);
  }
  return count;
}

/// Everything that is not an event. Returns how long to sleep at most.
base::Nanoseconds TransferEngine::Impl::work_once(base::Nanoseconds now_ns) {
  base::Nanoseconds sleep_ns = kIdleSleep;
  if (tcp_ != nullptr) {
    sleep_ns = std::min(sleep_ns, tcp_->on_tick(now_ns));
  }
  if (lender_ != nullptr) {
    sleep_ns = std::min(sleep_ns, lender_->on_tick(now_ns));
  }
  if (links_ != nullptr) {
    sleep_ns = std::min(sleep_ns, links_->on_tick(now_ns));
  }
  for (transport::CopyTransport* const copies : copy_transports()) {
    if (copies != nullptr) {
      sleep_ns = std::min(sleep_ns, copies->on_tick(now_ns));
    }
  }
  registry.reap();
  sleep_ns = std::min(sleep_ns, expire_deadlines(now_ns));
  if (closing_.load(std::memory_order_acquire)) {
    sleep_ns = std::min(sleep_ns, close_step());
  }
  return sleep_ns;
}

/// Returns the time to the next deadline. All whose deadline has come are stopped first, as in
/// stop_active().
base::Nanoseconds TransferEngine::Impl::expire_deadlines(base::Nanoseconds now_ns) {
  ActiveExecutions::Deadline last{};
  const auto next_due = [&] {
    const std::lock_guard lock(active_mutex_);
    return active_.due_after(last, now_ns);
  };
  for (auto due = next_due(); due != nullptr; due = next_due()) {
    last = {due->deadline_ns(), due->number()};
    stop_planning(*due, ErrorCode::kDeadlineExceeded);
  }
  last = {};
  for (auto due = next_due(); due != nullptr; due = next_due()) {
    {
      const std::lock_guard lock(active_mutex_);
      active_.forget_deadline(*due);
    }
    // Once more: one that became active meanwhile is among them.
    stop_execution(*due, ErrorCode::kDeadlineExceeded);
  }
  const std::lock_guard lock(active_mutex_);
  const base::Nanoseconds next_ns = active_.next_deadline_ns();
  return next_ns > now_ns ? std::min(next_ns - now_ns, kIdleSleep) : 0;
}

/// The worker's part of a close. Served lanes end between two frames, so that no peer is cut off in
/// the middle of one that it can finish. While work of our own is unresolved, drains are answered:
/// a peer that closes too may wait for our word as we wait for its. When nothing is left that could
/// need the worker, it ends.
base::Nanoseconds TransferEngine::Impl::close_step() {
  bool served_ended = true;
  bool all_ended = true;
  if (lender_ != nullptr) {
    lender_->stop_accepting();
  }
  if (tcp_ != nullptr) {
    tcp_->stop_accepting();
    tcp_->end_served(ending());
    served_ended = tcp_->proved_lanes() == 0;
    all_ended = !tcp_->is_listening();
  }
  registry.reap();
  const memory::Registry::Counts counts = registry.counts();
  const std::lock_guard lock(active_mutex_);
  served_ended_ = served_ended;
  listening_ended_ = all_ended;
  // In quarantine nothing is called retired any more, but a neighbour may be inside all the same.
  if (all_ended && active_.empty() && waiting_for_worker_ == 0 &&
      counts.live + counts.fenced == 0 && !lends()) {
    // Relaxed would do: this thread alone reads it from here on.
    stop_worker_.store(true, std::memory_order_release);
  }
  ++changes_;
  changed_.notify_all();
  return closers_ > 0 ? kCloseTick : kQuarantineTick;
}

/// An engine in quarantine gives its port back: the process may want it for the next one.
transport::tcp::TcpTransport::Ending TransferEngine::Impl::ending() const {
  using Ending = transport::tcp::TcpTransport::Ending;
  const bool given_up = quarantined_.load(std::memory_order_acquire);
  const std::lock_guard lock(active_mutex_);
  if (abort_served_.load(std::memory_order_acquire) || (given_up && active_.empty())) {
    return Ending::kAll;
  }
  return given_up || active_.empty() ? Ending::kDrainsToo : Ending::kBetweenFrames;
}

void TransferEngine::Impl::abort_served() {
  abort_served_.store(true, std::memory_order_release);
  network.signal(wakeup_);
}

CloseStatus TransferEngine::Impl::close_status() const {
  CloseStatus status;
  bool served_ended = false;
  bool listening_ended = false;
  const memory::Registry::Counts counts = registry.counts();
  {
    const std::lock_guard lock(active_mutex_);
    served_ended = served_ended_;
    listening_ended = listening_ended_;
    status.executions_unresolved = static_cast<std::uint32_t>(active_.size());
    status.peers_unresolved = static_cast<std::uint32_t>(active_.peers());
  }
  status.registrations_unresolved =
      static_cast<std::uint32_t>(counts.live + counts.fenced + counts.unquiesced);
  if (!closing_.load(std::memory_order_acquire)) {
    status.phase = ClosePhase::kOpen;
  } else if (!served_ended) {
    status.phase = ClosePhase::kDrainingServed;
  } else if (status.executions_unresolved > 0) {
    status.phase = ClosePhase::kDrainingPosted;
  } else if (counts.live + counts.fenced > 0 || !listening_ended) {
    status.phase = ClosePhase::kRetiring;
  } else {
    status.phase = counts.unquiesced > 0 ? ClosePhase::kUnquiesced : ClosePhase::kClosed;
  }
  return status;
}

/// At the first call. Everything that was launched before is stopped; what comes later is refused.
void TransferEngine::Impl::begin_close() {
  std::size_t under_way = 0;
  {
    const std::lock_guard lock(active_mutex_);
    if (closing_.load(std::memory_order_relaxed)) {
      return;
    }
    // Release: pairs with the acquire in check_usable().
    closing_.store(true, std::memory_order_release);
    under_way = active_.size();
  }
  base::log(base::LogLevel::kInfo, "engine '%.64s' closes, %zu executions are under way",
            options.name.c_str(), under_way);
  if (tcp_ != nullptr) {
    tcp_->end_waits();
  }
  peers.retire_all();
  if (lender_ != nullptr) {
    lender_->close_all(registry);
  }
  registry.fence_all();
  stop_active(ErrorCode::kCanceled, nullptr);
}

CloseStatus TransferEngine::Impl::close(std::uint64_t timeout_ns) {
  begin_close();
  const base::Nanoseconds deadline_ns = base::saturating_add(clock.now_ns(), timeout_ns);
  {
    const std::lock_guard lock(active_mutex_);
    ++closers_;
  }
  const base::AtExit closes_no_more([this] {
    const std::lock_guard lock(active_mutex_);
    --closers_;
  });
  // Also for whoever only observes: the next phase may need no more than a look of the worker.
  wake_worker();
  registry.reap();
  CloseStatus status = close_status();
  base::Nanoseconds now_ns = clock.now_ns();
  while (status.phase != ClosePhase::kClosed && status.phase != ClosePhase::kUnquiesced &&
         now_ns < deadline_ns) {
    {
      std::unique_lock lock(active_mutex_);
      const std::uint64_t seen = changes_;
      environment.waiter.wait_for(
          lock, changed_,
          std::min<base::Nanoseconds>(deadline_ns - now_ns, 10 * base::kMillisecond),
          [&] { return changes_ != seen; });
    }
    registry.reap();
    status = close_status();
    now_ns = clock.now_ns();
  }
  return status;
}

void TransferEngine::Impl::enter_quarantine() {
  // Release: pairs with the acquire in ending(); the worker's next look is soon enough.
  quarantined_.store(true, std::memory_order_release);
  if (worker_.joinable()) {
    worker_.detach();  // it ends by itself when everything is resolved
  }
  // What has its proof is told now, in the owner's own call; nothing is told later.
  registry.reap();
  registry.quarantine_all();
}

}  // namespace orbite
