// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "orbite/telemetry.hpp"
#include "telemetry/counters.hpp"

namespace orbite::telemetry {

/// The bucket of a latency: that of the lowest bound which is not below it.
[[nodiscard]] constexpr std::size_t latency_bucket(std::uint64_t latency_ns) noexcept {
  // In halves of a microsecond, counted from 0, where an upper bound still belongs to its bucket.
  const std::uint64_t halves = latency_ns == 0 ? 0 : (latency_ns - 1) / 500;
  if (halves < 2) {
    return 0;
  }
  // The octave, and which half of it.
  const auto width = static_cast<std::size_t>(std::bit_width(halves));
  const std::size_t upper = (halves >> (width - 2)) & 1;
  const std::size_t bucket = 2 * (width - 2) + 1 + upper;
  return bucket < kLatencyBounds ? bucket : kLatencyBounds;
}

/// Recorded by one thread at a time, read by any.
class LatencyHistogram {
 public:
  void record(std::uint64_t latency_ns) noexcept {
    buckets_[latency_bucket(latency_ns)].add_alone();
    sum_ns_.add_alone(latency_ns);
  }
  [[nodiscard]] std::uint64_t count_in(std::size_t bucket) const noexcept {
    return buckets_[bucket].value();
  }
  [[nodiscard]] std::uint64_t sum_ns() const noexcept { return sum_ns_.value(); }

 private:
  std::array<Counter, kLatencyBounds + 1> buckets_;
  Counter sum_ns_;
};

#define ORBITE_ERROR_CODE(number, name, text) +1
inline constexpr std::size_t kErrorCodes = 0
#include "orbite/error_codes.def"
    ;
#undef ORBITE_ERROR_CODE

/// The codes in the order of their list.
inline constexpr std::array<ErrorCode, kErrorCodes> kErrorCodeList = {
#define ORBITE_ERROR_CODE(number, name, text) ErrorCode::name,
#include "orbite/error_codes.def"
#undef ORBITE_ERROR_CODE
};

/// What executions of one route came to. Counted by one thread at a time, read by any. A cache line
/// is never shared by two routes.
class alignas(64) RouteCounters {
 public:
  void count_posted() noexcept { posted_.add_alone(); }
  void count_success(std::uint64_t bytes, std::uint64_t latency_ns) noexcept {
    bytes_.add_alone(bytes);
    latency_.record(latency_ns);
  }
  void count_canceled() noexcept { canceled_.add_alone(); }
  /// A code that is not in the list is not counted.
  void count_failure(ErrorCode code) noexcept;

  /// Fills what is counted here, and nothing else of `route`.
  void read_into(RouteTelemetry& route) const;

 private:
  Counter posted_;
  Counter canceled_;
  Counter bytes_;
  LatencyHistogram latency_;  ///< its values are the successes
  std::array<Counter, kErrorCodes> failures_;
};

}  // namespace orbite::telemetry
