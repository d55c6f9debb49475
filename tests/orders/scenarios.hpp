// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "orders/scenario.hpp"

namespace orbite::test {

/// One execution of one slice, and each call of the user once.
std::vector<Scenario> plain_scenarios();
/// One execution: both operations, every ending, one slice and two, with and without notification,
/// against every call and a restart of the far side.
std::vector<Scenario> single_scenarios();
/// Two requests at a time.
std::vector<Scenario> double_scenarios();
/// One request, posted twice.
std::vector<Scenario> repost_scenarios();

/// The same for the real engine, with fewer calls at a time.
std::vector<Scenario> engine_scenarios();

}  // namespace orbite::test
