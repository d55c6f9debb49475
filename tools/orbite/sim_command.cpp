// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "commands.hpp"
#include "format.hpp"
#include "progress.hpp"
#include "sim_jobs.hpp"
#include "sim_shrink.hpp"

namespace orbite::tool {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLogLinesShown = 60;

unsigned long long ull(std::uint64_t value) { return value; }

std::string command_of(std::uint64_t seed, const sim::Options& options) {
  std::string command = format("orbite sim --seed %llu --ops %u --faults %s", ull(seed),
                               options.ops, sim::fault_names(options.faults).c_str());
  if (options.hosts != 0) {
    command += format(" --hosts %u", options.hosts);
  }
  if (options.machines != 0) {
    command += format(" --machines %u", options.machines);
  }
  if (options.neighbors != sim::NeighborsUse::kDrawn) {
    command += " --neighbors ";
    command += sim::kNeighborsUses[static_cast<std::size_t>(options.neighbors)];
  }
  return command + " --log";
}

std::string lines_of(const CaseResult& result) {
  std::string text;
  if (result.signal != 0) {
    text += format("  its process died of signal %d\n", result.signal);
  }
  for (const sim::Violation& violation : result.report.violations) {
    text += format("  %s at %.6f ms, host%u", violation.invariant.c_str(),
                   static_cast<double>(violation.when_ns) / 1e6, violation.host);
    text +=
        violation.execution != 0 ? format(", execution %llu: ", ull(violation.execution)) : ": ";
    text += violation.text + '\n';
  }
  return text;
}

std::string log_tail(const std::vector<std::string>& log, std::size_t lines_max) {
  std::string text;
  const std::size_t first = log.size() > lines_max ? log.size() - lines_max : 0;
  if (first > 0) {
    text += format("  ... %zu lines before\n", first);
  }
  for (std::size_t i = first; i < log.size(); ++i) {
    text += log[i] + '\n';
  }
  return text;
}

/// "local 12, shm 34".
std::string routes_of(const CampaignResult& result) {
  std::string text;
  for (std::size_t i = 0; i < result.executions_by.size(); ++i) {
    text += format("%s%s %llu", i == 0 ? "" : ", ",
                   policy::transport_name(static_cast<policy::TransportKind>(i)),
                   ull(result.executions_by[i]));
  }
  return text;
}

Json json_routes_of(const CampaignResult& result) {
  Json json = Json::object();
  for (std::size_t i = 0; i < result.executions_by.size(); ++i) {
    json[policy::transport_name(static_cast<policy::TransportKind>(i))] = result.executions_by[i];
  }
  return json;
}

Json json_of(const CaseResult& result) {
  Json violations = Json::array();
  for (const sim::Violation& violation : result.report.violations) {
    violations.push_back({{"invariant", violation.invariant},
                          {"host", violation.host},
                          {"execution", violation.execution},
                          {"when_ns", violation.when_ns},
                          {"text", violation.text}});
  }
  return {{"signal", result.signal}, {"violations", violations}};
}

int report_failure(const SimArguments& arguments, std::uint64_t seed, Json& json) {
  const auto shrunk = shrink(seed, arguments.options);
  if (!shrunk) {
    write_error(shrunk.error().message());
    return kExitFailed;
  }
  const std::string command = command_of(seed, shrunk->options);
  if (arguments.json) {
    json["failing_seed"] = seed;
    json["shrunk"] = json_of(shrunk->result);
    json["shrunk"]["command"] = command;
    json["shrunk"]["log"] = shrunk->result.report.log;
    (void)write_output(json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n');
    return kExitFailed;
  }
  std::string text = format("seed %llu fails\n", ull(seed));
  text += log_tail(shrunk->result.report.log, kLogLinesShown);
  text += lines_of(shrunk->result);
  if (!shrunk->result.failed()) {
    text += "  not when it runs again: two runs of one seed differ\n";
  }
  text += format("the smallest case of %u tries: ", shrunk->tries) + command + '\n';
  (void)write_output(text);
  return kExitFailed;
}

/// One seed, told in full.
int run_told(const SimArguments& arguments) {
  sim::Options options = arguments.options;
  options.keeps_log = true;
  const auto result = run_case(arguments.seed, options);
  if (!result) {
    write_error(result.error().message());
    return kExitFailed;
  }
  if (arguments.json) {
    Json json = json_of(*result);
    json["log"] = result->report.log;
    (void)write_output(json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n');
  } else {
    (void)write_output(log_tail(result->report.log, SIZE_MAX) + lines_of(*result));
  }
  return result->failed() ? kExitFailed : kExitOk;
}

}  // namespace

int run_sim(const SimArguments& arguments) {
  if (arguments.log) {
    return run_told(arguments);
  }
  Campaign campaign;
  campaign.first_seed = arguments.seed;
  campaign.seeds = arguments.seeds;
  campaign.jobs =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(arguments.jobs, arguments.seeds));
  campaign.options = arguments.options;
  double seconds = 0;
  const auto result = [&] {
    Progress progress("seeds", arguments.seeds);
    auto ran = run_campaign(campaign, [&](std::uint64_t done) { progress.update(done); });
    seconds = progress.seconds();
    return ran;
  }();
  if (!result) {
    write_error(result.error().message());
    return kExitFailed;
  }
  const double rate = static_cast<double>(result->done) / std::max(seconds, 1e-3);
  Json json = {{"seeds", result->done},
               {"first_seed", arguments.seed},
               {"ops", arguments.options.ops},
               {"faults", sim::fault_names(arguments.options.faults)},
               {"seconds", seconds},
               {"seeds_per_second", rate},
               {"executions", result->executions},
               {"executions_by_route", json_routes_of(*result)},
               {"faults_brought", result->faults},
               {"restarts", result->restarts},
               {"run_twice", result->twice},
               {"failing_seed", nullptr}};
  if (const auto failing_seed = result->failing_seed; failing_seed.has_value()) {
    return report_failure(arguments, *failing_seed, json);
  }
  if (arguments.json) {
    return write_output(json.dump(2) + '\n');
  }
  return write_output(format(
      "%llu seeds from %llu, no violation: %llu executions (%s), %llu faults, %llu restarts; %llu "
      "seeds run twice; %.1f s, %.0f seeds a second\n",
      ull(result->done), ull(arguments.seed), ull(result->executions), routes_of(*result).c_str(),
      ull(result->faults), ull(result->restarts), ull(result->twice), seconds, rate));
}

}  // namespace orbite::tool
