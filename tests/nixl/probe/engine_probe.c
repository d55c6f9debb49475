/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loaded with global symbols before the plugin, this stands before functions of liborbite_nixl.so
 * and remembers the engines, the peers and the last request that the plugin got, so that a test can
 * make the calls of the bridge that NIXL has no call for.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "orbite/nixl.h"

#define ENGINES_MAX 64

static void* library;
static orbite_nixl_engine_t engines[ENGINES_MAX];
static int engines_count;
static orbite_nixl_request_t request_last;
static orbite_nixl_peer_t peer_last;

static void* symbol_of(const char* name) {
  void* symbol = library == NULL ? NULL : dlsym(library, name);
  if (symbol == NULL) {
    fprintf(stderr, "engine probe: no %s\n", name);
    abort();
  }
  return symbol;
}

/* ISO C has no cast from an object pointer to a function pointer. */
#define REAL(function, name) *(void**)&(function) = symbol_of(name)

/* Says where the bridge is; 0, or -1 when it cannot be opened. */
ORBITE_NIXL_API int orbite_probe_open(const char* path) {
  library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  return library == NULL ? -1 : 0;
}

orbite_nixl_status_t orbite_nixl_engine_create(const orbite_nixl_engine_options_t* options,
                                               orbite_nixl_engine_t* engine,
                                               orbite_nixl_error_t* error) {
  orbite_nixl_status_t (*real)(const orbite_nixl_engine_options_t*, orbite_nixl_engine_t*,
                               orbite_nixl_error_t*);
  REAL(real, "orbite_nixl_engine_create");
  orbite_nixl_status_t status = real(options, engine, error);
  if (status == ORBITE_NIXL_OK && engines_count < ENGINES_MAX) {
    engines[engines_count++] = *engine;
  }
  return status;
}

orbite_nixl_status_t orbite_nixl_peer_import(orbite_nixl_engine_t engine, const char* name,
                                             size_t name_bytes, const void* blob, size_t blob_bytes,
                                             orbite_nixl_peer_t* peer, orbite_nixl_error_t* error) {
  orbite_nixl_status_t (*real)(orbite_nixl_engine_t, const char*, size_t, const void*, size_t,
                               orbite_nixl_peer_t*, orbite_nixl_error_t*);
  REAL(real, "orbite_nixl_peer_import");
  orbite_nixl_status_t status = real(engine, name, name_bytes, blob, blob_bytes, peer, error);
  if (status == ORBITE_NIXL_OK) {
    peer_last = *peer;
  }
  return status;
}

orbite_nixl_status_t orbite_nixl_request_prepare(orbite_nixl_engine_t engine,
                                                 const orbite_nixl_prepare_t* prepare,
                                                 orbite_nixl_request_t* request,
                                                 orbite_nixl_error_t* error) {
  orbite_nixl_status_t (*real)(orbite_nixl_engine_t, const orbite_nixl_prepare_t*,
                               orbite_nixl_request_t*, orbite_nixl_error_t*);
  REAL(real, "orbite_nixl_request_prepare");
  orbite_nixl_status_t status = real(engine, prepare, request, error);
  if (status == ORBITE_NIXL_OK) {
    request_last = *request;
  }
  return status;
}

/* Of the index-th engine created, 0 when there is none. */
ORBITE_NIXL_API uint64_t orbite_probe_engine(int index) {
  return index < 0 || index >= engines_count ? 0 : engines[index];
}
/* What the plugin prepared and imported last. */
ORBITE_NIXL_API uint64_t orbite_probe_request(void) { return request_last; }
ORBITE_NIXL_API uint64_t orbite_probe_peer(void) { return peer_last; }

/* The JSON of the index-th engine created; its length, or -1. */
ORBITE_NIXL_API long orbite_probe_info(int index, char* buffer, size_t capacity) {
  orbite_nixl_status_t (*real)(orbite_nixl_engine_t, char*, size_t*, orbite_nixl_error_t*);
  size_t bytes = capacity;
  if (orbite_probe_engine(index) == 0) {
    return -1;
  }
  REAL(real, "orbite_nixl_engine_info");
  if (real(engines[index], buffer, &bytes, NULL) != ORBITE_NIXL_OK) {
    return -1;
  }
  return (long)bytes;
}

/* Cancels a request of the first engine; the status. */
ORBITE_NIXL_API int orbite_probe_cancel(uint64_t request) {
  orbite_nixl_status_t (*real)(orbite_nixl_engine_t, orbite_nixl_request_t, orbite_nixl_error_t*);
  REAL(real, "orbite_nixl_request_cancel");
  return (int)real(engines[0], request, NULL);
}

/* An operator's word about a peer of the first engine; the status. */
ORBITE_NIXL_API int orbite_probe_confirm_fenced(uint64_t peer) {
  orbite_nixl_status_t (*real)(orbite_nixl_engine_t, orbite_nixl_peer_t, orbite_nixl_error_t*);
  REAL(real, "orbite_nixl_peer_confirm_fenced");
  return (int)real(engines[0], peer, NULL);
}

/* The same about a life of a peer, by the ORBITE_NIXL_EPOCH_BYTES of its epoch. */
ORBITE_NIXL_API int orbite_probe_confirm_epoch(const unsigned char* epoch) {
  orbite_nixl_status_t (*real)(orbite_nixl_engine_t, const uint8_t*, orbite_nixl_error_t*);
  REAL(real, "orbite_nixl_epoch_confirm_fenced");
  return (int)real(engines[0], epoch, NULL);
}

/* The result of a request of the first engine, without progress, as JSON; its length, or the
 * negative status. */
ORBITE_NIXL_API int orbite_probe_result(uint64_t request, char* buffer, size_t capacity) {
  orbite_nixl_status_t (*real)(orbite_nixl_engine_t, orbite_nixl_request_t, orbite_nixl_result_t*,
                               orbite_nixl_error_t*);
  orbite_nixl_result_t result;
  memset(&result, 0, sizeof(result));
  result.record.size = sizeof(result);
  result.record.abi_major = ORBITE_NIXL_ABI_MAJOR;
  result.record.abi_minor = ORBITE_NIXL_ABI_MINOR;
  REAL(real, "orbite_nixl_request_query");
  orbite_nixl_status_t status = real(engines[0], request, &result, NULL);
  if (status != ORBITE_NIXL_OK) {
    return -(int)status;
  }
  return snprintf(buffer, capacity,
                  "{\"terminal\": %d, \"logical\": %d, \"drain\": %d, \"effect\": %d, "
                  "\"status\": %d, \"bytes_prefix\": %llu}",
                  result.terminal, result.logical, result.drain, result.effect, result.status,
                  (unsigned long long)result.bytes_prefix);
}
