// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <utility>

#include "base/clock.hpp"

namespace orbite::transfer {

/// What callers who move bytes themselves leave for the worker to see. Relaxed: a hint.
class CallerTrace {
 public:
  /// From any thread: a caller begins to move bytes, and has moved some.
  void begin(base::Nanoseconds now_ns) noexcept {
    const base::Nanoseconds seen_ns = seen_ns_.load(std::memory_order_relaxed);
    if (now_ns >= seen_ns + kSpinPause) {
      since_ns_.store(now_ns, std::memory_order_relaxed);
    }
    seen_ns_.store(now_ns, std::memory_order_relaxed);
  }
  void end(base::Nanoseconds now_ns) noexcept { seen_ns_.store(now_ns, std::memory_order_relaxed); }

  [[nodiscard]] base::Nanoseconds seen_ns() const noexcept {
    return seen_ns_.load(std::memory_order_relaxed);
  }
  /// He came again at once, again and again, as who does nothing else does. Two looks at one small
  /// transfer every few milliseconds are not that.
  [[nodiscard]] bool spins() const noexcept {
    return seen_ns() >= since_ns_.load(std::memory_order_relaxed) + kSpinFor;
  }

  static constexpr base::Nanoseconds kSpinPause = 50 * base::kMicrosecond;
  static constexpr base::Nanoseconds kSpinFor = 200 * base::kMicrosecond;

 private:
  std::atomic<base::Nanoseconds> seen_ns_{0};
  std::atomic<base::Nanoseconds> since_ns_{0};  ///< after the last pause
};

/// While a caller moves bytes himself.
class CallerSeen {
 public:
  /// `trace` nullptr: it is no caller. Both outlive it.
  CallerSeen(CallerTrace* trace, const base::Clock& clock) : trace_(trace), clock_(clock) {
    if (trace_ != nullptr) {
      trace_->begin(clock_.now_ns());
    }
  }
  CallerSeen(const CallerSeen&) = delete;
  CallerSeen& operator=(const CallerSeen&) = delete;
  ~CallerSeen() {
    if (trace_ != nullptr) {
      trace_->end(clock_.now_ns());
    }
  }

 private:
  CallerTrace* const trace_;
  const base::Clock& clock_;
};

/// When the worker takes over what callers move themselves: soon after one was last seen. But one
/// who came again and again, while more threads want a processor than there are, does not sleep: he
/// waits for his turn, and a worker that steps in is one more to wait for. The worker's alone.
class CallerPatience {
 public:
  /// `processors_are_short` may be empty: they never are.
  explicit CallerPatience(std::function<bool()> processors_are_short)
      : processors_are_short_(std::move(processors_are_short)) {}

  /// The caller is still expected to go on himself.
  [[nodiscard]] bool expects(const CallerTrace& trace, base::Nanoseconds now_ns) {
    const base::Nanoseconds seen_ns = trace.seen_ns();
    const bool spins = trace.spins();
    const bool seen_lately = now_ns < seen_ns + kSilenceMax;
    if (seen_lately) {
      look(now_ns);
    }
    const bool expected = now_ns < seen_ns + kSilence || (seen_lately && spins && crowded());
    some_pause_ = some_pause_ || (expected && !spins);
    return expected;
  }

  /// More threads wanted a processor than there are when a caller was last expected. From any
  /// thread; relaxed: a hint.
  [[nodiscard]] bool crowded() const noexcept { return crowded_.load(std::memory_order_relaxed); }

  /// Until the next look, while somebody is expected. Each look takes a processor from those who
  /// work, so they become rarer, as long as nobody pauses.
  [[nodiscard]] base::Nanoseconds watch_ns() {
    const bool found_crowded = std::exchange(found_crowded_, false);
    if (std::exchange(some_pause_, false)) {
      watch_ns_ = kSilence;
      return kSilence;
    }
    const base::Nanoseconds next_ns = std::min(2 * watch_ns_, kWatchMax);
    return found_crowded ? kSilenceMax : std::exchange(watch_ns_, next_ns);
  }
  /// Nobody is expected.
  void rest() {
    watch_ns_ = kSilence;
    found_crowded_ = false;
  }

  static constexpr base::Nanoseconds kSilence = 200 * base::kMicrosecond;
  /// Somewhat more than another thread's turn at the processor takes.
  static constexpr base::Nanoseconds kSilenceMax = 6 * base::kMillisecond;
  static constexpr base::Nanoseconds kWatchMax = base::kMillisecond;

 private:
  // It costs five microseconds.
  static constexpr base::Nanoseconds kLookPeriod = base::kMillisecond;

  /// The worker itself is one of those threads: it asks whether there is room for it as well.
  void look(base::Nanoseconds now_ns) {
    if (processors_are_short_ && now_ns >= next_look_ns_) {
      next_look_ns_ = now_ns + kLookPeriod;
      found_crowded_ = processors_are_short_();
      crowded_.store(found_crowded_, std::memory_order_relaxed);
    }
  }

  const std::function<bool()> processors_are_short_;
  base::Nanoseconds next_look_ns_ = 0;
  base::Nanoseconds watch_ns_ = kSilence;
  std::atomic<bool> crowded_{false};
  // Since the last watch_ns().
  bool found_crowded_ = false;
  bool some_pause_ = false;  ///< of those expected
};

}  // namespace orbite::transfer
