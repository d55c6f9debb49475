// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "policy/route_table.hpp"
#include "telemetry/counters.hpp"

namespace orbite::sim {

/// What may befall the world while it is faulty.
enum class Fault : std::uint8_t {
  kDelay,        ///< a link becomes slow
  kShort,        ///< sends, receives and segments down to one byte
  kClog,         ///< a receiver's window closes
  kCut,          ///< a link drops everything, both ways
  kCutOneWay,    ///< or one way
  kReset,        ///< a connection is reset, for one end or for both
  kGiveUp,       ///< a kernel gives up retransmitting
  kAcceptFails,  ///< a machine is out of descriptors
  kNoConnect,    ///< a machine answers no connection request
  kPause,        ///< a process, or its worker, stands still
  kClockJump,    ///< the clock of a machine jumps forward
  kKill,         ///< a process dies; its kernel ends its connections
  kPowerLoss,    ///< a machine dies without a word, and every process on it
  kPortTaken,    ///< a restarted engine finds its port taken
  kNoMemory,     ///< allocations of an engine fail
  // Of machines that several hosts share.
  kLateMessage,  ///< what one process tells another by a local socket is late
  kNoPages,      ///< pages that one process hands another do not come, or not all of them
  kNoCopies,     ///< nobody may reach the memory of a process
  kStopInCopy,   ///< a process stands still in the middle of a copy
  kKillInCopy,   ///< a process dies in the middle of a copy
};
inline constexpr std::size_t kFaults = 20;
inline constexpr std::size_t kFaultsAlone = 15;  ///< those that need no shared machine come first
std::string_view fault_name(Fault fault) noexcept;

using FaultSet = std::uint32_t;
[[nodiscard]] constexpr FaultSet bit(Fault fault) noexcept {
  return FaultSet{1} << static_cast<unsigned>(fault);
}
inline constexpr FaultSet kAllFaults = (FaultSet{1} << kFaults) - 1;

struct Profile {
  std::string_view name;
  FaultSet faults;
  std::string_view meaning;
};
/// none, network, process, all.
const std::array<Profile, 4>& profiles() noexcept;
/// A profile, or the names of faults with commas between them.
Result<FaultSet> parse_faults(std::string_view text);
/// "cut,reset", or "none".
std::string fault_names(FaultSet faults);

inline constexpr std::uint32_t kHostsMin = 2;
inline constexpr std::uint32_t kHostsMax = 4;

/// Which hosts of a shared machine know of each other that they can reach each other's memory.
enum class NeighborsUse : std::uint8_t { kDrawn, kNone, kSome, kAll };
inline constexpr std::array<std::string_view, 4> kNeighborsUses = {"drawn", "none", "some", "all"};

struct Options {
  std::uint32_t hosts = 0;     ///< kHostsMin..kHostsMax; 0: drawn
  std::uint32_t machines = 0;  ///< 1..hosts; 0: drawn
  NeighborsUse neighbors = NeighborsUse::kDrawn;
  std::uint32_t ops = 500;  ///< steps of all applications together
  FaultSet faults = kAllFaults;
  bool keeps_log = false;
  /// Of all allocations that the engines of a run ask for, these fail.
  std::uint64_t first_failing_allocation = 0;
  std::uint64_t failing_allocations = 0;
};

struct Violation {
  std::string invariant;  ///< S1..S10 of the architecture, or "healing"
  std::string text;
  std::uint32_t host = 0;
  std::uint64_t execution = 0;  ///< 0: none
  base::Nanoseconds when_ns = 0;
};

/// The counters of engines, as plain numbers.
struct EngineCounts {
  struct Count {
    std::uint64_t value = 0;
    void add(std::uint64_t amount) noexcept { value += amount; }
  };
#define ORBITE_COUNTER(name, meaning) Count name;
#define ORBITE_GAUGE(name, meaning)
#include "orbite/telemetry.def"
#undef ORBITE_COUNTER
#undef ORBITE_GAUGE
};

struct Stats {
  std::uint64_t events = 0;
  std::uint64_t operations = 0;
  std::uint64_t executions = 0;
  std::uint64_t succeeded = 0;
  std::uint64_t failed = 0;
  std::uint64_t canceled = 0;
  std::uint64_t notifications = 0;
  std::uint64_t bytes_landed = 0;
  std::uint64_t faults = 0;
  std::uint64_t restarts = 0;
  std::uint32_t machines = 0;
  std::uint32_t hosts = 0;
  std::uint64_t connections = 0;           ///< that were answered
  std::uint64_t loopback_connections = 0;  ///< of them, by loopback between two processes
  std::uint64_t loopback_bytes = 0;        ///< delivered on those
  std::uint64_t local_messages = 0;        ///< by sockets of one machine
  std::uint64_t copies = 0;                ///< from one process to another
  std::uint64_t bytes_copied = 0;
  std::uint64_t mapped_copies = 0;  ///< within one process, to or from pages of another one
  std::uint64_t mapped_bytes = 0;
  std::uint64_t killed_inside_copies = 0;  ///< of both kinds
  std::uint64_t stopped_inside_copies = 0;
  std::uint64_t killed_inside_mapped = 0;  ///< of them, of the second kind
  std::uint64_t stopped_inside_mapped = 0;
  std::uint64_t pages_replaced = 0;   ///< shared allocations that were freed for another one
  std::uint64_t pages_lost = 0;       ///< messages whose pages did not come
  std::uint64_t pages_shortened = 0;  ///< or not all of them
  std::uint64_t allocations = 0;      ///< that engines asked for
  std::uint64_t allocations_failed = 0;
  base::Nanoseconds virtual_ns = 0;
  EngineCounts engines;  ///< summed over all lives
  /// That engines admitted, by the transport of their route: policy::TransportKind.
  std::array<std::uint64_t, policy::kTransportKinds> executions_by{};
  [[nodiscard]] std::uint64_t by(policy::TransportKind kind) const {
    return executions_by[static_cast<std::size_t>(kind)];
  }
};

struct Report {
  std::vector<Violation> violations;
  std::uint64_t trace = 0;  ///< equal for equal runs
  std::vector<std::string> log;
  Stats stats;
};

}  // namespace orbite::sim
