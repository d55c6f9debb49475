// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "memory/registry.hpp"
#include "orbite/transfer.hpp"
#include "peer/peer.hpp"
#include "transfer/extents.hpp"

namespace orbite::transfer {

/// What a caller submits: tasks in order, then a seal. Tasks that are neighbours on both sides,
/// inside the same registrations, merge into one extent; they are aliases of it and share its
/// result.
class Batch {
 public:
  Batch(memory::Registry& registry, const peer::RangeTable& ranges, const peer::Peer& peer)
      : registry_(registry), ranges_(ranges), peer_(peer) {}

  /// Checks one pair of ranges: bounds against both registrations, equal lengths, the peer that the
  /// remote range belongs to, access rights for `operation`. On an error the batch is unusable.
  Result<void> add(Operation operation, const Descriptor& local, const Descriptor& remote);

  /// No task can be added any more; a batch without tasks is kInvalidArgument.
  Result<void> seal();

  /// Of a sealed batch.
  [[nodiscard]] const ExtentList& extents() const noexcept { return extents_; }
  /// What a sealed batch found, given away; the batch is spent.
  void move_into(ExtentList& extents, std::vector<std::shared_ptr<memory::Registration>>& locals,
                 std::vector<std::shared_ptr<peer::RemoteRange>>& remotes) {
    extents = std::move(extents_);
    locals = std::move(locals_);
    remotes = std::move(remotes_);
  }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t tasks() const noexcept { return tasks_; }

 private:
  Result<std::uint32_t> local_index(Handle owner);
  Result<std::uint32_t> remote_index(Operation operation, Handle owner);

  memory::Registry& registry_;
  const peer::RangeTable& ranges_;
  const peer::Peer& peer_;
  ExtentListWriter writer_;
  ExtentList extents_;
  std::vector<std::shared_ptr<memory::Registration>> locals_;
  std::vector<Handle> local_handles_;
  std::vector<std::shared_ptr<peer::RemoteRange>> remotes_;
  std::vector<Handle> remote_handles_;
  std::uint64_t bytes_ = 0;
  std::uint64_t tasks_ = 0;
  std::uint32_t last_local_ = 0;
  std::uint32_t last_remote_ = 0;
  bool sealed_ = false;
};

}  // namespace orbite::transfer
