// SPDX-License-Identifier: Apache-2.0
#include "policy/route_table.hpp"

namespace orbite::policy {

const char* transport_name(TransportKind kind) noexcept {
  switch (kind) {
    case TransportKind::kLocal:
      return "local";
    case TransportKind::kTcp:
      return "tcp";
  }
  return "";
}

RouteTable::RouteTable(const Config& config) : small_bytes_(config.tcp.small_bytes) {
  for (const std::string& name : config.transfer.routes) {
    // Our own memory is never sent through a socket, and nobody else's is within our reach.
    if (name == "local" && config.local.enabled) {
      self_routes_.push_back(TransportKind::kLocal);
    } else if (name == "tcp" && config.tcp.enabled) {
      remote_routes_.push_back(TransportKind::kTcp);
    }
  }
}

Result<Route> RouteTable::choose(bool self, std::uint64_t bytes) const {
  const std::vector<TransportKind>& routes = self ? self_routes_ : remote_routes_;
  if (routes.empty()) {
    return fail(
        ErrorCode::kTransportUnavailable,
        self ? "no route to ourselves: local.enabled is false or transfer.routes lacks 'local'"
             : "no route to a peer: tcp.enabled is false or transfer.routes lacks 'tcp'");
  }
  return Route{routes.front(), bytes <= small_bytes_ ? QosClass::kLatency : QosClass::kBulk};
}

}  // namespace orbite::policy
