// SPDX-License-Identifier: Apache-2.0
#include "engine/spin.hpp"

#include <gtest/gtest.h>

namespace orbite {
namespace {

constexpr base::Nanoseconds kNow = base::kSecond;

SpinPolicy one_that_pays() {
  SpinPolicy policy;
  policy.slept(SpinPolicy::kWindow / 2);
  return policy;
}

TEST(SpinPolicy, SleepsAtOnceUntilAShortSleepShowsThatALookWouldHavePaid) {
  SpinPolicy policy;
  EXPECT_EQ(policy.window_ns(kNow), 0);
  policy.slept(SpinPolicy::kWindow + 1);
  EXPECT_EQ(policy.window_ns(kNow), 0);
  policy.slept(SpinPolicy::kWindow);
  EXPECT_EQ(policy.window_ns(kNow), SpinPolicy::kWindow);
}

TEST(SpinPolicy, LooksInVainEndTheLookingAndASuccessForgivesThem) {
  SpinPolicy policy = one_that_pays();
  for (std::uint32_t i = 0; i + 1 < SpinPolicy::kMissesMax; ++i) {
    policy.looked(kNow, false, 0);
  }
  EXPECT_GT(policy.window_ns(kNow), 0);
  policy.looked(kNow, true, 0);
  for (std::uint32_t i = 0; i + 1 < SpinPolicy::kMissesMax; ++i) {
    policy.looked(kNow, false, 0);
  }
  EXPECT_GT(policy.window_ns(kNow), 0);
  policy.looked(kNow, false, 0);
  EXPECT_EQ(policy.window_ns(kNow), 0);
}

TEST(SpinPolicy, AnotherThreadsTurnMeansRestWhetherAnEventCameOrNot) {
  for (const bool found : {false, true}) {
    SpinPolicy policy = one_that_pays();
    policy.looked(kNow, found, SpinPolicy::kTurnMin);
    EXPECT_EQ(policy.window_ns(kNow + SpinPolicy::kRestMin - 1), 0) << found;
    EXPECT_GT(policy.window_ns(kNow + SpinPolicy::kRestMin), 0) << found;
  }
}

TEST(SpinPolicy, ALookShorterThanATurnIsNoDisturbance) {
  SpinPolicy policy = one_that_pays();
  policy.looked(kNow, true, SpinPolicy::kTurnMin - 1);
  EXPECT_GT(policy.window_ns(kNow), 0);
}

TEST(SpinPolicy, RestsDoubleUpToALimit) {
  SpinPolicy policy = one_that_pays();
  base::Nanoseconds now_ns = kNow;
  base::Nanoseconds rest_ns = SpinPolicy::kRestMin;
  for (int i = 0; i < 20; ++i) {
    policy.looked(now_ns, true, SpinPolicy::kTurnMin);
    EXPECT_EQ(policy.window_ns(now_ns + rest_ns - 1), 0) << i;
    EXPECT_GT(policy.window_ns(now_ns + rest_ns), 0) << i;
    now_ns += rest_ns;
    rest_ns = std::min(2 * rest_ns, SpinPolicy::kRestMax);
  }
}

TEST(SpinPolicy, ManyUndisturbedLooksMakeTheNextRestAShortOne) {
  SpinPolicy policy = one_that_pays();
  for (int i = 0; i < 8; ++i) {
    policy.looked(kNow, true, SpinPolicy::kTurnMin);
  }
  for (std::uint32_t i = 0; i < SpinPolicy::kHitsForgive; ++i) {
    policy.looked(kNow, true, 0);
  }
  const base::Nanoseconds later_ns = kNow + SpinPolicy::kRestMax;
  policy.looked(later_ns, true, SpinPolicy::kTurnMin);
  EXPECT_GT(policy.window_ns(later_ns + SpinPolicy::kRestMin), 0);
}

}  // namespace
}  // namespace orbite
