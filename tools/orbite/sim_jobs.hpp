// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "orbite/error.hpp"
#include "sim/options.hpp"

namespace orbite::tool {

/// What a child process told of one seed.
struct CaseResult {
  int signal = 0;  ///< it died of this one; 0: it did not
  sim::Report report;
  [[nodiscard]] bool failed() const { return signal != 0 || !report.violations.empty(); }
  /// "S2", "signal 6": what a smaller case must show too.
  [[nodiscard]] std::string kind() const;
};

/// Runs one seed in a process of its own: a broken assertion must not end the tool.
Result<CaseResult> run_case(std::uint64_t seed, const sim::Options& options);

struct Campaign {
  std::uint64_t first_seed = 1;
  std::uint64_t seeds = 1;
  std::uint32_t jobs = 1;
  sim::Options options;
};

struct CampaignResult {
  std::uint64_t done = 0;
  std::optional<std::uint64_t> failing_seed;
  std::uint64_t executions = 0;
  std::uint64_t faults = 0;
  std::uint64_t restarts = 0;
  std::uint64_t twice = 0;  ///< seeds run again, to see the same run
  /// Executions by the transport of their route: policy::TransportKind.
  std::array<std::uint64_t, policy::kTransportKinds> executions_by{};
};

/// All seeds, spread over processes; ends at the first that fails.
Result<CampaignResult> run_campaign(const Campaign& campaign,
                                    const std::function<void(std::uint64_t done)>& progress);

}  // namespace orbite::tool
