// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "orbite/error.hpp"
#include "orbite/transfer.hpp"

namespace orbite {

/// The upper bounds of the latency buckets, included: 1, 1.5, 2, 3, 4, 6, 8 us and so on to 50 s.
/// What took longer is in one bucket more.
inline constexpr std::size_t kLatencyBounds = 52;
[[nodiscard]] constexpr std::uint64_t latency_bound_ns(std::size_t index) noexcept {
  if (index == 0) {
    return 1'000;
  }
  return std::uint64_t{index % 2 == 1 ? 1'500U : 2'000U} << ((index - 1) / 2);
}

/// One way that transfers take: transport, operation and class.
struct RouteTelemetry {
  const char* transport = "";  ///< static storage
  Operation operation = Operation::kRead;
  const char* qos = "";  ///< "latency" or "bulk"

  std::uint64_t posted = 0;     ///< executions admitted
  std::uint64_t succeeded = 0;  ///< executions retired in success
  std::uint64_t canceled = 0;   ///< executions retired canceled
  std::uint64_t failed = 0;     ///< executions retired in failure
  std::uint64_t bytes = 0;      ///< of successes

  std::uint64_t active = 0;            ///< posted and not retired
  std::uint64_t unquiesced = 0;        ///< of these, those whose outcome is known
  std::uint64_t unquiesced_bytes = 0;  ///< of their requests

  /// Failures by code, those that occurred.
  std::vector<std::pair<ErrorCode, std::uint64_t>> failures;
  /// Successes by the time from admission to retirement, each in one bucket; the last one is for
  /// what took longer than every bound.
  std::array<std::uint64_t, kLatencyBounds + 1> latency{};
  std::uint64_t latency_sum_ns = 0;
};

struct BudgetTelemetry {
  const char* name = "";  ///< static storage
  const char* key = "";   ///< of the configuration that sets `max`
  std::uint64_t used = 0;
  std::uint64_t max = 0;
  std::uint64_t refused = 0;  ///< requests that it did not admit
};

/// A look at an engine. Each number is read on its own while work goes on: sums may be a step
/// apart.
struct Telemetry {
  struct Counters {
#define ORBITE_COUNTER(name, meaning) std::uint64_t name = 0;
#define ORBITE_GAUGE(name, meaning)
#include "orbite/telemetry.def"
#undef ORBITE_COUNTER
#undef ORBITE_GAUGE
  };
  struct Gauges {
#define ORBITE_COUNTER(name, meaning)
#define ORBITE_GAUGE(name, meaning) std::uint64_t name = 0;
#include "orbite/telemetry.def"
#undef ORBITE_COUNTER
#undef ORBITE_GAUGE
  };

  std::string engine;  ///< its name
  Counters counters;
  Gauges gauges;
  std::vector<RouteTelemetry> routes;  ///< each of them, used or not
  std::vector<BudgetTelemetry> budgets;
};

/// Prometheus text exposition, format version 0.0.4.
[[nodiscard]] std::string telemetry_text(const Telemetry& telemetry);

/// Every metric of telemetry_text() with its type, labels and meaning, as a page of Markdown.
[[nodiscard]] std::string telemetry_markdown();

}  // namespace orbite
