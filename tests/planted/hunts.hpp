// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "base/planted.hpp"
#include "orders/checker.hpp"

namespace orbite::base {

/// The name of a case that fails.
inline void PrintTo(const BugDescription& bug, std::ostream* out) { *out << bug.name; }

}  // namespace orbite::base

namespace orbite::test {

/// Something that is played, and what a checker says of it.
struct Findings {
  std::vector<Violation> violations;
  std::string how;  ///< for whoever reads a failure
};
using Hunt = Findings (*)();

struct HuntFor {
  base::Bug bug;
  Hunt hunt;
};

// One for each planted bug. Each is silent as long as no bug is planted.
Findings orders_of_single_executions();
Findings orders_of_pairs();
Findings silent_target();
Findings lost_connection();
Findings half_sent_frame();
Findings late_hello_of_a_drained_lane();
Findings lengths_beyond_the_payload();
Findings hello_to_an_earlier_life();
Findings borrower_inside_a_deregistration();
Findings deregistration_inside_a_mapped_copy();
Findings next_registration_of_a_slot();
Findings second_post();
Findings step_with_a_small_limit();

}  // namespace orbite::test
