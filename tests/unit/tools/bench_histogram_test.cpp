// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <vector>

#include "tools/orbite/bench/histogram.hpp"

namespace orbite::tool::bench {
namespace {

TEST(BenchHistogram, EmptyOneSaysZero) {
  const Histogram histogram;
  EXPECT_EQ(histogram.count(), 0U);
  EXPECT_EQ(histogram.max(), 0U);
  EXPECT_EQ(histogram.quantile(500), 0U);
}

TEST(BenchHistogram, SmallValuesAreExact) {
  Histogram histogram;
  for (std::uint64_t value = 1; value <= 100; ++value) {
    histogram.add(value);
  }
  EXPECT_EQ(histogram.quantile(0), 1U);
  EXPECT_EQ(histogram.quantile(500), 50U);
  EXPECT_EQ(histogram.quantile(900), 90U);
  EXPECT_EQ(histogram.quantile(990), 99U);
  EXPECT_EQ(histogram.quantile(999), 100U);
  EXPECT_EQ(histogram.quantile(1000), 100U);
}

TEST(BenchHistogram, OneInAThousandShowsAboveTheRankAndNotBelow) {
  Histogram histogram;
  for (int i = 0; i < 1998; ++i) {
    histogram.add(10);
  }
  histogram.add(1'000'000);
  histogram.add(2'000'000);
  EXPECT_EQ(histogram.quantile(999), 10U);
  EXPECT_EQ(histogram.quantile(1000), 2'000'000U);
  EXPECT_EQ(histogram.max(), 2'000'000U);
}

TEST(BenchHistogram, TakesTheLargestNumberThereIs) {
  Histogram histogram;
  histogram.add(UINT64_MAX);
  EXPECT_EQ(histogram.quantile(500), UINT64_MAX);
}

TEST(BenchHistogram, QuantilesAreAtMostASixtyFourthAboveTheTrueOnes) {
  EXPECT_TRUE(rc::check([] {
    const auto bits = *rc::gen::inRange<unsigned>(1, 60);
    auto values = *rc::gen::nonEmpty(
        rc::gen::container<std::vector<std::uint64_t>>(rc::gen::arbitrary<std::uint64_t>()));
    Histogram first;
    Histogram second;
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] >>= bits;
      (i % 2 == 0 ? first : second).add(values[i]);
    }
    first.merge(second);
    std::sort(values.begin(), values.end());
    RC_ASSERT(first.count() == values.size());
    RC_ASSERT(first.max() == values.back());
    for (const std::uint64_t per_mille : {500U, 900U, 990U, 999U}) {
      const std::uint64_t exact = values[(values.size() * per_mille + 999) / 1000 - 1];
      RC_ASSERT(first.quantile(per_mille) >= exact);
      RC_ASSERT(first.quantile(per_mille) <= exact + exact / 64);
    }
  }));
}

TEST(BenchHistogram, MedianIsTheMiddleOrTheMeanOfTwo) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({7}), 7);
  EXPECT_EQ(median({9, 1, 5}), 5);
  EXPECT_EQ(median({4, 1, 2, 9}), 3);
}

}  // namespace
}  // namespace orbite::tool::bench
