// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "base/assert.hpp"
#include "peer/peer.hpp"
#include "transfer/transport.hpp"

namespace orbite::test {

/// Makes `flow` the one way to a peer that has none.
inline void set_flow(peer::Peer& peer, std::shared_ptr<transfer::Flow> flow) {
  auto flows = std::make_shared<transfer::PeerFlows>();
  flows->set(std::move(flow));
  peer.set_link(std::move(flows));
}

/// The one way to a peer.
inline transfer::Flow& only_flow(const peer::Peer& peer) {
  for (std::size_t kind = 0; kind < policy::kTransportKinds; ++kind) {
    if (auto* const flow = transfer::flows_of(peer).find(static_cast<policy::TransportKind>(kind));
        flow != nullptr) {
      return *flow;
    }
  }
  ORBITE_CHECK(false);
}

}  // namespace orbite::test
