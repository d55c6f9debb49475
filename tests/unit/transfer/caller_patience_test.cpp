// SPDX-License-Identifier: Apache-2.0
#include "transfer/caller_patience.hpp"

#include <gtest/gtest.h>

namespace orbite::transfer {
namespace {

using base::kMicrosecond;
using base::kMillisecond;
using base::Nanoseconds;

constexpr Nanoseconds kSeen = 10 * kMillisecond;

TEST(CallerPatience, EndsSoonWhereThereAreProcessorsEnough) {
  CallerPatience patience([] { return false; });
  EXPECT_TRUE(patience.expects(kSeen, kSeen));
  EXPECT_TRUE(patience.expects(kSeen, kSeen + CallerPatience::kSilence - 1));
  EXPECT_FALSE(patience.expects(kSeen, kSeen + CallerPatience::kSilence));
  CallerPatience unknown({});
  EXPECT_FALSE(unknown.expects(kSeen, kSeen + CallerPatience::kSilence));
}

TEST(CallerPatience, LastsATurnOfAnotherThreadWhereProcessorsAreShort) {
  CallerPatience patience([] { return true; });
  EXPECT_TRUE(patience.expects(kSeen, kSeen + CallerPatience::kSilence));
  EXPECT_TRUE(patience.expects(kSeen, kSeen + CallerPatience::kSilenceMax - 1));
  EXPECT_FALSE(patience.expects(kSeen, kSeen + CallerPatience::kSilenceMax));
}

TEST(CallerPatience, LooksAtTheProcessorsOnlyForASilentCallerAndNotOften) {
  int looks = 0;
  CallerPatience patience([&] {
    ++looks;
    return true;
  });
  for (Nanoseconds now_ns = kSeen; now_ns < kSeen + CallerPatience::kSilence; now_ns += 1'000) {
    static_cast<void>(patience.expects(kSeen, now_ns));
  }
  EXPECT_EQ(looks, 0);
  for (Nanoseconds now_ns = kSeen; now_ns < kSeen + 2 * CallerPatience::kSilenceMax;
       now_ns += 10'000) {
    static_cast<void>(patience.expects(kSeen, now_ns));
  }
  EXPECT_GE(looks, 5);
  EXPECT_LE(looks, 6);
}

TEST(CallerPatience, WatchesLessOftenWhileTheCallerIsThereAndSeldomWhereProcessorsAreShort) {
  bool crowded = false;
  CallerPatience patience([&] { return crowded; });
  EXPECT_EQ(patience.watch_ns(), CallerPatience::kSilence);
  EXPECT_EQ(patience.watch_ns(), 2 * CallerPatience::kSilence);
  for (int i = 0; i < 10; ++i) {
    EXPECT_LE(patience.watch_ns(), CallerPatience::kWatchMax);
  }
  EXPECT_EQ(patience.watch_ns(), CallerPatience::kWatchMax);
  crowded = true;
  EXPECT_TRUE(patience.expects(kSeen, kSeen + CallerPatience::kSilence));
  EXPECT_EQ(patience.watch_ns(), CallerPatience::kSilenceMax);
  patience.rest();
  EXPECT_EQ(patience.watch_ns(), CallerPatience::kSilence);
}

}  // namespace
}  // namespace orbite::transfer
