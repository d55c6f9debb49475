// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "bench/options.hpp"
#include "bench/report.hpp"

namespace orbite::tool::bench {

/// `progress` is told how many rounds are done, of round_count.
using ProgressTold = std::function<void(std::uint64_t done)>;
std::uint64_t round_count(const Options& options);

/// Measures in the role kPair, kSelf or kConnect.
Result<Report> run_initiator(const Options& options, const ProgressTold& progress);

}  // namespace orbite::tool::bench
