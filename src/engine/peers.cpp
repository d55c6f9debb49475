// SPDX-License-Identifier: Apache-2.0
// Peers, and the ranges that they described.
#include <cstring>

#include "base/at_exit.hpp"
#include "engine/impl.hpp"

namespace orbite {

Result<std::shared_ptr<peer::Peer>> TransferEngine::Impl::make_peer(
    std::string name, const wire::ConnectionBlob& connection, bool self) {
  auto peer = std::make_shared<peer::Peer>(std::move(name), connection, self);
  // Without a route the peer can still be imported; prepare says what is missing.
  if (auto route = routes_.choose(self, 0); route) {
    ORBITE_ASSIGN_OR_RETURN(std::shared_ptr<transfer::PeerFlows> flows, open_flows(*peer, *route));
    peer->set_link(std::move(flows));
  }
  return peer;
}

/// The same ones for the same connection blob, while somebody holds them. Under self_mutex_.
Result<std::shared_ptr<transfer::PeerFlows>> TransferEngine::Impl::open_flows(
    const peer::Peer& peer, const policy::Route& route) {
  const std::vector<std::uint8_t> bytes = wire::encode(peer.connection());
  const std::string key(bytes.begin(), bytes.end());
  if (const auto found = peer_flows_.find(key); found != peer_flows_.end()) {
    if (auto flows = found->second.lock(); flows != nullptr) {
      return flows;
    }
  }
  std::erase_if(peer_flows_, [](const auto& known) { return known.second.expired(); });
  auto flows = std::make_shared<transfer::PeerFlows>();
  const auto open = [&](policy::TransportKind kind) -> Result<void> {
    transfer::Transport* const transport = planner_.transport(kind);
    if (transport != nullptr) {
      ORBITE_ASSIGN_OR_RETURN(std::shared_ptr<transfer::Flow> flow, transport->open(peer));
      if (flow != nullptr) {
        flows->set(std::move(flow));
      }
    }
    return {};
  };
  ORBITE_TRY(open(route.transport));
  for (const policy::TransportKind kind : routes_.preferred(peer.is_self())) {
    ORBITE_TRY(open(kind));
  }
  peer_flows_.emplace(key, flows);
  return flows;
}

Result<Handle> TransferEngine::Impl::self_peer() {
  ORBITE_TRY(check_usable());
  const std::lock_guard lock(self_mutex_);
  std::shared_ptr<peer::Peer> peer = peers.find_live(options.name, connection_);
  if (peer == nullptr) {
    ORBITE_ASSIGN_OR_RETURN(peer, make_peer(options.name, connection_, true));
  }
  std::shared_ptr<peer::Peer> replaced;
  return peers.add(std::move(peer), replaced);
}

Result<Handle> TransferEngine::Impl::import_peer(std::string_view name,
                                                 std::span<const std::uint8_t> blob) {
  ORBITE_TRY(check_usable());
  if (name.empty() || name.size() > kNameBytesMax) {
    return fail(ErrorCode::kInvalidArgument, "peer name of %zu bytes, allowed 1..%zu", name.size(),
                kNameBytesMax);
  }
  ORBITE_ASSIGN_OR_RETURN(const wire::ConnectionBlob connection,
                          wire::decode_connection(blob, wire::Profile::kMemory));
  if (connection.epoch == epoch_) {
    return self_peer();
  }
  const std::lock_guard lock(self_mutex_);
  std::shared_ptr<peer::Peer> peer = peers.find_live(std::string(name), connection);
  if (peer == nullptr) {
    ORBITE_ASSIGN_OR_RETURN(peer, make_peer(std::string(name), connection, false));
  }
  std::shared_ptr<peer::Peer> replaced;
  return peers.add(std::move(peer), replaced);
}

Result<void> TransferEngine::Impl::connect_peer(Handle handle, std::uint64_t timeout_ns) {
  ORBITE_TRY(check_process());
  {
    const std::lock_guard lock(active_mutex_);
    ORBITE_TRY(check_usable());
    ++waiting_for_worker_;  // which does not end while somebody waits for it
  }
  const base::AtExit waits_no_more([this] {
    const std::lock_guard lock(active_mutex_);
    --waiting_for_worker_;
  });
  return connect_and_verify(handle, timeout_ns);
}

Result<void> TransferEngine::Impl::connect_and_verify(Handle handle, std::uint64_t timeout_ns) {
  ORBITE_ASSIGN_OR_RETURN(const std::shared_ptr<peer::Peer> peer, peers.find(handle));
  ORBITE_TRY(peer->check_live());
  ORBITE_ASSIGN_OR_RETURN(const policy::Route route, routes_.choose(peer->is_self(), 0));
  if (timeout_ns == 0) {
    timeout_ns = options.config.tcp.connect_timeout_ms * base::kMillisecond;
  }
  // So that a time of any clock and the timeout can be added.
  timeout_ns = static_cast<std::uint64_t>(base::clamp_wait(timeout_ns).count());
  const base::Nanoseconds deadline_ns = base::saturating_add(clock.now_ns(), timeout_ns);
  const auto left_ns = [&] {
    const base::Nanoseconds now_ns = clock.now_ns();
    return deadline_ns > now_ns ? deadline_ns - now_ns : 0;
  };
  transfer::Transport& transport = *planner_.transport(route.transport);
  transfer::Flow& flow = transfer::flow_of(*peer, route.transport);
  ORBITE_TRY(transport.connect(flow, timeout_ns));
  if (!peer->is_self()) {
    ORBITE_TRY(verify_ranges(transport, flow, *peer, left_ns()));
  }
  // Last: what these take of the time is nobody else's, and without them there is that transport.
  for (const policy::TransportKind kind : routes_.preferred(peer->is_self())) {
    if (transfer::Flow* const better = transfer::flows_of(*peer).find(kind); better != nullptr) {
      ORBITE_TRY(planner_.transport(kind)->connect(*better, left_ns()));
    }
  }
  return {};
}

/// Asks the peer about every range of it that was imported, and fences those that it does not have
/// any more: metadata that was sent once is never withdrawn.
Result<void> TransferEngine::Impl::verify_ranges(transfer::Transport& transport,
                                                 transfer::Flow& flow, const peer::Peer& peer,
                                                 std::uint64_t timeout_ns) {
  std::vector<std::shared_ptr<peer::RemoteRange>> imported;
  std::vector<wire::RegistrationRef> registrations;
  for (auto& range : ranges.all()) {
    if (range->peer() == &peer && !range->fenced()) {
      wire::RegistrationRef& entry = registrations.emplace_back();
      entry.index = range->blob().index;
      entry.generation = range->blob().generation;
      std::memcpy(entry.key, range->blob().key.bytes.data(), sizeof(entry.key));
      imported.push_back(std::move(range));
    }
  }
  ORBITE_ASSIGN_OR_RETURN(const std::vector<wire::DescribedRange> described,
                          transport.describe(flow, registrations, timeout_ns));
  for (std::size_t i = 0; i < described.size(); ++i) {
    const wire::RangeBlob& blob = imported[i]->blob();
    if (described[i].live == 0 || described[i].address != blob.address ||
        described[i].length != blob.length || described[i].access != blob.access) {
      imported[i]->fence();
    }
  }
  return {};
}

Result<void> TransferEngine::Impl::retire_peer(Handle handle) {
  ORBITE_TRY(check_process());
  ORBITE_TRY(peers.remove(handle));
  return {};
}

Result<Handle> TransferEngine::Impl::import_range(Handle handle,
                                                  std::span<const std::uint8_t> bytes,
                                                  std::uint64_t address, std::uint64_t length) {
  ORBITE_TRY(check_usable());
  ORBITE_ASSIGN_OR_RETURN(const std::shared_ptr<peer::Peer> peer, peers.find(handle));
  ORBITE_TRY(peer->check_live());
  ORBITE_ASSIGN_OR_RETURN(const wire::RangeBlob blob, wire::decode_range(bytes));
  if (blob.epoch != peer->epoch()) {
    return fail(ErrorCode::kPeerEpochChanged,
                "the range is of epoch %s, peer '%.64s' is imported with %s",
                base::to_hex(blob.epoch.bytes).c_str(), peer->name().c_str(),
                base::to_hex(peer->epoch().bytes).c_str());
  }
  if (blob.kind != static_cast<std::uint8_t>(MemoryKind::kDram)) {
    return fail(ErrorCode::kUnsupported, "memory kind %u, only DRAM (0) is supported", blob.kind);
  }
  ORBITE_ASSIGN_OR_RETURN(const base::ByteRange bounds, base::ByteRange::make(address, length));
  ORBITE_ASSIGN_OR_RETURN(const base::ByteRange described,
                          base::ByteRange::make(blob.address, blob.length));
  if (!described.covers(bounds)) {
    return fail(ErrorCode::kInvalidRange, "0x%llx + %llu is outside the described 0x%llx + %llu",
                static_cast<unsigned long long>(address), static_cast<unsigned long long>(length),
                static_cast<unsigned long long>(blob.address),
                static_cast<unsigned long long>(blob.length));
  }
  if (peer->is_self()) {
    ORBITE_ASSIGN_OR_RETURN(std::shared_ptr<memory::Registration> own,
                            registry.find(Handle{blob.index, blob.generation}));
    return ranges.insert(std::make_shared<peer::RemoteRange>(std::move(own), bounds));
  }
  auto range = std::make_shared<peer::RemoteRange>(peer, blob, bounds);
  if (blob.shared && shm_ != nullptr && peer->link() != nullptr) {
    shm_->want(transfer::flows_of(*peer).find(policy::TransportKind::kShm), range);
  }
  return ranges.insert(std::move(range));
}

Result<Handle> TransferEngine::Impl::local_range(Handle registration) {
  ORBITE_TRY(check_usable());
  ORBITE_ASSIGN_OR_RETURN(std::shared_ptr<memory::Registration> own, registry.find(registration));
  const base::ByteRange bounds = own->range();
  return ranges.insert(std::make_shared<peer::RemoteRange>(std::move(own), bounds));
}

Result<void> TransferEngine::Impl::release_range(Handle range) {
  ORBITE_TRY(check_process());
  ORBITE_ASSIGN_OR_RETURN(const std::shared_ptr<peer::RemoteRange> released, ranges.take(range));
  released->fence();
  return {};
}

}  // namespace orbite
