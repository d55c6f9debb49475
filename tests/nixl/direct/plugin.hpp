// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend_plugin.h"
#include "orbite/nixl.h"

namespace orbite::test {

using MetaList = nixl_meta_dlist_t;

// The plugin as NIXL loads it: dlopen, dlsym, nixl_plugin_init.
nixlBackendPlugin& plugin();

struct EngineDeleter {
  void operator()(nixlBackendEngine* engine) const;
};
using EnginePtr = std::unique_ptr<nixlBackendEngine, EngineDeleter>;

// create_engine with these parameters; null, or an engine that may have its initErr set.
EnginePtr create_engine(const std::string& agent, nixl_b_params_t params = {});
// A configuration for tests: loopback only, and these members of the JSON object beside it.
std::string test_config(const std::string& members = "");

// A backend instance brought up by the steps of NIXL's agent. Its creation must succeed.
class Node {
 public:
  explicit Node(const std::string& name, const std::string& config = test_config());

  nixlBackendEngine* operator->() const { return engine_.get(); }
  nixlBackendEngine& engine() const { return *engine_; }
  const std::string& name() const { return name_; }
  const std::string& conn_info() const { return conn_info_; }
  // Loads the other's connection information.
  void meet(const Node& other);
  // Regions and requests of this node are gone with it.
  void destroy() { engine_.reset(); }
  bool alive() const { return engine_ != nullptr; }
  // What the engine has lent or charged: budgets in use, loans, slices under way.
  std::map<std::string, uint64_t> accounts() const;
  // Lives as long as the engine: its memory may be lent to a peer when it is deregistered, which
  // fences and does not wait.
  std::vector<uint8_t>& keep(std::vector<uint8_t> memory) {
    return *kept_.emplace_back(std::make_unique<std::vector<uint8_t>>(std::move(memory)));
  }
  // Whether accounts() comes to equal these within `seconds`.
  bool accounts_become(const std::map<std::string, uint64_t>& expected, double seconds = 20) const;

 private:
  std::vector<std::unique_ptr<std::vector<uint8_t>>> kept_;
  std::string name_;
  EnginePtr engine_;
  orbite_nixl_engine_t bridge_engine_ = 0;
  std::string conn_info_;
};

// Memory between two guards, registered with a node and loaded for transfers to itself.
class Region {
 public:
  static constexpr size_t kGuardBytes = 256;

  // `seed` decides what the memory holds.
  Region(Node& node, size_t bytes, uint32_t seed, uint64_t device = 0);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  uintptr_t address(size_t offset = 0) const;
  uint8_t* data() { return memory_.data() + kGuardBytes; }
  const uint8_t* data() const { return memory_.data() + kGuardBytes; }
  size_t size() const { return memory_.size() - 2 * kGuardBytes; }
  std::vector<uint8_t> content() const { return {data(), data() + size()}; }
  bool guards_intact() const;

  nixlBackendMD* local() const { return local_; }
  nixlBackendMD* self() const { return self_; }
  std::string public_blob() const;
  // Loads this range at another node; the caller unloads it or leaves it to the node.
  nixlBackendMD* at(Node& other) const;
  void deregister();

  nixlMetaDesc part(size_t offset, size_t bytes, nixlBackendMD* metadata) const;

 private:
  Node& node_;
  uint64_t device_;
  std::vector<uint8_t>& memory_;
  nixlBackendMD* local_ = nullptr;
  nixlBackendMD* self_ = nullptr;
};

MetaList list_of(const std::vector<nixlMetaDesc>& descriptors);
std::vector<uint8_t> pattern(size_t bytes, uint32_t seed);

// Prepares with a handle that holds garbage, as NIXL's own tests do.
nixl_status_t prepare(Node& node, nixl_xfer_op_t operation, const MetaList& local,
                      const MetaList& remote, const std::string& agent, nixlBackendReqH*& handle);
// One of a kind: what a test transfers and how.
struct Request {
  nixl_xfer_op_t operation;
  MetaList local;
  MetaList remote;
  std::string agent;
  nixlBackendReqH* handle = nullptr;
};
Request prepared(Node& node, nixl_xfer_op_t operation, const MetaList& local,
                 const MetaList& remote, const std::string& agent);
nixl_status_t post(Node& node, Request& request);
nixl_status_t post(Node& node, Request& request, const std::string& notification);
// Polls until the status is not NIXL_IN_PROG, at most `seconds`.
nixl_status_t finish(Node& node, Request& request, double seconds = 20);
nixl_status_t run(Node& node, Request& request);
// Polls getNotifs until `count` messages are there, at most `seconds`.
notif_list_t receive(Node& node, size_t count, double seconds = 20);

}  // namespace orbite::test
