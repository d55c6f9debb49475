// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace orbite::base {

/// Nanoseconds of a monotonic clock with an arbitrary start. 0 as a deadline means none.
using Nanoseconds = std::uint64_t;

inline constexpr Nanoseconds kMicrosecond = 1'000;
inline constexpr Nanoseconds kMillisecond = 1'000'000;
inline constexpr Nanoseconds kSecond = 1'000'000'000;

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

}  // namespace orbite::base
