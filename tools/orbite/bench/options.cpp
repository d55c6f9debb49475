// SPDX-License-Identifier: Apache-2.0
#include "bench/options.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cinttypes>
#include <limits>

#include "base/result.hpp"

namespace orbite::tool::bench {
namespace {

constexpr std::size_t kShownBytesMax = 80;
constexpr std::size_t kHostBytesMax = 255;

std::string shown(std::string_view text) { return std::string(text.substr(0, kShownBytesMax)); }

/// The whole of `text` as a decimal number.
template <typename Integer>
bool parse_number(std::string_view text, Integer& value) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [stop, code] = std::from_chars(begin, end, value);
  return code == std::errc() && stop == end && !text.empty();
}

Result<std::uint64_t> size_of(const char* option, const std::string& text) {
  const Result<std::uint64_t> bytes = parse_size(text);
  if (!bytes) {
    return fail(ErrorCode::kInvalidArgument, "%s: %s", option,
                std::string(bytes.error().context()).c_str());
  }
  return *bytes;
}

Result<Layout> parse_layout(const Arguments& arguments) {
  Layout layout;
  if (!arguments.shape.empty()) {
    ORBITE_ASSIGN_OR_RETURN(layout, find_shape(arguments.shape));
  } else if (arguments.size.empty() && !arguments.count) {
    layout.blocks = 1024;
  }
  if (!arguments.size.empty()) {
    // The pools of a KV cache keep every second block of theirs.
    const bool gap_is_block = layout.gap == layout.size;
    ORBITE_ASSIGN_OR_RETURN(layout.size, size_of("--size", arguments.size));
    layout.gap = gap_is_block ? layout.size : layout.gap;
  }
  if (arguments.count) {
    layout.blocks = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(*arguments.count, std::numeric_limits<std::uint32_t>::max()));
  }
  layout.adjacent_percent = arguments.adjacent;
  ORBITE_TRY(check_layout(layout));
  return layout;
}

Result<std::vector<Operation>> parse_operations(const std::string& text) {
  if (text == "write") {
    return std::vector{Operation::kWrite};
  }
  if (text == "read") {
    return std::vector{Operation::kRead};
  }
  if (text == "both") {
    return std::vector{Operation::kWrite, Operation::kRead};
  }
  return fail(ErrorCode::kInvalidArgument, "--op: '%s' is none of read, write, both",
              shown(text).c_str());
}

/// Which of them mean something depends on who is at the other side.
Result<Transport> parse_transport(const std::string& text, Role role) {
  for (const Transport transport :
       {Transport::kAuto, Transport::kShm, Transport::kCma, Transport::kTcp}) {
    if (text != transport_name(transport)) {
      continue;
    }
    if (role == Role::kSelf && transport != Transport::kAuto) {
      return fail(ErrorCode::kInvalidArgument,
                  "--transport: '%s' is none for --self: an engine copies its own memory itself, "
                  "by no transport that could be chosen",
                  text.c_str());
    }
    if (role == Role::kConnect && transport != Transport::kAuto && transport != Transport::kTcp) {
      return fail(ErrorCode::kInvalidArgument,
                  "--transport: '%s' is none for --connect, which allows auto and tcp; shm and cma "
                  "are for the two processes of a run without --connect",
                  text.c_str());
    }
    return transport;
  }
  return fail(ErrorCode::kInvalidArgument, "--transport: '%s' is none of auto, shm, cma, tcp",
              shown(text).c_str());
}

Result<void> check_memory(const Options& options) {
  const std::uint64_t extent = options.layout.extent();
  if (extent > options.memory_max / options.slots()) {
    return fail(ErrorCode::kInvalidArgument,
                "%" PRIu64 " requests of %" PRIu64 " bytes of memory each; --memory allows %" PRIu64
                " bytes",
                options.slots(), extent, options.memory_max);
  }
  return {};
}

Role role_of(const Arguments& arguments) {
  return arguments.served_descriptor >= 0 ? Role::kServed
         : arguments.self                 ? Role::kSelf
         : arguments.serves               ? Role::kServe
         : !arguments.connect.empty()     ? Role::kConnect
                                          : Role::kPair;
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  constexpr std::array<std::pair<char, unsigned>, 4> kUnits = {
      {{'K', 10}, {'M', 20}, {'G', 30}, {'T', 40}}};
  std::string_view digits = text;
  if (digits.ends_with("iB")) {
    digits.remove_suffix(2);
  }
  unsigned shift = 0;
  for (const auto& [unit, bits] : kUnits) {
    if (digits.ends_with(unit)) {
      shift = bits;
      digits.remove_suffix(1);
      break;
    }
  }
  std::uint64_t value = 0;
  const bool unit_is_missing = text.ends_with("iB") && shift == 0;
  if (unit_is_missing || !parse_number(digits, value) || value == 0 ||
      value > kMemoryMax >> shift) {
    return fail(ErrorCode::kInvalidArgument,
                "'%s' is no size; allowed are 1..%" PRIu64
                " bytes, as 4096, 64K, 64KiB, 1M, 2G (units of 1024)",
                shown(text).c_str(), kMemoryMax);
  }
  return value << shift;
}

Result<HostPort> parse_host_port(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  HostPort parsed;
  bool good = colon != std::string_view::npos && parse_number(text.substr(colon + 1), parsed.port);
  if (good) {
    std::string_view host = text.substr(0, colon);
    const bool bracketed = host.starts_with('[') && host.ends_with(']') && host.size() > 2;
    if (bracketed) {
      host = host.substr(1, host.size() - 2);
    }
    good = !host.empty() && host.size() <= kHostBytesMax &&
           host.find_first_of("[]") == std::string_view::npos &&
           (bracketed || host.find(':') == std::string_view::npos);
    parsed.host = host;
  }
  if (!good) {
    return fail(ErrorCode::kInvalidArgument,
                "'%s' is not of the form HOST:PORT or [IPV6]:PORT with a port 0..65535",
                shown(text).c_str());
  }
  return parsed;
}

Result<Options> parse_options(const Arguments& arguments) {
  Options options;
  options.role = role_of(arguments);
  options.served_descriptor = arguments.served_descriptor;
  if (options.role == Role::kServe || options.role == Role::kConnect) {
    const bool serves = options.role == Role::kServe;
    const std::string serve = arguments.serve.empty() ? kServeDefault : arguments.serve;
    Result<HostPort> at = parse_host_port(serves ? serve : arguments.connect);
    if (at && !serves && at->port == 0) {
      at = fail(ErrorCode::kInvalidArgument, "port 0, allowed 1..65535");
    }
    if (!at) {
      return fail(ErrorCode::kInvalidArgument, "%s: %s", serves ? "--serve" : "--connect",
                  std::string(at.error().context()).c_str());
    }
    options.at = *at;
  }
  ORBITE_ASSIGN_OR_RETURN(options.transport, parse_transport(arguments.transport, options.role));
  ORBITE_ASSIGN_OR_RETURN(options.operations, parse_operations(arguments.op));
  ORBITE_ASSIGN_OR_RETURN(options.layout, parse_layout(arguments));
  ORBITE_ASSIGN_OR_RETURN(options.memory_max, size_of("--memory", arguments.memory));
  // What reads the command line lets a number that is none pass.
  if (!(arguments.seconds >= kSecondsMin && arguments.seconds <= kSecondsMax)) {
    return fail(ErrorCode::kInvalidArgument, "--seconds is %g, allowed %g..%g", arguments.seconds,
                kSecondsMin, kSecondsMax);
  }
  options.threads = arguments.threads;
  options.depth = arguments.depth;
  options.seconds = arguments.seconds;
  options.iterations = arguments.iterations;
  options.clients = arguments.clients;
  options.config_file = arguments.config_file;
  options.verify = arguments.verify;
  options.json = arguments.json;
  if (options.role != Role::kServe && options.role != Role::kServed) {
    ORBITE_TRY(check_memory(options));
  }
  return options;
}

std::string_view operation_name(Operation operation) {
  return operation == Operation::kWrite ? "write" : "read";
}

const char* transport_name(Transport transport) {
  switch (transport) {
    case Transport::kAuto:
      return "auto";
    case Transport::kShm:
      return "shm";
    case Transport::kCma:
      return "cma";
    case Transport::kTcp:
      return "tcp";
  }
  return "";
}

}  // namespace orbite::tool::bench
