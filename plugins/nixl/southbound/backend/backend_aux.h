// SPDX-License-Identifier: Apache-2.0
// What NIXL passes to a backend engine and what it keeps for one.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "common/nixl_time.h"
#include "nixl_descriptors.h"
#include "nixl_types.h"

// Pairs of sending agent and message.
using notif_list_t = std::vector<std::pair<std::string, std::string>>;

struct nixlBackendOptionalArgs {
  nixl_blob_t notifMsg;
  bool hasNotif = false;
  nixl_blob_t customParam;
};
using nixl_opt_b_args_t = nixlBackendOptionalArgs;

// customParams points at the caller's map, which lives only as long as the call.
class nixlBackendInitParams {
 public:
  std::string localAgent;
  nixl_backend_t type;
  nixl_b_params_t* customParams = nullptr;
  bool enableProgTh = false;
  nixlTime::us_t pthrDelay = 0;
  nixl_thread_sync_t syncMode;
  bool enableTelemetry_ = false;
};

// NIXL holds these two only by pointer and never looks behind one.
class nixlBackendReqH {
 public:
  nixlBackendReqH() {}
  virtual ~nixlBackendReqH() {}
};

class nixlBackendMD {
 protected:
  bool isPrivateMD;

 public:
  nixlBackendMD(bool is_private) : isPrivateMD(is_private) {}
  virtual ~nixlBackendMD() {}
};

class nixlMetaDesc : public nixlBasicDesc {
 public:
  nixlBackendMD* metadataP;

  nixlMetaDesc() : metadataP(nullptr) {}
  nixlMetaDesc(uintptr_t address, size_t length, uint64_t device, nixlBackendMD* metadata)
      : nixlBasicDesc(address, length, device), metadataP(metadata) {}
};

struct nixlRemoteMetaDesc : public nixlMetaDesc {
  std::string remoteAgent;

  using nixlMetaDesc::nixlMetaDesc;
};

using nixl_meta_dlist_t = nixlDescList<nixlMetaDesc>;
using nixl_remote_meta_dlist_t = nixlDescList<nixlRemoteMetaDesc>;

static_assert(sizeof(nixlBackendOptionalArgs) == 72);
static_assert(offsetof(nixlBackendOptionalArgs, hasNotif) == 32 &&
              offsetof(nixlBackendOptionalArgs, customParam) == 40);
static_assert(sizeof(nixlBackendInitParams) == 96);
static_assert(offsetof(nixlBackendInitParams, type) == 32 &&
              offsetof(nixlBackendInitParams, customParams) == 64 &&
              offsetof(nixlBackendInitParams, enableProgTh) == 72 &&
              offsetof(nixlBackendInitParams, pthrDelay) == 80 &&
              offsetof(nixlBackendInitParams, syncMode) == 88 &&
              offsetof(nixlBackendInitParams, enableTelemetry_) == 92);
static_assert(sizeof(nixlBackendReqH) == 8 && sizeof(nixlBackendMD) == 16);
static_assert(sizeof(nixlMetaDesc) == 32 && sizeof(nixlRemoteMetaDesc) == 64);
static_assert(sizeof(nixl_meta_dlist_t) == 40 && sizeof(nixl_remote_meta_dlist_t) == 40);
static_assert(sizeof(notif_list_t) == 24 && sizeof(notif_list_t::value_type) == 64);
