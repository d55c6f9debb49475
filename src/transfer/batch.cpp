// SPDX-License-Identifier: Apache-2.0
#include "transfer/batch.hpp"

#include "base/assert.hpp"
#include "base/byte_range.hpp"

namespace orbite::transfer {
namespace {

unsigned long long ull(std::uint64_t value) { return value; }

Result<void> check_inside(const char* side, const base::ByteRange& range,
                          const base::ByteRange& bounds) {
  if (bounds.covers(range)) {
    return {};
  }
  return fail(ErrorCode::kInvalidRange,
              "%s range 0x%llx + %llu is outside the registered range 0x%llx + %llu", side,
              ull(range.address()), ull(range.length()), ull(bounds.address()),
              ull(bounds.length()));
}

/// Lists of many descriptors name few owners, mostly the same one again: a linear look is cheap,
/// and the last one is tried first.
std::uint32_t find_known(const std::vector<Handle>& handles, std::uint32_t last, Handle owner) {
  if (last < handles.size() && handles[last] == owner) {
    return last;
  }
  if (last + 1 < handles.size() && handles[last + 1] == owner) {
    return last + 1;
  }
  for (std::uint32_t i = 0; i < handles.size(); ++i) {
    if (handles[i] == owner) {
      return i;
    }
  }
  return static_cast<std::uint32_t>(handles.size());
}

}  // namespace

Result<std::uint32_t> Batch::local_index(Handle owner) {
  const std::uint32_t known = find_known(local_handles_, last_local_, owner);
  if (known < local_handles_.size()) {
    return known;
  }
  ORBITE_ASSIGN_OR_RETURN(std::shared_ptr<memory::Registration> registration,
                          registry_.find(owner));
  locals_.push_back(std::move(registration));
  local_handles_.push_back(owner);
  return known;
}

Result<std::uint32_t> Batch::remote_index(Operation operation, Handle owner) {
  const std::uint32_t known = find_known(remote_handles_, last_remote_, owner);
  if (known < remote_handles_.size()) {
    return known;
  }
  ORBITE_ASSIGN_OR_RETURN(std::shared_ptr<peer::RemoteRange> range, ranges_.find(owner));
  if (range->fenced()) {
    return fail(ErrorCode::kRegistrationFenced, "the imported range was released");
  }
  if (peer_.is_self() ? range->own() == nullptr : range->peer() != &peer_) {
    return fail(ErrorCode::kInvalidArgument, "a remote range does not belong to peer '%.64s'",
                peer_.name().c_str());
  }
  const std::uint8_t needed =
      operation == Operation::kRead ? kAccessRemoteRead : kAccessRemoteWrite;
  if ((range->access() & needed) == 0) {
    return fail(ErrorCode::kNotAllowed, "the remote range 0x%llx does not allow %s",
                ull(range->bounds().address()),
                operation == Operation::kRead ? "remote reads" : "remote writes");
  }
  remotes_.push_back(std::move(range));
  remote_handles_.push_back(owner);
  return known;
}

Result<void> Batch::add(Operation operation, const Descriptor& local, const Descriptor& remote) {
  ORBITE_CHECK(!sealed_);
  if (local.length != remote.length) {
    return fail(ErrorCode::kLengthMismatch,
                "descriptor %llu: local length %llu, remote length %llu", ull(tasks_),
                ull(local.length), ull(remote.length));
  }
  ORBITE_ASSIGN_OR_RETURN(const base::ByteRange local_range,
                          base::ByteRange::make(local.address, local.length));
  ORBITE_ASSIGN_OR_RETURN(const base::ByteRange remote_range,
                          base::ByteRange::make(remote.address, remote.length));
  ORBITE_ASSIGN_OR_RETURN(last_local_, local_index(local.owner));
  ORBITE_ASSIGN_OR_RETURN(last_remote_, remote_index(operation, remote.owner));
  ORBITE_TRY(check_inside("local", local_range, locals_[last_local_]->range()));
  ORBITE_TRY(check_inside("remote", remote_range, remotes_[last_remote_]->bounds()));
  if (local.length > UINT64_MAX - bytes_) {
    return fail(ErrorCode::kInvalidRange, "the sum of lengths overflows at descriptor %llu",
                ull(tasks_));
  }
  bytes_ += local.length;
  ++tasks_;
  writer_.add({local.address, remote.address, local.length, last_local_, last_remote_});
  return {};
}

Result<void> Batch::seal() {
  ORBITE_CHECK(!sealed_);
  if (tasks_ == 0) {
    return fail(ErrorCode::kInvalidArgument, "a request needs at least one descriptor");
  }
  sealed_ = true;
  extents_ = writer_.finish();
  return {};
}

}  // namespace orbite::transfer
