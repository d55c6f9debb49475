// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace orbite::base {

/// Randomness is given to everything outside src/platform. The engine's own draws from the
/// operating system, because epochs, secrets and registration keys must be unguessable; tests and
/// the simulated world use SeededRandom.
class RandomSource {
 public:
  RandomSource() = default;
  RandomSource(const RandomSource&) = delete;
  RandomSource& operator=(const RandomSource&) = delete;
  virtual ~RandomSource() = default;
  virtual void fill(std::span<std::uint8_t> bytes) noexcept = 0;

  [[nodiscard]] std::uint64_t next_u64() noexcept {
    std::uint64_t value = 0;
    fill({reinterpret_cast<std::uint8_t*>(&value), sizeof(value)});
    return value;
  }
};

/// splitmix64: the same seed gives the same stream. Not for secrets.
class SeededRandom final : public RandomSource {
 public:
  explicit SeededRandom(std::uint64_t seed) : state_(seed) {}
  void fill(std::span<std::uint8_t> bytes) noexcept override {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (i % 8 == 0) {
        word = step();
      }
      bytes[i] = static_cast<std::uint8_t>(word >> (8 * (i % 8)));
    }
  }

 private:
  std::uint64_t step() noexcept {
    state_ += 0x9E3779B97F4A7C15ULL;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  std::uint64_t state_;
};

}  // namespace orbite::base
