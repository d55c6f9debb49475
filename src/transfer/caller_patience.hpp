// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <utility>

#include "base/clock.hpp"

namespace orbite::transfer {

/// When the worker takes over what a caller moves himself: soon after he was last seen, but later
/// where more threads want a processor than there are. There he does not sleep, he waits for his
/// turn, and a worker that steps in is one more to wait for. The worker's alone.
class CallerPatience {
 public:
  /// `processors_are_short` may be empty: they never are.
  explicit CallerPatience(std::function<bool()> processors_are_short)
      : processors_are_short_(std::move(processors_are_short)) {}

  /// The caller who was last seen then is still expected to go on himself.
  [[nodiscard]] bool expects(base::Nanoseconds seen_ns, base::Nanoseconds now_ns) {
    if (now_ns < seen_ns + kSilence) {
      return true;
    }
    return now_ns < seen_ns + kSilenceMax && is_crowded(now_ns);
  }

  /// Until the next look, while somebody is expected. Each look takes a processor from those who
  /// work, so they become rarer.
  [[nodiscard]] base::Nanoseconds watch_ns() {
    const base::Nanoseconds next_ns = std::min(2 * watch_ns_, kWatchMax);
    return crowded_ ? kSilenceMax : std::exchange(watch_ns_, next_ns);
  }
  /// Nobody is expected.
  void rest() {
    watch_ns_ = kSilence;
    crowded_ = false;
  }

  static constexpr base::Nanoseconds kSilence = 200 * base::kMicrosecond;
  /// Somewhat more than another thread's turn at the processor takes.
  static constexpr base::Nanoseconds kSilenceMax = 6 * base::kMillisecond;
  static constexpr base::Nanoseconds kWatchMax = base::kMillisecond;

 private:
  // It costs five microseconds.
  static constexpr base::Nanoseconds kLookPeriod = base::kMillisecond;

  bool is_crowded(base::Nanoseconds now_ns) {
    if (processors_are_short_ && now_ns >= next_look_ns_) {
      next_look_ns_ = now_ns + kLookPeriod;
      crowded_ = processors_are_short_();
    }
    return crowded_;
  }

  const std::function<bool()> processors_are_short_;
  base::Nanoseconds next_look_ns_ = 0;
  base::Nanoseconds watch_ns_ = kSilence;
  bool crowded_ = false;
};

}  // namespace orbite::transfer
