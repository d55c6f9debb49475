// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orbite/error.hpp"

namespace orbite::tool::bench {

inline constexpr std::uint64_t kBlocksMax = std::uint64_t{1} << 22;
inline constexpr std::uint64_t kBlockBytesMax = std::uint64_t{1} << 34;
inline constexpr std::uint64_t kGuardBytes = 128;

/// Where the blocks of one request lie, the same at both ends. All that is no block is guard: gaps
/// of `gap` bytes before the first block and after each that has no neighbour, and `run_gap` more
/// after each run.
struct Layout {
  std::uint32_t runs = 1;
  std::uint32_t blocks = 1;  ///< in each run
  std::uint64_t size = 64 << 10;
  std::uint64_t gap = kGuardBytes;
  std::uint64_t run_gap = 0;
  std::uint32_t adjacent_percent = 0;  ///< of the blocks of a run, that follow one directly

  [[nodiscard]] std::uint64_t blocks_total() const { return std::uint64_t{runs} * blocks; }
  [[nodiscard]] std::uint64_t payload() const { return blocks_total() * size; }
  /// Bytes from the first guard to the last, in whole pages.
  [[nodiscard]] std::uint64_t extent() const;
  friend bool operator==(const Layout&, const Layout&) = default;
};

/// kInvalidArgument names what is out of range. The extent of a layout that passed does not
/// overflow.
Result<void> check_layout(const Layout& layout);

/// The offset of each block of a checked layout, ascending.
std::vector<std::uint64_t> block_offsets(const Layout& layout);

struct Shape {
  std::string_view name;
  Layout layout;
  std::string_view meaning;
};
const std::vector<Shape>& shapes();
/// kInvalidArgument names the shapes there are.
Result<Layout> find_shape(std::string_view name);

/// "64 KiB", "1000 B".
std::string size_text(std::uint64_t bytes);
/// "1024 x 64 KiB", with what else there is to say.
std::string layout_text(const Layout& layout);

}  // namespace orbite::tool::bench
