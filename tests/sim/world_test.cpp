// SPDX-License-Identifier: Apache-2.0
#include "sim/world.hpp"

#include <gtest/gtest.h>

#include <string>

#include "base/log.hpp"
#include "quiet_world.hpp"
#include "sim/run.hpp"

namespace orbite::test {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr std::uint64_t kSeeds = 150;
#elif defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kSeeds = 10;  // one thread: there is nothing to find
#else
constexpr std::uint64_t kSeeds = 5'000;
#endif
/// Of so many seeds one is run twice.
constexpr std::uint64_t kTwiceEvery = 50;

class QuietLog {
 public:
  QuietLog() { base::set_log_level(base::LogLevel::kOff); }
  ~QuietLog() { base::set_log_level(base::LogLevel::kWarn); }
};

std::string text_of(std::uint64_t seed, const sim::Report& report) {
  std::string text = "seed " + std::to_string(seed) + ":";
  for (const sim::Violation& violation : report.violations) {
    text += "\n  " + violation.invariant + " host" + std::to_string(violation.host) + ": " +
            violation.text;
  }
  return text;
}

void run_seeds(std::uint64_t first, const char* profile) {
  const QuietLog quiet;
  sim::Options options;
  options.faults = sim::parse_faults(profile).value();
  for (std::uint64_t seed = first; seed < first + kSeeds; ++seed) {
    const sim::Report report = sim::run(seed, options);
    ASSERT_TRUE(report.violations.empty())
        << text_of(seed, report) << "\norbite sim --log --faults " << profile << " --seed " << seed;
    if (seed % kTwiceEvery == 0) {
      ASSERT_EQ(sim::run(seed, options).trace, report.trace) << "seed " << seed;
    }
  }
}

TEST(SimWorld, AQuietWorld) { run_seeds(1'000'000, "none"); }
TEST(SimWorld, AFaultyNetwork) { run_seeds(2'000'000, "network"); }
TEST(SimWorld, DyingHosts) { run_seeds(3'000'000, "process"); }
TEST(SimWorld, Everything) { run_seeds(4'000'000, "all"); }

TEST(SimWorld, TheSameSeedGivesTheSameLog) {
  const QuietLog quiet;
  sim::Options options;
  options.keeps_log = true;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const sim::Report first = sim::run(seed, options);
    const sim::Report second = sim::run(seed, options);
    EXPECT_EQ(first.log, second.log) << "seed " << seed;
    EXPECT_EQ(first.trace, second.trace) << "seed " << seed;
  }
}

TEST(SimWorld, TheLogChangesNothing) {
  const QuietLog quiet;
  sim::Options options;
  const std::uint64_t trace = sim::run(7, options).trace;
  options.keeps_log = true;
  EXPECT_EQ(sim::run(7, options).trace, trace);
}

TEST(SimWorld, AnotherSeedGivesAnotherRun) {
  const QuietLog quiet;
  EXPECT_NE(sim::run(1, {}).trace, sim::run(2, {}).trace);
}

/// What the seeds of this file do reaches what it is meant to reach.
TEST(SimWorld, TheFaultsBite) {
  const QuietLog quiet;
  sim::Stats total;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const sim::Stats stats = sim::run(seed, {}).stats;
    total.succeeded += stats.succeeded;
    total.failed += stats.failed;
    total.canceled += stats.canceled;
    total.restarts += stats.restarts;
#define ORBITE_COUNTER(name, meaning) total.engines.name.add(stats.engines.name.value);
#define ORBITE_GAUGE(name, meaning)
#include "orbite/telemetry.def"
#undef ORBITE_COUNTER
#undef ORBITE_GAUGE
  }
  EXPECT_GT(total.succeeded, 300U);
  EXPECT_GT(total.failed, 100U);
  EXPECT_GT(total.canceled, 10U);
  EXPECT_GT(total.restarts, 50U);
  EXPECT_GT(total.engines.requests_adopted.value, 5U);
  EXPECT_GT(total.engines.lanes_failed.value, 50U);
  EXPECT_GT(total.engines.lanes_idle_closed.value, 10U);
  EXPECT_GT(total.engines.lanes_drained.value, 3U);
  EXPECT_GT(total.engines.served_rejected.value, 20U);
  EXPECT_GT(total.engines.served_frames_refused.value, 30U);
  EXPECT_GT(total.engines.peers_confirmed_fenced.value, 30U);
  EXPECT_EQ(total.engines.protocol_violations.value, 0U);
}

/// Bytes may lie in a lane's own buffer when a turn ends, and be copied by a later one that
/// receives nothing.
TEST(SimWorld, SeesWhatChangesInAStepThatReceivesNothing) {
  const QuietLog quiet;
  sim::World world(1, quiet_world(2, 2));
  ASSERT_TRUE(world.start(world.host(0)));
  // SAFETY: the arena is the test's; it is written as an engine would, past the application.
  *reinterpret_cast<std::uint8_t*>(world.host(0).arena.address()) ^= 1;  // NOLINT
  {
    const sim::World::Call call(world, world.host(0));
  }
  ASSERT_EQ(world.checkers.violations().size(), 1U);
  EXPECT_EQ(world.checkers.violations().front().invariant, "S1");
}

}  // namespace
}  // namespace orbite::test
