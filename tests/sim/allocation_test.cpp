// SPDX-License-Identifier: Apache-2.0
// Engines that run out of memory. Whatever an engine asks for in its calls and its turns is found
// to be missing, one allocation after the other: each call is refused whole or does all it was
// asked for, nothing that was admitted is lost, and what was told is true.
#include <gtest/gtest.h>

#include <cstdint>

#include "base/log.hpp"
#include "quiet_world.hpp"
#include "sim/run.hpp"

namespace orbite::sim {
namespace {

class SimAllocation : public testing::Test {
 protected:
  SimAllocation() { base::set_log_level(base::LogLevel::kOff); }
  ~SimAllocation() override { base::set_log_level(base::LogLevel::kWarn); }
};

void expect_no_violation(const Report& report, std::uint64_t seed, std::uint64_t first) {
  for (const Violation& violation : report.violations) {
    ADD_FAILURE() << "seed " << seed << ", allocation " << first << ": " << violation.invariant
                  << " " << violation.text;
  }
}

// One thread: the sanitizers look at a part.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kSeeds = 1;
constexpr std::uint64_t kStride = 25;
constexpr std::uint64_t kDroughts = 30;
#else
constexpr std::uint64_t kSeeds = 8;
constexpr std::uint64_t kStride = 1;
constexpr std::uint64_t kDroughts = 300;
#endif

/// Every `stride`-th allocation of each run fails, and the `failures` - 1 behind it.
void sweep(std::uint64_t seeds, std::uint64_t stride, std::uint64_t failures) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    Options options = test::quiet_world(2, 0);
    options.ops = 400;
    const std::uint64_t allocations = run(seed, options).stats.allocations;
    ASSERT_GT(allocations, 300U);
    options.failing_allocations = failures;
    std::uint64_t runs = 0;
    std::uint64_t struck = 0;
    for (std::uint64_t first = seed % stride; first < allocations; first += stride) {
      options.first_failing_allocation = first;
      const Report report = run(seed, options);
      expect_no_violation(report, seed, first);
      ASSERT_FALSE(testing::Test::HasFailure());
      ++runs;
      struck += report.stats.allocations_failed > 0 ? 1 : 0;
    }
    // While one call waits others are made, so a few numbers are passed over, of a short sweep too.
    constexpr std::uint64_t kFew = 3;
    EXPECT_GE(struck + kFew + runs / 10, runs);
  }
}

TEST_F(SimAllocation, AnyOneMayFail) { sweep(kSeeds, kStride, 1); }

TEST_F(SimAllocation, AnyShortOneMayBeginADrought) { sweep(kSeeds, 3 * kStride, 40); }

TEST_F(SimAllocation, MemoryThatIsShortForAWhileIsAFaultAmongOthers) {
  std::uint64_t failed = 0;
  for (std::uint64_t seed = 1; seed <= kDroughts; ++seed) {
    const Report report = run(seed, Options{});
    expect_no_violation(report, seed, 0);
    failed += report.stats.allocations_failed;
  }
  EXPECT_GT(failed, kDroughts);
}

}  // namespace
}  // namespace orbite::sim
