// SPDX-License-Identifier: Apache-2.0
// The table of functions that a plugin's nixl_plugin_init returns, and the two symbols by which
// NIXL finds a plugin.
#pragma once

#include <cstddef>

#include "backend/backend_engine.h"

// NIXL loads a plugin only if this is its own number.
#define NIXL_PLUGIN_API_VERSION 1

#define NIXL_PLUGIN_EXPORT __attribute__((visibility("default")))

class nixlBackendPlugin {
 public:
  int api_version;
  nixlBackendEngine* (*create_engine)(const nixlBackendInitParams* init_params);
  void (*destroy_engine)(nixlBackendEngine* engine);
  const char* (*get_plugin_name)();
  const char* (*get_plugin_version)();
  nixl_b_params_t (*get_backend_options)();
  nixl_mem_list_t (*get_backend_mems)();
};

static_assert(sizeof(nixlBackendPlugin) == 56);
static_assert(offsetof(nixlBackendPlugin, create_engine) == 8 &&
              offsetof(nixlBackendPlugin, get_backend_mems) == 48);

extern "C" {
NIXL_PLUGIN_EXPORT nixlBackendPlugin* nixl_plugin_init();
NIXL_PLUGIN_EXPORT void nixl_plugin_fini();
}
