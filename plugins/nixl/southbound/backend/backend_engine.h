// SPDX-License-Identifier: Apache-2.0
// The base class of every NIXL backend engine, South Bound API version 1. Three things are binary
// interface: the order of the virtual functions, their signatures, and the order of the data
// members, because NIXL reads some of them through inline functions of its own.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backend_aux.h"
#include "nixl_types.h"
#include "telemetry_event.h"

class nixlBackendEngine {
 private:
  nixl_backend_t backendType;
  nixl_b_params_t customParams;
  std::vector<nixlTelemetryEvent> telemetryEvents_;
  std::mutex telemetryEventsMutex_;

 protected:
  // Set by the constructor of an engine that must not be used; NIXL then deletes it.
  bool initErr = false;
  const std::string localAgent;
  const bool enableTelemetry_;

  // Adds a parameter that the caller did not give; NIXL_ERR_NOT_ALLOWED if it did.
  [[nodiscard]] nixl_status_t setInitParam(const std::string& key, const std::string& value) {
    return customParams.emplace(key, value).second ? NIXL_SUCCESS : NIXL_ERR_NOT_ALLOWED;
  }
  [[nodiscard]] nixl_status_t getInitParam(const std::string& key, std::string& value) const {
    const auto found = customParams.find(key);
    if (found == customParams.end()) {
      return NIXL_ERR_INVALID_PARAM;
    }
    value = found->second;
    return NIXL_SUCCESS;
  }

 public:
  explicit nixlBackendEngine(const nixlBackendInitParams* params)
      : backendType(params->type),
        customParams(*params->customParams),
        localAgent(params->localAgent),
        enableTelemetry_(params->enableTelemetry_) {}
  nixlBackendEngine(const nixlBackendEngine&) = delete;
  nixlBackendEngine& operator=(const nixlBackendEngine&) = delete;
  virtual ~nixlBackendEngine() = default;

  bool getInitErr() const noexcept { return initErr; }
  const nixl_backend_t& getType() const noexcept { return backendType; }
  const nixl_b_params_t& getCustomParams() const noexcept { return customParams; }
  std::vector<nixlTelemetryEvent> getTelemetryEvents() {
    const std::lock_guard lock(telemetryEventsMutex_);
    return std::exchange(telemetryEvents_, {});
  }

  virtual bool supportsRemote() const = 0;
  virtual bool supportsLocal() const = 0;
  virtual bool supportsNotif() const = 0;
  virtual nixl_mem_list_t getSupportedMems() const = 0;

  virtual nixl_status_t registerMem(const nixlBlobDesc& mem, const nixl_mem_t& mem_type,
                                    nixlBackendMD*& out) = 0;
  virtual nixl_status_t deregisterMem(nixlBackendMD* meta) = 0;

  virtual nixl_status_t connect(const std::string& remote_agent) = 0;
  virtual nixl_status_t disconnect(const std::string& remote_agent) = 0;
  virtual nixl_status_t unloadMD(nixlBackendMD* input) = 0;

  virtual nixl_status_t prepXfer(const nixl_xfer_op_t& operation, const nixl_meta_dlist_t& local,
                                 const nixl_meta_dlist_t& remote, const std::string& remote_agent,
                                 nixlBackendReqH*& handle,
                                 const nixl_opt_b_args_t* opt_args = nullptr) const = 0;
  virtual nixl_status_t postXfer(const nixl_xfer_op_t& operation, const nixl_meta_dlist_t& local,
                                 const nixl_meta_dlist_t& remote, const std::string& remote_agent,
                                 nixlBackendReqH*& handle,
                                 const nixl_opt_b_args_t* opt_args = nullptr) const = 0;
  virtual nixl_status_t checkXfer(nixlBackendReqH* handle) const = 0;
  virtual nixl_status_t releaseReqH(nixlBackendReqH* handle) const = 0;

  virtual nixl_status_t prepMemView(const nixl_remote_meta_dlist_t& /*descs*/,
                                    nixlMemViewH& /*view*/,
                                    const nixl_opt_b_args_t* /*opt_args*/ = nullptr) const {
    return NIXL_ERR_NOT_SUPPORTED;
  }
  virtual nixl_status_t prepMemView(const nixl_meta_dlist_t& /*descs*/, nixlMemViewH& /*view*/,
                                    const nixl_opt_b_args_t* /*opt_args*/ = nullptr) const {
    return NIXL_ERR_NOT_SUPPORTED;
  }
  virtual void releaseMemView(nixlMemViewH /*view*/) const {}

  virtual nixl_status_t getPublicData(const nixlBackendMD* /*meta*/, std::string& /*blob*/) const {
    return NIXL_ERR_BACKEND;
  }
  virtual nixl_status_t getConnInfo(std::string& /*blob*/) const { return NIXL_ERR_BACKEND; }
  virtual nixl_status_t loadRemoteConnInfo(const std::string& /*remote_agent*/,
                                           const std::string& /*blob*/) {
    return NIXL_ERR_BACKEND;
  }
  virtual nixl_status_t loadRemoteMD(const nixlBlobDesc& /*input*/, const nixl_mem_t& /*mem_type*/,
                                     const std::string& /*remote_agent*/,
                                     nixlBackendMD*& /*output*/) {
    return NIXL_ERR_BACKEND;
  }
  virtual nixl_status_t loadLocalMD(nixlBackendMD* /*input*/, nixlBackendMD*& /*output*/) {
    return NIXL_ERR_BACKEND;
  }
  virtual nixl_status_t getNotifs(notif_list_t& /*notifs*/) { return NIXL_ERR_BACKEND; }
  virtual nixl_status_t genNotif(const std::string& /*remote_agent*/,
                                 const std::string& /*message*/) const {
    return NIXL_ERR_BACKEND;
  }

  virtual nixl_status_t queryMem(const nixl_reg_dlist_t& /*descs*/,
                                 std::vector<nixl_query_resp_t>& /*answers*/) const {
    return NIXL_ERR_NOT_SUPPORTED;
  }
  virtual nixl_status_t estimateXferCost(
      const nixl_xfer_op_t& /*operation*/, const nixl_meta_dlist_t& /*local*/,
      const nixl_meta_dlist_t& /*remote*/, const std::string& /*remote_agent*/,
      nixlBackendReqH* const& /*handle*/, std::chrono::microseconds& /*duration*/,
      std::chrono::microseconds& /*err_margin*/, nixl_cost_t& /*method*/,
      const nixl_opt_args_t* /*extra_params*/ = nullptr) const {
    return NIXL_ERR_NOT_SUPPORTED;
  }
};

static_assert(sizeof(std::mutex) == 40 || sizeof(void*) != 8);
static_assert(sizeof(nixlBackendEngine) == 208);
