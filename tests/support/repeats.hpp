// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string>

namespace orbite::test {

/// How often a control that depends on timing is run; a long run makes more rounds of it.
inline int repeats(int count) {
  const char* const more = std::getenv("ORBITE_TEST_REPEATS");
  return more == nullptr ? count : count * std::stoi(more);
}

}  // namespace orbite::test
