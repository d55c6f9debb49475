// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>

namespace orbite::base {

/// Nanoseconds of a monotonic clock with an arbitrary start. 0 as a deadline means none.
using Nanoseconds = std::uint64_t;

inline constexpr Nanoseconds kMicrosecond = 1'000;
inline constexpr Nanoseconds kMillisecond = 1'000'000;
inline constexpr Nanoseconds kSecond = 1'000'000'000;

/// The end of a span that starts now; the largest value, which never comes, when it is past that.
[[nodiscard]] constexpr Nanoseconds saturating_add(Nanoseconds now_ns,
                                                   Nanoseconds span_ns) noexcept {
  const Nanoseconds left = std::numeric_limits<Nanoseconds>::max() - now_ns;
  return now_ns + std::min(span_ns, left);
}

/// A timeout for a wait of the standard library, which adds it to its clock in 64 signed bits: at
/// most 146 years.
[[nodiscard]] constexpr std::chrono::nanoseconds clamp_wait(Nanoseconds timeout_ns) noexcept {
  constexpr Nanoseconds kWaitMax = std::numeric_limits<std::int64_t>::max() / 2;
  return std::chrono::nanoseconds(std::min(timeout_ns, kWaitMax));
}

/// Time is given to everything outside src/platform, so that a simulated world can own it.
class Clock {
 public:
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  virtual ~Clock() = default;
  [[nodiscard]] virtual Nanoseconds now_ns() const noexcept = 0;
};

/// Moves only when told to.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(Nanoseconds start_ns = kSecond) : now_ns_(start_ns) {}
  [[nodiscard]] Nanoseconds now_ns() const noexcept override { return now_ns_; }
  void advance(Nanoseconds step_ns) noexcept { now_ns_ += step_ns; }

 private:
  Nanoseconds now_ns_;
};

/// Measures another's silence: the time in which somebody of ours was there to hear. While our
/// process or its machine stood still, the peer may have stood still with it.
class WatchedClock {
 public:
  explicit WatchedClock(const Clock& clock) noexcept : clock_(clock) {}
  [[nodiscard]] Nanoseconds now_ns() const noexcept {
    return clock_.now_ns() - missed_ns_.load(std::memory_order_relaxed);
  }
  void miss(Nanoseconds span_ns) noexcept {
    missed_ns_.fetch_add(span_ns, std::memory_order_relaxed);
  }

 private:
  const Clock& clock_;
  std::atomic<Nanoseconds> missed_ns_{0};
};

}  // namespace orbite::base
