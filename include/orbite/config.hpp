// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orbite/error.hpp"

namespace orbite {

/// Everything that a user can set, with its defaults. A default-constructed Config is valid; so is
/// each one that parse_config returns, ranges included. The key of a field is its path in the JSON
/// document: `tcp.slice_bytes` is {"tcp": {"slice_bytes": 1048576}}. Meanings and ranges are those
/// of config_defaults_text().
struct Config {
  struct Listen {
    /// IP literal; empty: every address of the host.
    std::string address;
    /// 0: chosen by the system.
    std::uint16_t port = 0;
    /// 0, or the end (included) of a range that starts at `port`.
    std::uint16_t port_max = 0;
    friend bool operator==(const Listen&, const Listen&) = default;
  };
  struct Advertise {
    /// IP literals; empty: the addresses of the default route's interface.
    std::vector<std::string> addresses;
    /// 0: the port that the engine listens on.
    std::uint16_t port = 0;
    friend bool operator==(const Advertise&, const Advertise&) = default;
  };
  struct Local {
    bool enabled = true;
    friend bool operator==(const Local&, const Local&) = default;
  };
  struct Copy {
    /// 0: a part of the last-level cache.
    std::uint64_t non_temporal_min_bytes = 0;
    std::uint64_t non_temporal_part_min_bytes = 512;
    /// 0: no thread but the callers' and the worker's copies.
    std::uint64_t workers_max = 4;
    std::uint64_t workers_min_bytes = std::uint64_t{4} << 20;
    friend bool operator==(const Copy&, const Copy&) = default;
  };
  struct Shm {
    bool enabled = true;
    friend bool operator==(const Shm&, const Shm&) = default;
  };
  struct Cma {
    bool enabled = true;
    friend bool operator==(const Cma&, const Cma&) = default;
  };
  struct Tcp {
    bool enabled = true;
    /// IP literal; empty: chosen by the system.
    std::string source_address;
    std::uint64_t bulk_lanes_per_peer = 2;
    std::uint64_t connect_timeout_ms = 5'000;
    std::uint64_t handshake_timeout_ms = 5'000;
    std::uint64_t progress_timeout_ms = 30'000;
    std::uint64_t idle_lane_timeout_ms = 60'000;
    std::uint64_t slice_bytes = std::uint64_t{1} << 20;
    std::uint64_t small_bytes = std::uint64_t{64} << 10;
    /// Never less than slice_bytes.
    std::uint64_t lane_bytes_in_flight_max = std::uint64_t{16} << 20;
    std::uint64_t served_lanes_max = 4'096;
    std::uint64_t handshakes_max = 128;
    /// Empty: left as the system has it.
    std::string loopback_congestion_control = "cubic";
    std::uint64_t keepalive_idle_ms = 10'000;
    friend bool operator==(const Tcp&, const Tcp&) = default;
  };
  struct Transfer {
    /// 0: none.
    std::uint64_t default_timeout_ms = 0;
    /// Transport names, preferred first; at least one, none twice.
    std::vector<std::string> routes = {"local", "shm", "cma", "tcp"};
    friend bool operator==(const Transfer&, const Transfer&) = default;
  };
  struct Limits {
    std::uint64_t registrations_max = std::uint64_t{1} << 20;
    std::uint64_t peers_max = 4'096;
    std::uint64_t requests_max = 65'536;
    /// Never more than descriptors_max.
    std::uint64_t descriptors_per_request_max = std::uint64_t{1} << 22;
    std::uint64_t descriptors_max = std::uint64_t{1} << 26;
    std::uint64_t bytes_in_flight_max = std::uint64_t{1} << 40;
    std::uint64_t ranges_max = std::uint64_t{1} << 22;
    /// Of the process; no engine is made while there are more.
    std::uint64_t quarantined_engines_max = 64;
    friend bool operator==(const Limits&, const Limits&) = default;
  };
  struct Notifications {
    /// Never more than inbox_bytes_max or outbox_bytes_max.
    std::uint64_t message_bytes_max = std::uint64_t{1} << 20;
    std::uint64_t inbox_bytes_max = std::uint64_t{64} << 20;
    std::uint64_t outbox_bytes_max = std::uint64_t{64} << 20;
    friend bool operator==(const Notifications&, const Notifications&) = default;
  };
  struct Worker {
    /// Steps of niceness by which the worker is ahead of its process, where the system permits it.
    std::uint64_t priority_boost = 5;
    friend bool operator==(const Worker&, const Worker&) = default;
  };
  struct Close {
    std::uint64_t timeout_ms = 2'000;
    friend bool operator==(const Close&, const Close&) = default;
  };
  struct Log {
    /// trace, debug, info, warn, error, off; empty: left as the process has it.
    std::string level;
    friend bool operator==(const Log&, const Log&) = default;
  };

  Listen listen;
  Advertise advertise;
  Local local;
  Copy copy;
  Shm shm;
  Cma cma;
  Tcp tcp;
  Transfer transfer;
  Limits limits;
  Notifications notifications;
  Worker worker;
  Close close;
  Log log;
  friend bool operator==(const Config&, const Config&) = default;
};

inline constexpr std::size_t kConfigBytesMax = std::size_t{1} << 20;

/// One JSON object of sections, `{}` for all defaults. kBadConfig for whatever is not valid UTF-8
/// JSON of at most kConfigBytesMax bytes, for an unknown or repeated key and for a value of another
/// type or outside its range. The context of the error starts with the path of the key, or with
/// `line L, column C` (counted in bytes from 1) where the text is not JSON, and names what is
/// allowed.
Result<Config> parse_config(std::string_view json);

/// What parse_config would refuse, in the order of the document, then what concerns several keys:
/// each error as parse_config tells its first. Empty when it accepts the document. Whoever wants to
/// see more than this many repairs these first.
inline constexpr std::size_t kConfigErrorsMax = 32;
std::vector<Error> config_errors(std::string_view json);

/// parse_config of a regular file. Errors are kBadConfig too, with errno where the file could not
/// be read, and name the file.
Result<Config> load_config_file(const std::string& path);
/// config_errors of a regular file.
std::vector<Error> config_file_errors(const std::string& path);

/// Every key with its type, range, default and meaning, for people.
std::string config_defaults_text();
/// The document of all defaults, which parse_config accepts.
std::string config_defaults_json();
/// What config_defaults_text() says, as {"keys": [{"key", "type", "unit", "minimum", "maximum",
/// "allowed", "default", "meaning"}]}; unit, minimum, maximum and allowed only where they apply.
std::string config_schema_json();
/// The same as a page of Markdown.
std::string config_defaults_markdown();

}  // namespace orbite
