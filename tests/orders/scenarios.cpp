// SPDX-License-Identifier: Apache-2.0
#include "orders/scenarios.hpp"

#include <utility>

namespace orbite::test {
namespace {

constexpr std::pair<Operation, const char*> kOperations[] = {{Operation::kWrite, "WRITE"},
                                                             {Operation::kRead, "READ"}};
constexpr std::pair<Ending, const char*> kEndings[] = {{Ending::kSuccess, "success"},
                                                       {Ending::kShort, "short"},
                                                       {Ending::kUnknown, "unknown"},
                                                       {Ending::kLost, "lost"}};

std::string name_of(Scenario& scenario) {
  std::string name = scenario.operation == Operation::kWrite ? "WRITE" : "READ";
  for (const auto& [ending, text] : kEndings) {
    name += scenario.ending == ending ? std::string(", ") + text : "";
  }
  name += ", " + std::to_string(scenario.slices) + (scenario.slices == 1 ? " slice" : " slices");
  return name + (scenario.notifies ? ", notifies" : "");
}

void add(std::vector<Scenario>& scenarios, Scenario scenario, const char* of) {
  scenario.name = name_of(scenario) + of;
  scenarios.push_back(std::move(scenario));
}

/// With each operation, ending, number of slices and notification.
std::vector<Scenario> all_kinds(Scenario scenario, const char* of) {
  std::vector<Scenario> scenarios;
  for (const auto& [operation, operation_name] : kOperations) {
    for (const auto& [ending, ending_name] : kEndings) {
      for (const bool notifies : {false, true}) {
        for (const std::uint8_t slices : {std::uint8_t{1}, std::uint8_t{2}}) {
          scenario.operation = operation;
          scenario.ending = ending;
          scenario.notifies = notifies;
          scenario.slices = slices;
          add(scenarios, scenario, of);
        }
      }
    }
  }
  return scenarios;
}

}  // namespace

std::vector<Scenario> plain_scenarios() {
  std::vector<Scenario> scenarios;
  Scenario scenario;
  scenario.calls = {Act::kPost,   Act::kCheck,          Act::kCancel, Act::kRelease,
                    Act::kUnload, Act::kDeregisterNear, Act::kClose};
  add(scenarios, scenario, "");
  scenario.operation = Operation::kRead;
  scenario.ending = Ending::kUnknown;
  scenario.calls = {Act::kPost,           Act::kCancel, Act::kRelease,
                    Act::kDeregisterNear, Act::kClose,  Act::kDeregisterFar};
  add(scenarios, scenario, "");
  return scenarios;
}

std::vector<Scenario> single_scenarios() {
  Scenario scenario;
  scenario.calls = {Act::kPost,           Act::kCheck,         Act::kCancel,
                    Act::kRelease,        Act::kUnload,        Act::kInvalidate,
                    Act::kDeregisterNear, Act::kDeregisterFar, Act::kClose};
  std::vector<Scenario> scenarios = all_kinds(scenario, "");
  scenario.calls = {Act::kPost,           Act::kCancel,  Act::kRelease,
                    Act::kDeregisterNear, Act::kRestart, Act::kClose};
  for (Scenario& restarting : all_kinds(scenario, ", restart")) {
    scenarios.push_back(std::move(restarting));
  }
  return scenarios;
}

std::vector<Scenario> double_scenarios() {
  std::vector<Scenario> scenarios;
  Scenario scenario;
  scenario.requests = 2;
  scenario.calls = {Act::kPost, Act::kCancel, Act::kRelease, Act::kDeregisterNear, Act::kClose};
  for (const auto& [operation, operation_name] : kOperations) {
    for (const auto& [ending, ending_name] : kEndings) {
      scenario.operation = operation;
      scenario.ending = ending;
      add(scenarios, scenario, "");
    }
  }
  scenario.operation = Operation::kWrite;
  scenario.ending = Ending::kSuccess;
  scenario.notifies = true;
  scenario.calls = {Act::kPost, Act::kCancel, Act::kRelease, Act::kUnload, Act::kDeregisterFar};
  add(scenarios, scenario, "");
  scenario.operation = Operation::kRead;
  add(scenarios, scenario, "");
  scenario.operation = Operation::kWrite;
  scenario.ending = Ending::kUnknown;
  scenario.calls = {Act::kPost,           Act::kCancel,        Act::kRelease, Act::kUnload,
                    Act::kDeregisterNear, Act::kDeregisterFar, Act::kClose};
  add(scenarios, scenario, ", all calls");
  scenario.notifies = false;
  scenario.slices = 2;
  scenario.calls = {Act::kPost, Act::kCancel, Act::kDeregisterNear, Act::kDeregisterFar};
  add(scenarios, scenario, "");
  scenario.slices = 1;
  scenario.operation = Operation::kRead;
  scenario.calls = {Act::kPost, Act::kCancel, Act::kRestart, Act::kInvalidate, Act::kClose};
  add(scenarios, scenario, ", restart");
  return scenarios;
}

std::vector<Scenario> repost_scenarios() {
  Scenario scenario;
  scenario.posts = 2;
  scenario.calls = {Act::kPost,   Act::kCancel,         Act::kRelease,
                    Act::kUnload, Act::kDeregisterNear, Act::kClose};
  return all_kinds(scenario, ", posted twice");
}

std::vector<Scenario> engine_scenarios() {
  Scenario scenario;
  scenario.is_engine = true;
  scenario.posts = 2;
  scenario.calls = {Act::kPost,   Act::kCancel,         Act::kRelease,
                    Act::kUnload, Act::kDeregisterNear, Act::kClose};
  std::vector<Scenario> scenarios = all_kinds(scenario, ", engine, posted twice");
  scenario.posts = 1;
  scenario.calls = {Act::kPost,       Act::kCheck,         Act::kRestart,
                    Act::kInvalidate, Act::kDeregisterFar, Act::kClose};
  for (Scenario& restarting : all_kinds(scenario, ", engine, restart")) {
    scenarios.push_back(std::move(restarting));
  }
  scenario.requests = 2;
  scenario.calls = {Act::kPost, Act::kCancel, Act::kRelease, Act::kDeregisterNear, Act::kClose};
  add(scenarios, scenario, ", engine, two requests");
  scenario.notifies = true;
  scenario.operation = Operation::kRead;
  add(scenarios, scenario, ", engine, two requests");
  return scenarios;
}

}  // namespace orbite::test
