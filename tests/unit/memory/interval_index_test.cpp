// SPDX-License-Identifier: Apache-2.0
#include "memory/interval_index.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <vector>

#include "base/random.hpp"

namespace orbite::memory {
namespace {

using base::ByteRange;

ByteRange range(std::uint64_t address, std::uint64_t length) {
  return *ByteRange::make(address, length);
}

std::vector<Handle> covering(const IntervalIndex& index, const ByteRange& wanted) {
  std::vector<Handle> found;
  index.for_each_covering(wanted, [&](Handle handle) { found.push_back(handle); });
  return found;
}

/// The same by looking at everything.
struct Model {
  struct Entry {
    ByteRange range;
    Handle handle;
  };
  [[nodiscard]] std::vector<Handle> covering(const ByteRange& wanted) const {
    std::vector<Entry> found;
    for (const Entry& entry : entries) {
      if (entry.range.covers(wanted)) {
        found.push_back(entry);
      }
    }
    std::sort(found.begin(), found.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.range.address(), a.handle.packed()) <
             std::pair(b.range.address(), b.handle.packed());
    });
    std::vector<Handle> handles;
    handles.reserve(found.size());
    for (const Entry& entry : found) {
      handles.push_back(entry.handle);
    }
    return handles;
  }
  std::vector<Entry> entries;
};

struct Step {
  std::uint8_t what;
  std::uint8_t address;
  std::uint8_t length;
};

// A small world, so that overlaps, equal ranges and shared ends are the rule.
ByteRange small_range(const Step& step) {
  return range(1 + step.address % 40, 1 + step.length % 20);
}

RC_GTEST_PROP(IntervalIndexProperty, EqualsTheModel,
              (const std::vector<std::array<std::uint8_t, 3>>& steps)) {
  IntervalIndex index;
  Model model;
  std::uint32_t next = 0;
  for (const auto& [what, address, length] : steps) {
    const Step step{what, address, length};
    if (step.what % 4 == 0 && !model.entries.empty()) {
      const auto at =
          model.entries.begin() + static_cast<std::ptrdiff_t>(step.address % model.entries.size());
      index.erase(at->range, at->handle);
      model.entries.erase(at);
    } else if (step.what % 4 != 3) {
      // Handles in no order that goes with the addresses.
      const Handle handle{(next * 7919) % 1009, 1 + next / 1009};
      ++next;
      index.insert(small_range(step), handle);
      model.entries.push_back({small_range(step), handle});
    }
    RC_ASSERT(index.size() == model.entries.size());
    RC_ASSERT(index.is_consistent());
    RC_ASSERT(covering(index, small_range(step)) == model.covering(small_range(step)));
  }
  for (std::uint8_t address = 0; address < 62; ++address) {
    for (const std::uint64_t length : {1, 2, 7, 19, 60}) {
      const ByteRange wanted = range(1 + address, length);
      RC_ASSERT(covering(index, wanted) == model.covering(wanted));
    }
  }
}

TEST(IntervalIndex, KnowsOnlyWholeCover) {
  IntervalIndex index;
  index.insert(range(100, 10), {0, 1});
  index.insert(range(110, 10), {1, 1});
  EXPECT_EQ(covering(index, range(100, 10)), (std::vector<Handle>{{0, 1}}));
  EXPECT_EQ(covering(index, range(119, 1)), (std::vector<Handle>{{1, 1}}));
  // Across the border of two neighbours there is none.
  EXPECT_TRUE(covering(index, range(109, 2)).empty());
  EXPECT_TRUE(covering(index, range(99, 1)).empty());
  EXPECT_TRUE(covering(index, range(120, 1)).empty());
}

TEST(IntervalIndex, FindsALongRangeBehindManyShortOnes) {
  IntervalIndex index;
  index.insert(range(1, 1'000'000), {0, 1});
  for (std::uint32_t i = 0; i < 1000; ++i) {
    index.insert(range(10 + i * 100, 50), {i + 1, 1});
  }
  EXPECT_EQ(covering(index, range(99'000, 90)), (std::vector<Handle>{{0, 1}}));
}

TEST(IntervalIndex, WorksAtTheEndsOfTheAddressSpace) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  IntervalIndex index;
  index.insert(range(1, kMax - 1), {0, 1});
  index.insert(range(kMax - 1, 1), {1, 1});
  EXPECT_EQ(covering(index, range(kMax - 1, 1)), (std::vector<Handle>{{0, 1}, {1, 1}}));
  EXPECT_EQ(covering(index, range(1, 1)), (std::vector<Handle>{{0, 1}}));
  EXPECT_EQ(covering(index, range(1, kMax - 1)), (std::vector<Handle>{{0, 1}}));
}

TEST(IntervalIndex, StaysFlatForEveryOrderOfInsertion) {
  constexpr std::uint32_t kCount = 20'000;
  std::vector<std::uint32_t> order(kCount);
  std::iota(order.begin(), order.end(), 0U);
  const auto height_of = [&](auto&& address) {
    IntervalIndex index;
    for (const std::uint32_t i : order) {
      index.insert(range(address(i), 4096), {i, 1});
    }
    return index.height();
  };
  // A treap is about 2.5 times as high as the best tree; four times has never been seen.
  const std::size_t height_max = std::size_t{4} * std::bit_width(kCount);
  const auto apart = [](std::uint32_t i) { return 4096ULL * (i + 1); };
  EXPECT_LE(height_of(apart), height_max);
  EXPECT_LE(height_of([](std::uint32_t) { return 4096ULL; }), height_max);
  std::reverse(order.begin(), order.end());
  EXPECT_LE(height_of(apart), height_max);
  base::SeededRandom random(11);
  for (std::size_t i = order.size() - 1; i > 0; --i) {
    std::swap(order[i], order[random.next_u64() % (i + 1)]);
  }
  EXPECT_LE(height_of(apart), height_max);
}

TEST(IntervalIndex, StaysFlatThroughLongUse) {
  IntervalIndex index;
  constexpr std::uint32_t kCount = 2000;
  for (std::uint32_t i = 0; i < 20 * kCount; ++i) {
    if (i >= kCount) {
      index.erase(range(1 + (i - kCount), 64), {i - kCount, 1});
    }
    index.insert(range(1 + i, 64), {i, 1});
  }
  EXPECT_EQ(index.size(), kCount);
  EXPECT_TRUE(index.is_consistent());
  EXPECT_LE(index.height(), std::size_t{4} * std::bit_width(kCount));
}

TEST(IntervalIndexDeathTest, ErasingWhatIsNotThereIsABug) {
  IntervalIndex index;
  index.insert(range(1, 1), {0, 1});
  EXPECT_DEATH(index.erase(range(1, 1), {0, 2}), "check failed");
  EXPECT_DEATH(index.insert(range(1, 1), {0, 1}), "check failed");
}

}  // namespace
}  // namespace orbite::memory
