// SPDX-License-Identifier: Apache-2.0
#include "base/backoff.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace orbite::base {
namespace {

std::vector<Nanoseconds> pauses(Backoff& backoff, int count) {
  std::vector<Nanoseconds> found;
  for (int i = 0; i < count; ++i) {
    found.push_back(backoff.next());
  }
  return found;
}

TEST(Backoff, DoublesUpToTheMaximumAndStaysThere) {
  Backoff backoff(2, 10);
  EXPECT_EQ(pauses(backoff, 5), (std::vector<Nanoseconds>{2, 4, 8, 10, 10}));
}

TEST(Backoff, BeginsAnewAfterAReset) {
  Backoff backoff(3, 100);
  pauses(backoff, 4);
  backoff.reset();
  EXPECT_EQ(pauses(backoff, 2), (std::vector<Nanoseconds>{3, 6}));
}

TEST(Backoff, NeverPassesTheMaximumNorWrapsAround) {
  Backoff above(20, 10);
  EXPECT_EQ(pauses(above, 2), (std::vector<Nanoseconds>{10, 10}));
  constexpr Nanoseconds kMax = std::numeric_limits<Nanoseconds>::max();
  Backoff huge(kMax / 2 + 1, kMax);
  EXPECT_EQ(pauses(huge, 3), (std::vector<Nanoseconds>{kMax / 2 + 1, kMax, kMax}));
}

}  // namespace
}  // namespace orbite::base
