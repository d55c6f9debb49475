// SPDX-License-Identifier: Apache-2.0
#include "transfer/extents.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "unit/transfer/drawn_extents.hpp"

namespace orbite::transfer {
namespace {

using testing::draw_tasks;
using testing::merge_neighbours;

ExtentList list_of(const std::vector<Extent>& tasks) {
  ExtentListWriter writer;
  for (const Extent& task : tasks) {
    writer.add(task);
  }
  return writer.finish();
}

std::vector<Extent> read(ExtentCursor cursor) {
  std::vector<Extent> extents;
  while (!cursor.at_end()) {
    extents.push_back(cursor.take());
  }
  return extents;
}

/// What is left of a list when so many of its bytes are taken off its front.
std::vector<Extent> without_front(const std::vector<Extent>& extents, std::uint64_t bytes) {
  std::vector<Extent> rest;
  for (Extent extent : extents) {
    const std::uint64_t off = std::min(bytes, extent.length);
    bytes -= off;
    extent.local_address += off;
    extent.remote_address += off;
    extent.length -= off;
    if (extent.length > 0) {
      rest.push_back(extent);
    }
  }
  return rest;
}

std::vector<Extent> front(const std::vector<Extent>& extents, std::uint64_t bytes) {
  std::vector<Extent> kept;
  for (Extent extent : extents) {
    extent.length = std::min(bytes, extent.length);
    bytes -= extent.length;
    if (extent.length > 0) {
      kept.push_back(extent);
    }
  }
  return kept;
}

constexpr std::uint64_t kBlocks = 100'000;

/// `page` of each block: no run for 7919, a prime of no meaning.
std::uint64_t page(std::uint64_t block) { return block * block % 7919 * 65'536; }

TEST(ExtentList, OfBlocksOfOneStrideIsOneRun) {
  std::vector<Extent> blocks;
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    blocks.push_back({0x10000 + i * 8192, 0x9000000000 - i * 65'536, 4096, 0, 0});
  }
  const ExtentList list = list_of(blocks);
  EXPECT_EQ(list.size(), kBlocks);
  EXPECT_EQ(list.bytes(), kBlocks * 4096);
  EXPECT_EQ(list.memory_bytes(), 4 * 3 * 8U);
  EXPECT_EQ(read(ExtentCursor(list)), blocks);
}

TEST(ExtentList, OfPagesOnOneSideIsAWordForEach) {
  std::vector<Extent> blocks;
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    blocks.push_back({0x10000 + i * 4096, 0x9000000000 + page(i), 4096, 0, 0});
  }
  const ExtentList list = list_of(blocks);
  EXPECT_LE(list.memory_bytes(), 8 * (kBlocks + 1 + 3 * 3));
  EXPECT_EQ(read(ExtentCursor(list)), blocks);
}

TEST(ExtentList, OfWhatFitsNoRunIsFourWordsForEach) {
  std::vector<Extent> blocks;
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    const auto owner = static_cast<std::uint32_t>(i * i % 13);
    blocks.push_back({0x10000 + page(i), 0x9000000000 + page(i + 1), 1 + i * i % 11, owner, owner});
  }
  const ExtentList list = list_of(blocks);
  EXPECT_LE(list.memory_bytes(), 8 * 4 * (kBlocks + 1));
  EXPECT_EQ(read(ExtentCursor(list)), blocks);
}

TEST(ExtentList, OfLayersIsARunForEach) {
  constexpr std::uint64_t kLayers = 120;
  std::vector<Extent> blocks;
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    for (std::uint64_t i = 0; i < 200; ++i) {
      const std::uint64_t base = std::uint64_t{layer} << 32;
      blocks.push_back({base + i * 32'768, base + 4096 + i * 65'536, 16'384, layer, layer});
    }
  }
  const ExtentList list = list_of(blocks);
  EXPECT_LE(list.memory_bytes(), kLayers * 3 * 3 * 8 + 24);
  EXPECT_EQ(read(ExtentCursor(list)), blocks);
}

TEST(ExtentList, OfNothingHasNothing) {
  const ExtentList list = list_of({});
  EXPECT_EQ(list.size(), 0U);
  EXPECT_EQ(list.memory_bytes(), 0U);
  EXPECT_TRUE(ExtentCursor(list).at_end());
  EXPECT_TRUE(ExtentCursor().at_end());
}

TEST(ExtentCursorDeath, NothingIsTakenAtTheEnd) {
  const ExtentList list = list_of({{0x1000, 0x2000, 16, 0, 0}});
  ExtentCursor cursor(list);
  EXPECT_DEATH(cursor.end_after(17), "bytes_left_");
  EXPECT_DEATH(cursor.take(0), "length > 0");
  EXPECT_EQ(cursor.take().length, 16U);
  EXPECT_DEATH(cursor.take(), "length > 0");
}

RC_GTEST_PROP(ExtentListProperty, GivesTheTasksWithNeighboursMerged, ()) {
  const std::vector<Extent> tasks = draw_tasks();
  const std::vector<Extent> wanted = merge_neighbours(tasks);
  const ExtentList list = list_of(tasks);
  RC_ASSERT(list.size() == wanted.size());
  RC_ASSERT(list.bytes() == std::accumulate(wanted.begin(), wanted.end(), std::uint64_t{0},
                                            [](std::uint64_t sum, const Extent& extent) {
                                              return sum + extent.length;
                                            }));
  RC_ASSERT(list.memory_bytes() <= 8 * 4 * (wanted.size() + 1));
  RC_ASSERT(read(ExtentCursor(list)) == wanted);
}

RC_GTEST_PROP(ExtentCursorProperty, PassesEachByteOnceInOrder, ()) {
  const std::vector<Extent> wanted = testing::draw_extents();
  const ExtentList list = list_of(wanted);
  ExtentCursor cursor(list);
  std::uint64_t passed = 0;
  while (!cursor.at_end()) {
    const std::vector<Extent> rest = without_front(wanted, passed);
    RC_ASSERT(cursor.bytes_left() == list.bytes() - passed);
    RC_ASSERT(cursor.remote_index() == rest.front().remote_index);
    // A copy goes its own way, as far as it is told.
    ExtentCursor copy = cursor;
    const auto ahead =
        *rc::gen::inRange<std::uint64_t>(0, std::min<std::uint64_t>(list.bytes() - passed, 20'000));
    copy.end_after(ahead);
    RC_ASSERT(read(copy) == front(rest, ahead));
    const auto bytes_max = *rc::gen::inRange<std::uint64_t>(1, 40'000);
    const Extent taken = cursor.take(bytes_max);
    Extent first = rest.front();
    first.length = std::min(first.length, bytes_max);
    RC_ASSERT(taken == first);
    passed += taken.length;
  }
  RC_ASSERT(passed == list.bytes());
}

}  // namespace
}  // namespace orbite::transfer
