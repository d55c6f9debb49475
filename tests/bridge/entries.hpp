// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "orbite/nixl.h"
#include "support/nixl_records.hpp"

namespace orbite::testing {

/// Arguments that every entry accepts, reached through pointers that a test may null or bend. The
/// handles other than `engine` are made up.
struct Arguments {
  Arguments() {
    memory_record.address = reinterpret_cast<std::uint64_t>(bytes.data());
    memory_record.length = bytes.size();
    memory_record.access = ORBITE_NIXL_ACCESS_ALL;
    options_record.name = name_in;
    options_record.name_bytes = std::strlen(name_in);
    options_record.config = config_in;
    options_record.config_bytes = std::strlen(config_in);
    local[0] = {reinterpret_cast<std::uint64_t>(bytes.data()), 8, handle};
    remote[0] = {reinterpret_cast<std::uint64_t>(bytes.data()) + 8, 8, handle};
    prepare_record.operation = ORBITE_NIXL_WRITE;
    prepare_record.peer = handle;
    prepare_record.local = local.data();
    prepare_record.remote = remote.data();
    prepare_record.count = local.size();
    shared_record.bytes = 4096;
    shared_record.name = name_in;
    shared_record.name_bytes = std::strlen(name_in);
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  std::array<unsigned char, 64> bytes{};
  std::array<orbite_nixl_descriptor_t, 1> local{};
  std::array<orbite_nixl_descriptor_t, 1> remote{};
  const char* name_in = "agent";
  const char* config_in = "{}";
  std::array<char, 256> name_out{};
  std::array<unsigned char, 4096> buffer_out{};
  std::vector<unsigned char> text_out = std::vector<unsigned char>(64 << 10);

  orbite_nixl_engine_t engine = 0;
  std::uint64_t handle = (std::uint64_t{5} << 32) | 3;
  std::uint64_t handle_out = 0;
  std::int32_t state_out = -1;
  std::size_t size_out = 4096;
  std::size_t name_size_out = 256;
  std::size_t route_count_out = 2;
  std::size_t budget_count_out = 2;
  std::size_t text_size_out = 64 << 10;

  orbite_nixl_error_t error_record = make_record<orbite_nixl_error_t>();
  orbite_nixl_abi_t abi_record = make_record<orbite_nixl_abi_t>();
  orbite_nixl_engine_options_t options_record = make_record<orbite_nixl_engine_options_t>();
  orbite_nixl_close_t close_record = make_record<orbite_nixl_close_t>();
  orbite_nixl_memory_t memory_record = make_record<orbite_nixl_memory_t>();
  orbite_nixl_prepare_t prepare_record = make_record<orbite_nixl_prepare_t>();
  orbite_nixl_post_t post_record = make_record<orbite_nixl_post_t>();
  orbite_nixl_result_t result_record = make_record<orbite_nixl_result_t>();
  orbite_nixl_shared_options_t shared_record = make_record<orbite_nixl_shared_options_t>();
  orbite_nixl_telemetry_t telemetry_record = make_record<orbite_nixl_telemetry_t>();
  std::array<orbite_nixl_route_t, 2> route_records = {make_record<orbite_nixl_route_t>(),
                                                      make_record<orbite_nixl_route_t>()};
  std::array<orbite_nixl_budget_t, 2> budget_records = {make_record<orbite_nixl_budget_t>(),
                                                        make_record<orbite_nixl_budget_t>()};

  orbite_nixl_error_t* error = &error_record;
  orbite_nixl_abi_t* abi = &abi_record;
  orbite_nixl_engine_options_t* options = &options_record;
  orbite_nixl_close_t* close = &close_record;
  orbite_nixl_memory_t* memory = &memory_record;
  orbite_nixl_prepare_t* prepare = &prepare_record;
  orbite_nixl_post_t* post = &post_record;
  orbite_nixl_result_t* result = &result_record;
  orbite_nixl_shared_options_t* shared = &shared_record;
  std::uint64_t address_out = 0;
  std::uint64_t* address = &address_out;
  orbite_nixl_telemetry_t* telemetry = &telemetry_record;
  std::size_t* route_count = &route_count_out;
  std::size_t* budget_count = &budget_count_out;
  std::uint64_t* output = &handle_out;
  std::int32_t* state = &state_out;
  std::size_t* size = &size_out;
  std::size_t* text_size = &text_size_out;
  std::size_t* name_size = &name_size_out;
  const void* input = bytes.data();
};

/// One function of the ABI that returns a status.
struct Entry {
  std::string name;
  orbite_nixl_status_t (*call)(Arguments&);
  bool takes_engine = true;
  /// Each makes one pointer NULL that must not be.
  std::vector<void (*)(Arguments&)> nulls = {};
  /// Each gives the head of one record that the call takes, `error` left out.
  std::vector<orbite_nixl_record_t* (*)(Arguments&)> heads = {};
  /// Asks the engine something that can fail.
  bool can_fail = true;
  /// Asks the engine something that can throw.
  bool can_throw = true;
};

inline void PrintTo(const Entry& entry, std::ostream* stream) { *stream << entry.name; }

/// Every entry but orbite_nixl_status_text and orbite_nixl_process_routes, which return no status.
const std::vector<Entry>& entries();

}  // namespace orbite::testing
