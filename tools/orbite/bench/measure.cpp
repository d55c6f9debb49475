// SPDX-License-Identifier: Apache-2.0
#include "bench/measure.hpp"

#include <algorithm>
#include <cmath>

#include "base/result.hpp"
#include "bench/routes.hpp"
#include "bench/sockets.hpp"

namespace orbite::tool::bench {
namespace {

constexpr std::uint32_t kRoundsMin = 5;
constexpr double kRoundSecondsMax = 10;
constexpr std::size_t kFirstTransfers = 5;
/// No further one is begun after that time.
constexpr base::Nanoseconds kFirstTransfersTime = base::kSecond;
constexpr base::Nanoseconds kWarmMax = 100 * base::kMillisecond;
/// What ours is compared with in a round of a number of transfers gets about the same time.
constexpr base::Nanoseconds kLimitMin = 10 * base::kMillisecond;
constexpr base::Nanoseconds kLimitMax = 2 * base::kSecond;

/// A key for each filling: no two sides and no two times hold the same bytes.
struct Keys {
  std::uint64_t source = 0;
  std::uint64_t destination = 0;
};

Keys keys_of(Operation operation, std::uint64_t time) {
  const std::uint64_t first = 1 + 4 * time + (operation == Operation::kRead ? 2 : 0);
  return {first, first + 1};
}

Result<void> fill_both(Bench& bench, Operation operation, const Keys& keys) {
  const bool writes = operation == Operation::kWrite;
  fill(bench.area.bytes(), writes ? keys.source : keys.destination);
  return bench.target.fill(writes ? keys.destination : keys.source);
}

/// What is wrong at the destination.
Result<void> verify(Bench& bench, Operation operation, const Keys& keys, OperationReport& report) {
  Verify what;
  what.layout = bench.options.layout;
  what.slots = static_cast<std::uint32_t>(bench.options.slots());
  what.block_key = keys.source;
  what.guard_key = keys.destination;
  Mismatch found;
  if (operation == Operation::kWrite) {
    ORBITE_ASSIGN_OR_RETURN(found, bench.target.verify(what));
  } else {
    found = compare(bench.area.bytes(), what.layout, what.slots, what.block_key, what.guard_key);
  }
  if (!report.mismatch || !report.mismatch->any()) {
    report.mismatch = found;
  }
  report.bytes_compared += what.slots * what.layout.extent();
  return {};
}

/// An error unless every transfer went the way that was asked for.
Result<void> check_routes(const Bench& bench, const TransferEngine& engine,
                          const std::vector<const char*>& routes) {
  const Transport asked = bench.options.transport;
  for (const char* const route : routes) {
    if (asked != Transport::kAuto && std::string_view(route) != transport_name(asked)) {
      return fail(ErrorCode::kTransportUnavailable, "--transport %s: a transfer went by %s: %s",
                  transport_name(asked), route, why_not(engine.info_json(), asked).c_str());
    }
  }
  return {};
}

/// Of engines that have never talked to the target. The route of the first.
Result<const char*> measure_first(Bench& bench, Operation operation, OperationReport& report) {
  const char* route = "";
  const base::Nanoseconds end_ns = now_ns() + kFirstTransfersTime;
  while (report.connect_us.empty() ||
         (report.connect_us.size() < kFirstTransfers && now_ns() < end_ns)) {
    ORBITE_ASSIGN_OR_RETURN(Endpoint endpoint, Endpoint::create("bench-initiator", bench.config));
    ORBITE_ASSIGN_OR_RETURN(const Handle registration, endpoint.register_area(bench.area));
    ORBITE_ASSIGN_OR_RETURN(const Remote remote, bench.target.introduce_to(endpoint));
    const Lists lists =
        make_lists(bench.options.layout, 0, bench.area.address(), registration, remote);
    ORBITE_ASSIGN_OR_RETURN(
        const Handle request,
        endpoint.engine().prepare({operation, remote.peer, lists.local, lists.remote}));
    const base::Nanoseconds began_ns = now_ns();
    ORBITE_TRY(endpoint.engine().connect_peer(remote.peer, 0));
    const base::Nanoseconds connected_ns = now_ns();
    ORBITE_ASSIGN_OR_RETURN(route, transfer_once(endpoint.engine(), request));
    const base::Nanoseconds ended_ns = now_ns();
    ORBITE_TRY(check_routes(bench, endpoint.engine(), {route}));
    report.connect_us.push_back(static_cast<double>(connected_ns - began_ns) / 1e3);
    report.first_transfer_us.push_back(static_cast<double>(ended_ns - connected_ns) / 1e3);
  }
  return route;
}

/// One round of ours, with the CPU time of both sides around it.
Result<Round> measure_round(Bench& bench, Load& load, const Budget& budget,
                            OperationReport& report) {
  ORBITE_ASSIGN_OR_RETURN(const auto target_before_ns, bench.target.cpu_ns());
  const std::uint64_t before_ns = process_cpu_ns();
  ORBITE_ASSIGN_OR_RETURN(Round round, load.run(budget));
  report.initiator_cpu_ns += process_cpu_ns() - before_ns;
  ORBITE_ASSIGN_OR_RETURN(const auto target_after_ns, bench.target.cpu_ns());
  if (target_before_ns && target_after_ns) {
    report.target_cpu_ns = report.target_cpu_ns.value_or(0) +
                           (std::max(*target_after_ns, *target_before_ns) - *target_before_ns);
  }
  return round;
}

double gbps_of(const Round& round, std::uint64_t payload) {
  return static_cast<double>(round.transfers * payload) / static_cast<double>(round.wall_ns);
}

Result<void> measure_limit(Bench& bench, Operation operation, std::uint64_t duration_ns,
                           std::vector<LimitReport>& reports) {
  for (LimitReport& report : reports) {
    ORBITE_ASSIGN_OR_RETURN(const double gbps, bench.limit->measure(operation, duration_ns));
    report.rounds_gbps.push_back(gbps);
  }
  return {};
}

Result<void> make_limit(Bench& bench, std::string_view route, OperationReport& report) {
  if (bench.limit == nullptr && bench.make_limit) {
    ORBITE_ASSIGN_OR_RETURN(bench.limit, bench.make_limit(route));
  }
  if (bench.limit != nullptr) {
    report.limits.push_back({bench.limit->name(), {}, {}});
  }
  return {};
}

Result<void> measure_rounds(Bench& bench, Load& load, OperationReport& report) {
  const Plan plan = plan_rounds(bench.options);
  std::uint64_t limit_ns = std::min<std::uint64_t>(plan.round_ns, kStreamNsMax);
  for (std::uint32_t number = 0; number < plan.rounds; ++number) {
    // Each comes first in half of the rounds; without a time of its own it follows ours.
    const bool limits_first = number % 2 == 1;
    if (limits_first) {
      ORBITE_TRY(measure_limit(bench, report.operation, limit_ns, report.limits));
    }
    ORBITE_ASSIGN_OR_RETURN(const Round round,
                            measure_round(bench, load, plan.budget(number), report));
    const double gbps = gbps_of(round, report.payload);
    report.rounds_gbps.push_back(gbps);
    report.sum.merge(round);
    if (plan.transfers != 0) {
      limit_ns = std::clamp(round.wall_ns, kLimitMin, kLimitMax);
    }
    if (!limits_first) {
      ORBITE_TRY(measure_limit(bench, report.operation, limit_ns, report.limits));
    }
    for (LimitReport& limit : report.limits) {
      limit.ratios.push_back(gbps / limit.rounds_gbps.back());
    }
    bench.tick();
  }
  return {};
}

}  // namespace

Budget Plan::budget(std::uint32_t round) const {
  if (transfers == 0) {
    return {.duration_ns = round_ns, .transfers = 0};
  }
  return {.duration_ns = 0, .transfers = transfers / rounds + (round < transfers % rounds ? 1 : 0)};
}

Plan plan_rounds(const Options& options) {
  Plan plan;
  if (options.iterations) {
    plan.rounds =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(*options.iterations, kRoundsMin));
    plan.transfers = *options.iterations;
    return plan;
  }
  plan.rounds = std::max(kRoundsMin,
                         static_cast<std::uint32_t>(std::ceil(options.seconds / kRoundSecondsMax)));
  plan.round_ns = static_cast<std::uint64_t>(options.seconds * 1e9) / plan.rounds;
  return plan;
}

Result<OperationReport> measure(Bench& bench, Operation operation) {
  OperationReport report;
  report.operation = operation;
  report.payload = bench.options.layout.payload();
  // Also so that no page is touched for the first time while it is timed.
  const Keys keys = keys_of(operation, 0);
  ORBITE_TRY(fill_both(bench, operation, keys));
  ORBITE_ASSIGN_OR_RETURN(const char* const route, measure_first(bench, operation, report));
  ORBITE_TRY(make_limit(bench, route, report));

  ORBITE_ASSIGN_OR_RETURN(Endpoint endpoint, Endpoint::create("bench-initiator", bench.config));
  ORBITE_ASSIGN_OR_RETURN(const Handle registration, endpoint.register_area(bench.area));
  ORBITE_ASSIGN_OR_RETURN(const Remote remote, bench.target.introduce_to(endpoint));
  ORBITE_TRY(endpoint.engine().connect_peer(remote.peer, 0));
  ORBITE_ASSIGN_OR_RETURN(Load load, Load::prepare(endpoint, registration, bench.area, remote,
                                                   {.operation = operation,
                                                    .layout = bench.options.layout,
                                                    .threads = bench.options.threads,
                                                    .depth = bench.options.depth},
                                                   report.prepare));
  // Every request moves its bytes once, so that a round too short for all leaves none untouched.
  ORBITE_ASSIGN_OR_RETURN(const Round once, load.run_once());
  ORBITE_TRY(check_routes(bench, endpoint.engine(), once.routes));
  const Plan plan = plan_rounds(bench.options);
  if (plan.transfers == 0) {
    ORBITE_TRY(load.run({.duration_ns = std::min(plan.round_ns, kWarmMax), .transfers = 0}));
  }
  ORBITE_TRY(measure_rounds(bench, load, report));
  ORBITE_TRY(check_routes(bench, endpoint.engine(), report.sum.routes));
  if (!bench.options.verify) {
    return report;
  }
  ORBITE_TRY(verify(bench, operation, keys, report));
  // And once more with new content: what is left from before would not pass for it.
  const Keys again = keys_of(operation, 1);
  ORBITE_TRY(fill_both(bench, operation, again));
  ORBITE_TRY(load.run_once());
  ORBITE_TRY(verify(bench, operation, again, report));
  return report;
}

}  // namespace orbite::tool::bench
