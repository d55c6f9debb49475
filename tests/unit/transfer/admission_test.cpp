// SPDX-License-Identifier: Apache-2.0
#include "transfer/admission.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <thread>
#include <utility>
#include <vector>

namespace orbite::transfer {
namespace {

TEST(Budget, GivesUpToItsMaximumAndNamesItself) {
  Budget budget("descriptors", "limits.descriptors_max", 10);
  const Charge first = budget.take(7).value();
  EXPECT_EQ(first.amount(), 7U);
  EXPECT_EQ(budget.used(), 7U);
  const auto refused = budget.take(4);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kBudgetExhausted);
  EXPECT_EQ(refused.error().context(),
            "descriptors: 4 asked, 7 of 10 in use (limits.descriptors_max)");
  EXPECT_EQ(budget.used(), 7U);
  EXPECT_EQ(budget.refused(), 1U);
  EXPECT_TRUE(budget.take(3).has_value());
  EXPECT_EQ(budget.used(), 7U);
}

TEST(Budget, RefusesAmountsThatWouldWrap) {
  Budget budget("bytes", "key", UINT64_MAX - 1);
  const Charge most = budget.take(UINT64_MAX - 2).value();
  EXPECT_FALSE(budget.take(UINT64_MAX).has_value());
  EXPECT_FALSE(budget.take(2).has_value());
  EXPECT_TRUE(budget.take(1).has_value());
  EXPECT_FALSE(Budget("nothing", "key", 0).take(1).has_value());
  EXPECT_TRUE(Budget("nothing", "key", 0).take(0).has_value());
}

TEST(Charge, ComesBackOnceWhoeverHoldsItLast) {
  Budget budget("requests", "key", 10);
  {
    Charge a = budget.take(4).value();
    Charge b = std::move(a);
    EXPECT_EQ(a.amount(), 0U);  // NOLINT(bugprone-use-after-move): what a moved-from charge holds
    EXPECT_EQ(budget.used(), 4U);
    b = budget.take(5).value();
    EXPECT_EQ(budget.used(), 5U);
    Charge& same = b;
    b = std::move(same);
    EXPECT_EQ(budget.used(), 5U);
    b = Charge();
    EXPECT_EQ(budget.used(), 0U);
  }
  EXPECT_EQ(budget.used(), 0U);
}

TEST(Budget, OnePeerDoesNotTakeAllOfIt) {
  Budget budget("bytes_in_flight", "limits.bytes_in_flight_max", 100);
  Share stalled;
  Share other;
  std::vector<Charge> held;
  while (auto charge = budget.take(10, &stalled)) {
    held.push_back(std::move(*charge));
  }
  EXPECT_EQ(stalled.held(), 50U);
  EXPECT_EQ(budget.take(10, &stalled).error().context(),
            "bytes_in_flight: 10 asked, 50 of 100 in use, 50 of them for this peer, which may have "
            "half of what the others leave (limits.bytes_in_flight_max)");
  EXPECT_EQ(stalled.held(), 50U) << "what was refused is not held";
  {
    const Charge all_that_is_free = budget.take(50, &other).value();
    EXPECT_EQ(other.held(), 50U);
    EXPECT_FALSE(budget.take(1, &stalled).has_value());
  }
  EXPECT_EQ(other.held(), 0U);
  held.clear();
  EXPECT_EQ(stalled.held(), 0U);
  EXPECT_EQ(budget.used(), 0U);
  // One that is alone and large is not a matter of sharing.
  EXPECT_TRUE(budget.take(100, &stalled).has_value());
  EXPECT_EQ(budget.refused(), 3U);
}

RC_GTEST_PROP(BudgetProperty, UsedIsTheSumOfAllLiveCharges,
              (const std::vector<std::array<std::uint8_t, 3>>& steps)) {
  constexpr std::uint64_t kMax = 300;
  Budget budget("pool", "key", kMax);
  std::vector<std::pair<Charge, std::uint64_t>> charges;
  const auto sum = [&] {
    std::uint64_t total = 0;
    for (const auto& entry : charges) {
      total += entry.second;
    }
    return total;
  };
  for (const auto& [what, amount, which] : steps) {
    const std::size_t index = charges.empty() ? 0 : which % charges.size();
    if (what % 4 < 2 || charges.empty()) {
      auto taken = budget.take(amount);
      RC_ASSERT(taken.has_value() == (sum() + amount <= kMax));
      if (taken) {
        charges.emplace_back(std::move(*taken), amount);
      }
    } else if (what % 4 == 2) {
      charges.erase(charges.begin() + static_cast<std::ptrdiff_t>(index));
    } else {
      // One charge takes another's place, which comes back.
      const std::size_t other = (index + 1) % charges.size();
      if (other != index) {
        charges[index].first = std::move(charges[other].first);
        charges[index].second = std::exchange(charges[other].second, 0);
      }
    }
    RC_ASSERT(budget.used() == sum());
    RC_ASSERT(budget.used() <= budget.max());
  }
  charges.clear();
  RC_ASSERT(budget.used() == 0U);
}

TEST(Budget, NeverOverflowsWithManyThreads) {
  Budget budget("pool", "key", 64);
  std::atomic<bool> broken{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 5000; ++round) {
        const auto taken = budget.take(static_cast<std::uint64_t>(1 + (round + i) % 40));
        if (budget.used() > budget.max()) {
          broken.store(true, std::memory_order_relaxed);
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_FALSE(broken.load(std::memory_order_relaxed));
  EXPECT_EQ(budget.used(), 0U);
}

}  // namespace
}  // namespace orbite::transfer
