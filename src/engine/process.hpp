// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "policy/route_table.hpp"

namespace orbite {

/// Counts an execution admitted on that transport, for process_routes().
void count_route(policy::TransportKind transport) noexcept;

}  // namespace orbite
