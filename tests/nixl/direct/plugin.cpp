// SPDX-License-Identifier: Apache-2.0
#include "nixl/direct/plugin.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "nixl/direct/bridge_seam.hpp"

namespace orbite::test {

namespace {

constexpr uint8_t kGuard = 0xa5;

template <class Done>
void poll(double seconds, Done&& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!done() && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
}

}  // namespace

nixlBackendPlugin& plugin() {
  static nixlBackendPlugin* const loaded = [] {
    void* const library = dlopen(ORBITE_TEST_PLUGIN, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void* const symbol = library == nullptr ? nullptr : dlsym(library, "nixl_plugin_init");
    if (symbol == nullptr) {
      std::fprintf(stderr, "%s: %s\n", ORBITE_TEST_PLUGIN, dlerror());
      std::abort();
    }
    return reinterpret_cast<nixlBackendPlugin* (*)()>(symbol)();
  }();
  return *loaded;
}

void EngineDeleter::operator()(nixlBackendEngine* engine) const { plugin().destroy_engine(engine); }

EnginePtr create_engine(const std::string& agent, nixl_b_params_t params) {
  nixlBackendInitParams init;
  init.localAgent = agent;
  init.type = "ORBITE";
  init.customParams = &params;
  init.syncMode = nixl_thread_sync_t::NIXL_THREAD_SYNC_NONE;
  return EnginePtr(plugin().create_engine(&init));
}

std::string test_config(const std::string& members) {
  return R"({"listen": {"address": "127.0.0.1"}, "advertise": {"addresses": ["127.0.0.1"]})" +
         (members.empty() ? "" : ", " + members) + "}";
}

Node::Node(const std::string& name, const std::string& config)
    : name_(name), engine_(create_engine(name, {{"config", config}})) {
  if (engine_ == nullptr || engine_->getInitErr()) {
    std::fprintf(stderr, "agent %s: no engine\n", name.c_str());
    std::abort();
  }
  bridge_engine_ = engine_created_last();
  EXPECT_EQ(engine_->getConnInfo(conn_info_), NIXL_SUCCESS);
  EXPECT_EQ(engine_->connect(name), NIXL_SUCCESS);
}

std::map<std::string, uint64_t> Node::accounts() const {
  const auto info = reinterpret_cast<orbite_nixl_status_t (*)(orbite_nixl_engine_t, char*, size_t*,
                                                              orbite_nixl_error_t*)>(
      bridge_symbol("orbite_nixl_engine_info"));
  std::string text(1 << 20, '\0');
  size_t bytes = text.size();
  EXPECT_EQ(info(bridge_engine_, text.data(), &bytes, nullptr), ORBITE_NIXL_OK);
  const auto json = nlohmann::json::parse(text.substr(0, bytes));
  std::map<std::string, uint64_t> accounts;
  for (const char* name :
       {"requests", "descriptors", "bytes_in_flight", "outbox_bytes", "inbox_bytes"}) {
    accounts[name] = json.at("budgets").at(name).at("used");
  }
  accounts["loans"] = json.at("registrations").at("loans");
  accounts["slices"] = json.at("slices_out");
  return accounts;
}

bool Node::accounts_become(const std::map<std::string, uint64_t>& expected, double seconds) const {
  poll(seconds, [&] { return accounts() == expected; });
  return accounts() == expected;
}

void Node::meet(const Node& other) {
  EXPECT_EQ(engine_->loadRemoteConnInfo(other.name(), other.conn_info()), NIXL_SUCCESS);
}

std::vector<uint8_t> pattern(size_t bytes, uint32_t seed) {
  std::vector<uint8_t> content(bytes);
  std::mt19937 random(seed);
  std::generate(content.begin(), content.end(), [&] { return static_cast<uint8_t>(random()); });
  return content;
}

Region::Region(Node& node, size_t bytes, uint32_t seed, uint64_t device)
    : node_(node),
      device_(device),
      memory_(node.keep(std::vector<uint8_t>(bytes + 2 * kGuardBytes, kGuard))) {
  const std::vector<uint8_t> content = pattern(bytes, seed);
  std::copy(content.begin(), content.end(), data());
  const nixlBlobDesc descriptor(address(), bytes, device, "ignored");
  EXPECT_EQ(node->registerMem(descriptor, DRAM_SEG, local_), NIXL_SUCCESS);
  EXPECT_EQ(node->loadLocalMD(local_, self_), NIXL_SUCCESS);
}

Region::~Region() {
  if (node_.alive()) {
    deregister();
  }
}

void Region::deregister() {
  if (local_ == nullptr) {
    return;
  }
  node_->unloadMD(self_);
  EXPECT_EQ(node_->deregisterMem(local_), NIXL_SUCCESS);
  local_ = nullptr;
  self_ = nullptr;
}

uintptr_t Region::address(size_t offset) const {
  return reinterpret_cast<uintptr_t>(data()) + offset;
}

bool Region::guards_intact() const {
  const auto is_guard = [](uint8_t byte) { return byte == kGuard; };
  return std::all_of(memory_.begin(), memory_.begin() + kGuardBytes, is_guard) &&
         std::all_of(memory_.end() - kGuardBytes, memory_.end(), is_guard);
}

std::string Region::public_blob() const {
  std::string blob;
  EXPECT_EQ(node_->getPublicData(local_, blob), NIXL_SUCCESS);
  return blob;
}

nixlBackendMD* Region::at(Node& other) const {
  nixlBackendMD* metadata = nullptr;
  const nixlBlobDesc descriptor(address(), size(), device_, public_blob());
  EXPECT_EQ(other->loadRemoteMD(descriptor, DRAM_SEG, node_.name(), metadata), NIXL_SUCCESS);
  return metadata;
}

nixlMetaDesc Region::part(size_t offset, size_t bytes, nixlBackendMD* metadata) const {
  return {address(offset), bytes, device_, metadata};
}

MetaList list_of(const std::vector<nixlMetaDesc>& descriptors) {
  MetaList list(DRAM_SEG);
  for (const nixlMetaDesc& descriptor : descriptors) {
    list.addDesc(descriptor);
  }
  return list;
}

nixl_status_t prepare(Node& node, nixl_xfer_op_t operation, const MetaList& local,
                      const MetaList& remote, const std::string& agent, nixlBackendReqH*& handle) {
  static int garbage = 0;
  handle = reinterpret_cast<nixlBackendReqH*>(&garbage);
  return node->prepXfer(operation, local, remote, agent, handle);
}

Request prepared(Node& node, nixl_xfer_op_t operation, const MetaList& local,
                 const MetaList& remote, const std::string& agent) {
  Request request{operation, local, remote, agent};
  EXPECT_EQ(prepare(node, operation, local, remote, agent, request.handle), NIXL_SUCCESS);
  return request;
}

nixl_status_t post(Node& node, Request& request) {
  return node->postXfer(request.operation, request.local, request.remote, request.agent,
                        request.handle);
}

nixl_status_t post(Node& node, Request& request, const std::string& notification) {
  nixl_opt_b_args_t arguments;
  arguments.hasNotif = true;
  arguments.notifMsg = notification;
  return node->postXfer(request.operation, request.local, request.remote, request.agent,
                        request.handle, &arguments);
}

nixl_status_t finish(Node& node, Request& request, double seconds) {
  nixl_status_t status = NIXL_IN_PROG;
  poll(seconds, [&] {
    status = node->checkXfer(request.handle);
    return status != NIXL_IN_PROG;
  });
  return status;
}

nixl_status_t run(Node& node, Request& request) {
  const nixl_status_t status = post(node, request);
  return status == NIXL_IN_PROG ? finish(node, request) : status;
}

notif_list_t receive(Node& node, size_t count, double seconds) {
  notif_list_t received;
  poll(seconds, [&] {
    EXPECT_EQ(node->getNotifs(received), NIXL_SUCCESS);
    return received.size() >= count;
  });
  return received;
}

}  // namespace orbite::test
