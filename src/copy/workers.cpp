// SPDX-License-Identifier: Apache-2.0
#include "copy/workers.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "base/log.hpp"
#include "platform/processors.hpp"
#include "platform/system.hpp"

namespace orbite::copy {
namespace {

// A look costs five microseconds, and four times as much where a copy has just emptied the caches.
constexpr base::Nanoseconds kLookPeriod = 500 * base::kMicrosecond;
constexpr base::Nanoseconds kLookPeriodMax = 10 * base::kMillisecond;
constexpr base::Nanoseconds kBackOffMin = 10 * base::kMillisecond;
constexpr base::Nanoseconds kBackOffMax = base::kSecond;
// A processor that others only visit, as the engine's own worker does, is still ours.
constexpr base::Nanoseconds kVisitsMax = 100 * base::kMicrosecond;
constexpr base::Nanoseconds kVisitsShare = 8;
constexpr base::Nanoseconds kVisitsSpan = 10 * base::kMillisecond;

/// How much of the time the calling thread had a processor, in spans of bounded length.
class ProcessorShare {
 public:
  explicit ProcessorShare(const Workers::System& system) : system_(system) { begin(); }
  /// Somebody else has work for the processor, too.
  [[nodiscard]] bool is_contended() {
    const base::Nanoseconds passed_ns = system_.clock.now_ns() - begin_ns_;
    const base::Nanoseconds had_ns = system_.thread_time_ns() - begin_thread_ns_;
    const base::Nanoseconds lost_ns = passed_ns - std::min(passed_ns, had_ns);
    if (lost_ns > kVisitsMax && lost_ns > passed_ns / kVisitsShare) {
      return true;
    }
    if (passed_ns > kVisitsSpan) {
      begin();
    }
    return false;
  }

 private:
  void begin() {
    begin_ns_ = system_.clock.now_ns();
    begin_thread_ns_ = system_.thread_time_ns();
  }

  const Workers::System& system_;
  base::Nanoseconds begin_ns_ = 0;
  base::Nanoseconds begin_thread_ns_ = 0;
};

}  // namespace

struct Workers::State {
  struct Slot {
    std::thread thread;
    bool runs = false;  ///< false: the thread, if there is one, has left the lock for good
  };

  mutable std::mutex mutex;
  std::condition_variable called;  ///< calls or stops changed
  std::condition_variable left;    ///< a helper count has fallen to 0
  std::vector<Slot> slots;
  std::vector<SharedWork*> enrolled;
  std::size_t next = 0;        ///< of `enrolled`, whose turn it is
  std::uint32_t calls = 0;     ///< workers called that have not come yet
  std::uint32_t helping = 0;   ///< workers that have come and not gone back to sleep
  std::uint32_t sleeping = 0;  ///< workers that wait for a call, or are about to
  std::uint64_t pieces = 0;
  base::Nanoseconds look_period_ns = kLookPeriod;
  base::Nanoseconds back_off_ns = 0;
  bool stops = false;
  bool failure_told = false;

  /// The offered work whose turn it is.
  SharedWork* next_offered() noexcept {
    for (std::size_t i = 0; i < enrolled.size(); ++i) {
      next = (next + 1) % enrolled.size();
      if (enrolled[next]->emptied_ != enrolled[next]->offers_) {
        return enrolled[next];
      }
    }
    return nullptr;
  }
};

Workers::System Workers::system(const base::Clock& clock, base::Waiter& waiter) {
  return {clock, waiter, platform::start_thread, platform::idle_processors,
          platform::thread_time_ns};
}

Workers::Workers(std::uint32_t workers_max, System system)
    : workers_max_(workers_max),
      system_(std::move(system)),
      process_generation_(platform::process_generation()),
      state_(std::make_unique<State>()) {
  state_->slots.resize(workers_max);
}

Workers::~Workers() {
  if (is_foreign()) {
    [[maybe_unused]] State* const given_up = state_.release();
    return;
  }
  {
    const std::lock_guard lock(state_->mutex);
    ORBITE_CHECK(state_->enrolled.empty());
    state_->stops = true;
  }
  state_->called.notify_all();
  for (State::Slot& slot : state_->slots) {
    if (slot.thread.joinable()) {
      slot.thread.join();
    }
  }
}

bool Workers::is_foreign() const noexcept {
  return platform::process_generation() != process_generation_;
}

void Workers::enroll(SharedWork& work) {
  if (!is_foreign()) {
    const std::lock_guard lock(state_->mutex);
    state_->enrolled.push_back(&work);
  }
}

void Workers::withdraw(SharedWork& work) {
  if (is_foreign()) {
    return;
  }
  std::unique_lock lock(state_->mutex);
  std::erase(state_->enrolled, &work);
  while (!system_.waiter.wait_for(lock, state_->left, base::kSecond,
                                  [&] { return work.helpers_ == 0; })) {
  }
}

void Workers::offer(SharedWork& work, std::size_t pieces) noexcept {
  if (workers_max_ == 0 || is_foreign()) {
    return;
  }
  const base::Nanoseconds now_ns = system_.clock.now_ns();
  base::Nanoseconds due_ns = next_look_ns_.load(std::memory_order_relaxed);
  if (now_ns < due_ns || !next_look_ns_.compare_exchange_strong(due_ns, now_ns + kLookPeriod,
                                                                std::memory_order_relaxed)) {
    return;
  }
  if (!is_helped(work)) {
    call_workers(work, pieces, system_.idle_processors());
  }
}

/// Those that are at work already take from this work, too; nobody else is looked for meanwhile.
bool Workers::is_helped(SharedWork& work) noexcept {
  const std::lock_guard lock(state_->mutex);
  ++work.offers_;
  return state_->helping + state_->calls > 0;
}

void Workers::call_workers(SharedWork& work, std::size_t pieces, std::uint32_t idle) noexcept {
  const base::LogLater logs_later;
  const std::lock_guard lock(state_->mutex);
  State& state = *state_;
  if (idle == 0) {
    state.look_period_ns = std::min(2 * state.look_period_ns, kLookPeriodMax);
    next_look_ns_.store(system_.clock.now_ns() + state.look_period_ns, std::memory_order_relaxed);
    return;
  }
  state.look_period_ns = kLookPeriod;
  ++work.offers_;
  // Another owner's call may have come first.
  const std::uint32_t busy = state.helping + state.calls;
  const auto useful = static_cast<std::uint32_t>(std::min<std::size_t>(pieces, workers_max_));
  std::uint32_t wanted = std::min(idle, useful - std::min(useful, busy));
  for (; wanted > 0; --wanted) {
    if (state.sleeping <= state.calls && !start_worker()) {
      return;
    }
    ++state.calls;
    state.called.notify_one();
  }
}

/// Under the mutex. False: there is none to be had.
bool Workers::start_worker() noexcept {
  State& state = *state_;
  const auto slot = std::find_if(state.slots.begin(), state.slots.end(),
                                 [](const State::Slot& each) { return !each.runs; });
  if (slot == state.slots.end()) {
    return false;
  }
  if (slot->thread.joinable()) {
    slot->thread.join();
  }
  const auto index = static_cast<std::size_t>(slot - state.slots.begin());
  try {
    slot->thread = system_.start_thread("orbite-copy", [this, index] { run(index); });
  } catch (const std::exception& failure) {
    if (!std::exchange(state.failure_told, true)) {
      base::log(base::LogLevel::kWarn, "copies go on without a worker: %s", failure.what());
    }
    back_off();
    return false;
  }
  slot->runs = true;
  ++state.sleeping;
  return true;
}

void Workers::run(std::size_t index) noexcept {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  while (true) {
    const bool called = system_.waiter.wait_for(lock, state.called, kIdleEndNs,
                                                [&] { return state.stops || state.calls > 0; });
    --state.sleeping;
    if (!called || state.stops) {
      break;
    }
    --state.calls;
    ++state.helping;
    lock.unlock();
    help();
    lock.lock();
    --state.helping;
    ++state.sleeping;
  }
  state.slots[index].runs = false;
}

/// Until nothing is left that was offered, or until others want the processor, too.
void Workers::help() noexcept {
  State& state = *state_;
  ProcessorShare share(system_);
  std::unique_lock lock(state.mutex);
  while (SharedWork* const work = state.next_offered()) {
    const std::uint64_t offers = work->offers_;
    ++work->helpers_;
    lock.unlock();
    const bool found = work->do_piece();
    const bool contended = share.is_contended();
    lock.lock();
    if (found) {
      ++state.pieces;
    } else {
      // An offer that came meanwhile stands.
      work->emptied_ = std::max(work->emptied_, offers);
    }
    if (--work->helpers_ == 0) {
      state.left.notify_all();
    }
    if (contended) {
      back_off();
      return;
    }
  }
  state.back_off_ns = 0;
}

/// Under the mutex. Nobody is called for a while, longer each time.
void Workers::back_off() noexcept {
  State& state = *state_;
  state.back_off_ns = std::clamp(2 * state.back_off_ns, kBackOffMin, kBackOffMax);
  next_look_ns_.store(system_.clock.now_ns() + state.back_off_ns, std::memory_order_relaxed);
}

Workers::Counts Workers::counts() const {
  Counts counts;
  if (is_foreign()) {
    return counts;
  }
  const std::lock_guard lock(state_->mutex);
  for (const State::Slot& slot : state_->slots) {
    counts.threads += slot.runs ? 1 : 0;
  }
  counts.active = state_->helping + state_->calls;
  counts.pieces = state_->pieces;
  return counts;
}

}  // namespace orbite::copy
