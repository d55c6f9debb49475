// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "entry.hpp"
#include "memory/shared_allocations.hpp"
#include "orbite/shared_memory.hpp"
#include "platform/per_process.hpp"

namespace orbite::bridge {
namespace {

static_assert(ORBITE_NIXL_SHARED_BYTES_MAX == kSharedBytesMax);

struct HeldMemory {
  SharedMemory memory;
  bool imported = false;
};

/// What this process holds through the C ABI, by number.
struct SharedTable {
  std::mutex mutex;
  std::map<std::uint64_t, HeldMemory> held;
};

constinit platform::PerProcess<SharedTable> tables;

std::uint64_t hold(SharedMemory memory, bool imported) {
  const std::uint64_t number = memory.id();
  SharedTable& table = tables.get();
  const std::lock_guard lock(table.mutex);
  table.held.emplace(number, HeldMemory{std::move(memory), imported});
  return number;
}

Result<SharedMemory> allocate(const orbite_nixl_shared_options_t& options) {
  ORBITE_ASSIGN_OR_RETURN(const auto name,
                          input_bytes(options.name, options.name_bytes, "options.name"));
  if (name.size() > ORBITE_NIXL_SHARED_NAME_BYTES_MAX) {
    return fail(ErrorCode::kInvalidArgument, "options.name_bytes is %zu; allowed: at most %d",
                name.size(), ORBITE_NIXL_SHARED_NAME_BYTES_MAX);
  }
  if ((options.flags & ~ORBITE_NIXL_SHARED_HUGE_PAGES) != 0) {
    return fail(ErrorCode::kInvalidArgument, "options.flags is 0x%x; allowed: bits of 0x%x",
                options.flags, ORBITE_NIXL_SHARED_HUGE_PAGES);
  }
  if (options.reserved != 0) {
    return fail(ErrorCode::kInvalidArgument, "options.reserved is %u; allowed: 0",
                options.reserved);
  }
  SharedMemoryOptions wanted;
  if (options.name != nullptr) {
    wanted.name.assign(name.begin(), name.end());
  }
  wanted.huge_pages = (options.flags & ORBITE_NIXL_SHARED_HUGE_PAGES) != 0;
  return allocate_shm_memory(options.bytes, wanted);
}

Error unknown(std::uint64_t number) {
  const auto shown = static_cast<unsigned long long>(number);
  if (memory::SharedAllocations::of_process().is_inherited(number)) {
    return Error::make(ErrorCode::kForked, "shared memory %llu", shown);
  }
  return Error::make(ErrorCode::kStaleHandle, "shared memory %llu", shown);
}

Result<void> free_shared(std::uint64_t number) {
  SharedTable& table = tables.get();
  // Unmapped after the lock is given up.
  std::map<std::uint64_t, HeldMemory>::node_type ended;
  const std::lock_guard lock(table.mutex);
  const auto it = table.held.find(number);
  if (it == table.held.end()) {
    return fail(unknown(number));
  }
  if (it->second.imported && !it->second.memory.end_if_unused()) {
    return fail(ErrorCode::kActive,
                "shared memory %llu was imported and is registered; deregister it first",
                static_cast<unsigned long long>(number));
  }
  ended = table.held.extract(it);
  return {};
}

}  // namespace
}  // namespace orbite::bridge

using orbite::import_shm_memory;
using orbite::Result;
using orbite::SharedMemory;
using orbite::bridge::allocate;
using orbite::bridge::check_pointer;
using orbite::bridge::check_range;
using orbite::bridge::check_record;
using orbite::bridge::free_shared;
using orbite::bridge::guarded;
using orbite::bridge::hold;

orbite_nixl_status_t orbite_nixl_shared_allocate(const orbite_nixl_shared_options_t* options,
                                                 orbite_nixl_shared_t* shared, uint64_t* address,
                                                 orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_TRY(check_record(options, "options"));
    ORBITE_TRY(check_pointer(shared, "shared"));
    ORBITE_TRY(check_pointer(address, "address"));
    ORBITE_ASSIGN_OR_RETURN(SharedMemory memory, allocate(*options));
    const auto start = reinterpret_cast<std::uintptr_t>(memory.data());
    *shared = hold(std::move(memory), false);
    *address = start;
    return {};
  });
}

orbite_nixl_status_t orbite_nixl_shared_import(int32_t fd, uint64_t address, uint64_t bytes,
                                               orbite_nixl_shared_t* shared,
                                               orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_TRY(check_pointer(shared, "shared"));
    ORBITE_TRY(check_range(address, bytes, "memory"));
    // SAFETY: never dereferenced here; what is mapped there is asked of the kernel.
    void* const start = reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
    ORBITE_ASSIGN_OR_RETURN(SharedMemory memory, import_shm_memory(fd, start, bytes));
    *shared = hold(std::move(memory), true);
    return {};
  });
}

orbite_nixl_status_t orbite_nixl_shared_free(orbite_nixl_shared_t shared,
                                             orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> { return free_shared(shared); });
}
