// SPDX-License-Identifier: Apache-2.0
// Hunts through all orders of a few scenarios of tests/orders.
#include "orders/explorer.hpp"
#include "orders/scenarios.hpp"
#include "planted/hunts.hpp"

namespace orbite::test {
namespace {

/// Of the first scenario in which something is broken.
Findings hunt_in(const std::vector<Scenario>& scenarios) {
  for (const Scenario& scenario : scenarios) {
    const Exploration found = explore(scenario, Merging::kOn);
    if (!found.violations.empty()) {
      return {found.violations, scenario.name + ", after: " + found.order};
    }
  }
  return {};
}

}  // namespace

Findings orders_of_single_executions() {
  std::vector<Scenario> scenarios;
  Scenario scenario;
  scenario.calls = {Act::kPost, Act::kCancel, Act::kRelease, Act::kUnload, Act::kDeregisterNear};
  for (const Operation operation : {Operation::kWrite, Operation::kRead}) {
    for (const Ending ending : {Ending::kSuccess, Ending::kShort}) {
      scenario.name = std::string(operation == Operation::kWrite ? "WRITE" : "READ") +
                      (ending == Ending::kSuccess ? ", success" : ", short");
      scenario.operation = operation;
      scenario.ending = ending;
      scenario.slices = 2;
      scenario.notifies = ending == Ending::kSuccess;
      scenarios.push_back(scenario);
    }
  }
  return hunt_in(scenarios);
}

Findings orders_of_pairs() {
  Scenario scenario;
  scenario.name = "two WRITEs";
  scenario.requests = 2;
  scenario.calls = {Act::kPost, Act::kDeregisterNear, Act::kDeregisterFar};
  return hunt_in({scenario});
}

}  // namespace orbite::test
