// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.hpp"

namespace orbite {

/// How long the worker looks for the next event before it sleeps. A sleep costs the next message a
/// wake-up, several times what the message itself costs; a look costs the core. So it looks only
/// while both hold: events follow one another within the window, and nobody else wants the core.
///
/// Whether events follow one another is learnt from the sleeps: one that ended within the window
/// would have been worth a look instead. Whether the core is wanted is learnt from the looks: one
/// that was interrupted for as long as another thread's turn rests from looking, for longer each
/// time.
class SpinPolicy {
 public:
  static constexpr base::Nanoseconds kWindow = 50 * base::kMicrosecond;
  static constexpr base::Nanoseconds kRestMin = 4 * base::kMillisecond;
  static constexpr base::Nanoseconds kRestMax = base::kSecond;
  /// A look at the poller takes a microsecond or two; a turn of another thread takes milliseconds.
  static constexpr base::Nanoseconds kTurnMin = 500 * base::kMicrosecond;
  /// Looks in vain, one after the other, that end the looking.
  static constexpr std::uint32_t kMissesMax = 3;
  /// Looks with success, undisturbed, after which a disturbance counts as the first again.
  static constexpr std::uint32_t kHitsForgive = 4096;

  /// How long to look now; 0: sleep at once.
  [[nodiscard]] base::Nanoseconds window_ns(base::Nanoseconds now_ns) const noexcept {
    return pays_ && now_ns >= rests_until_ns_ ? kWindow : 0;
  }

  /// After a sleep that an event ended; `idle_ns` counts from before the look that preceded it.
  void slept(base::Nanoseconds idle_ns) noexcept {
    if (idle_ns <= kWindow) {
      pays_ = true;
      misses_ = 0;
    }
  }

  /// After a look. `found`: an event came. `gap_ns`: the longest time between two calls of it.
  void looked(base::Nanoseconds now_ns, bool found, base::Nanoseconds gap_ns) noexcept {
    misses_ = found ? 0 : misses_ + 1;
    pays_ = misses_ < kMissesMax;
    if (gap_ns >= kTurnMin) {
      rest_ns_ = std::clamp(2 * rest_ns_, kRestMin, kRestMax);
      rests_until_ns_ = base::saturating_add(now_ns, rest_ns_);
      hits_ = 0;
    } else if (found && ++hits_ >= kHitsForgive) {
      rest_ns_ = 0;
      hits_ = 0;
    }
  }

 private:
  bool pays_ = false;
  std::uint32_t misses_ = 0;
  std::uint32_t hits_ = 0;
  base::Nanoseconds rest_ns_ = 0;
  base::Nanoseconds rests_until_ns_ = 0;
};

}  // namespace orbite
