// SPDX-License-Identifier: Apache-2.0
#include <climits>
#include <cstring>
#include <string>

#include "base/log.hpp"
#include "codes.hpp"
#include "engine_table.hpp"
#include "entry.hpp"
#include "platform/system.hpp"
#include "wire/frame.hpp"

namespace orbite::bridge {
namespace {

// An empty variable counts as none.
Result<Config> config_of(const orbite_nixl_engine_options_t& options) {
  ORBITE_ASSIGN_OR_RETURN(const auto text,
                          input_bytes(options.config, options.config_bytes, "config"));
  if (options.config != nullptr) {
    // SAFETY: char and unsigned char have the same size and alignment and may alias.
    return parse_config({reinterpret_cast<const char*>(text.data()), text.size()});
  }
  const std::optional<std::string> path = platform::environment_config();
  if (path.has_value() && !path->empty()) {
    return load_config_file(*path);
  }
  return Config{};
}

Result<void> apply_log_level(Config& config) {
  std::optional<std::string> text = platform::environment_log_level();
  base::LogLevel level = base::LogLevel::kWarn;
  if (text.has_value() && !text->empty()) {
    if (!base::parse_log_level(*text, level)) {
      return fail(ErrorCode::kBadConfig,
                  "ORBITE_LOG is '%s'; allowed: trace, debug, info, warn, error, off",
                  text->c_str());
    }
    config.log.level = std::move(*text);
  }
  if (base::parse_log_level(config.log.level, level)) {
    base::set_log_level(level);
  }
  return {};
}

Result<std::uint64_t> create_engine(const orbite_nixl_engine_options_t& options) {
  ORBITE_ASSIGN_OR_RETURN(const auto name, input_bytes(options.name, options.name_bytes, "name"));
  if (name.empty() || name.size() > ORBITE_NIXL_NAME_BYTES_MAX) {
    return fail(ErrorCode::kInvalidArgument, "name has %zu bytes; allowed: 1..%d", name.size(),
                ORBITE_NIXL_NAME_BYTES_MAX);
  }
  ORBITE_ASSIGN_OR_RETURN(Config config, config_of(options));
  ORBITE_TRY(apply_log_level(config));
  ORBITE_ASSIGN_OR_RETURN(EngineReservation reservation, EngineReservation::make());
  const std::uint64_t close_timeout_ms = config.close.timeout_ms;
  ORBITE_ASSIGN_OR_RETURN(
      auto engine,
      TransferEngine::create({std::string(name.begin(), name.end()), std::move(config)}));
  return reservation.publish(std::move(engine), close_timeout_ms);
}

}  // namespace
}  // namespace orbite::bridge

using orbite::Result;
using orbite::bridge::check_pointer;
using orbite::bridge::check_record;
using orbite::bridge::copy_out;
using orbite::bridge::create_engine;
using orbite::bridge::EngineLease;
using orbite::bridge::guarded;
using orbite::bridge::input_bytes;
using orbite::bridge::MajorCheck;
using orbite::bridge::release_engine;

orbite_nixl_status_t orbite_nixl_abi_query(orbite_nixl_abi_t* abi, orbite_nixl_error_t* error) {
  return guarded(
      error,
      [&]() -> Result<void> {
        ORBITE_TRY(check_record(abi, "abi", MajorCheck::kNone));
        abi->abi_major = ORBITE_NIXL_ABI_MAJOR;
        abi->abi_minor = ORBITE_NIXL_ABI_MINOR;
        abi->wire_version = orbite::wire::kWireVersion;
        abi->features = ORBITE_NIXL_FEATURE_TCP | ORBITE_NIXL_FEATURE_LOCAL;
        std::memset(abi->version, 0, sizeof(abi->version));
        std::strncpy(abi->version, orbite::version(), sizeof(abi->version) - 1);
        return {};
      },
      MajorCheck::kNone);
}

const char* orbite_nixl_status_text(int32_t status) {
  if (status < 0 || status > UINT16_MAX ||
      !orbite::is_error_code(static_cast<std::uint16_t>(status))) {
    return "unknown error";
  }
  // The texts are literals, so they end with a NUL.
  return error_text(static_cast<orbite::ErrorCode>(status)).data();
}

orbite_nixl_status_t orbite_nixl_engine_create(const orbite_nixl_engine_options_t* options,
                                               orbite_nixl_engine_t* engine,
                                               orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_TRY(check_record(options, "options"));
    ORBITE_TRY(check_pointer(engine, "engine"));
    ORBITE_ASSIGN_OR_RETURN(*engine, create_engine(*options));
    return {};
  });
}

orbite_nixl_status_t orbite_nixl_engine_close(orbite_nixl_engine_t engine, uint64_t timeout_ns,
                                              orbite_nixl_close_t* close,
                                              orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_TRY(check_record(close, "close"));
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    const orbite::CloseStatus status = lease->close(timeout_ns);
    close->phase = static_cast<int32_t>(status.phase);
    close->executions_unresolved = status.executions_unresolved;
    close->registrations_unresolved = status.registrations_unresolved;
    close->peers_unresolved = status.peers_unresolved;
    return {};
  });
}

orbite_nixl_status_t orbite_nixl_engine_release(orbite_nixl_engine_t engine,
                                                orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> { return release_engine(engine); });
}

orbite_nixl_status_t orbite_nixl_engine_info(orbite_nixl_engine_t engine, char* buffer,
                                             size_t* bytes, orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_TRY(check_pointer(bytes, "bytes"));
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    const std::string text = lease->info_json();
    ORBITE_ASSIGN_OR_RETURN(const auto data, input_bytes(text.data(), text.size(), "info"));
    return copy_out(data, buffer, bytes, "buffer");
  });
}

int orbite_nixl_process_routes(char* buffer, size_t capacity) {
  int length = -1;
  // The status says no more than the length: there is no error record to fill.
  static_cast<void>(guarded(nullptr, [&]() -> Result<void> {
    const std::string text = orbite::process_routes();
    if (buffer != nullptr && text.size() < capacity && text.size() < INT_MAX) {
      std::memcpy(buffer, text.c_str(), text.size() + 1);
      length = static_cast<int>(text.size());
    }
    return {};
  }));
  return length;
}
