// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace orbite::telemetry {

/// A count that only grows. Relaxed: it orders nothing and each is read on its own.
class Counter {
 public:
  void add(std::uint64_t amount = 1) noexcept {
    value_.fetch_add(amount, std::memory_order_relaxed);
  }
  /// By one thread at a time, as under a mutex: no locked bus cycle.
  void add_alone(std::uint64_t amount = 1) noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t value() const noexcept {
    return value_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> value_{0};
};

/// Those of orbite/telemetry.def.
struct Counters {
#define ORBITE_COUNTER(name, meaning) Counter name;
#define ORBITE_GAUGE(name, meaning)
#include "orbite/telemetry.def"
#undef ORBITE_COUNTER
#undef ORBITE_GAUGE
};

}  // namespace orbite::telemetry
