// SPDX-License-Identifier: Apache-2.0
#include "orbite_backend.h"

#include <array>
#include <exception>
#include <mutex>
#include <new>
#include <utility>

#include "backend/backend_plugin.h"
#include "orbite_params.h"
#include "orbite_status.h"

// The layout that this file is built for, whichever headers it was given.
static_assert(NIXL_PLUGIN_API_VERSION == 1, "this plugin speaks South Bound API version 1");
static_assert(sizeof(nixlBackendInitParams) == 96 && sizeof(nixlBackendOptionalArgs) == 72);
static_assert(sizeof(nixlBasicDesc) == 24 && sizeof(nixlMetaDesc) == 32);
static_assert(sizeof(nixl_meta_dlist_t) == 40 && sizeof(nixlBackendPlugin) == 56);
static_assert(sizeof(nixlBackendEngine) == 208);
static_assert(int{NIXL_READ} == int{ORBITE_NIXL_READ} && int{NIXL_WRITE} == int{ORBITE_NIXL_WRITE});

namespace orbite::nixl {

namespace {

// Messages of one getNotifs: NIXL holds its lock meanwhile, and a sender may never pause.
constexpr size_t kNotifsPerCallMax = 65536;

// A zeroed record of the ABI with its head filled in.
template <class Record>
Record make_record() {
  Record record{};
  record.record.size = static_cast<uint32_t>(sizeof(Record));
  record.record.abi_major = ORBITE_NIXL_ABI_MAJOR;
  record.record.abi_minor = ORBITE_NIXL_ABI_MINOR;
  return record;
}

// Calls export_to(buffer, &bytes, &error) of the bridge, which says BUFFER_TOO_SMALL and the size
// that it needs, until the blob fits.
template <class ExportTo>
orbite_nixl_status_t read_blob(std::string& blob, orbite_nixl_error_t& error,
                               ExportTo&& export_to) {
  blob.resize(512);
  for (;;) {
    size_t bytes = blob.size();
    const orbite_nixl_status_t status = export_to(blob.data(), &bytes, &error);
    const bool grow = status == ORBITE_NIXL_ERR_BUFFER_TOO_SMALL && bytes > blob.size();
    if (status == ORBITE_NIXL_OK || grow) {
      blob.resize(bytes);
    }
    if (!grow) {
      return status;
    }
  }
}

// What the library says of itself against what this plugin needs; empty if they fit.
std::string bridge_refusal() {
  auto abi = make_record<orbite_nixl_abi_t>();
  auto error = make_record<orbite_nixl_error_t>();
  const orbite_nixl_status_t status = orbite_nixl_abi_query(&abi, &error);
  const std::string built =
      std::to_string(ORBITE_NIXL_ABI_MAJOR) + "." + std::to_string(ORBITE_NIXL_ABI_MINOR);
  if (status != ORBITE_NIXL_OK) {
    return "liborbite_nixl.so does not know ABI " + built +
           ", for which this plugin was built: " + error.message;
  }
  if (abi.abi_major != ORBITE_NIXL_ABI_MAJOR || abi.abi_minor < ORBITE_NIXL_ABI_MINOR) {
    return "liborbite_nixl.so has ABI " + std::to_string(abi.abi_major) + "." +
           std::to_string(abi.abi_minor) + ", this plugin was built for " + built +
           " and needs the same first number and no lower second one";
  }
  if ((abi.features & ORBITE_NIXL_FEATURE_TCP) == 0) {
    return "liborbite_nixl.so was built without TCP, by which this plugin reaches other agents";
  }
  return {};
}

const char* effect_text(int32_t effect) {
  switch (static_cast<orbite_nixl_effect_t>(effect)) {
    case ORBITE_NIXL_EFFECT_NONE:
      return "none";
    case ORBITE_NIXL_EFFECT_PREFIX:
      return "prefix";
    case ORBITE_NIXL_EFFECT_COMPLETE:
      return "complete";
    case ORBITE_NIXL_EFFECT_UNKNOWN:
      break;
  }
  return "unknown";
}

// "memory type VRAM is not supported yet; allowed: DRAM"
std::string unsupported_memory(nixl_mem_t type) {
  static const char* const names[] = {"DRAM", "VRAM", "BLK", "OBJ", "FILE"};
  const auto index = static_cast<std::size_t>(type);
  return "memory type " +
         (index < std::size(names) ? std::string(names[index]) : std::to_string(index)) +
         " is not supported yet; allowed: DRAM";
}

std::string describe(const orbite_nixl_result_t& result) {
  std::string text = orbite_nixl_status_text(result.status);
  if (result.native_errno != 0) {
    text += " (" + std::generic_category().message(result.native_errno) + ")";
  }
  text += "; " + std::to_string(result.bytes_prefix) + " of " + std::to_string(result.bytes_total) +
          " bytes, effect " + effect_text(result.effect);
  if (result.route[0] != '\0') {
    text += ", route " + std::string(result.route);
  }
  return text;
}

}  // namespace

// Every virtual function runs its body here: no exception crosses into NIXL.
template <class Body>
nixl_status_t Backend::guarded(const char* call, Body&& body) const noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    log_.add(call, ORBITE_NIXL_ERR_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& exception) {
    log_.add(call, ORBITE_NIXL_ERR_INTERNAL, exception.what());
  } catch (...) {
    log_.add(call, ORBITE_NIXL_ERR_INTERNAL, "unknown exception");
  }
  return NIXL_ERR_BACKEND;
}

nixl_status_t Backend::failed(const char* call, int32_t status, const std::string& reason) const {
  log_.add(call, status, reason);
  return to_nixl(status);
}

nixl_status_t Backend::failed(const char* call, const orbite_nixl_error_t& error) const {
  return failed(call, error.status, error.message);
}

// ---- Life

Backend::Engine::~Engine() {
  if (handle == 0) {
    return;
  }
  auto error = make_record<orbite_nixl_error_t>();
  const orbite_nixl_status_t status = orbite_nixl_engine_release(handle, &error);
  if (status != ORBITE_NIXL_OK) {
    log_.add("close", status, error.message);
  }
}

Backend::Backend(const nixlBackendInitParams* params)
    : nixlBackendEngine(params), log_(params->localAgent), engine_(log_) {
  const nixl_status_t status =
      guarded("create", [&] { return start(*params) ? NIXL_SUCCESS : NIXL_ERR_BACKEND; });
  initErr = status != NIXL_SUCCESS;
}

Backend::~Backend() {
  guarded("close", [&] {
    for (const std::shared_ptr<Request>& request : requests_.take_all()) {
      orbite_nixl_request_abandon(engine_.handle, request->handle, nullptr);
    }
    return NIXL_SUCCESS;
  });
}

bool Backend::start(const nixlBackendInitParams& params) {
  std::string refusal = bridge_refusal();
  if (refusal.empty()) {
    refusal = refusal_of(*params.customParams);
  }
  if (!refusal.empty()) {
    log_line(localAgent, refusal);
    return false;
  }
  return create_engine(params) && add_self() == NIXL_SUCCESS;
}

bool Backend::create_engine(const nixlBackendInitParams& params) {
  const std::string config = config_of(*params.customParams);
  auto options = make_record<orbite_nixl_engine_options_t>();
  options.name = localAgent.data();
  options.name_bytes = localAgent.size();
  options.config = config.empty() ? nullptr : config.data();
  options.config_bytes = config.size();
  auto error = make_record<orbite_nixl_error_t>();
  if (orbite_nixl_engine_create(&options, &engine_.handle, &error) != ORBITE_NIXL_OK) {
    engine_.handle = 0;
    failed("create", error);
    return false;
  }
  const orbite_nixl_status_t status = read_blob(
      conn_info_, error, [this](void* buffer, size_t* bytes, orbite_nixl_error_t* reason) {
        return orbite_nixl_peer_export(engine_.handle, buffer, bytes, reason);
      });
  if (status != ORBITE_NIXL_OK) {
    failed("create", error);
    return false;
  }
  return true;
}

// ---- Memory

nixl_status_t Backend::registerMem(const nixlBlobDesc& mem, const nixl_mem_t& mem_type,
                                   nixlBackendMD*& out) {
  return guarded("registerMem", [&] {
    if (mem_type != DRAM_SEG) {
      return failed("registerMem", ORBITE_NIXL_ERR_UNSUPPORTED, unsupported_memory(mem_type));
    }
    auto memory = make_record<orbite_nixl_memory_t>();
    memory.address = mem.addr;
    memory.length = mem.len;
    memory.device_id = mem.devId;
    memory.kind = ORBITE_NIXL_MEMORY_DRAM;
    memory.access = ORBITE_NIXL_ACCESS_ALL;
    orbite_nixl_registration_t registration = 0;
    auto error = make_record<orbite_nixl_error_t>();
    if (orbite_nixl_memory_register(engine_.handle, &memory, &registration, &error) !=
        ORBITE_NIXL_OK) {
      return failed("registerMem", error);
    }
    out = registrations_.add(registration);
    if (out == nullptr) {
      orbite_nixl_memory_deregister(engine_.handle, registration, nullptr, nullptr);
      throw std::bad_alloc();
    }
    return NIXL_SUCCESS;
  });
}

nixl_status_t Backend::deregisterMem(nixlBackendMD* meta) {
  guarded("deregisterMem", [&] {
    const std::optional<orbite_nixl_registration_t> registration = registrations_.take(meta);
    if (!registration) {
      return failed("deregisterMem", ORBITE_NIXL_ERR_STALE_HANDLE,
                    "no such registration, or deregistered before");
    }
    auto error = make_record<orbite_nixl_error_t>();
    if (orbite_nixl_memory_deregister(engine_.handle, *registration, nullptr, &error) !=
        ORBITE_NIXL_OK) {
      return failed("deregisterMem", error);
    }
    return NIXL_SUCCESS;
  });
  return NIXL_SUCCESS;
}

nixl_status_t Backend::getPublicData(const nixlBackendMD* meta, std::string& blob) const {
  return guarded("getPublicData", [&] {
    const std::optional<orbite_nixl_registration_t> registration = registrations_.find(meta);
    if (!registration) {
      return failed("getPublicData", ORBITE_NIXL_ERR_STALE_HANDLE, "no such registration");
    }
    // NIXL passes a string that still holds the blob of another registration.
    std::string exported;
    auto error = make_record<orbite_nixl_error_t>();
    const orbite_nixl_status_t status =
        read_blob(exported, error, [&](void* buffer, size_t* bytes, orbite_nixl_error_t* reason) {
          return orbite_nixl_memory_export(engine_.handle, *registration, buffer, bytes, reason);
        });
    if (status != ORBITE_NIXL_OK) {
      return failed("getPublicData", error);
    }
    blob = std::move(exported);
    return NIXL_SUCCESS;
  });
}

nixl_status_t Backend::add_range(orbite_nixl_range_t range, nixlBackendMD*& output) {
  output = ranges_.add(range);
  if (output == nullptr) {
    orbite_nixl_range_release(engine_.handle, range, nullptr);
    throw std::bad_alloc();
  }
  return NIXL_SUCCESS;
}

nixl_status_t Backend::loadLocalMD(nixlBackendMD* input, nixlBackendMD*& output) {
  return guarded("loadLocalMD", [&] {
    const std::optional<orbite_nixl_registration_t> registration = registrations_.find(input);
    if (!registration) {
      return failed("loadLocalMD", ORBITE_NIXL_ERR_STALE_HANDLE, "no such registration");
    }
    orbite_nixl_range_t range = 0;
    auto error = make_record<orbite_nixl_error_t>();
    if (orbite_nixl_range_local(engine_.handle, *registration, &range, &error) != ORBITE_NIXL_OK) {
      return failed("loadLocalMD", error);
    }
    return add_range(range, output);
  });
}

nixl_status_t Backend::loadRemoteMD(const nixlBlobDesc& input, const nixl_mem_t& mem_type,
                                    const std::string& remote_agent, nixlBackendMD*& output) {
  return guarded("loadRemoteMD", [&] {
    if (mem_type != DRAM_SEG) {
      return failed("loadRemoteMD", ORBITE_NIXL_ERR_UNSUPPORTED, unsupported_memory(mem_type));
    }
    const std::optional<orbite_nixl_peer_t> peer = find_peer(remote_agent);
    if (!peer) {
      return failed("loadRemoteMD", ORBITE_NIXL_ERR_NOT_FOUND,
                    "no connection information of agent '" + remote_agent + "'");
    }
    orbite_nixl_range_t range = 0;
    auto error = make_record<orbite_nixl_error_t>();
    if (orbite_nixl_range_import(engine_.handle, *peer, input.metaInfo.data(),
                                 input.metaInfo.size(), input.addr, input.len, &range,
                                 &error) != ORBITE_NIXL_OK) {
      return failed("loadRemoteMD", error);
    }
    return add_range(range, output);
  });
}

nixl_status_t Backend::unloadMD(nixlBackendMD* input) {
  return guarded("unloadMD", [&] {
    const std::optional<orbite_nixl_range_t> range = ranges_.take(input);
    if (!range) {
      return failed("unloadMD", ORBITE_NIXL_ERR_NOT_FOUND, "no such metadata, or unloaded before");
    }
    auto error = make_record<orbite_nixl_error_t>();
    if (orbite_nixl_range_release(engine_.handle, *range, &error) != ORBITE_NIXL_OK) {
      return failed("unloadMD", error);
    }
    return NIXL_SUCCESS;
  });
}

// ---- Peers

nixl_status_t Backend::getConnInfo(std::string& blob) const {
  return guarded("getConnInfo", [&] {
    blob = conn_info_;
    return NIXL_SUCCESS;
  });
}

std::optional<orbite_nixl_peer_t> Backend::find_peer(const std::string& name) const {
  const std::shared_lock lock(peers_mutex_);
  const auto found = peers_.find(name);
  return found == peers_.end() ? std::nullopt : std::optional(found->second.handle);
}

nixl_status_t Backend::add_self() {
  const std::unique_lock lock(peers_mutex_);
  if (peers_.contains(localAgent)) {
    return NIXL_SUCCESS;
  }
  Peer self{0, conn_info_};
  auto error = make_record<orbite_nixl_error_t>();
  if (orbite_nixl_peer_self(engine_.handle, &self.handle, &error) != ORBITE_NIXL_OK) {
    return failed("connect", error);
  }
  peers_.emplace(localAgent, std::move(self));
  return NIXL_SUCCESS;
}

nixl_status_t Backend::loadRemoteConnInfo(const std::string& remote_agent,
                                          const std::string& blob) {
  return guarded("loadRemoteConnInfo", [&] {
    const std::unique_lock lock(peers_mutex_);
    const auto known = peers_.find(remote_agent);
    if (known != peers_.end() && known->second.blob == blob) {
      return NIXL_SUCCESS;
    }
    if (remote_agent == localAgent) {
      return failed("loadRemoteConnInfo", ORBITE_NIXL_ERR_INVALID_ARGUMENT,
                    "connection information of another agent under our own name");
    }
    Peer peer{0, blob};
    auto error = make_record<orbite_nixl_error_t>();
    if (orbite_nixl_peer_import(engine_.handle, remote_agent.data(), remote_agent.size(),
                                blob.data(), blob.size(), &peer.handle, &error) != ORBITE_NIXL_OK) {
      return failed("loadRemoteConnInfo", error);
    }
    if (known != peers_.end()) {
      // The import has retired the peer of before; this ends our handle on it.
      orbite_nixl_peer_retire(engine_.handle, known->second.handle, nullptr);
    }
    peers_.insert_or_assign(remote_agent, std::move(peer));
    return NIXL_SUCCESS;
  });
}

nixl_status_t Backend::connect(const std::string& remote_agent) {
  return guarded("connect", [&] {
    if (remote_agent == localAgent) {
      return add_self();
    }
    const std::optional<orbite_nixl_peer_t> peer = find_peer(remote_agent);
    if (!peer) {
      return failed("connect", ORBITE_NIXL_ERR_NOT_FOUND,
                    "no connection information of agent '" + remote_agent + "'");
    }
    auto error = make_record<orbite_nixl_error_t>();
    if (orbite_nixl_peer_connect(engine_.handle, *peer, 0, &error) != ORBITE_NIXL_OK) {
      return failed("connect", error);
    }
    return NIXL_SUCCESS;
  });
}

nixl_status_t Backend::disconnect(const std::string& remote_agent) {
  return guarded("disconnect", [&] {
    const std::unique_lock lock(peers_mutex_);
    const auto found = peers_.find(remote_agent);
    if (found == peers_.end()) {
      return failed("disconnect", ORBITE_NIXL_ERR_NOT_FOUND,
                    "no connection information of agent '" + remote_agent + "'");
    }
    auto error = make_record<orbite_nixl_error_t>();
    const orbite_nixl_status_t status =
        orbite_nixl_peer_retire(engine_.handle, found->second.handle, &error);
    peers_.erase(found);
    return status == ORBITE_NIXL_OK ? NIXL_SUCCESS : failed("disconnect", error);
  });
}

// ---- Transfers

nixl_status_t Backend::fill_lists(const nixl_meta_dlist_t& local, const nixl_meta_dlist_t& remote,
                                  std::vector<orbite_nixl_descriptor_t>& local_out,
                                  std::vector<orbite_nixl_descriptor_t>& remote_out) const {
  const auto fill = [](const auto& table, const nixl_meta_dlist_t& list,
                       std::vector<orbite_nixl_descriptor_t>& out) {
    out.resize(static_cast<size_t>(list.descCount()));
    return table.for_each(
        out.size(), [&](size_t i) { return list[i].metadataP; },
        [&](size_t i, uint64_t owner) { out[i] = {list[i].addr, list[i].len, owner}; });
  };
  size_t stale = fill(registrations_, local, local_out);
  if (stale != local_out.size()) {
    return failed("prepXfer", ORBITE_NIXL_ERR_STALE_HANDLE,
                  "local descriptor " + std::to_string(stale) + " names no live registration");
  }
  stale = fill(ranges_, remote, remote_out);
  if (stale != remote_out.size()) {
    return failed("prepXfer", ORBITE_NIXL_ERR_STALE_HANDLE,
                  "remote descriptor " + std::to_string(stale) + " names no loaded metadata");
  }
  return NIXL_SUCCESS;
}

nixl_status_t Backend::prepXfer(const nixl_xfer_op_t& operation, const nixl_meta_dlist_t& local,
                                const nixl_meta_dlist_t& remote, const std::string& remote_agent,
                                nixlBackendReqH*& handle, const nixl_opt_b_args_t* opt_args) const {
  // What comes in may be uninitialised, and NIXL releases what it finds here after an error.
  handle = nullptr;
  return guarded("prepXfer", [&] {
    if (local.getType() != DRAM_SEG || remote.getType() != DRAM_SEG) {
      return failed(
          "prepXfer", ORBITE_NIXL_ERR_UNSUPPORTED,
          unsupported_memory(local.getType() != DRAM_SEG ? local.getType() : remote.getType()));
    }
    if (opt_args != nullptr && !opt_args->customParam.empty()) {
      return failed("prepXfer", ORBITE_NIXL_ERR_INVALID_ARGUMENT,
                    "customParam of " + std::to_string(opt_args->customParam.size()) +
                        " bytes; only an empty one is allowed");
    }
    if (local.descCount() != remote.descCount() || local.descCount() == 0) {
      return failed("prepXfer", ORBITE_NIXL_ERR_LENGTH_MISMATCH,
                    std::to_string(local.descCount()) + " local and " +
                        std::to_string(remote.descCount()) + " remote descriptors");
    }
    const std::optional<orbite_nixl_peer_t> peer = find_peer(remote_agent);
    if (!peer) {
      return failed("prepXfer", ORBITE_NIXL_ERR_NOT_FOUND,
                    "no connection information of agent '" + remote_agent + "'");
    }
    std::vector<orbite_nixl_descriptor_t> local_list;
    std::vector<orbite_nixl_descriptor_t> remote_list;
    const nixl_status_t filled = fill_lists(local, remote, local_list, remote_list);
    if (filled != NIXL_SUCCESS) {
      return filled;
    }
    auto prepare = make_record<orbite_nixl_prepare_t>();
    prepare.operation = static_cast<uint32_t>(operation);
    prepare.peer = *peer;
    prepare.local = local_list.data();
    prepare.remote = remote_list.data();
    prepare.count = local_list.size();
    const auto request = std::make_shared<Request>(operation, remote_agent);
    auto error = make_record<orbite_nixl_error_t>();
    if (orbite_nixl_request_prepare(engine_.handle, &prepare, &request->handle, &error) !=
        ORBITE_NIXL_OK) {
      return failed("prepXfer", error);
    }
    handle = requests_.add(request);
    if (handle == nullptr) {
      orbite_nixl_request_abandon(engine_.handle, request->handle, nullptr);
      throw std::bad_alloc();
    }
    return NIXL_SUCCESS;
  });
}

// Turns a result into the answer to NIXL, and says once why a transfer failed or cannot end.
nixl_status_t Backend::observe(const char* call, Request& request,
                               const orbite_nixl_result_t& result) const {
  const nixl_status_t status = to_nixl(result);
  if (status < 0 && status != NIXL_ERR_NOT_POSTED) {
    log_.add(call, result.status,
             "transfer with agent '" + request.peer + "' failed: " + describe(result));
  } else if (result.drain == ORBITE_NIXL_DRAIN_UNQUIESCED &&
             !request.unquiesced_logged.exchange(true, std::memory_order_relaxed)) {
    log_.add(call, result.status,
             "transfer with agent '" + request.peer +
                 "' stays in progress, unquiesced (no proof that its buffers are free can be "
                 "had): " +
                 describe(result));
  }
  return request.answer(status);
}

nixl_status_t Backend::postXfer(const nixl_xfer_op_t& operation, const nixl_meta_dlist_t& /*local*/,
                                const nixl_meta_dlist_t& /*remote*/,
                                const std::string& /*remote_agent*/, nixlBackendReqH*& handle,
                                const nixl_opt_b_args_t* opt_args) const {
  return guarded("postXfer", [&] {
    const auto request = requests_.find(handle);
    if (!request) {
      return failed("postXfer", ORBITE_NIXL_ERR_STALE_HANDLE, "no such transfer");
    }
    Request& transfer = **request;
    if (operation != transfer.operation) {
      return transfer.answer(failed("postXfer", ORBITE_NIXL_ERR_INVALID_ARGUMENT,
                                    "another operation than the one prepared"));
    }
    if (opt_args != nullptr && !opt_args->customParam.empty()) {
      return transfer.answer(failed("postXfer", ORBITE_NIXL_ERR_INVALID_ARGUMENT,
                                    "only an empty customParam is allowed"));
    }
    auto post = make_record<orbite_nixl_post_t>();
    if (opt_args != nullptr && opt_args->hasNotif) {
      post.notification = opt_args->notifMsg.data();
      post.notification_bytes = opt_args->notifMsg.size();
    }
    auto result = make_record<orbite_nixl_result_t>();
    auto error = make_record<orbite_nixl_error_t>();
    if (orbite_nixl_request_post(engine_.handle, transfer.handle, &post, &result, &error) !=
        ORBITE_NIXL_OK) {
      return transfer.answer(failed("postXfer", error));
    }
    return observe("postXfer", transfer, result);
  });
}

nixl_status_t Backend::checkXfer(nixlBackendReqH* handle) const {
  return guarded("checkXfer", [&] {
    const auto request = requests_.find(handle);
    if (!request) {
      return failed("checkXfer", ORBITE_NIXL_ERR_STALE_HANDLE, "no such transfer");
    }
    auto result = make_record<orbite_nixl_result_t>();
    auto error = make_record<orbite_nixl_error_t>();
    if (orbite_nixl_request_check(engine_.handle, (*request)->handle, &result, &error) !=
        ORBITE_NIXL_OK) {
      return (*request)->answer(failed("checkXfer", error));
    }
    return observe("checkXfer", **request, result);
  });
}

nixl_status_t Backend::releaseReqH(nixlBackendReqH* handle) const {
  return guarded("releaseReqH", [&] {
    const auto request = requests_.find(handle);
    if (!request) {
      return failed("releaseReqH", ORBITE_NIXL_ERR_STALE_HANDLE,
                    "no such transfer, or released before");
    }
    return end_request(handle, **request);
  });
}

nixl_status_t Backend::end_request(nixlBackendReqH* ticket, Request& request) const {
  auto error = make_record<orbite_nixl_error_t>();
  orbite_nixl_status_t status = orbite_nixl_request_release(engine_.handle, request.handle, &error);
  if (status == ORBITE_NIXL_ERR_ACTIVE) {
    if (request.last_answer.load(std::memory_order_relaxed) == NIXL_IN_PROG) {
      return request.answer(NIXL_ERR_REPOST_ACTIVE);
    }
    log_.add("releaseReqH", ORBITE_NIXL_ERR_ACTIVE,
             "handle given up with its transfer in progress; the engine keeps both buffers in use "
             "until it has retired");
    status = orbite_nixl_request_abandon(engine_.handle, request.handle, &error);
  }
  requests_.take(ticket);
  return status == ORBITE_NIXL_OK ? NIXL_SUCCESS : failed("releaseReqH", error);
}

// ---- Notifications

nixl_status_t Backend::getNotifs(notif_list_t& notifs) {
  return guarded("getNotifs", [&] {
    std::array<char, ORBITE_NIXL_NAME_BYTES_MAX> name;
    std::array<char, 4096> small;
    std::vector<char> large;
    char* message = small.data();
    size_t capacity = small.size();
    auto error = make_record<orbite_nixl_error_t>();
    for (size_t taken = 0; taken < kNotifsPerCallMax;) {
      size_t name_bytes = name.size();
      size_t message_bytes = capacity;
      const orbite_nixl_status_t status = orbite_nixl_notification_receive(
          engine_.handle, name.data(), &name_bytes, message, &message_bytes, &error);
      if (status == ORBITE_NIXL_OK) {
        notifs.emplace_back(std::string(name.data(), name_bytes),
                            std::string(message, message_bytes));
        ++taken;
      } else if (status == ORBITE_NIXL_ERR_NOT_FOUND) {
        break;
      } else if (status == ORBITE_NIXL_ERR_BUFFER_TOO_SMALL && message_bytes > capacity) {
        large.resize(message_bytes);
        message = large.data();
        capacity = message_bytes;
      } else {
        return failed("getNotifs", error);
      }
    }
    return NIXL_SUCCESS;
  });
}

nixl_status_t Backend::genNotif(const std::string& remote_agent, const std::string& message) const {
  return guarded("genNotif", [&] {
    const std::optional<orbite_nixl_peer_t> peer = find_peer(remote_agent);
    if (!peer) {
      return failed("genNotif", ORBITE_NIXL_ERR_NOT_FOUND,
                    "no connection information of agent '" + remote_agent + "'");
    }
    auto error = make_record<orbite_nixl_error_t>();
    if (orbite_nixl_notification_send(engine_.handle, *peer, message.data(), message.size(),
                                      &error) != ORBITE_NIXL_OK) {
      return failed("genNotif", error);
    }
    return NIXL_SUCCESS;
  });
}

}  // namespace orbite::nixl
