// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "bench/layout.hpp"

namespace orbite::tool::bench {

/// Writes the bytes that follow from the key and from each byte's place in the area.
void fill(std::span<std::uint8_t> area, std::uint64_t key);

struct Mismatch {
  std::uint64_t bytes_wrong = 0;   ///< of blocks
  std::uint64_t guards_wrong = 0;  ///< bytes of guards
  std::uint64_t first_wrong = 0;   ///< its offset; of meaning only when something is wrong
  [[nodiscard]] bool any() const { return bytes_wrong != 0 || guards_wrong != 0; }
};

/// Compares `slots` layouts, one after the other: blocks must be what `block_key` filled at their
/// place, all else what `guard_key` did. The area holds them all.
Mismatch compare(std::span<const std::uint8_t> area, const Layout& layout, std::uint64_t slots,
                 std::uint64_t block_key, std::uint64_t guard_key);

}  // namespace orbite::tool::bench
