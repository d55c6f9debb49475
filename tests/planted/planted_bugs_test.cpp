// SPDX-License-Identifier: Apache-2.0
// A checker that misses the bug it is there for is worth nothing: each bug is planted, and its
// invariant must be seen broken; with none planted, nothing may be.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <iterator>

#include "planted/hunts.hpp"

namespace orbite::test {
namespace {

using base::Bug;

constexpr HuntFor kHunts[] = {
    {Bug::kReleaseOnLogicalFailure, orders_of_single_executions},
    {Bug::kCancelClaimsDrained, orders_of_single_executions},
    {Bug::kTerminalBeforeRetirement, orders_of_single_executions},
    {Bug::kOutcomeSetTwice, orders_of_single_executions},
    {Bug::kPrefixTooLarge, orders_of_single_executions},
    {Bug::kSuccessWithoutNotification, orders_of_single_executions},
    {Bug::kNotifyBeforeBytes, orders_of_single_executions},
    {Bug::kNotifyTwice, orders_of_single_executions},
    {Bug::kLeakCredit, orders_of_single_executions},
    {Bug::kReuseRequestWhileActive, second_post},
    {Bug::kUnboundedStep, step_with_a_small_limit},
    {Bug::kDeregisterWithoutWaiting, orders_of_single_executions},
    {Bug::kSkipFenceOnDeregister, orders_of_pairs},
    {Bug::kDestroyTwice, orders_of_single_executions},
    {Bug::kUnloadKeepsPeer, orders_of_single_executions},
    {Bug::kSkipEpochCheck, hello_to_an_earlier_life},
    {Bug::kReplayAfterUnknown, lost_connection},
    {Bug::kLocalTimeoutAsProof, silent_target},
    {Bug::kAckBeforeFrameConsumed, half_sent_frame},
    {Bug::kDrainNotRemembered, late_hello_of_a_drained_lane},
    {Bug::kUncheckedLengthSum, lengths_beyond_the_payload},
    {Bug::kLedgerForgetsTheInside, borrower_inside_a_deregistration},
    {Bug::kBorrowerSkipsTheLook, borrower_inside_a_deregistration},
    {Bug::kMappedCopyLeavesEarly, deregistration_inside_a_mapped_copy},
    {Bug::kMappingOfAnEarlierGeneration, next_registration_of_a_slot},
};
static_assert(std::size(kHunts) == std::size(base::kBugs), "each bug has a hunt");

std::string text_of(const Findings& findings) {
  std::string text = findings.how;
  for (const Violation& violation : findings.violations) {
    text += "\n  " + std::string(violation.invariant) + ": " + violation.what;
  }
  return text;
}

/// One of the invariants named is among those seen broken.
bool names(std::string_view invariants, const Findings& findings) {
  const std::string all = " " + std::string(invariants) + " ";
  return std::any_of(
      findings.violations.begin(), findings.violations.end(), [&](const Violation& violation) {
        return all.find(" " + std::string(violation.invariant) + " ") != std::string::npos;
      });
}

class PlantedBugs : public ::testing::TestWithParam<base::BugDescription> {
 protected:
  ~PlantedBugs() override { base::unplant(); }
};

TEST_P(PlantedBugs, IsCaught) {
  const base::BugDescription& description = GetParam();
  const auto* const found =
      std::find_if(std::begin(kHunts), std::end(kHunts),
                   [&](const HuntFor& entry) { return entry.bug == description.bug; });
  ASSERT_NE(found, std::end(kHunts)) << description.name;
  ASSERT_TRUE(base::plant(description.name));
  const Findings findings = found->hunt();
  base::unplant();
  std::cout << "  " << description.wrong << ": " << text_of(findings) << "\n";
  EXPECT_TRUE(names(description.invariants, findings))
      << "'" << description.name << "' was not caught by " << description.invariants;
}

INSTANTIATE_TEST_SUITE_P(All, PlantedBugs, ::testing::ValuesIn(base::kBugs),
                         [](const auto& bug) { return std::string(bug.param.name); });

TEST(PlantedNone, NothingIsReported) {
  std::vector<Hunt> hunts;
  for (const HuntFor& entry : kHunts) {
    if (std::find(hunts.begin(), hunts.end(), entry.hunt) == hunts.end()) {
      hunts.push_back(entry.hunt);
    }
  }
  for (const Hunt hunt : hunts) {
    const Findings findings = hunt();
    EXPECT_TRUE(findings.violations.empty()) << text_of(findings);
  }
}

TEST(PlantedNone, AnUnknownNameIsNoBug) { EXPECT_FALSE(base::plant("no_such_bug")); }

}  // namespace
}  // namespace orbite::test
