// SPDX-License-Identifier: Apache-2.0
#include "transfer/caller_patience.hpp"

#include <gtest/gtest.h>

namespace orbite::transfer {
namespace {

using base::kMicrosecond;
using base::kMillisecond;
using base::Nanoseconds;

constexpr Nanoseconds kSeen = 10 * kMillisecond;

/// Last seen at kSeen, and before it for a while every `pause_ns`.
CallerTrace& come(CallerTrace& trace, Nanoseconds pause_ns) {
  for (Nanoseconds at_ns = kSeen - kMillisecond; at_ns <= kSeen; at_ns += pause_ns) {
    trace.begin(at_ns);
    trace.end(at_ns);
  }
  return trace;
}

class Patience : public ::testing::Test {
 protected:
  CallerTrace spinning_trace_;
  CallerTrace pausing_trace_;
  const CallerTrace& spinning_ = come(spinning_trace_, 5 * kMicrosecond);
  const CallerTrace& pausing_ = come(pausing_trace_, 100 * kMicrosecond);
};

TEST_F(Patience, EndsSoonWhereThereAreProcessorsEnough) {
  CallerPatience patience([] { return false; });
  CallerPatience unknown({});
  for (const CallerTrace* const trace : {&spinning_, &pausing_}) {
    EXPECT_TRUE(patience.expects(*trace, kSeen));
    EXPECT_TRUE(patience.expects(*trace, kSeen + CallerPatience::kSilence - 1));
    EXPECT_FALSE(patience.expects(*trace, kSeen + CallerPatience::kSilence));
    EXPECT_FALSE(unknown.expects(*trace, kSeen + CallerPatience::kSilence));
  }
}

TEST_F(Patience, LastsATurnOfAnotherThreadWhereProcessorsAreShort) {
  CallerPatience patience([] { return true; });
  EXPECT_TRUE(patience.expects(spinning_, kSeen + CallerPatience::kSilence));
  EXPECT_TRUE(patience.expects(spinning_, kSeen + CallerPatience::kSilenceMax - 1));
  EXPECT_FALSE(patience.expects(spinning_, kSeen + CallerPatience::kSilenceMax));
}

/// He sleeps between his looks: if nobody else did the work meanwhile, nobody would.
TEST_F(Patience, IsShortWithACallerWhoPausesHoweverShortProcessorsAre) {
  CallerPatience patience([] { return true; });
  EXPECT_TRUE(patience.expects(pausing_, kSeen + CallerPatience::kSilence - 1));
  EXPECT_FALSE(patience.expects(pausing_, kSeen + CallerPatience::kSilence));
  const CallerTrace never;
  EXPECT_FALSE(patience.expects(never, kSeen));
}

/// Several looks at one small transfer, then something else: between two transfers he is not there.
TEST_F(Patience, IsShortWithACallerWhoComesInBurstsHoweverShortProcessorsAre) {
  CallerPatience patience([] { return true; });
  CallerTrace bursts;
  Nanoseconds now_ns = kSeen;
  for (int burst = 0; burst < 5; ++burst) {
    now_ns += 3 * kMillisecond;
    for (int look = 0; look < 4; ++look, now_ns += 10 * kMicrosecond) {
      bursts.begin(now_ns);
      bursts.end(now_ns);
      EXPECT_FALSE(bursts.spins());
    }
    EXPECT_TRUE(patience.expects(bursts, now_ns));
    EXPECT_EQ(patience.watch_ns(), CallerPatience::kSilence);
    EXPECT_FALSE(patience.expects(bursts, now_ns + CallerPatience::kSilence));
  }
}

TEST_F(Patience, LooksAtTheProcessorsWhileACallerIsExpectedAndNotOften) {
  int looks = 0;
  CallerPatience patience([&] {
    ++looks;
    return true;
  });
  EXPECT_FALSE(patience.expects(spinning_, kSeen + CallerPatience::kSilenceMax));
  EXPECT_EQ(looks, 0);
  EXPECT_FALSE(patience.crowded());
  for (Nanoseconds now_ns = kSeen; now_ns < kSeen + 2 * CallerPatience::kSilenceMax;
       now_ns += 10'000) {
    static_cast<void>(patience.expects(spinning_, now_ns));
  }
  EXPECT_GE(looks, 5);
  EXPECT_LE(looks, 6);
  EXPECT_TRUE(patience.crowded());
}

TEST_F(Patience, TellsWhenProcessorsAreShortNoMore) {
  bool crowded = true;
  CallerPatience patience([&] { return crowded; });
  EXPECT_TRUE(patience.expects(spinning_, kSeen));
  EXPECT_TRUE(patience.crowded());
  crowded = false;
  EXPECT_TRUE(patience.expects(spinning_, kSeen + CallerPatience::kSilence / 2));
  EXPECT_TRUE(patience.crowded());  // as of its last look
  EXPECT_FALSE(patience.expects(spinning_, kSeen + kMillisecond));
  EXPECT_FALSE(patience.crowded());
}

TEST_F(Patience, WatchesLessOftenWhileCallersSpinAndSeldomWhereProcessorsAreShort) {
  bool crowded = false;
  CallerPatience patience([&] { return crowded; });
  EXPECT_EQ(patience.watch_ns(), CallerPatience::kSilence);
  EXPECT_EQ(patience.watch_ns(), 2 * CallerPatience::kSilence);
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(patience.expects(spinning_, kSeen));
    EXPECT_LE(patience.watch_ns(), CallerPatience::kWatchMax);
  }
  EXPECT_EQ(patience.watch_ns(), CallerPatience::kWatchMax);
  crowded = true;
  EXPECT_TRUE(patience.expects(spinning_, kSeen + kMillisecond));
  EXPECT_EQ(patience.watch_ns(), CallerPatience::kSilenceMax);
  patience.rest();
  EXPECT_EQ(patience.watch_ns(), CallerPatience::kSilence);
}

TEST_F(Patience, WatchesACallerWhoPausesClosely) {
  CallerPatience patience([] { return true; });
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(patience.expects(spinning_, kSeen + CallerPatience::kSilence));
    EXPECT_TRUE(patience.expects(pausing_, kSeen + CallerPatience::kSilence - 1));
    EXPECT_EQ(patience.watch_ns(), CallerPatience::kSilence);
  }
}

}  // namespace
}  // namespace orbite::transfer
