// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/impl.hpp"

namespace orbite {
namespace {

using Json = nlohmann::ordered_json;

struct Availability {
  const char* name;
  bool available;
  std::string reason;
};

Json transports_json(const std::vector<Availability>& built) {
  Json transports = Json::array();
  for (const Availability& entry : built) {
    transports.push_back({{"name", entry.name},
                          {"available", entry.available},
                          {"reason", entry.available ? "" : entry.reason}});
  }
  for (const char* name : {"file", "cuda", "nvlink", "rdma", "gds", "mnnvl"}) {
    transports.push_back(
        {{"name", name}, {"available", false}, {"reason", "not built into this version"}});
  }
  return transports;
}

/// Of the engine, and the sums over its routes.
Json counters_json(const Telemetry& telemetry) {
  Json counts;
  const auto sum_of = [&](const char* name, std::uint64_t RouteTelemetry::* member) {
    std::uint64_t sum = 0;
    for (const RouteTelemetry& route : telemetry.routes) {
      sum += route.*member;
    }
    counts[name] = sum;
  };
  sum_of("executions_posted", &RouteTelemetry::posted);
  sum_of("executions_succeeded", &RouteTelemetry::succeeded);
  sum_of("executions_failed", &RouteTelemetry::failed);
  sum_of("executions_canceled", &RouteTelemetry::canceled);
  sum_of("execution_bytes", &RouteTelemetry::bytes);
#define ORBITE_COUNTER(name, meaning) counts[#name] = telemetry.counters.name;
#define ORBITE_GAUGE(name, meaning)
#include "orbite/telemetry.def"
#undef ORBITE_COUNTER
#undef ORBITE_GAUGE
  return counts;
}

/// Those that were used.
Json routes_json(const std::vector<RouteTelemetry>& routes) {
  Json list = Json::array();
  for (const RouteTelemetry& route : routes) {
    if (route.posted == 0) {
      continue;
    }
    Json failures = Json::object();
    for (const auto& [code, count] : route.failures) {
      failures[std::string(error_name(code))] = count;
    }
    list.push_back({{"transport", route.transport},
                    {"operation", route.operation == Operation::kRead ? "read" : "write"},
                    {"class", route.qos},
                    {"posted", route.posted},
                    {"succeeded", route.succeeded},
                    {"canceled", route.canceled},
                    {"failed", route.failed},
                    {"failures", std::move(failures)},
                    {"bytes", route.bytes},
                    {"active", route.active},
                    {"unquiesced", route.unquiesced},
                    {"unquiesced_bytes", route.unquiesced_bytes},
                    {"latency_sum_ns", route.latency_sum_ns}});
  }
  return list;
}

Json registrations_json(const memory::Registry::Counts& counts) {
  return {{"live", counts.live},
          {"fenced", counts.fenced},
          {"unquiesced", counts.unquiesced},
          {"retired_total", counts.retired_total},
          {"bytes", counts.bytes_registered},
          {"bytes_unquiesced", counts.bytes_unquiesced},
          {"loans", counts.loans}};
}

Json budgets_json(const std::vector<BudgetTelemetry>& budgets) {
  Json named;
  for (const BudgetTelemetry& budget : budgets) {
    named[budget.name] = {{"used", budget.used},
                          {"max", budget.max},
                          {"refused", budget.refused},
                          {"key", budget.key}};
  }
  return named;
}

Json unresolved_json(const std::vector<UnresolvedPeer>& unresolved) {
  Json list = Json::array();
  for (const UnresolvedPeer& peer : unresolved) {
    list.push_back({{"name", peer.name},
                    {"epoch", base::to_hex(peer.epoch)},
                    {"retired", peer.retired},
                    {"requests", peer.requests},
                    {"bytes", peer.bytes},
                    {"pieces", peer.pieces},
                    {"reason", Error(peer.code, peer.native_errno).message()},
                    {"address", peer.address},
                    {"duration_ns", peer.duration_ns}});
  }
  return list;
}

const char* state_name(peer::BorrowLink::State state) {
  using State = peer::BorrowLink::State;
  switch (state) {
    case State::kIdle:
      return "idle";
    case State::kConnecting:
      return "connecting";
    case State::kReady:
      return "ready";
    case State::kRefused:
      return "refused";
    case State::kEnded:
      return "ended";
  }
  return "";
}

/// Our way into the memory of a peer on this host. null: it is on another one, or is ourselves, or
/// nothing that would use the way is switched on.
Json neighbor_json(const peer::Peer& peer) {
  if (peer.link() == nullptr) {
    return nullptr;
  }
  for (const policy::TransportKind kind :
       {policy::TransportKind::kShm, policy::TransportKind::kCma}) {
    const auto* const flow =
        static_cast<const transport::BorrowFlow*>(transfer::flows_of(peer).find(kind));
    if (flow == nullptr) {
      continue;
    }
    // Both have the same link.
    const peer::BorrowLink& link = flow->link();
    const peer::BorrowLink::State state = link.state();
    const bool refused =
        state == peer::BorrowLink::State::kRefused || state == peer::BorrowLink::State::kEnded;
    const bool ready = state == peer::BorrowLink::State::kReady;
    const bool unreachable = ready && link.process() == nullptr;
    const std::optional<Error> none;
    const std::optional<Error>& unreachable_for = unreachable ? link.process_refusal() : none;
    const std::optional<Error> lacks_shared = ready ? link.shared_refusal() : none;
    return {{"state", state_name(state)},
            {"reason", refused ? link.refusal().message() : ""},
            {"ordinary_memory", ready && !unreachable},
            {"ordinary_memory_reason", unreachable_for ? unreachable_for->message() : ""},
            {"shared_memory_reason", lacks_shared ? lacks_shared->message() : ""}};
  }
  return nullptr;
}

}  // namespace

std::string TransferEngine::Impl::info_json() const {
  Json info;
  info["version"] = version();
  info["build"] = {
      {"type", ORBITE_BUILD_TYPE}, {"compiler", __VERSION__}, {"wire_version", wire::kWireVersion}};
  info["name"] = options.name;
  info["epoch"] = base::to_hex(epoch_.bytes);
  // Relaxed: shown, and nothing hangs on it.
  info["worker"] = {{"priority_boost", worker_boost_.load(std::memory_order_relaxed)}};
  info["transports"] = transports_json(
      {{"local", local_ != nullptr, "local.enabled is false"},
       {"shm", shm_ != nullptr,
        environment.neighbors == nullptr ? lender_unavailable_ : "shm.enabled is false"},
       {"cma", cma_ != nullptr,
        environment.neighbors == nullptr ? lender_unavailable_ : "cma.enabled is false"},
       {"tcp", tcp_ != nullptr, tcp_unavailable_}});
  info["lends"] = {{"available", lender_ != nullptr},
                   {"reason", lender_unavailable_},
                   {"borrowers", lender_ != nullptr ? lender_->borrowers() : 0},
                   {"held", lender_ != nullptr ? lender_->held() : 0}};
  info["listen"] = tcp_ != nullptr ? tcp_->listening().text() : "";
  Json advertise = Json::array();
  for (const wire::Address& address : connection_.addresses) {
    advertise.push_back(
        platform::SocketAddress::from_bytes(address.family, address.bytes, connection_.port)
            .text());
  }
  info["advertise"] = std::move(advertise);
  info["loopback_reachable"] = connection_.loopback_reachable;
  const Telemetry counted = telemetry();
  info["counters"] = counters_json(counted);
  info["routes"] = routes_json(counted.routes);
  info["registrations"] = registrations_json(registry.counts());
  info["budgets"] = budgets_json(counted.budgets);
  info["slices_out"] = planner_.slices_out();
  info["served_lanes"] = tcp_ != nullptr ? tcp_->served_lanes() : 0;
  info["lane_sockets"] = tcp_ != nullptr ? tcp_->lane_sockets() : 0;
  info["peers"] = Json::parse(peers_json());
  info["unresolved"] = unresolved_json(unresolved_peers());
  // Names come from peers: bytes that are not UTF-8 must not fail the whole answer.
  return info.dump(2, ' ', false, Json::error_handler_t::replace);
}

/// Text, so that no header needs the JSON library.
std::string TransferEngine::Impl::peers_json() const {
  Json list = Json::array();
  const auto active = active_executions();
  for (const auto& peer : peers.all()) {
    const auto executions = std::count_if(active.begin(), active.end(), [&](const auto& execution) {
      return execution->peer().link() == peer->link();
    });
    const bool has_flow = tcp_ != nullptr && peer->link() != nullptr && !peer->is_self();
    list.push_back(
        {{"name", peer->name()},
         {"epoch", base::to_hex(peer->epoch().bytes)},
         {"retired", peer->retired()},
         {"neighbor", neighbor_json(*peer)},
         {"executions_active", executions},
         {"slices_unproved",
          has_flow ? tcp_->unproved(transfer::flow_of(*peer, policy::TransportKind::kTcp)) : 0}});
  }
  return list.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace orbite
