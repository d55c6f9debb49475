// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/random.hpp"

namespace orbite::sim {

/// splitmix64 with the draws that a simulated world makes. The same seed gives the same stream.
class Random final : public base::RandomSource {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  [[nodiscard]] std::uint64_t next() noexcept {
    state_ += 0x9E3779B97F4A7C15ULL;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  void fill(std::span<std::uint8_t> bytes) noexcept override {
    while (bytes.size() >= 8) {
      const std::uint64_t word = next();
      std::memcpy(bytes.data(), &word, 8);
      bytes = bytes.subspan(8);
    }
    if (!bytes.empty()) {
      const std::uint64_t word = next();
      std::memcpy(bytes.data(), &word, bytes.size());
    }
  }

  /// 0..bound-1; 0 when bound is 0.
  [[nodiscard]] std::uint64_t below(std::uint64_t bound) noexcept {
    return bound == 0 ? 0 : next() % bound;
  }
  [[nodiscard]] std::uint64_t between(std::uint64_t low, std::uint64_t high) noexcept {
    return low + below(high - low + 1);
  }
  [[nodiscard]] bool chance(std::uint32_t thousandths) noexcept {
    return below(1000) < thousandths;
  }
  /// 1..high, each order of magnitude about as likely as another.
  [[nodiscard]] std::uint64_t size(std::uint64_t high) noexcept {
    const auto bits = static_cast<std::uint64_t>(std::bit_width(high));
    return 1 + below(std::uint64_t{1} << below(bits + 1)) % high;
  }

  /// 1..high, within three orders of magnitude of it.
  [[nodiscard]] std::uint64_t span(std::uint64_t high) noexcept {
    return 1 + below(high >> below(10));
  }

 private:
  std::uint64_t state_;
};

}  // namespace orbite::sim
