// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/layout.hpp"
#include "orbite/error.hpp"
#include "orbite/transfer.hpp"

namespace orbite::tool::bench {

inline constexpr std::uint32_t kThreadsMax = 64;
inline constexpr std::uint32_t kDepthMax = 1'024;
inline constexpr double kSecondsMin = 0.01;
inline constexpr double kSecondsMax = 3'600;
inline constexpr std::uint64_t kIterationsMax = 1'000'000'000;
inline constexpr std::uint64_t kMemoryMax = std::uint64_t{1} << 40;
inline constexpr const char* kServeDefault = "0.0.0.0:18570";

/// The command line as it was written; empty text is an option that was not given.
struct Arguments {
  bool self = false;
  bool serves = false;
  std::string serve;  ///< empty: kServeDefault
  std::string connect;
  int served_descriptor = -1;  ///< of the control connection, in the process that we start

  std::string transport = "auto";
  std::string op = "both";
  std::string shape;
  std::string size;
  std::optional<std::uint64_t> count;
  std::uint32_t adjacent = 0;
  std::uint32_t threads = 1;
  std::uint32_t depth = 1;
  double seconds = 2;
  std::optional<std::uint64_t> iterations;
  std::string memory = "4G";
  std::uint64_t clients = 0;
  std::optional<std::string> config_file;
  bool verify = true;
  bool json = false;
};

struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};

/// Who does the transfers with whom.
enum class Role : std::uint8_t {
  kPair,     ///< with a process that we start
  kSelf,     ///< an engine with itself
  kConnect,  ///< with a server on another host
  kServe,    ///< the other side of kConnect
  kServed    ///< the other side of kPair
};

/// Which way the bytes go.
enum class Transport : std::uint8_t {
  kAuto,  ///< whichever the engines choose
  kShm,
  kCma,
  kTcp
};

struct Options {
  Role role = Role::kPair;
  HostPort at;  ///< kServe, kConnect
  int served_descriptor = -1;

  Transport transport = Transport::kAuto;
  std::vector<Operation> operations;
  Layout layout;
  std::uint32_t threads = 1;
  std::uint32_t depth = 1;
  double seconds = 2;                       ///< of transfers, for each operation
  std::optional<std::uint64_t> iterations;  ///< instead of seconds
  std::uint64_t memory_max = 0;             ///< bytes at each side
  std::uint64_t clients = 0;                ///< to serve, then end; 0: without end
  std::optional<std::string> config_file;
  bool verify = true;
  bool json = false;

  /// Requests that are prepared at a time, each with an extent of its own.
  [[nodiscard]] std::uint64_t slots() const { return std::uint64_t{threads} * depth; }
};

/// "4096", "64K", "64KiB", "1M", "2G"; units are powers of 1024. kInvalidArgument names the text.
Result<std::uint64_t> parse_size(std::string_view text);
/// "host:port", "192.0.2.1:port", "[::1]:port".
Result<HostPort> parse_host_port(std::string_view text);
/// kInvalidArgument says which option is wrong.
Result<Options> parse_options(const Arguments& arguments);

std::string_view operation_name(Operation operation);
/// As on the command line, and as an engine names its routes.
const char* transport_name(Transport transport);

}  // namespace orbite::tool::bench
