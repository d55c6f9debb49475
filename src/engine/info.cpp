// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "engine/impl.hpp"

namespace orbite {
namespace {

nlohmann::ordered_json budget_json(const transfer::Budget& budget) {
  return {{"used", budget.used()}, {"max", budget.max()}};
}

}  // namespace

std::string TransferEngine::Impl::info_json() const {
  using Json = nlohmann::ordered_json;
  Json info;
  info["version"] = version();
  info["build"] = {{"compiler", __VERSION__}, {"wire_version", wire::kWireVersion}};
  info["name"] = options.name;
  info["epoch"] = base::to_hex(epoch_.bytes);

  Json transports = Json::array();
  transports.push_back({{"name", "local"},
                        {"available", local_ != nullptr},
                        {"reason", local_ != nullptr ? "" : "local.enabled is false"}});
  transports.push_back(
      {{"name", "tcp"}, {"available", tcp_ != nullptr}, {"reason", tcp_unavailable_}});
  for (const char* name : {"shm", "cma", "file", "cuda", "nvlink", "rdma", "gds", "mnnvl"}) {
    transports.push_back(
        {{"name", name}, {"available", false}, {"reason", "not built into this version"}});
  }
  info["transports"] = std::move(transports);

  info["listen"] = tcp_ != nullptr ? tcp_->listening().text() : "";
  Json advertise = Json::array();
  for (const wire::Address& address : connection_.addresses) {
    advertise.push_back(
        platform::SocketAddress::from_bytes(address.family, address.bytes, connection_.port)
            .text());
  }
  info["advertise"] = std::move(advertise);
  info["loopback_reachable"] = connection_.loopback_reachable;

  Json counts;
#define ORBITE_COUNTER_JSON(name, meaning) counts[#name] = counters.name.value();
  ORBITE_COUNTERS(ORBITE_COUNTER_JSON)
#undef ORBITE_COUNTER_JSON
  info["counters"] = std::move(counts);

  const memory::Registry::Counts registrations = registry.counts();
  info["registrations"] = {{"live", registrations.live},
                           {"fenced", registrations.fenced},
                           {"unquiesced", registrations.unquiesced},
                           {"retired_total", registrations.retired_total},
                           {"bytes", registrations.bytes_registered},
                           {"loans", registrations.loans}};
  Json budgets;
  budgets["requests"] = budget_json(admission_.requests);
  budgets["descriptors"] = budget_json(admission_.descriptors);
  budgets["bytes_in_flight"] = budget_json(admission_.bytes_in_flight);
  budgets["outbox_bytes"] = budget_json(admission_.outbox_bytes);
  budgets["inbox_bytes"] = {{"used", mailbox.bytes()},
                            {"max", options.config.notifications.inbox_bytes_max}};
  info["budgets"] = std::move(budgets);
  info["slices_out"] = planner_.slices_out();
  info["served_lanes"] = tcp_ != nullptr ? tcp_->served_lanes() : 0;
  info["lane_sockets"] = tcp_ != nullptr ? tcp_->lane_sockets() : 0;

  Json peers_json = Json::array();
  for (const auto& peer : peers.all()) {
    std::uint64_t executions = 0;
    for (const auto& execution : active_executions()) {
      executions += execution->peer().link() == peer->link() ? 1 : 0;
    }
    const bool has_flow = tcp_ != nullptr && peer->link() != nullptr && !peer->is_self();
    peers_json.push_back(
        {{"name", peer->name()},
         {"epoch", base::to_hex(peer->epoch().bytes)},
         {"retired", peer->retired()},
         {"executions_active", executions},
         {"slices_unproved",
          has_flow ? tcp_->unproved(static_cast<transfer::Flow&>(*peer->link())) : 0}});
  }
  info["peers"] = std::move(peers_json);
  // Names come from peers: bytes that are not UTF-8 must not fail the whole answer.
  return info.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace orbite
