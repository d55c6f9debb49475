// SPDX-License-Identifier: Apache-2.0
#include "nixl/direct/bridge_seam.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace orbite::test {

void* bridge_symbol(const char* name) {
  static void* const library = dlopen(ORBITE_TEST_BRIDGE, RTLD_NOW | RTLD_LOCAL);
  void* const symbol = library == nullptr ? nullptr : dlsym(library, name);
  if (symbol == nullptr) {
    std::fprintf(stderr, "%s in %s: %s\n", name, ORBITE_TEST_BRIDGE, dlerror());
    std::abort();
  }
  return symbol;
}

namespace {
thread_local orbite_nixl_engine_t created_last = 0;
}

orbite_nixl_engine_t engine_created_last() { return created_last; }

template <>
const char* CreateSeam::symbol() {
  return "orbite_nixl_engine_create";
}

}  // namespace orbite::test

extern "C" orbite_nixl_status_t orbite_nixl_engine_create(
    const orbite_nixl_engine_options_t* options, orbite_nixl_engine_t* engine,
    orbite_nixl_error_t* error) {
  const orbite_nixl_status_t status = orbite::test::CreateSeam::call(options, engine, error);
  orbite::test::created_last = status == ORBITE_NIXL_OK ? *engine : 0;
  return status;
}

#define ORBITE_SEAM(name, parameters, arguments)      \
  template <>                                         \
  const char* orbite::test::Seam<&name>::symbol() {   \
    return #name;                                     \
  }                                                   \
  extern "C" orbite_nixl_status_t name parameters {   \
    return orbite::test::Seam<&name>::call arguments; \
  }

ORBITE_SEAM(orbite_nixl_abi_query, (orbite_nixl_abi_t * abi, orbite_nixl_error_t* error),
            (abi, error))
ORBITE_SEAM(orbite_nixl_engine_release, (orbite_nixl_engine_t engine, orbite_nixl_error_t* error),
            (engine, error))
ORBITE_SEAM(orbite_nixl_memory_register,
            (orbite_nixl_engine_t engine, const orbite_nixl_memory_t* memory,
             orbite_nixl_registration_t* registration, orbite_nixl_error_t* error),
            (engine, memory, registration, error))
ORBITE_SEAM(orbite_nixl_memory_deregister,
            (orbite_nixl_engine_t engine, orbite_nixl_registration_t registration, int32_t* state,
             orbite_nixl_error_t* error),
            (engine, registration, state, error))
ORBITE_SEAM(orbite_nixl_peer_import,
            (orbite_nixl_engine_t engine, const char* name, size_t name_bytes, const void* blob,
             size_t blob_bytes, orbite_nixl_peer_t* peer, orbite_nixl_error_t* error),
            (engine, name, name_bytes, blob, blob_bytes, peer, error))
ORBITE_SEAM(orbite_nixl_peer_retire,
            (orbite_nixl_engine_t engine, orbite_nixl_peer_t peer, orbite_nixl_error_t* error),
            (engine, peer, error))
ORBITE_SEAM(orbite_nixl_range_import,
            (orbite_nixl_engine_t engine, orbite_nixl_peer_t peer, const void* blob,
             size_t blob_bytes, uint64_t address, uint64_t length, orbite_nixl_range_t* range,
             orbite_nixl_error_t* error),
            (engine, peer, blob, blob_bytes, address, length, range, error))
ORBITE_SEAM(orbite_nixl_range_release,
            (orbite_nixl_engine_t engine, orbite_nixl_range_t range, orbite_nixl_error_t* error),
            (engine, range, error))
ORBITE_SEAM(orbite_nixl_request_prepare,
            (orbite_nixl_engine_t engine, const orbite_nixl_prepare_t* prepare,
             orbite_nixl_request_t* request, orbite_nixl_error_t* error),
            (engine, prepare, request, error))
ORBITE_SEAM(orbite_nixl_request_post,
            (orbite_nixl_engine_t engine, orbite_nixl_request_t request,
             const orbite_nixl_post_t* post, orbite_nixl_result_t* result,
             orbite_nixl_error_t* error),
            (engine, request, post, result, error))
ORBITE_SEAM(orbite_nixl_request_check,
            (orbite_nixl_engine_t engine, orbite_nixl_request_t request,
             orbite_nixl_result_t* result, orbite_nixl_error_t* error),
            (engine, request, result, error))
ORBITE_SEAM(orbite_nixl_request_release,
            (orbite_nixl_engine_t engine, orbite_nixl_request_t request,
             orbite_nixl_error_t* error),
            (engine, request, error))
ORBITE_SEAM(orbite_nixl_request_abandon,
            (orbite_nixl_engine_t engine, orbite_nixl_request_t request,
             orbite_nixl_error_t* error),
            (engine, request, error))
ORBITE_SEAM(orbite_nixl_request_cancel,
            (orbite_nixl_engine_t engine, orbite_nixl_request_t request,
             orbite_nixl_error_t* error),
            (engine, request, error))
ORBITE_SEAM(orbite_nixl_notification_send,
            (orbite_nixl_engine_t engine, orbite_nixl_peer_t peer, const void* message,
             size_t message_bytes, orbite_nixl_error_t* error),
            (engine, peer, message, message_bytes, error))
ORBITE_SEAM(orbite_nixl_notification_receive,
            (orbite_nixl_engine_t engine, char* name, size_t* name_bytes, void* message,
             size_t* message_bytes, orbite_nixl_error_t* error),
            (engine, name, name_bytes, message, message_bytes, error))
