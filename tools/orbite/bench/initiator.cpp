// SPDX-License-Identifier: Apache-2.0
#include "bench/initiator.hpp"

#include <optional>
#include <string_view>

#include "base/result.hpp"
#include "bench/child.hpp"
#include "bench/sockets.hpp"

namespace orbite::tool::bench {
namespace {

constexpr base::Nanoseconds kConnectTimeout = 10 * base::kSecond;

struct Side {
  Config config;
  std::string between;
};

Result<Report> measure_all(const Options& options, const Side& side, Target& target, Area& area,
                           LimitMaker make_limit, const ProgressTold& progress) {
  std::uint64_t done = 0;
  Bench bench{options, side.config, target, area, std::move(make_limit), [&] { progress(++done); }};
  Report report;
  report.between = side.between;
  for (const Operation operation : options.operations) {
    ORBITE_ASSIGN_OR_RETURN(OperationReport measured, measure(bench, operation));
    report.operations.push_back(std::move(measured));
  }
  return report;
}

std::uint64_t area_bytes(const Options& options) {
  return options.slots() * options.layout.extent();
}

Result<Report> run_self(const Options& options, const Config& config,
                        const ProgressTold& progress) {
  ORBITE_ASSIGN_OR_RETURN(Area area, Area::map(area_bytes(options)));
  ORBITE_ASSIGN_OR_RETURN(Area other, Area::map(area_bytes(options)));
  SelfTarget target(std::move(other));
  return measure_all(
      options, {on_loopback(config), "an engine with itself"}, target, area,
      [&](std::string_view) { return MemoryCopy::create(area, options); }, progress);
}

/// `child`: the process at the other side, if it is one of ours.
Result<Report> run_remote(const Options& options, const Side& side, Channel& channel,
                          std::optional<pid_t> child, const ProgressTold& progress) {
  ORBITE_ASSIGN_OR_RETURN(Area area, Area::map(area_bytes(options), pages_for(options.transport)));
  ORBITE_ASSIGN_OR_RETURN(const auto target, RemoteTarget::open(channel, area_bytes(options)));
  const auto make_limit = [&](std::string_view route) -> Result<std::unique_ptr<Limit>> {
    if (route == transport_name(Transport::kTcp)) {
      return std::make_unique<BareTcp>(channel, options,
                                       side.config.tcp.loopback_congestion_control);
    }
    if (route == transport_name(Transport::kCma)) {
      return child ? ProcessCopyLoop::create(channel, *child, area, options)
                   : Result<std::unique_ptr<Limit>>(nullptr);
    }
    return MemoryCopy::create(area, options);
  };
  ORBITE_ASSIGN_OR_RETURN(Report report,
                          measure_all(options, side, *target, area, make_limit, progress));
  ORBITE_TRY(target->end());
  return report;
}

Result<Report> run_pair(const Options& options, const Config& config,
                        const ProgressTold& progress) {
  std::vector<std::string> arguments = {"bench",
                                        "--on-descriptor",
                                        std::to_string(Child::kChildDescriptor),
                                        "--memory",
                                        std::to_string(options.memory_max),
                                        "--transport",
                                        transport_name(options.transport)};
  if (options.config_file) {
    arguments.insert(arguments.end(), {"--config", *options.config_file});
  }
  ORBITE_ASSIGN_OR_RETURN(Child child, Child::start(arguments));
  // Its end tells the child to end, before the child's destructor waits for it.
  Channel channel(child.take_socket());
  return run_remote(
      options, {by_transport(on_loopback(config), options.transport), "two processes of this host"},
      channel, child.number(), progress);
}

Result<Report> run_connected(const Options& options, const Config& config,
                             const ProgressTold& progress) {
  ORBITE_ASSIGN_OR_RETURN(FileDescriptor socket,
                          connect_to(options.at, now_ns() + kConnectTimeout));
  ORBITE_ASSIGN_OR_RETURN(const HostPort local, local_end(socket.get()));
  ORBITE_ASSIGN_OR_RETURN(const HostPort remote, remote_end(socket.get()));
  Channel channel(std::move(socket));
  return run_remote(
      options,
      {by_transport(at_address(config, local.host), options.transport), "with " + text_of(remote)},
      channel, std::nullopt, progress);
}

}  // namespace

std::uint64_t round_count(const Options& options) {
  return plan_rounds(options).rounds * options.operations.size();
}

Result<Report> run_initiator(const Options& options, const ProgressTold& progress) {
  ORBITE_ASSIGN_OR_RETURN(const Config config, read_config(options.config_file));
  switch (options.role) {
    case Role::kSelf:
      return run_self(options, config, progress);
    case Role::kConnect:
      return run_connected(options, config, progress);
    default:
      return run_pair(options, config, progress);
  }
}

}  // namespace orbite::tool::bench
