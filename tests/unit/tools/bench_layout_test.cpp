// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <vector>

#include "tools/orbite/bench/layout.hpp"

namespace orbite::tool::bench {
namespace {

std::uint64_t adjacent_blocks(const Layout& layout) {
  const std::vector<std::uint64_t> offsets = block_offsets(layout);
  std::uint64_t adjacent = 0;
  for (std::size_t i = 1; i < offsets.size(); ++i) {
    adjacent += offsets[i] == offsets[i - 1] + layout.size ? 1 : 0;
  }
  return adjacent;
}

TEST(BenchLayout, EveryShapeIsAllowedAndFoundByItsName) {
  ASSERT_EQ(shapes().size(), 7U);
  for (const Shape& shape : shapes()) {
    EXPECT_TRUE(check_layout(shape.layout)) << shape.name;
    const Result<Layout> found = find_shape(shape.name);
    ASSERT_TRUE(found) << shape.name;
    EXPECT_EQ(*found, shape.layout);
  }
  const Result<Layout> none = find_shape("5K");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().context(),
            "--shape: '5K' is none of 4K, 64K, 64M, 1024x64K, 4096x4K, 100000x4K, kv");
}

TEST(BenchLayout, ShapesHoldWhatTheirNamesSay) {
  EXPECT_EQ(find_shape("64M")->payload(), 64U << 20);
  EXPECT_EQ(find_shape("100000x4K")->blocks_total(), 100'000U);
  EXPECT_EQ(find_shape("kv")->payload(), 60U * 2 * 16 * (32U << 10));
}

TEST(BenchLayout, BlocksOfACacheLieAtOneStrideWithinEachRun) {
  const Layout layout = *find_shape("kv");
  const std::vector<std::uint64_t> offsets = block_offsets(layout);
  for (std::size_t i = 1; i < offsets.size(); ++i) {
    if (i % layout.blocks != 0) {
      EXPECT_EQ(offsets[i] - offsets[i - 1], 2 * layout.size);
    } else {
      EXPECT_GT(offsets[i] - offsets[i - 1], 2 * layout.size);
    }
  }
}

TEST(BenchLayout, AsManyBlocksAreAdjacentAsIsAsked) {
  Layout layout;
  layout.blocks = 1'001;
  for (const std::uint32_t percent : {0U, 1U, 50U, 90U, 99U, 100U}) {
    layout.adjacent_percent = percent;
    EXPECT_EQ(adjacent_blocks(layout), 10U * percent) << percent;
  }
}

TEST(BenchLayout, BlocksNeitherOverlapNorReachTheEndOfTheExtent) {
  EXPECT_TRUE(rc::check([] {
    Layout layout;
    layout.runs = *rc::gen::inRange<std::uint32_t>(1, 6);
    layout.blocks = *rc::gen::inRange<std::uint32_t>(1, 60);
    layout.size = *rc::gen::inRange<std::uint64_t>(1, 10'000);
    layout.gap = *rc::gen::inRange<std::uint64_t>(1, 300);
    layout.run_gap = *rc::gen::inRange<std::uint64_t>(0, 300);
    layout.adjacent_percent = *rc::gen::inRange<std::uint32_t>(0, 101);
    RC_ASSERT(check_layout(layout).has_value());
    std::uint64_t end = 0;
    const std::vector<std::uint64_t> offsets = block_offsets(layout);
    RC_ASSERT(offsets.size() == layout.blocks_total());
    RC_ASSERT(offsets.front() == layout.gap);
    for (const std::uint64_t offset : offsets) {
      RC_ASSERT(offset >= end);
      end = offset + layout.size;
    }
    RC_ASSERT(end + layout.gap <= layout.extent());
    RC_ASSERT(layout.extent() - end - layout.gap - layout.run_gap < 4096U);
  }));
}

TEST(BenchLayout, WhatIsOutOfRangeIsNamed) {
  const auto refused = [](auto change) {
    Layout layout;
    change(layout);
    const Result<void> checked = check_layout(layout);
    return checked ? std::string("accepted") : std::string(checked.error().context());
  };
  EXPECT_EQ(refused([](Layout&) {}), "accepted");
  EXPECT_EQ(refused([](Layout& layout) { layout.size = 0; }),
            "bytes of a block is 0, allowed 1..17179869184");
  EXPECT_EQ(refused([](Layout& layout) { layout.blocks = 0; }),
            "blocks of a run is 0, allowed 1..4194304");
  EXPECT_EQ(refused([](Layout& layout) {
              layout.runs = 1'024;
              layout.blocks = 4'097;
            }),
            "blocks of a request is 4195328, allowed 1..4194304");
  EXPECT_EQ(refused([](Layout& layout) { layout.adjacent_percent = 101; }),
            "percent of adjacent blocks is 101, allowed 0..100");
  EXPECT_EQ(refused([](Layout& layout) { layout.gap = 0; }),
            "bytes between blocks is 0, allowed 1..17179869184");
  EXPECT_EQ(refused([](Layout& layout) { layout.run_gap = UINT64_MAX; }),
            "bytes between runs is 18446744073709551615, allowed 0..17179869184");
}

TEST(BenchLayout, TheLargestExtentDoesNotOverflow) {
  Layout layout;
  layout.runs = 1U << 11;
  layout.blocks = 1U << 11;
  layout.size = kBlockBytesMax;
  layout.gap = kBlockBytesMax;
  layout.run_gap = kBlockBytesMax;
  ASSERT_TRUE(check_layout(layout));
  EXPECT_GT(layout.extent(), layout.payload());
}

TEST(BenchLayout, TextNamesSizesInTheirLargestUnit) {
  EXPECT_EQ(size_text(4096), "4 KiB");
  EXPECT_EQ(size_text(1000), "1000 B");
  EXPECT_EQ(size_text(std::uint64_t{2} << 40), "2048 GiB");
  EXPECT_EQ(layout_text(*find_shape("kv")), "120 x 16 x 32 KiB");
}

}  // namespace
}  // namespace orbite::tool::bench
