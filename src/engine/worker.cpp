// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "base/log.hpp"
#include "engine/impl.hpp"

namespace orbite {
namespace {

constexpr base::Nanoseconds kDeadlinePeriod = base::kMillisecond;
constexpr base::Nanoseconds kCallerSilence = 200 * base::kMicrosecond;
constexpr base::Nanoseconds kTickPeriod = 100 * base::kMicrosecond;
constexpr base::Nanoseconds kCloseTick = base::kMillisecond;
constexpr base::Nanoseconds kIdleSleep = base::kSecond;

}  // namespace

void TransferEngine::Impl::wake_worker() noexcept {
  // Pairs with run_worker(): it announces its sleep, then looks for work; we leave work, then look
  // for its sleep. Sequentially consistent on both sides, so one of the two sees the other.
  if (worker_sleeps_.load(std::memory_order_seq_cst)) {
    network.signal(wakeup_);
  }
}

void TransferEngine::Impl::run_worker() {
  std::array<platform::PollEvent, 64> events;
  base::Nanoseconds next_tick_ns = 0;
  while (!stop_worker_.load(std::memory_order_acquire)) {
    const base::Nanoseconds now_ns = clock.now_ns();
    base::Nanoseconds sleep_ns = 0;
    if (now_ns >= next_tick_ns || (tcp_ != nullptr && tcp_->needs_worker())) {
      sleep_ns = work_once(now_ns);
      next_tick_ns = now_ns + std::min(sleep_ns, kTickPeriod);
    } else {
      sleep_ns = next_tick_ns - now_ns;
    }
    worker_sleeps_.store(true, std::memory_order_seq_cst);
    const bool more =
        (tcp_ != nullptr && tcp_->needs_worker()) || stop_worker_.load(std::memory_order_seq_cst);
    const std::size_t count = network.poller_wait(poller_, events, more ? 0 : sleep_ns);
    worker_sleeps_.store(false, std::memory_order_seq_cst);
    for (std::size_t i = 0; i < count; ++i) {
      if (events[i].token == 0) {
        network.clear(wakeup_);
        next_tick_ns = 0;
      } else if (tcp_ != nullptr) {
        tcp_->on_event(events[i].token, events[i].events);
      }
    }
  }
  worker_done_.store(true, std::memory_order_release);
}

/// Everything that is not an event. Returns how long to sleep at most.
base::Nanoseconds TransferEngine::Impl::work_once(base::Nanoseconds now_ns) {
  base::Nanoseconds sleep_ns = kIdleSleep;
  if (tcp_ != nullptr) {
    sleep_ns = std::min(sleep_ns, tcp_->on_tick(now_ns));
  }
  if (local_ != nullptr && local_->busy()) {
    const base::Nanoseconds seen_ns = local_caller_ns_.load(std::memory_order_relaxed);
    if (now_ns >= seen_ns + kCallerSilence) {
      transfer::WorkLimit limit{std::uint64_t{4} << 20, 16};
      local_->drive(*local_->flow(), limit, transfer::Driver::kWorker);
    }
    sleep_ns = std::min(sleep_ns, local_->busy() ? kCallerSilence : kIdleSleep);
  }
  registry.reap();
  {
    const std::lock_guard lock(active_mutex_);
    if (with_deadline_ > 0) {
      sleep_ns = std::min(sleep_ns, kDeadlinePeriod);
    }
  }
  if (now_ns >= deadlines_checked_ns_ + kDeadlinePeriod) {
    deadlines_checked_ns_ = now_ns;
    expire_deadlines(now_ns);
  }
  if (closing_.load(std::memory_order_acquire)) {
    close_step();
    sleep_ns = std::min(sleep_ns, kCloseTick);
  }
  return sleep_ns;
}

void TransferEngine::Impl::expire_deadlines(base::Nanoseconds now_ns) {
  std::vector<std::shared_ptr<transfer::Execution>> expired;
  {
    const std::lock_guard lock(active_mutex_);
    if (with_deadline_ == 0) {
      return;
    }
    for (const auto& [address, execution] : active_) {
      if (execution->deadline_ns() != 0 && now_ns >= execution->deadline_ns()) {
        expired.push_back(execution);
      }
    }
  }
  for (const auto& execution : expired) {
    stop_execution(execution, ErrorCode::kDeadlineExceeded);
  }
}

/// The worker's part of a close. Served lanes end between two frames, so that no peer is cut off in
/// the middle of one that it can finish.
void TransferEngine::Impl::close_step() {
  if (tcp_ != nullptr) {
    tcp_->stop_accepting();
    tcp_->end_served(abort_served_.load(std::memory_order_acquire));
  }
  registry.reap();
  const std::lock_guard lock(active_mutex_);
  changed_.notify_all();
}

void TransferEngine::Impl::abort_served() {
  abort_served_.store(true, std::memory_order_release);
  network.signal(wakeup_);
}

CloseStatus TransferEngine::Impl::close_status() const {
  CloseStatus status;
  const std::uint32_t served = tcp_ != nullptr ? tcp_->served_lanes() : 0;
  const memory::Registry::Counts counts = registry.counts();
  {
    const std::lock_guard lock(active_mutex_);
    status.executions_unresolved = static_cast<std::uint32_t>(active_.size());
    std::vector<const peer::Link*> links;
    for (const auto& [address, execution] : active_) {
      links.push_back(execution->peer().link());
    }
    std::sort(links.begin(), links.end());
    status.peers_unresolved =
        static_cast<std::uint32_t>(std::unique(links.begin(), links.end()) - links.begin());
  }
  status.registrations_unresolved =
      static_cast<std::uint32_t>(counts.live + counts.fenced + counts.unquiesced);
  if (!closing_.load(std::memory_order_acquire)) {
    status.phase = ClosePhase::kOpen;
  } else if (served > 0) {
    status.phase = ClosePhase::kDrainingServed;
  } else if (status.executions_unresolved > 0) {
    status.phase = ClosePhase::kDrainingPosted;
  } else if (counts.live + counts.fenced > 0) {
    status.phase = ClosePhase::kRetiring;
  } else {
    status.phase = counts.unquiesced > 0 ? ClosePhase::kUnquiesced : ClosePhase::kClosed;
  }
  return status;
}

CloseStatus TransferEngine::Impl::close(std::uint64_t timeout_ns) {
  if (!closing_.exchange(true, std::memory_order_acq_rel)) {
    peers.retire_all();
    registry.fence_all();
    for (const auto& execution : active_executions()) {
      stop_execution(execution, ErrorCode::kCanceled);
    }
    network.signal(wakeup_);
  }
  const base::Nanoseconds deadline_ns = clock.now_ns() + timeout_ns;
  while (true) {
    const CloseStatus status = close_status();
    const base::Nanoseconds now_ns = clock.now_ns();
    if (status.phase == ClosePhase::kClosed || status.phase == ClosePhase::kUnquiesced ||
        now_ns >= deadline_ns) {
      return status;
    }
    std::unique_lock lock(active_mutex_);
    changed_.wait_for(lock, std::chrono::nanoseconds(std::min<std::uint64_t>(
                                deadline_ns - now_ns, 10 * base::kMillisecond)));
  }
}

}  // namespace orbite
