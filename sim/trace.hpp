// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.hpp"

namespace orbite::sim {

/// What happened in a run: a hash of every event, equal for equal runs, and their text when it is
/// wanted.
class Trace {
 public:
  explicit Trace(bool keeps_log) : keeps_log_(keeps_log) {}

  /// A line of the log; the numbers in it are part of the hash, so none may be an address.
  void note(base::Nanoseconds now_ns, const char* format, ...)
      __attribute__((format(printf, 3, 4)));
  /// An event too frequent for the log.
  void mix(std::uint64_t value) noexcept {
    hash_ = (hash_ ^ value) * 0x9E3779B97F4A7C15ULL;
    hash_ ^= hash_ >> 29;
  }

  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }
  [[nodiscard]] std::vector<std::string>& log() noexcept { return log_; }

 private:
  const bool keeps_log_;
  std::uint64_t hash_ = 0x6F72626974650000ULL;
  std::vector<std::string> log_;
};

}  // namespace orbite::sim
