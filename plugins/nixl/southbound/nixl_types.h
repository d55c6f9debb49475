// SPDX-License-Identifier: Apache-2.0
// The values and type names of NIXL's backend interface that a plugin meets, for South Bound API
// version 1. Names, numbers, sizes and orders are NIXL's and part of its binary interface; the
// asserts pin them. What a backend never touches is left out.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

static_assert(sizeof(void*) == 8 && sizeof(long) == 8, "NIXL plugins are built for LP64 only");

enum nixl_mem_t { DRAM_SEG = 0, VRAM_SEG = 1, BLK_SEG = 2, OBJ_SEG = 3, FILE_SEG = 4 };

enum nixl_xfer_op_t { NIXL_READ = 0, NIXL_WRITE = 1 };

enum nixl_status_t {
  NIXL_IN_PROG = 1,
  NIXL_SUCCESS = 0,
  NIXL_ERR_NOT_POSTED = -1,
  NIXL_ERR_INVALID_PARAM = -2,
  NIXL_ERR_BACKEND = -3,
  NIXL_ERR_NOT_FOUND = -4,
  NIXL_ERR_MISMATCH = -5,
  NIXL_ERR_NOT_ALLOWED = -6,
  NIXL_ERR_REPOST_ACTIVE = -7,
  NIXL_ERR_UNKNOWN = -8,
  NIXL_ERR_NOT_SUPPORTED = -9,
  NIXL_ERR_REMOTE_DISCONNECT = -10,
  NIXL_ERR_CANCELED = -11,
  NIXL_ERR_NO_TELEMETRY = -12
};

enum class nixl_thread_sync_t {
  NIXL_THREAD_SYNC_NONE = 0,
  NIXL_THREAD_SYNC_STRICT = 1,
  NIXL_THREAD_SYNC_RW = 2,
  NIXL_THREAD_SYNC_DEFAULT = NIXL_THREAD_SYNC_NONE
};

enum class nixl_cost_t { ANALYTICAL_BACKEND = 0 };

using nixl_backend_t = std::string;
using nixl_blob_t = std::string;
using nixl_mem_list_t = std::vector<nixl_mem_t>;
using nixl_b_params_t = std::unordered_map<std::string, std::string>;
using nixl_query_resp_t = std::optional<nixl_b_params_t>;
using nixlMemViewH = void*;

// Arguments of the agent's own calls. A backend sees it only by pointer, in estimateXferCost.
struct nixlAgentOptionalArgs;
using nixl_opt_args_t = nixlAgentOptionalArgs;

static_assert(sizeof(nixl_mem_t) == 4 && sizeof(nixl_xfer_op_t) == 4);
static_assert(sizeof(nixl_status_t) == 4 && sizeof(nixl_thread_sync_t) == 4);
static_assert(sizeof(nixl_backend_t) == 32, "libstdc++'s C++11 string is part of the interface");
static_assert(sizeof(nixl_b_params_t) == 56 && sizeof(nixl_mem_list_t) == 24);
