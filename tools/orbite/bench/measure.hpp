// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/content.hpp"
#include "bench/histogram.hpp"
#include "bench/limits.hpp"
#include "bench/load.hpp"
#include "bench/options.hpp"
#include "bench/target.hpp"

namespace orbite::tool::bench {

/// What fits the route that the first transfer took; nullptr: nothing does.
using LimitMaker = std::function<Result<std::unique_ptr<Limit>>(std::string_view route)>;

struct LimitReport {
  std::string name;
  std::vector<double> rounds_gbps;
  std::vector<double> ratios;  ///< ours to it, round by round
};

struct OperationReport {
  Operation operation = Operation::kWrite;
  Histogram prepare;
  Round sum;
  std::vector<double> rounds_gbps;
  std::uint64_t payload = 0;  ///< bytes of one transfer
  std::uint64_t initiator_cpu_ns = 0;
  std::optional<std::uint64_t> target_cpu_ns;  ///< none: it is the same process
  std::vector<double> connect_us;              ///< of a new engine each
  std::vector<double> first_transfer_us;
  std::vector<LimitReport> limits;
  std::optional<Mismatch> mismatch;  ///< none: not compared
  std::uint64_t bytes_compared = 0;
};

/// How the rounds of one operation are cut.
struct Plan {
  std::uint32_t rounds = 1;
  std::uint64_t round_ns = 0;   ///< of a time
  std::uint64_t transfers = 0;  ///< of a number, over all rounds; 0: of a time
  [[nodiscard]] Budget budget(std::uint32_t round) const;
};
Plan plan_rounds(const Options& options);

struct Bench {
  const Options& options;
  const Config& config;
  Target& target;
  Area& area;                  ///< of this side
  LimitMaker make_limit;       ///< may be empty
  std::function<void()> tick;  ///< after each round

  std::unique_ptr<Limit> limit = nullptr;  ///< made once, for all operations
};

Result<OperationReport> measure(Bench& bench, Operation operation);

}  // namespace orbite::tool::bench
