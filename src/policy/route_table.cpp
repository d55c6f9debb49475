// SPDX-License-Identifier: Apache-2.0
#include "policy/route_table.hpp"

namespace orbite::policy {

const char* transport_name(TransportKind kind) noexcept {
  switch (kind) {
    case TransportKind::kLocal:
      return "local";
    case TransportKind::kShm:
      return "shm";
    case TransportKind::kCma:
      return "cma";
    case TransportKind::kTcp:
      return "tcp";
  }
  return "";
}

RouteTable::RouteTable(const Config& config) : small_bytes_(config.tcp.small_bytes) {
  for (const std::string& name : config.transfer.routes) {
    // Our own memory is never sent through a socket. TCP reaches every peer and carries the
    // notifications; what stands behind it is never chosen.
    if (name == "local" && config.local.enabled) {
      self_ = true;
    } else if (name == "tcp" && config.tcp.enabled) {
      remote_ = true;
    } else if (name == "shm" && config.shm.enabled && !remote_) {
      remote_preferred_.push_back(TransportKind::kShm);
    } else if (name == "cma" && config.cma.enabled && !remote_) {
      remote_preferred_.push_back(TransportKind::kCma);
    }
  }
}

Result<Route> RouteTable::choose(bool self, std::uint64_t bytes) const {
  if (!(self ? self_ : remote_)) {
    return fail(
        ErrorCode::kTransportUnavailable,
        self ? "no route to ourselves: local.enabled is false or transfer.routes lacks 'local'"
             : "no route to a peer: tcp.enabled is false or transfer.routes lacks 'tcp'");
  }
  return Route{self ? TransportKind::kLocal : TransportKind::kTcp,
               bytes <= small_bytes_ ? QosClass::kLatency : QosClass::kBulk};
}

}  // namespace orbite::policy
