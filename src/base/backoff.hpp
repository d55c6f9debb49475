// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "base/clock.hpp"

namespace orbite::base {

/// Pauses between attempts that fail: the first is `first_ns`, each further one twice the one
/// before, up to `max_ns`.
class Backoff {
 public:
  constexpr Backoff(Nanoseconds first_ns, Nanoseconds max_ns) noexcept
      : first_ns_(first_ns), max_ns_(max_ns), next_ns_(first_ns) {}

  /// The pause before the next attempt.
  Nanoseconds next() noexcept {
    const Nanoseconds pause_ns = next_ns_;
    next_ns_ = pause_ns > max_ns_ / 2 ? max_ns_ : pause_ns * 2;
    return std::min(pause_ns, max_ns_);
  }
  /// The next attempt that fails is again the first.
  void reset() noexcept { next_ns_ = first_ns_; }

 private:
  Nanoseconds first_ns_;
  Nanoseconds max_ns_;
  Nanoseconds next_ns_;
};

}  // namespace orbite::base
