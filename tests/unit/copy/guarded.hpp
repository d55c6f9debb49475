// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace orbite::copy::testing {

/// Bytes that tell where they are from, so that one which was moved to a wrong place is seen.
inline std::byte pattern(std::size_t position, std::uint32_t seed) {
  auto mixed = static_cast<std::uint32_t>(position) * 0x9E3779B1U + seed * 0x85EBCA77U;
  mixed ^= mixed >> 15;
  return static_cast<std::byte>(mixed >> 7);
}

/// Memory that starts on a line of the cache.
class Lines {
 public:
  explicit Lines(std::size_t bytes, std::uint32_t seed)
      : bytes_(bytes + kLine), data_(bytes_.data()) {
    const auto misaligned = reinterpret_cast<std::uintptr_t>(data_) % kLine;
    data_ += misaligned == 0 ? 0 : kLine - misaligned;
    for (std::size_t i = 0; i < bytes; ++i) {
      data_[i] = pattern(i, seed);
    }
  }
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  static constexpr std::size_t kLine = 64;

  std::vector<std::byte> bytes_;
  std::byte* data_;
};

}  // namespace orbite::copy::testing
