// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace orbite::base {

/// Whether one of the holders of a pool may take more of it. Invariant of the pool: used <= max.
///
/// Who holds nothing may take whatever is free, so that one item of any size passes. Who holds
/// something may take only so much that no less stays free than it holds: by many items nobody gets
/// more than half of what the others leave.
[[nodiscard]] constexpr bool share_allows(std::uint64_t held, std::uint64_t amount,
                                          std::uint64_t used, std::uint64_t max) noexcept {
  const std::uint64_t free = max - used;
  if (amount > free) {
    return false;
  }
  return held == 0 || (amount <= free - amount && held <= free - amount - amount);
}

}  // namespace orbite::base
