// SPDX-License-Identifier: Apache-2.0
#include "entries.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

namespace orbite::testing {
namespace {

void null_output(Arguments& arguments) { arguments.output = nullptr; }
void null_result(Arguments& arguments) { arguments.result = nullptr; }
void null_state(Arguments& arguments) { arguments.state = nullptr; }
void null_size(Arguments& arguments) { arguments.size = nullptr; }
void null_name_size(Arguments& arguments) { arguments.name_size = nullptr; }
void null_input(Arguments& arguments) { arguments.input = nullptr; }
void null_name(Arguments& arguments) { arguments.name_in = nullptr; }

orbite_nixl_record_t* result_head(Arguments& arguments) { return &arguments.result_record.record; }

std::vector<Entry> engine_entries() {
  return {
      {.name = "AbiQuery",
       .call = [](Arguments& a) { return orbite_nixl_abi_query(a.abi, a.error); },
       .takes_engine = false,
       .nulls = {[](Arguments& a) { a.abi = nullptr; }},
       .can_fail = false,
       .can_throw = false},
      {.name = "EngineCreate",
       .call = [](Arguments& a) { return orbite_nixl_engine_create(a.options, a.output, a.error); },
       .takes_engine = false,
       .nulls = {null_output, [](Arguments& a) { a.options = nullptr; },
                 [](Arguments& a) { a.options_record.name = nullptr; },
                 [](Arguments& a) { a.options_record.config = nullptr; }},
       .heads = {[](Arguments& a) { return &a.options_record.record; }}},
      {.name = "EngineClose",
       .call = [](Arguments& a) { return orbite_nixl_engine_close(a.engine, 0, a.close, a.error); },
       .nulls = {[](Arguments& a) { a.close = nullptr; }},
       .heads = {[](Arguments& a) { return &a.close_record.record; }},
       .can_fail = false},
      {.name = "EngineRelease",
       .call = [](Arguments& a) { return orbite_nixl_engine_release(a.engine, a.error); },
       .can_fail = false,
       .can_throw = false},
      {.name = "EngineInfo",
       .call =
           [](Arguments& a) {
             return orbite_nixl_engine_info(a.engine, reinterpret_cast<char*>(a.buffer_out.data()),
                                            a.size, a.error);
           },
       .nulls = {null_size},
       .can_fail = false},
      {.name = "TelemetryRead",
       .call =
           [](Arguments& a) {
             return orbite_nixl_telemetry_read(a.engine, a.telemetry, a.route_records.data(),
                                               a.route_count, a.budget_records.data(),
                                               a.budget_count, a.error);
           },
       .nulls = {[](Arguments& a) { a.telemetry = nullptr; },
                 [](Arguments& a) { a.route_count = nullptr; },
                 [](Arguments& a) { a.budget_count = nullptr; }},
       .heads = {[](Arguments& a) { return &a.telemetry_record.record; },
                 [](Arguments& a) { return &a.route_records[0].record; },
                 [](Arguments& a) { return &a.route_records[1].record; },
                 [](Arguments& a) { return &a.budget_records[0].record; },
                 [](Arguments& a) { return &a.budget_records[1].record; }}},
      {.name = "TelemetryText",
       .call =
           [](Arguments& a) {
             return orbite_nixl_telemetry_text(a.engine, reinterpret_cast<char*>(a.text_out.data()),
                                               a.text_size, a.error);
           },
       .nulls = {[](Arguments& a) { a.text_size = nullptr; }}},
  };
}

std::vector<Entry> memory_entries() {
  return {
      {.name = "MemoryRegister",
       .call =
           [](Arguments& a) {
             return orbite_nixl_memory_register(a.engine, a.memory, a.output, a.error);
           },
       .nulls = {null_output, [](Arguments& a) { a.memory = nullptr; }},
       .heads = {[](Arguments& a) { return &a.memory_record.record; }}},
      {.name = "MemoryDeregister",
       .call =
           [](Arguments& a) {
             return orbite_nixl_memory_deregister(a.engine, a.handle, a.state, a.error);
           }},
      {.name = "MemoryQuery",
       .call =
           [](Arguments& a) {
             return orbite_nixl_memory_query(a.engine, a.handle, a.state, a.error);
           },
       .nulls = {null_state}},
      {.name = "MemoryExport",
       .call =
           [](Arguments& a) {
             return orbite_nixl_memory_export(a.engine, a.handle, a.buffer_out.data(), a.size,
                                              a.error);
           },
       .nulls = {null_size}},
  };
}

std::vector<Entry> peer_entries() {
  return {
      {.name = "PeerExport",
       .call =
           [](Arguments& a) {
             return orbite_nixl_peer_export(a.engine, a.buffer_out.data(), a.size, a.error);
           },
       .nulls = {null_size},
       .can_fail = false,
       .can_throw = false},
      {.name = "PeerSelf",
       .call = [](Arguments& a) { return orbite_nixl_peer_self(a.engine, a.output, a.error); },
       .nulls = {null_output}},
      {.name = "PeerImport",
       .call =
           [](Arguments& a) {
             return orbite_nixl_peer_import(a.engine, a.name_in, 5, a.input, a.bytes.size(),
                                            a.output, a.error);
           },
       .nulls = {null_output, null_input, null_name}},
      {.name = "PeerConnect",
       .call =
           [](Arguments& a) {
             return orbite_nixl_peer_connect(a.engine, a.handle, 1'000'000, a.error);
           }},
      {.name = "PeerRetire",
       .call = [](Arguments& a) { return orbite_nixl_peer_retire(a.engine, a.handle, a.error); }},
      {.name = "PeerConfirmFenced",
       .call =
           [](Arguments& a) {
             return orbite_nixl_peer_confirm_fenced(a.engine, a.handle, a.error);
           }},
      {.name = "UnresolvedRead",
       .call =
           [](Arguments& a) {
             return orbite_nixl_unresolved_read(a.engine, nullptr, a.size, a.error);
           },
       .nulls = {null_size},
       .can_fail = false},
      {.name = "EpochConfirmFenced",
       .call =
           [](Arguments& a) {
             return orbite_nixl_epoch_confirm_fenced(
                 a.engine, static_cast<const std::uint8_t*>(a.input), a.error);
           },
       .nulls = {null_input}},
      {.name = "RangeImport",
       .call =
           [](Arguments& a) {
             return orbite_nixl_range_import(a.engine, a.handle, a.input, a.bytes.size(),
                                             a.memory_record.address, a.memory_record.length,
                                             a.output, a.error);
           },
       .nulls = {null_output, null_input}},
      {.name = "RangeLocal",
       .call =
           [](Arguments& a) {
             return orbite_nixl_range_local(a.engine, a.handle, a.output, a.error);
           },
       .nulls = {null_output}},
      {.name = "RangeRelease",
       .call = [](Arguments& a) { return orbite_nixl_range_release(a.engine, a.handle, a.error); }},
  };
}

std::vector<Entry> request_entries() {
  return {
      {.name = "RequestPrepare",
       .call =
           [](Arguments& a) {
             return orbite_nixl_request_prepare(a.engine, a.prepare, a.output, a.error);
           },
       .nulls = {null_output, [](Arguments& a) { a.prepare = nullptr; },
                 [](Arguments& a) { a.prepare_record.local = nullptr; },
                 [](Arguments& a) { a.prepare_record.remote = nullptr; }},
       .heads = {[](Arguments& a) { return &a.prepare_record.record; }}},
      {.name = "RequestPost",
       .call =
           [](Arguments& a) {
             return orbite_nixl_request_post(a.engine, a.handle, a.post, a.result, a.error);
           },
       .nulls = {null_result, [](Arguments& a) { a.post_record.notification_bytes = 1; }},
       .heads = {result_head, [](Arguments& a) { return &a.post_record.record; }}},
      {.name = "RequestCheck",
       .call =
           [](Arguments& a) {
             return orbite_nixl_request_check(a.engine, a.handle, a.result, a.error);
           },
       .nulls = {null_result},
       .heads = {result_head}},
      {.name = "RequestQuery",
       .call =
           [](Arguments& a) {
             return orbite_nixl_request_query(a.engine, a.handle, a.result, a.error);
           },
       .nulls = {null_result},
       .heads = {result_head}},
      {.name = "RequestCancel",
       .call =
           [](Arguments& a) { return orbite_nixl_request_cancel(a.engine, a.handle, a.error); }},
      {.name = "RequestRelease",
       .call =
           [](Arguments& a) { return orbite_nixl_request_release(a.engine, a.handle, a.error); }},
      {.name = "RequestAbandon",
       .call =
           [](Arguments& a) { return orbite_nixl_request_abandon(a.engine, a.handle, a.error); }},
      {.name = "NotificationSend",
       .call =
           [](Arguments& a) {
             return orbite_nixl_notification_send(a.engine, a.handle, a.input, a.bytes.size(),
                                                  a.error);
           },
       .nulls = {null_input}},
      {.name = "NotificationReceive",
       .call =
           [](Arguments& a) {
             return orbite_nixl_notification_receive(a.engine, a.name_out.data(), a.name_size,
                                                     a.buffer_out.data(), a.size, a.error);
           },
       .nulls = {null_size, null_name_size},
       .can_fail = false},
  };
}

/// The same arguments are used many times: what a call made is freed at once.
orbite_nixl_status_t freed(orbite_nixl_status_t status, const Arguments& arguments) {
  if (status == ORBITE_NIXL_OK) {
    orbite_nixl_shared_free(arguments.handle_out, nullptr);
  }
  return status;
}

orbite_nixl_status_t import_shared(Arguments& arguments) {
  constexpr std::size_t kBytes = 4096;
  const int fd = ::memfd_create("import", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  void* const start = ::ftruncate(fd, kBytes) == 0
                          ? ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                          : MAP_FAILED;
  if (start == MAP_FAILED || ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    std::abort();
  }
  const orbite_nixl_status_t status =
      freed(orbite_nixl_shared_import(fd, reinterpret_cast<std::uintptr_t>(start), kBytes,
                                      arguments.output, arguments.error),
            arguments);
  ::munmap(start, kBytes);
  ::close(fd);
  return status;
}

orbite_nixl_status_t free_shared(Arguments& arguments) {
  std::uint64_t shared = 0;
  std::uint64_t address = 0;
  if (orbite_nixl_shared_allocate(arguments.shared, &shared, &address, nullptr) != ORBITE_NIXL_OK) {
    std::abort();
  }
  const orbite_nixl_status_t status = orbite_nixl_shared_free(shared, arguments.error);
  if (status != ORBITE_NIXL_OK) {
    orbite_nixl_shared_free(shared, nullptr);
  }
  return status;
}

/// They ask no engine at all.
std::vector<Entry> shared_entries() {
  return {
      {.name = "SharedAllocate",
       .call =
           [](Arguments& a) {
             return freed(orbite_nixl_shared_allocate(a.shared, a.output, a.address, a.error), a);
           },
       .takes_engine = false,
       .nulls = {null_output, [](Arguments& a) { a.shared = nullptr; },
                 [](Arguments& a) { a.address = nullptr; },
                 [](Arguments& a) { a.shared_record.name = nullptr; }},
       .heads = {[](Arguments& a) { return &a.shared_record.record; }},
       .can_fail = false,
       .can_throw = false},
      {.name = "SharedImport",
       .call = import_shared,
       .takes_engine = false,
       .nulls = {null_output},
       .can_fail = false,
       .can_throw = false},
      {.name = "SharedFree",
       .call = free_shared,
       .takes_engine = false,
       .can_fail = false,
       .can_throw = false},
  };
}

std::vector<Entry> all_entries() {
  std::vector<Entry> all;
  for (const auto& group :
       {engine_entries(), memory_entries(), shared_entries(), peer_entries(), request_entries()}) {
    all.insert(all.end(), group.begin(), group.end());
  }
  return all;
}

}  // namespace

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = all_entries();
  return all;
}

}  // namespace orbite::testing
