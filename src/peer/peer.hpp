// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/byte_range.hpp"
#include "base/ids.hpp"
#include "base/planted.hpp"
#include "base/result.hpp"
#include "base/slot_map.hpp"
#include "memory/registry.hpp"
#include "platform/neighbors.hpp"
#include "wire/metadata.hpp"

namespace orbite::peer {

/// What a transport keeps for one peer epoch. It outlives any one Peer: a peer that is retired and
/// imported again with the same epoch finds its connections still standing.
class Link {
 public:
  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  virtual ~Link() = default;
};

/// One life of a remote engine under one epoch, or ourselves. `Live -> Retired`, and that is all: a
/// peer that comes back, with the same epoch or another, is another Peer.
class Peer {
 public:
  Peer(std::string name, wire::ConnectionBlob connection, bool self)
      : name_(std::move(name)), connection_(std::move(connection)), self_(self) {}

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const wire::ConnectionBlob& connection() const noexcept { return connection_; }
  [[nodiscard]] const base::SourceEpoch& epoch() const noexcept { return connection_.epoch; }
  [[nodiscard]] bool is_self() const noexcept { return self_; }

  /// Set once, before the peer is shared.
  void set_link(std::shared_ptr<Link> link) { link_ = std::move(link); }
  [[nodiscard]] Link* link() const noexcept { return link_.get(); }
  [[nodiscard]] const std::shared_ptr<Link>& shared_link() const noexcept { return link_; }

  // Admission checks it after taking its permit, retire() sets it before it looks at the permits:
  // one of the two sees the other. Hence sequentially consistent on both sides.
  void retire() noexcept { retired_.store(true, std::memory_order_seq_cst); }
  [[nodiscard]] bool retired() const noexcept { return retired_.load(std::memory_order_seq_cst); }

  /// kPeerRetired names the peer.
  [[nodiscard]] Result<void> check_live() const {
    if (retired() && !base::planted(base::Bug::kUnloadKeepsPeer)) {
      return fail(ErrorCode::kPeerRetired, "peer '%.64s'", name_.c_str());
    }
    return {};
  }

 private:
  std::string name_;
  wire::ConnectionBlob connection_;
  std::shared_ptr<Link> link_;
  std::atomic<bool> retired_{false};
  bool self_;
};

/// A lease on a range that a peer described, or on a registration of our own.
class RemoteRange {
 public:
  /// Of a peer. `bounds` lies inside the blob's range.
  RemoteRange(std::shared_ptr<Peer> peer, const wire::RangeBlob& blob, base::ByteRange bounds)
      : peer_(std::move(peer)), blob_(blob), bounds_(bounds) {}
  /// Of ourselves.
  RemoteRange(std::shared_ptr<memory::Registration> own, base::ByteRange bounds)
      : own_(std::move(own)), bounds_(bounds) {}

  /// nullptr for a range of our own.
  [[nodiscard]] const Peer* peer() const noexcept { return peer_.get(); }
  [[nodiscard]] const std::shared_ptr<memory::Registration>& own() const noexcept { return own_; }
  [[nodiscard]] const wire::RangeBlob& blob() const noexcept { return blob_; }
  [[nodiscard]] const base::ByteRange& bounds() const noexcept { return bounds_; }
  [[nodiscard]] std::uint8_t access() const noexcept {
    return own_ != nullptr ? own_->access() : blob_.access;
  }

  // Same pairing as Peer::retire.
  void fence() noexcept { fenced_.store(true, std::memory_order_seq_cst); }
  [[nodiscard]] bool fenced() const noexcept { return fenced_.load(std::memory_order_seq_cst); }

  /// Once: the first byte of the blob's range lies at `address` of ours while `pages` live.
  void map(std::shared_ptr<platform::PageMapping> pages, std::uint64_t address) noexcept {
    pages_ = std::move(pages);
    // Release: pairs with the acquire below.
    mapped_at_.store(address, std::memory_order_release);
  }
  /// Where that is; 0: it is not mapped.
  [[nodiscard]] std::uint64_t mapped_at() const noexcept {
    return mapped_at_.load(std::memory_order_acquire);
  }

 private:
  std::shared_ptr<Peer> peer_;
  std::shared_ptr<memory::Registration> own_;
  wire::RangeBlob blob_{};
  base::ByteRange bounds_;
  std::atomic<bool> fenced_{false};
  std::shared_ptr<platform::PageMapping> pages_;
  std::atomic<std::uint64_t> mapped_at_{0};
};

using RangeTable = base::SlotMap<RemoteRange>;

/// The peers by handle and by agent name. Several handles may share one Peer; it is retired when
/// the last of them is, when its name comes with another identity, or by whoever knows that it is
/// fenced. A retired one says nothing more of its name, although handles still name it.
class SegmentManager {
 public:
  explicit SegmentManager(std::uint64_t peers_max)
      : handles_("peer", peers_max, "limits.peers_max") {}

  /// The live peer of that name and exactly this connection, if there is one.
  [[nodiscard]] std::shared_ptr<Peer> find_live(const std::string& name,
                                                const wire::ConnectionBlob& connection) const;
  /// Gives a handle on `peer`; kPeerRetired when it is. Another peer of the same name is retired
  /// and returned in `replaced`.
  Result<Handle> add(std::shared_ptr<Peer> peer, std::shared_ptr<Peer>& replaced);
  [[nodiscard]] Result<std::shared_ptr<Peer>> find(Handle handle) const;
  /// Ends the handle; retires the peer with its last one.
  Result<std::shared_ptr<Peer>> remove(Handle handle);
  [[nodiscard]] std::vector<std::shared_ptr<Peer>> all() const { return handles_.all(); }
  /// False for a sender that a live peer of that name contradicts: an older life of it.
  [[nodiscard]] bool epoch_is_current(const std::string& name,
                                      const base::SourceEpoch& epoch) const;
  void retire_all();
  [[nodiscard]] std::size_t size() const { return handles_.size(); }
  [[nodiscard]] std::uint64_t max() const noexcept { return handles_.max(); }
  [[nodiscard]] std::uint64_t refused() const { return handles_.refused(); }

 private:
  struct Named {
    std::shared_ptr<Peer> peer;
    std::size_t handles = 0;
  };
  base::SlotMap<Peer> handles_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Named> by_name_;
};

}  // namespace orbite::peer
