// SPDX-License-Identifier: Apache-2.0
// What is known and not retired, peer by peer, and the word that ends it.
#include <algorithm>
#include <map>
#include <set>

#include "base/log.hpp"
#include "engine/impl.hpp"

namespace orbite {
namespace {

/// One life may be known under several blobs, each with lanes of its own.
void add_trouble(const transport::tcp::Trouble& trouble, base::Nanoseconds now_ns,
                 UnresolvedPeer& unresolved) {
  if (trouble.slices == 0) {
    return;
  }
  unresolved.pieces += trouble.slices;
  const base::Nanoseconds lasts_ns = now_ns > trouble.since_ns ? now_ns - trouble.since_ns : 0;
  if (unresolved.address.empty() || lasts_ns > unresolved.duration_ns) {
    unresolved.code = trouble.code;
    unresolved.native_errno = trouble.native_errno;
    unresolved.address = trouble.address.text();
    unresolved.duration_ns = lasts_ns;
  }
}

}  // namespace

std::vector<UnresolvedPeer> TransferEngine::Impl::unresolved_peers() const {
  std::map<std::array<std::uint8_t, 16>, UnresolvedPeer> found;
  const base::Nanoseconds now_ns = clock.now_ns();
  std::set<std::array<std::uint8_t, 16>> living;
  for (const auto& peer : peers.all()) {
    living.insert(peer->epoch().bytes);
  }
  std::set<const peer::Link*> looked_at;
  for (const auto& execution : active_executions()) {
    const Outcome outcome = execution->outcome();
    if (outcome.logical == Logical::kNone || outcome.terminal()) {
      continue;
    }
    const peer::Peer& peer = execution->peer();
    const auto [entry, is_new] = found.try_emplace(peer.epoch().bytes);
    UnresolvedPeer& unresolved = entry->second;
    if (is_new) {
      unresolved.name = peer.name();
      unresolved.epoch = peer.epoch().bytes;
      unresolved.retired = !living.contains(peer.epoch().bytes);
      unresolved.code = outcome.code;
      unresolved.native_errno = outcome.native_errno;
    }
    if (tcp_ != nullptr && !peer.is_self() && looked_at.insert(peer.link()).second) {
      add_trouble(tcp_->trouble(transfer::flow_of(peer, policy::TransportKind::kTcp)), now_ns,
                  unresolved);
    }
    ++unresolved.requests;
    unresolved.bytes += execution->bytes();
  }
  std::vector<UnresolvedPeer> list;
  list.reserve(found.size());
  for (auto& [epoch, unresolved] : found) {
    list.push_back(std::move(unresolved));
  }
  return list;
}

Result<void> TransferEngine::Impl::confirm_peer_fenced(Handle handle) {
  ORBITE_TRY(check_process());
  ORBITE_ASSIGN_OR_RETURN(const std::shared_ptr<peer::Peer> peer, peers.find(handle));
  return confirm_epoch_fenced(peer->epoch());
}

/// Whatever asks for memory comes before anything is done.
Result<void> TransferEngine::Impl::confirm_epoch_fenced(const base::SourceEpoch& epoch) {
  ORBITE_TRY(check_process());
  const std::string epoch_text = base::to_hex(epoch.bytes);
  std::vector<std::shared_ptr<peer::Peer>> known = peers.all();
  std::erase_if(known, [&](const auto& peer) { return peer->epoch() != epoch; });
  // First, so that nothing is launched to them behind the look at what is active.
  for (const auto& peer : known) {
    peer->retire();
  }
  std::shared_ptr<transfer::Execution> execution = next_active(0, &epoch);
  if (known.empty() && execution == nullptr) {
    return fail(ErrorCode::kNotFound, "no peer of epoch %s", epoch_text.c_str());
  }
  const peer::Peer& named = known.empty() ? execution->peer() : *known.front();
  base::log(base::LogLevel::kWarn, "an operator declared peer '%.64s' (epoch %s) fenced",
            named.name().c_str(), epoch_text.c_str());
  counters.peers_confirmed_fenced.add();
  stop_active(ErrorCode::kPeerDisconnected, &epoch);
  if (tcp_ == nullptr || epoch == epoch_) {
    return {};
  }
  for (const auto& peer : known) {
    if (peer->link() != nullptr) {
      tcp_->confirm_fenced(transfer::flow_of(*peer, policy::TransportKind::kTcp));
    }
  }
  // Some may be to a peer that no handle names any more.
  for (; execution != nullptr; execution = next_active(execution->number(), &epoch)) {
    tcp_->confirm_fenced(transfer::flow_of(execution->peer(), policy::TransportKind::kTcp));
  }
  return {};
}

}  // namespace orbite
