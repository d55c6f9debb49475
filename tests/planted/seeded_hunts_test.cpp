// SPDX-License-Identifier: Apache-2.0
// The same bugs in whole worlds: the real engine and the real TCP code over simulated hosts, from
// seeds. The checkers are the simulation's own.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "planted/hunts.hpp"
#include "sim/run.hpp"

namespace orbite::test {
namespace {

constexpr std::uint64_t kSeedsMax = 10'000;
constexpr std::uint64_t kSeedsWithoutBug = 500;

// What no seed can show. The simulated applications are honest: they use nothing that they have
// given up (skip_fence_on_deregister, unload_keeps_peer); and so are the simulated peers: they lie
// about no length (unchecked_length_sum), give a lane id to no second connection
// (drain_not_remembered), and draw a new secret with each epoch (skip_epoch_check).
constexpr std::string_view kNotInSeeds[] = {"skip_fence_on_deregister", "unload_keeps_peer",
                                            "unchecked_length_sum", "drain_not_remembered",
                                            "skip_epoch_check"};

std::vector<base::BugDescription> bugs_in_seeds() {
  std::vector<base::BugDescription> bugs;
  for (const base::BugDescription& bug : base::kBugs) {
    if (std::find(std::begin(kNotInSeeds), std::end(kNotInSeeds), bug.name) ==
        std::end(kNotInSeeds)) {
      bugs.push_back(bug);
    }
  }
  return bugs;
}

/// Thousands of worlds fail on purpose: what their engines log of it helps nobody.
void quiet() { base::set_log_level(base::LogLevel::kError); }

class SeededBugs : public ::testing::TestWithParam<base::BugDescription> {
 protected:
  SeededBugs() { quiet(); }
  ~SeededBugs() override { base::unplant(); }
};

TEST_P(SeededBugs, AreCaught) {
  const base::BugDescription& bug = GetParam();
  const std::string invariants = " " + std::string(bug.invariants) + " ";
  ASSERT_TRUE(base::plant(bug.name));
  for (std::uint64_t seed = 1; seed <= kSeedsMax; ++seed) {
    for (const sim::Violation& violation : sim::run(seed, {}).violations) {
      if (invariants.find(" " + violation.invariant + " ") != std::string::npos) {
        std::cout << "  seed " << seed << ": " << violation.invariant << ": " << violation.text
                  << "\n";
        return;
      }
    }
  }
  FAIL() << "'" << bug.name << "' was not seen in " << kSeedsMax << " worlds";
}

INSTANTIATE_TEST_SUITE_P(All, SeededBugs, ::testing::ValuesIn(bugs_in_seeds()),
                         [](const auto& bug) { return std::string(bug.param.name); });

TEST(SeededNone, NothingIsReported) {
  quiet();
  for (std::uint64_t seed = 1; seed <= kSeedsWithoutBug; ++seed) {
    for (const sim::Violation& violation : sim::run(seed, {}).violations) {
      ADD_FAILURE() << "seed " << seed << ": " << violation.invariant << ": " << violation.text;
    }
  }
}

}  // namespace
}  // namespace orbite::test
