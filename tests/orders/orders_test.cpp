// SPDX-License-Identifier: Apache-2.0
// Every order of what can happen to one execution and to two, over a transport that moves only when
// the test says so. The counts are printed.
#include <gtest/gtest.h>

#include <iostream>

#include "orders/explorer.hpp"
#include "orders/scenarios.hpp"

namespace orbite::test {
namespace {

Exploration expect_kept(const Scenario& scenario, Merging merging) {
  Exploration found = explore(scenario, merging);
  std::cout << "  " << scenario.name << ": " << found.text() << "\n";
  EXPECT_TRUE(found.violations.empty()) << scenario.name << ": " << found.text();
  return found;
}

/// Each order from the start; and that orders which lead to equal worlds go on as one, as they do
/// in all tests below, loses no order and no ending.
TEST(OrdersOfOne, EachPlayedFromTheStartAndMergingLosesNone) {
  for (const Scenario& scenario : plain_scenarios()) {
    const Exploration all = expect_kept(scenario, Merging::kOff);
    EXPECT_EQ(all.orders, all.worlds);
    EXPECT_GT(all.orders, 20'000U);
    const Exploration merged = expect_kept(scenario, Merging::kOn);
    EXPECT_EQ(all.orders, merged.orders) << scenario.name;
    EXPECT_EQ(all.endings, merged.endings) << scenario.name;
    EXPECT_LT(merged.worlds, all.worlds / 4) << scenario.name;
  }
}

TEST(OrdersOfOne, WithEveryEndingAndEveryCall) {
  for (const Scenario& scenario : single_scenarios()) {
    expect_kept(scenario, Merging::kOn);
  }
}

TEST(OrdersOfTwo, OfDifferentRequests) {
  for (const Scenario& scenario : double_scenarios()) {
    expect_kept(scenario, Merging::kOn);
  }
}

TEST(OrdersOfTwo, OfOneRequestPostedTwice) {
  for (const Scenario& scenario : repost_scenarios()) {
    expect_kept(scenario, Merging::kOn);
  }
}

TEST(OrdersOfTheEngine, ForOneExecutionAndForTwo) {
  for (const Scenario& scenario : engine_scenarios()) {
    const Exploration engine = expect_kept(scenario, Merging::kOn);
    // What the tests above stand on: between the rooms lies what the engine does.
    Scenario of_rooms = scenario;
    of_rooms.is_engine = false;
    const Exploration rooms = explore(of_rooms, Merging::kOn);
    EXPECT_EQ(engine.orders, rooms.orders) << scenario.name;
    EXPECT_EQ(engine.states, rooms.states) << scenario.name;
    EXPECT_TRUE(engine.endings == rooms.endings) << scenario.name;
  }
}

}  // namespace
}  // namespace orbite::test
