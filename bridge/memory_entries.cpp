// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "base/log.hpp"
#include "codes.hpp"
#include "engine_table.hpp"
#include "entry.hpp"

namespace orbite::bridge {
namespace {

// What the host's callback throws must not unwind through the engine.
void call_retired(void (*retired)(void*), void* context) noexcept {
  try {
    retired(context);
  } catch (...) {
    base::log(base::LogLevel::kError, "the retired callback of a registration threw; ignored");
  }
}

Result<MemoryDescriptor> descriptor_of(const orbite_nixl_memory_t& memory) {
  ORBITE_TRY(check_range(memory.address, memory.length, "memory"));
  if (memory.kind != ORBITE_NIXL_MEMORY_DRAM) {
    return fail(ErrorCode::kUnsupported, "memory kind %u; supported: %d (DRAM)", memory.kind,
                static_cast<int>(ORBITE_NIXL_MEMORY_DRAM));
  }
  if ((memory.access & ~ORBITE_NIXL_ACCESS_ALL) != 0 ||
      (memory.access & ORBITE_NIXL_ACCESS_LOCAL) == 0) {
    return fail(ErrorCode::kInvalidArgument,
                "access 0x%x; allowed: ORBITE_NIXL_ACCESS_LOCAL and bits of 0x%x", memory.access,
                ORBITE_NIXL_ACCESS_ALL);
  }
  MemoryDescriptor descriptor;
  descriptor.address = memory.address;
  descriptor.length = memory.length;
  descriptor.device_id = memory.device_id;
  descriptor.kind = MemoryKind::kDram;
  descriptor.access = static_cast<std::uint8_t>(memory.access);
  if (memory.retired != nullptr) {
    descriptor.retired = [retired = memory.retired, context = memory.context]() noexcept {
      call_retired(retired, context);
    };
  }
  return descriptor;
}

}  // namespace
}  // namespace orbite::bridge

using orbite::Handle;
using orbite::Result;
using orbite::bridge::check_pointer;
using orbite::bridge::check_record;
using orbite::bridge::copy_out;
using orbite::bridge::descriptor_of;
using orbite::bridge::EngineLease;
using orbite::bridge::guarded;

orbite_nixl_status_t orbite_nixl_memory_register(orbite_nixl_engine_t engine,
                                                 const orbite_nixl_memory_t* memory,
                                                 orbite_nixl_registration_t* registration,
                                                 orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_TRY(check_record(memory, "memory"));
    ORBITE_TRY(check_pointer(registration, "registration"));
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    ORBITE_ASSIGN_OR_RETURN(const orbite::MemoryDescriptor descriptor, descriptor_of(*memory));
    ORBITE_ASSIGN_OR_RETURN(const Handle handle, lease->register_memory(descriptor));
    *registration = handle.packed();
    return {};
  });
}

orbite_nixl_status_t orbite_nixl_memory_deregister(orbite_nixl_engine_t engine,
                                                   orbite_nixl_registration_t registration,
                                                   int32_t* state, orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    if (state != nullptr) {
      ORBITE_TRY(check_pointer(state, "state"));
    }
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    ORBITE_ASSIGN_OR_RETURN(const orbite::RegistrationState reached,
                            lease->deregister_memory(Handle::unpack(registration)));
    if (state != nullptr) {
      *state = static_cast<int32_t>(reached);
    }
    return {};
  });
}

orbite_nixl_status_t orbite_nixl_memory_query(orbite_nixl_engine_t engine,
                                              orbite_nixl_registration_t registration,
                                              int32_t* state, orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_TRY(check_pointer(state, "state"));
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    ORBITE_ASSIGN_OR_RETURN(const orbite::RegistrationState reached,
                            lease->registration_state(Handle::unpack(registration)));
    *state = static_cast<int32_t>(reached);
    return {};
  });
}

orbite_nixl_status_t orbite_nixl_memory_export(orbite_nixl_engine_t engine,
                                               orbite_nixl_registration_t registration,
                                               void* buffer, size_t* bytes,
                                               orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_TRY(check_pointer(bytes, "bytes"));
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    ORBITE_ASSIGN_OR_RETURN(const std::vector<std::uint8_t> blob,
                            lease->export_memory(Handle::unpack(registration)));
    return copy_out(blob, buffer, bytes, "buffer");
  });
}
