// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace orbite::memory::testing {

/// Allocations of this thread until one fails; negative: none does. In the whole executable.
extern thread_local int allocations_left;

}  // namespace orbite::memory::testing
