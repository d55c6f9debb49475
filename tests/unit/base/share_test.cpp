// SPDX-License-Identifier: Apache-2.0
#include "base/share.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <numeric>
#include <vector>

namespace orbite::base {
namespace {

TEST(Share, WhoHoldsNothingMayTakeAllThatIsFree) {
  EXPECT_TRUE(share_allows(0, 10, 0, 10));
  EXPECT_TRUE(share_allows(0, 3, 7, 10));
  EXPECT_FALSE(share_allows(0, 4, 7, 10));
  EXPECT_FALSE(share_allows(0, UINT64_MAX, 1, UINT64_MAX));
  EXPECT_TRUE(share_allows(0, UINT64_MAX, 0, UINT64_MAX));
}

TEST(Share, WhoHoldsSomethingLeavesAsMuchAsHeHolds) {
  EXPECT_TRUE(share_allows(4, 1, 4, 10));
  EXPECT_FALSE(share_allows(5, 1, 5, 10));
  EXPECT_TRUE(share_allows(1, 1, 6, 10));
  EXPECT_TRUE(share_allows(2, 1, 6, 10));
  EXPECT_FALSE(share_allows(3, 1, 6, 10));
  EXPECT_FALSE(share_allows(UINT64_MAX - 1, 1, UINT64_MAX - 1, UINT64_MAX));
}

RC_GTEST_PROP(ShareProperty, NobodyTakesEverythingInSmallSteps,
              (const std::vector<std::array<std::uint8_t, 2>>& steps)) {
  constexpr std::uint64_t kMax = 1'000;
  std::array<std::uint64_t, 4> held{};
  for (const auto& [who, amount] : steps) {
    const std::uint64_t used = std::accumulate(held.begin(), held.end(), std::uint64_t{0});
    const std::uint64_t step = amount % 8;
    if (share_allows(held[who % 4], step, used, kMax)) {
      held[who % 4] += step;
    }
    RC_ASSERT(std::accumulate(held.begin(), held.end(), std::uint64_t{0}) <= kMax);
    RC_ASSERT(held[who % 4] <= kMax / 2 + 8);
  }
}

}  // namespace
}  // namespace orbite::base
