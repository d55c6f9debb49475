// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/backend_engine.h"
#include "orbite/nixl.h"
#include "orbite_log.h"
#include "orbite_tickets.h"

namespace orbite::nixl {

// ORBITE: one NIXL backend instance, which owns one OrbiTE engine. It translates types and
// statuses; policy, queues, retries, threads and lifetimes of buffers are the engine's.
//
// Thread-safe whatever syncMode NIXL was given: consumers call from several threads with none.
// enableProgTh and pthrDelay are hints for engines that need calls to make progress; this one does
// not.
class Backend final : public nixlBackendEngine {
 public:
  // Does not throw but for lack of memory. Anything else that goes wrong is logged and shown by
  // getInitErr(). `params` and the map that it points at are copied.
  explicit Backend(const nixlBackendInitParams* params);
  // Blocks for as long as the configured bound for a close at most. Transfers in progress stay with
  // the engine until they have retired.
  ~Backend() override;

  bool supportsRemote() const override { return true; }
  bool supportsLocal() const override { return true; }
  bool supportsNotif() const override { return true; }
  nixl_mem_list_t getSupportedMems() const override { return supported_mems(); }
  static nixl_mem_list_t supported_mems() { return {DRAM_SEG}; }

  nixl_status_t registerMem(const nixlBlobDesc& mem, const nixl_mem_t& mem_type,
                            nixlBackendMD*& out) override;
  // NIXL_SUCCESS once new posts are fenced; the memory must stay until every transfer with it has
  // retired. NIXL ignores the status and may pass the same pointer twice.
  nixl_status_t deregisterMem(nixlBackendMD* meta) override;

  nixl_status_t connect(const std::string& remote_agent) override;
  nixl_status_t disconnect(const std::string& remote_agent) override;

  nixl_status_t loadRemoteConnInfo(const std::string& remote_agent,
                                   const std::string& blob) override;
  nixl_status_t loadRemoteMD(const nixlBlobDesc& input, const nixl_mem_t& mem_type,
                             const std::string& remote_agent, nixlBackendMD*& output) override;
  nixl_status_t loadLocalMD(nixlBackendMD* input, nixlBackendMD*& output) override;
  nixl_status_t unloadMD(nixlBackendMD* input) override;
  nixl_status_t getPublicData(const nixlBackendMD* meta, std::string& blob) const override;
  nixl_status_t getConnInfo(std::string& blob) const override;

  nixl_status_t prepXfer(const nixl_xfer_op_t& operation, const nixl_meta_dlist_t& local,
                         const nixl_meta_dlist_t& remote, const std::string& remote_agent,
                         nixlBackendReqH*& handle,
                         const nixl_opt_b_args_t* opt_args = nullptr) const override;
  nixl_status_t postXfer(const nixl_xfer_op_t& operation, const nixl_meta_dlist_t& local,
                         const nixl_meta_dlist_t& remote, const std::string& remote_agent,
                         nixlBackendReqH*& handle,
                         const nixl_opt_b_args_t* opt_args = nullptr) const override;
  nixl_status_t checkXfer(nixlBackendReqH* handle) const override;
  // Refuses a transfer in progress with NIXL_ERR_REPOST_ACTIVE, and then the handle stays good, if
  // NIXL's last answer for it was NIXL_IN_PROG. In every other case NIXL forgets the pointer
  // whatever is returned, so the engine takes what is still in progress over. Never NIXL_IN_PROG,
  // which NIXL takes for a success.
  nixl_status_t releaseReqH(nixlBackendReqH* handle) const override;

  nixl_status_t getNotifs(notif_list_t& notifs) override;
  nixl_status_t genNotif(const std::string& remote_agent,
                         const std::string& message) const override;

 private:
  struct Request {
    orbite_nixl_request_t handle = 0;
    const nixl_xfer_op_t operation;
    const std::string peer;  // the remote agent's name, for messages
    // What NIXL was told last: it decides whether NIXL keeps the pointer after a refused release.
    // Relaxed everywhere: NIXL orders its calls on one handle, the value publishes nothing else.
    std::atomic<nixl_status_t> last_answer{NIXL_ERR_NOT_POSTED};
    std::atomic<bool> unquiesced_logged{false};

    Request(nixl_xfer_op_t op, const std::string& agent) : operation(op), peer(agent) {}
    nixl_status_t answer(nixl_status_t status) {
      last_answer.store(status, std::memory_order_relaxed);
      return status;
    }
  };
  struct Peer {
    orbite_nixl_peer_t handle;
    std::string blob;
  };
  // The engine of the bridge, released with this object.
  class Engine {
   public:
    explicit Engine(FailureLog& log) : log_(log) {}
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;
    orbite_nixl_engine_t handle = 0;

   private:
    FailureLog& log_;
  };

  template <class Body>
  nixl_status_t guarded(const char* call, Body&& body) const noexcept;
  bool start(const nixlBackendInitParams& params);
  bool create_engine(const nixlBackendInitParams& params);
  nixl_status_t failed(const char* call, int32_t status, const std::string& reason) const;
  nixl_status_t failed(const char* call, const orbite_nixl_error_t& error) const;
  std::optional<orbite_nixl_peer_t> find_peer(const std::string& name) const;
  nixl_status_t add_self();
  nixl_status_t add_range(orbite_nixl_range_t range, nixlBackendMD*& output);
  nixl_status_t fill_lists(const nixl_meta_dlist_t& local, const nixl_meta_dlist_t& remote,
                           std::vector<orbite_nixl_descriptor_t>& local_out,
                           std::vector<orbite_nixl_descriptor_t>& remote_out) const;
  nixl_status_t observe(const char* call, Request& request,
                        const orbite_nixl_result_t& result) const;
  nixl_status_t end_request(nixlBackendReqH* ticket, Request& request) const;

  mutable FailureLog log_;
  Engine engine_;
  std::string conn_info_;

  mutable std::shared_mutex peers_mutex_;
  std::unordered_map<std::string, Peer> peers_;  // under peers_mutex_; ourselves included

  TicketTable<nixlBackendMD, orbite_nixl_registration_t> registrations_;
  TicketTable<nixlBackendMD, orbite_nixl_range_t> ranges_;
  mutable TicketTable<nixlBackendReqH, std::shared_ptr<Request>> requests_;
};

}  // namespace orbite::nixl
