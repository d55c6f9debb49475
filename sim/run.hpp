// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "sim/options.hpp"

namespace orbite::sim {

/// One world from its seed: the same seed and options give the same run, on any machine. First
/// faults, then healing: whatever has a proof must end within a bound of virtual time, and every
/// pool must be empty then.
Report run(std::uint64_t seed, const Options& options);

}  // namespace orbite::sim
