// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tools/orbite/bench/content.hpp"

namespace orbite::tool::bench {
namespace {

constexpr std::uint64_t kBlocks = 7;
constexpr std::uint64_t kGuards = 9;
constexpr std::uint64_t kSlots = 2;

/// No offset and no length is a multiple of a word.
Layout odd_layout() {
  Layout layout;
  layout.runs = 2;
  layout.blocks = 5;
  layout.size = 1'003;
  layout.gap = 77;
  layout.run_gap = 13;
  layout.adjacent_percent = 50;
  return layout;
}

/// What a destination holds after every block was written to it.
std::vector<std::uint8_t> good_area(const Layout& layout) {
  std::vector<std::uint8_t> source(kSlots * layout.extent());
  std::vector<std::uint8_t> area(source.size());
  fill(source, kBlocks);
  fill(area, kGuards);
  for (std::uint64_t slot = 0; slot < kSlots; ++slot) {
    for (const std::uint64_t offset : block_offsets(layout)) {
      const std::uint64_t at = slot * layout.extent() + offset;
      std::memcpy(area.data() + at, source.data() + at, layout.size);
    }
  }
  return area;
}

TEST(BenchContent, WhatIsRightShowsNoMismatch) {
  const Layout layout = odd_layout();
  EXPECT_FALSE(compare(good_area(layout), layout, kSlots, kBlocks, kGuards).any());
}

TEST(BenchContent, EveryWrongByteIsFoundWhereverItIs) {
  const Layout layout = odd_layout();
  std::vector<std::uint8_t> area = good_area(layout);
  const std::vector<std::uint64_t> offsets = block_offsets(layout);
  for (std::uint64_t at = 0; at < area.size(); ++at) {
    bool in_block = false;
    for (const std::uint64_t offset : offsets) {
      const std::uint64_t place = at % layout.extent();
      in_block |= place >= offset && place < offset + layout.size;
    }
    area[at] ^= 0x10;
    const Mismatch found = compare(area, layout, kSlots, kBlocks, kGuards);
    area[at] ^= 0x10;
    ASSERT_EQ(found.bytes_wrong, in_block ? 1U : 0U) << at;
    ASSERT_EQ(found.guards_wrong, in_block ? 0U : 1U) << at;
    ASSERT_EQ(found.first_wrong, at);
  }
}

TEST(BenchContent, BlocksThatWereNotWrittenAreWrong) {
  const Layout layout = odd_layout();
  std::vector<std::uint8_t> area(kSlots * layout.extent());
  fill(area, kGuards);
  const Mismatch found = compare(area, layout, kSlots, kBlocks, kGuards);
  EXPECT_GT(found.bytes_wrong, kSlots * layout.payload() * 9 / 10);
  EXPECT_EQ(found.guards_wrong, 0U);
  EXPECT_EQ(found.first_wrong, layout.gap);
}

TEST(BenchContent, BlocksInEachOthersPlacesAreWrong) {
  const Layout layout = odd_layout();
  std::vector<std::uint8_t> area = good_area(layout);
  const std::vector<std::uint64_t> offsets = block_offsets(layout);
  std::swap_ranges(area.begin() + static_cast<std::ptrdiff_t>(offsets[0]),
                   area.begin() + static_cast<std::ptrdiff_t>(offsets[0] + layout.size),
                   area.begin() + static_cast<std::ptrdiff_t>(offsets[4]));
  EXPECT_GT(compare(area, layout, kSlots, kBlocks, kGuards).bytes_wrong, layout.size);
}

}  // namespace
}  // namespace orbite::tool::bench
