// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "codes.hpp"
#include "engine_table.hpp"
#include "entry.hpp"

namespace orbite::bridge {
namespace {

Result<std::string_view> peer_name(const char* name, std::size_t name_bytes) {
  ORBITE_ASSIGN_OR_RETURN(const auto bytes, input_bytes(name, name_bytes, "name"));
  if (bytes.empty() || bytes.size() > ORBITE_NIXL_NAME_BYTES_MAX) {
    return fail(ErrorCode::kInvalidArgument, "name has %zu bytes; allowed: 1..%d", bytes.size(),
                ORBITE_NIXL_NAME_BYTES_MAX);
  }
  return std::string_view(name, name_bytes);
}

void fill(const UnresolvedPeer& from, orbite_nixl_unresolved_t& to) {
  const orbite_nixl_record_t head = to.record;
  to = {};
  to.record = head;
  std::copy(from.epoch.begin(), from.epoch.end(), to.epoch);
  to.name_bytes = static_cast<uint32_t>(std::min(from.name.size(), sizeof(to.name)));
  from.name.copy(to.name, to.name_bytes);
  from.address.copy(to.address, sizeof(to.address) - 1);
  to.status = static_cast<int32_t>(from.code);
  to.native_errno = from.native_errno;
  to.retired = from.retired ? 1 : 0;
  to.requests = from.requests;
  to.bytes = from.bytes;
  to.pieces = from.pieces;
  to.duration_ns = from.duration_ns;
}

}  // namespace
}  // namespace orbite::bridge

using orbite::ErrorCode;
using orbite::fail;
using orbite::Handle;
using orbite::Result;
using orbite::UnresolvedPeer;
using orbite::bridge::check_pointer;
using orbite::bridge::check_range;
using orbite::bridge::check_record;
using orbite::bridge::copy_out;
using orbite::bridge::EngineLease;
using orbite::bridge::fill;
using orbite::bridge::guarded;
using orbite::bridge::input_bytes;
using orbite::bridge::peer_name;

orbite_nixl_status_t orbite_nixl_peer_export(orbite_nixl_engine_t engine, void* buffer,
                                             size_t* bytes, orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_TRY(check_pointer(bytes, "bytes"));
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    return copy_out(lease->connection_blob(), buffer, bytes, "buffer");
  });
}

orbite_nixl_status_t orbite_nixl_peer_self(orbite_nixl_engine_t engine, orbite_nixl_peer_t* peer,
                                           orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_TRY(check_pointer(peer, "peer"));
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    ORBITE_ASSIGN_OR_RETURN(const Handle handle, lease->self_peer());
    *peer = handle.packed();
    return {};
  });
}

orbite_nixl_status_t orbite_nixl_peer_import(orbite_nixl_engine_t engine, const char* name,
                                             size_t name_bytes, const void* blob, size_t blob_bytes,
                                             orbite_nixl_peer_t* peer, orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_TRY(check_pointer(peer, "peer"));
    ORBITE_ASSIGN_OR_RETURN(const std::string_view text, peer_name(name, name_bytes));
    ORBITE_ASSIGN_OR_RETURN(const auto bytes, input_bytes(blob, blob_bytes, "blob"));
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    ORBITE_ASSIGN_OR_RETURN(const Handle handle, lease->import_peer(text, bytes));
    *peer = handle.packed();
    return {};
  });
}

orbite_nixl_status_t orbite_nixl_peer_connect(orbite_nixl_engine_t engine, orbite_nixl_peer_t peer,
                                              uint64_t timeout_ns, orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    return lease->connect_peer(Handle::unpack(peer), timeout_ns);
  });
}

orbite_nixl_status_t orbite_nixl_peer_retire(orbite_nixl_engine_t engine, orbite_nixl_peer_t peer,
                                             orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    return lease->retire_peer(Handle::unpack(peer));
  });
}

orbite_nixl_status_t orbite_nixl_peer_confirm_fenced(orbite_nixl_engine_t engine,
                                                     orbite_nixl_peer_t peer,
                                                     orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    return lease->confirm_peer_fenced(Handle::unpack(peer));
  });
}

orbite_nixl_status_t orbite_nixl_unresolved_read(orbite_nixl_engine_t engine,
                                                 orbite_nixl_unresolved_t* peers, size_t* count,
                                                 orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_TRY(check_pointer(count, "count"));
    const size_t capacity = peers == nullptr ? 0 : *count;
    if (capacity > 0) {
      ORBITE_TRY(check_pointer(peers, "peers"));
    }
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    const std::vector<UnresolvedPeer> unresolved = lease->unresolved_peers();
    const size_t needed = unresolved.size();
    *count = needed;
    if (needed > capacity) {
      return fail(ErrorCode::kBufferTooSmall, "peers has room for %zu records, needed: %zu",
                  capacity, needed);
    }
    for (size_t i = 0; i < needed; ++i) {
      ORBITE_TRY(check_record(&peers[i], "peers"));
    }
    for (size_t i = 0; i < needed; ++i) {
      fill(unresolved[i], peers[i]);
    }
    return {};
  });
}

orbite_nixl_status_t orbite_nixl_epoch_confirm_fenced(orbite_nixl_engine_t engine,
                                                      const uint8_t* epoch,
                                                      orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_TRY(check_pointer(epoch, "epoch"));
    std::array<std::uint8_t, ORBITE_NIXL_EPOCH_BYTES> bytes;
    std::copy_n(epoch, bytes.size(), bytes.begin());
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    return lease->confirm_epoch_fenced(bytes);
  });
}

orbite_nixl_status_t orbite_nixl_range_import(orbite_nixl_engine_t engine, orbite_nixl_peer_t peer,
                                              const void* blob, size_t blob_bytes, uint64_t address,
                                              uint64_t length, orbite_nixl_range_t* range,
                                              orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_TRY(check_pointer(range, "range"));
    ORBITE_ASSIGN_OR_RETURN(const auto bytes, input_bytes(blob, blob_bytes, "blob"));
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    ORBITE_TRY(check_range(address, length, "range"));
    ORBITE_ASSIGN_OR_RETURN(const Handle handle,
                            lease->import_range(Handle::unpack(peer), bytes, address, length));
    *range = handle.packed();
    return {};
  });
}

orbite_nixl_status_t orbite_nixl_range_local(orbite_nixl_engine_t engine,
                                             orbite_nixl_registration_t registration,
                                             orbite_nixl_range_t* range,
                                             orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_TRY(check_pointer(range, "range"));
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    ORBITE_ASSIGN_OR_RETURN(const Handle handle, lease->local_range(Handle::unpack(registration)));
    *range = handle.packed();
    return {};
  });
}

orbite_nixl_status_t orbite_nixl_range_release(orbite_nixl_engine_t engine,
                                               orbite_nixl_range_t range,
                                               orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    return lease->release_range(Handle::unpack(range));
  });
}
