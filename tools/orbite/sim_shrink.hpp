// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "orbite/error.hpp"
#include "sim/options.hpp"
#include "sim_jobs.hpp"

namespace orbite::tool {

struct Shrunk {
  sim::Options options;
  CaseResult result;  ///< of these options, with its log
  std::uint32_t tries = 0;
};

/// Fewer steps, fewer kinds of faults, fewer hosts, as long as the seed still fails the same way.
Result<Shrunk> shrink(std::uint64_t seed, const sim::Options& options);

}  // namespace orbite::tool
