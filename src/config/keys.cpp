// SPDX-License-Identifier: Apache-2.0
#include "config/keys.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "base/assert.hpp"
#include "base/log.hpp"
#include "config/address.hpp"

namespace orbite::config {
namespace {

constexpr std::uint64_t kKiB = 1'024;
constexpr std::uint64_t kMiB = 1'024 * kKiB;
constexpr std::uint64_t kGiB = 1'024 * kMiB;
constexpr std::uint64_t kMinuteMs = 60'000;
constexpr std::uint64_t kHourMs = 60 * kMinuteMs;
constexpr std::uint64_t kDayMs = 24 * kHourMs;
constexpr std::uint64_t kPortMax = std::numeric_limits<std::uint16_t>::max();

// TCP_CA_NAME_MAX of Linux, less its terminating NUL.
constexpr std::size_t kCongestionControlBytesMax = 15;

bool accepts_empty_or_listen_address(std::string_view text) {
  return text.empty() || is_listen_address(text);
}

bool accepts_empty_or_unicast_address(std::string_view text) {
  return text.empty() || is_unicast_address(text);
}

bool accepts_congestion_control(std::string_view text) {
  return text.size() <= kCongestionControlBytesMax &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-';
         });
}

bool accepts_route(std::string_view text) {
  return text == "local" || text == "shm" || text == "cma" || text == "tcp";
}

bool accepts_log_level(std::string_view text) {
  base::LogLevel level{};
  return text.empty() || base::parse_log_level(text, level);
}

constexpr std::string_view kListenAddresses =
    "\"\" or an IPv4 or IPv6 address, not multicast, not link-local IPv6, no zone";
constexpr std::string_view kSourceAddresses =
    "\"\" or a unicast IPv4 or IPv6 address, not link-local IPv6, no zone";
constexpr std::string_view kAdvertisedAddresses =
    "unicast IPv4 or IPv6 addresses, not link-local IPv6, no zone, none twice";

using FieldOf = Field (*)(Config&);

constexpr KeySpec boolean(std::string_view path, FieldOf field, std::string_view meaning) {
  return {.path = path, .field = field, .meaning = meaning};
}

struct Range {
  std::uint64_t minimum;
  std::uint64_t maximum;
  std::string_view unit = "";
};

constexpr KeySpec integer(std::string_view path, FieldOf field, Range range,
                          std::string_view meaning, std::string_view allowed = "") {
  return {.path = path,
          .field = field,
          .minimum = range.minimum,
          .maximum = range.maximum,
          .unit = range.unit,
          .allowed = allowed,
          .meaning = meaning};
}

struct Texts {
  bool (*accepts)(std::string_view);
  std::string_view allowed;
};

constexpr KeySpec string(std::string_view path, FieldOf field, Texts texts,
                         std::string_view meaning) {
  return {.path = path,
          .field = field,
          .accepts = texts.accepts,
          .allowed = texts.allowed,
          .meaning = meaning};
}

constexpr KeySpec list(std::string_view path, FieldOf field, Range entries, Texts texts,
                       std::string_view meaning) {
  return {.path = path,
          .field = field,
          .minimum = entries.minimum,
          .maximum = entries.maximum,
          .accepts = texts.accepts,
          .allowed = texts.allowed,
          .meaning = meaning};
}

// The path and the member that it names, from one spelling.
#define ORBITE_KEY(path) #path, [](Config& config) -> Field { return &config.path; }

constexpr std::array kKeySpecs = {
    string(ORBITE_KEY(listen.address), {accepts_empty_or_listen_address, kListenAddresses},
           "address to listen on; \"\" is every address of the host"),
    integer(ORBITE_KEY(listen.port), {0, kPortMax},
            "port to listen on; 0 lets the system choose a free one"),
    integer(ORBITE_KEY(listen.port_max), {0, kPortMax},
            "end of the range listen.port..listen.port_max, whose first free port is taken; 0 is "
            "listen.port alone",
            "0, or at least listen.port, which must then be set"),

    list(ORBITE_KEY(advertise.addresses), {0, 8}, {is_unicast_address, kAdvertisedAddresses},
         "addresses that peers are told to connect to, in order of preference; [] is the addresses "
         "of the default route's interface"),
    integer(ORBITE_KEY(advertise.port), {0, kPortMax},
            "port that peers are told to connect to; 0 is the port listened on"),

    boolean(ORBITE_KEY(local.enabled),
            "whether an engine's transfers to itself are copies within the process"),

    integer(ORBITE_KEY(copy.non_temporal_min_bytes), {0, std::uint64_t{1} << 60, "bytes"},
            "transfers within the host of at least this size are written past the caches, which "
            "they would not fit; 0 is three sixteenths of the last-level cache"),
    integer(ORBITE_KEY(copy.non_temporal_part_min_bytes), {64, kGiB, "bytes"},
            "blocks that are shorter are written through the caches in any case"),
    integer(ORBITE_KEY(copy.workers_max), {0, 64},
            "threads that may help with large transfers within the host while their cores have "
            "nothing else to do; 0 is none"),
    integer(ORBITE_KEY(copy.workers_min_bytes), {64 * kKiB, std::uint64_t{1} << 60, "bytes"},
            "bytes waiting to be copied from which on these threads are asked"),

    boolean(ORBITE_KEY(shm.enabled),
            "whether engines of one host copy to and from each other's shared allocations"),

    boolean(ORBITE_KEY(cma.enabled),
            "whether engines of one host copy to and from each other's ordinary memory, where the "
            "kernel permits it"),

    boolean(ORBITE_KEY(tcp.enabled), "whether to listen for peers and connect to them over TCP"),
    string(ORBITE_KEY(tcp.source_address), {accepts_empty_or_unicast_address, kSourceAddresses},
           "address that connections to other hosts come from; \"\" lets the system choose"),
    integer(ORBITE_KEY(tcp.bulk_lanes_per_peer), {1, 16},
            "connections for large transfers to each peer, beside the one for small transfers"),
    integer(ORBITE_KEY(tcp.connect_timeout_ms), {10, 10 * kMinuteMs, "ms"},
            "time that a connection may take to be established"),
    integer(ORBITE_KEY(tcp.handshake_timeout_ms), {10, 10 * kMinuteMs, "ms"},
            "time that a new connection may take to prove that it knows the secret"),
    integer(ORBITE_KEY(tcp.progress_timeout_ms), {100, kHourMs, "ms"},
            "time that a connection with work outstanding may stand still before it counts as "
            "failed"),
    integer(ORBITE_KEY(tcp.idle_lane_timeout_ms), {100, kDayMs, "ms"},
            "time after which a connection without work is closed"),
    integer(ORBITE_KEY(tcp.slice_bytes), {64 * kKiB, 4 * kMiB, "bytes"},
            "largest piece in which a large transfer is put on a connection",
            "at most tcp.lane_bytes_in_flight_max"),
    integer(ORBITE_KEY(tcp.small_bytes), {0, kMiB, "bytes"},
            "transfers up to this size use the connection for small transfers"),
    integer(ORBITE_KEY(tcp.lane_bytes_in_flight_max), {kMiB, kGiB, "bytes"},
            "bytes that may be under way on one connection"),
    integer(ORBITE_KEY(tcp.served_lanes_max), {4, 65'536},
            "connections of peers that are served at a time; each takes a file descriptor"),
    integer(ORBITE_KEY(tcp.handshakes_max), {1, 4'096},
            "accepted connections that have not yet proved that they know the secret"),
    string(ORBITE_KEY(tcp.loopback_congestion_control),
           {accepts_congestion_control, "0..15 of the characters a-z A-Z 0-9 _ -"},
           "congestion control of connections over loopback; \"\" leaves that of the system"),
    integer(ORBITE_KEY(tcp.keepalive_idle_ms), {1'000, kHourMs, "ms"},
            "silence after which a connection is probed, in whole seconds rounded down"),

    integer(ORBITE_KEY(transfer.default_timeout_ms), {0, kDayMs, "ms"},
            "deadline of a request that brings none, counted from its post; 0 is none"),
    list(ORBITE_KEY(transfer.routes), {1, 4}, {accepts_route, "local, shm, cma, tcp, none twice"},
         "transports that a transfer may use, in order of preference"),

    integer(ORBITE_KEY(limits.registrations_max), {1, 16'777'216},
            "memory ranges registered at a time"),
    integer(ORBITE_KEY(limits.peers_max), {1, 65'536}, "peers known at a time"),
    integer(ORBITE_KEY(limits.requests_max), {1, 1'048'576}, "requests prepared at a time"),
    integer(ORBITE_KEY(limits.descriptors_per_request_max), {1, 67'108'864},
            "descriptors of one request", "at most limits.descriptors_max"),
    integer(ORBITE_KEY(limits.descriptors_max), {1, 1'073'741'824},
            "descriptors of all requests together"),
    integer(ORBITE_KEY(limits.bytes_in_flight_max), {kMiB, std::uint64_t{1} << 60, "bytes"},
            "bytes of all posted requests together"),
    integer(ORBITE_KEY(limits.ranges_max), {1, 67'108'864},
            "remote memory ranges imported from the metadata of peers"),
    integer(ORBITE_KEY(limits.quarantined_engines_max), {0, 1'024},
            "engines of the process that were given up while something could still touch their "
            "buffers; while there are more, no further engine is made"),

    integer(ORBITE_KEY(notifications.message_bytes_max), {1, 16 * kMiB, "bytes"},
            "longest notification that is sent or accepted",
            "at most notifications.inbox_bytes_max and notifications.outbox_bytes_max"),
    integer(ORBITE_KEY(notifications.inbox_bytes_max), {64 * kKiB, 16 * kGiB, "bytes"},
            "notifications that were received and not yet fetched, together"),
    integer(ORBITE_KEY(notifications.outbox_bytes_max), {64 * kKiB, 16 * kGiB, "bytes"},
            "notifications that were not yet accepted by their peers, together"),

    integer(ORBITE_KEY(worker.priority_boost), {0, 20},
            "steps of niceness by which the worker thread is ahead of its process, so that bytes "
            "move although every core is busy; without effect where the system does not permit it "
            "(CAP_SYS_NICE, RLIMIT_NICE)"),

    integer(ORBITE_KEY(close.timeout_ms), {0, 10 * kMinuteMs, "ms"},
            "time that closing the engine may wait for work under way"),

    string(ORBITE_KEY(log.level), {accepts_log_level, "\"\", trace, debug, info, warn, error, off"},
           "lowest level that is logged; \"\" leaves the level as the process has it"),
};

#undef ORBITE_KEY

constexpr std::array kContainments = {
    Containment{"tcp.slice_bytes", "tcp.lane_bytes_in_flight_max"},
    Containment{"limits.descriptors_per_request_max", "limits.descriptors_max"},
    Containment{"notifications.message_bytes_max", "notifications.inbox_bytes_max"},
    Containment{"notifications.message_bytes_max", "notifications.outbox_bytes_max"},
};

}  // namespace

std::span<const KeySpec> key_specs() { return kKeySpecs; }

std::span<const Containment> containments() { return kContainments; }

const KeySpec* find_key(std::string_view path) {
  const auto found = std::find_if(kKeySpecs.begin(), kKeySpecs.end(),
                                  [path](const KeySpec& spec) { return spec.path == path; });
  return found == kKeySpecs.end() ? nullptr : &*found;
}

std::vector<std::string_view> section_names() {
  std::vector<std::string_view> names;
  for (const KeySpec& spec : kKeySpecs) {
    if (names.empty() || names.back() != spec.section()) {
      names.push_back(spec.section());
    }
  }
  return names;
}

std::uint64_t integer_value(const KeySpec& spec, Config& config) {
  const Field field = spec.field(config);
  if (const auto* const* narrow = std::get_if<std::uint16_t*>(&field)) {
    return **narrow;
  }
  const auto* const* wide = std::get_if<std::uint64_t*>(&field);
  ORBITE_CHECK(wide != nullptr);
  return **wide;
}

}  // namespace orbite::config
