/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loaded with global symbols before the plugin, this stands before orbite_nixl_engine_create of
 * liborbite_nixl.so and remembers the engines, so that a test can ask one for its accounts.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "orbite/nixl.h"

#define ENGINES_MAX 64

static void* library;
static orbite_nixl_engine_t engines[ENGINES_MAX];
static int engines_count;

static void* symbol_of(const char* name) {
  void* symbol = library == NULL ? NULL : dlsym(library, name);
  if (symbol == NULL) {
    fprintf(stderr, "engine probe: no %s\n", name);
    abort();
  }
  return symbol;
}

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
  /* ISO C has no cast from an object pointer to a function pointer. */
  *(void**)&real = symbol_of("orbite_nixl_engine_create");
  orbite_nixl_status_t status = real(options, engine, error);
  if (status == ORBITE_NIXL_OK && engines_count < ENGINES_MAX) {
    engines[engines_count++] = *engine;
  }
  return status;
}

/* The JSON of the index-th engine created; its length, or -1. */
ORBITE_NIXL_API long orbite_probe_info(int index, char* buffer, size_t capacity) {
  orbite_nixl_status_t (*real)(orbite_nixl_engine_t, char*, size_t*, orbite_nixl_error_t*);
  size_t bytes = capacity;
  if (index < 0 || index >= engines_count) {
    return -1;
  }
  *(void**)&real = symbol_of("orbite_nixl_engine_info");
  if (real(engines[index], buffer, &bytes, NULL) != ORBITE_NIXL_OK) {
    return -1;
  }
  return (long)bytes;
}
