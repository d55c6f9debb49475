// SPDX-License-Identifier: Apache-2.0
#include <exception>
#include <string>

#include "backend/backend_plugin.h"
#include "orbite_backend.h"
#include "orbite_log.h"
#include "orbite_params.h"

#ifndef ORBITE_PLUGIN_VERSION
#error "ORBITE_PLUGIN_VERSION must be the version of OrbiTE, as a string"
#endif

namespace {

nixlBackendEngine* create_engine(const nixlBackendInitParams* params) {
  if (params == nullptr || params->customParams == nullptr) {
    orbite::nixl::log_line("", "create: no parameters given");
    return nullptr;
  }
  try {
    return new orbite::nixl::Backend(params);
  } catch (const std::exception& exception) {
    orbite::nixl::log_line(params->localAgent, std::string("create: ") + exception.what());
  } catch (...) {
    orbite::nixl::log_line(params->localAgent, "create: unknown exception");
  }
  return nullptr;
}

void destroy_engine(nixlBackendEngine* engine) { delete engine; }

const char* plugin_name() { return "ORBITE"; }

const char* plugin_version() { return ORBITE_PLUGIN_VERSION; }

nixl_b_params_t backend_options() { return orbite::nixl::offered_params(); }

nixl_mem_list_t backend_mems() { return orbite::nixl::Backend::supported_mems(); }

// Holds nothing that a call could change, so NIXL may load and unload the plugin around engines
// that live on.
nixlBackendPlugin plugin = {NIXL_PLUGIN_API_VERSION, create_engine,   destroy_engine, plugin_name,
                            plugin_version,          backend_options, backend_mems};

}  // namespace

#ifdef STATIC_PLUGIN_ORBITE
nixlBackendPlugin* createStaticORBITEPlugin() { return &plugin; }
#else
extern "C" NIXL_PLUGIN_EXPORT nixlBackendPlugin* nixl_plugin_init() { return &plugin; }

extern "C" NIXL_PLUGIN_EXPORT void nixl_plugin_fini() {}
#endif
