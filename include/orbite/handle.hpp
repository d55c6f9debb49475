// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace orbite {

/// Slot and generation. Generation 0 is never given out, so a zero handle is always invalid.
struct Handle {
  std::uint32_t index = 0;
  std::uint32_t generation = 0;

  [[nodiscard]] std::uint64_t packed() const noexcept {
    return (static_cast<std::uint64_t>(generation) << 32) | index;
  }
  static Handle unpack(std::uint64_t packed) noexcept {
    return {static_cast<std::uint32_t>(packed), static_cast<std::uint32_t>(packed >> 32)};
  }
  friend bool operator==(const Handle&, const Handle&) = default;
};

}  // namespace orbite
