// SPDX-License-Identifier: Apache-2.0
#include "peer/peer.hpp"

namespace orbite::peer {
namespace {

bool same_connection(const wire::ConnectionBlob& a, const wire::ConnectionBlob& b) {
  return a.epoch == b.epoch && a.secret == b.secret && a.port == b.port;
}

}  // namespace

std::shared_ptr<Peer> SegmentManager::find_live(const std::string& name,
                                                const wire::ConnectionBlob& connection) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_name_.find(name);
  if (found == by_name_.end() || found->second.peer->retired() ||
      !same_connection(found->second.peer->connection(), connection)) {
    return nullptr;
  }
  return found->second.peer;
}

Result<Handle> SegmentManager::add(std::shared_ptr<Peer> peer, std::shared_ptr<Peer>& replaced) {
  const std::lock_guard lock(mutex_);
  ORBITE_TRY(peer->check_live());
  ORBITE_ASSIGN_OR_RETURN(const Handle handle, handles_.insert(peer));
  auto found = by_name_.end();
  try {
    found = by_name_.try_emplace(peer->name(), Named{peer, 0}).first;
  } catch (...) {
    static_cast<void>(handles_.take(handle));
    throw;
  }
  Named& named = found->second;
  if (named.peer != peer) {
    named.peer->retire();
    replaced = std::move(named.peer);
    named.handles = 0;
  }
  named.peer = std::move(peer);
  ++named.handles;
  return handle;
}

Result<std::shared_ptr<Peer>> SegmentManager::find(Handle handle) const {
  return handles_.find(handle);
}

Result<std::shared_ptr<Peer>> SegmentManager::remove(Handle handle) {
  const std::lock_guard lock(mutex_);
  ORBITE_ASSIGN_OR_RETURN(std::shared_ptr<Peer> peer, handles_.take(handle));
  const auto found = by_name_.find(peer->name());
  // A replaced peer is retired already and no longer stands under its name.
  if (found != by_name_.end() && found->second.peer == peer) {
    if (--found->second.handles == 0) {
      peer->retire();
      by_name_.erase(found);
    }
  }
  return peer;
}

bool SegmentManager::epoch_is_current(const std::string& name,
                                      const base::SourceEpoch& epoch) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_name_.find(name);
  return found == by_name_.end() || found->second.peer->retired() ||
         found->second.peer->epoch() == epoch;
}

void SegmentManager::retire_all() {
  const std::lock_guard lock(mutex_);
  for (auto& [name, named] : by_name_) {
    named.peer->retire();
  }
}

}  // namespace orbite::peer
