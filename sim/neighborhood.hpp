// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "sim/fabric.hpp"
#include "sim/random.hpp"

namespace orbite::sim {

class HostNeighbors;
class LocalListener;

/// A kernel's record of a process. It outlives the process while somebody has a handle of it.
struct ProcessRecord {
  struct Watcher {
    HostNetwork* network;
    platform::Socket socket;
  };

  std::uint32_t machine = 0;
  std::int32_t number = 0;
  HostNeighbors* process = nullptr;  ///< nullptr: dead, and its memory is gone
  bool ended = false;                ///< dead, and its kernel says so
  bool forbids_copies = false;       ///< nobody may reach its memory
  std::vector<Watcher> watchers;
};

/// What the processes of one machine have of each other beyond the network, on all machines of a
/// fabric: their names and numbers, and what their kernel is like.
class Neighborhood {
 public:
  using RecordPtr = std::shared_ptr<ProcessRecord>;

  struct Kernel {
    /// A message is this late at most, and so is the news that a connection was closed.
    base::Nanoseconds latency_max_ns = kLatencyMax;
    std::size_t backlog_max = 16;   ///< connections that nobody has accepted, of a listener
    std::size_t messages_max = 16;  ///< that one end was sent and has not read
    bool has_process_handles = true;
    bool can_forbid_writes = true;
    bool forbids_copies = false;
    bool has_huge_pages = false;
    /// Of a thousand messages with pages, of so many they do not come, or not all of them.
    std::uint32_t page_failures = 0;
  };
  static constexpr base::Nanoseconds kLatencyMax = 20 * base::kMicrosecond;

  Neighborhood(Fabric& fabric, std::uint64_t seed);

  [[nodiscard]] Kernel& kernel(std::uint32_t machine) { return kernels_[machine]; }

  struct Counts {
    std::uint64_t connections = 0;
    std::uint64_t messages = 0;
    std::uint64_t mappings = 0;
    std::uint64_t copies = 0;  ///< between two processes, that moved something
    std::uint64_t bytes_copied = 0;
    std::uint64_t mapped_copies = 0;  ///< within one process, to or from pages of another one
    std::uint64_t mapped_bytes = 0;
    std::uint64_t killed_inside = 0;  ///< copies of both kinds
    std::uint64_t stopped_inside = 0;
    std::uint64_t killed_inside_mapped = 0;  ///< of them, of the second kind
    std::uint64_t stopped_inside_mapped = 0;
    std::uint64_t pages_lost = 0;       ///< messages whose pages did not come
    std::uint64_t pages_shortened = 0;  ///< or not all of them
  };
  Counts counts;

  // For HostNeighbors and its sockets.
  [[nodiscard]] Fabric& fabric() noexcept { return fabric_; }
  [[nodiscard]] Scheduler& scheduler() noexcept { return fabric_.scheduler(); }
  [[nodiscard]] Random& random() noexcept { return random_; }
  /// How late something is that one process of the machine tells another.
  [[nodiscard]] base::Nanoseconds latency(std::uint32_t machine);
  RecordPtr add(HostNeighbors& process, std::uint32_t machine);
  /// It is dead; its kernel says so some time later.
  void process_died(const RecordPtr& record);
  void remove(const HostNeighbors& process);
  /// The address is known to be of some process.
  [[nodiscard]] bool known(std::uint64_t address) const;

  using Names = std::map<std::pair<std::uint32_t, std::string>, LocalListener*>;
  [[nodiscard]] Names& names() noexcept { return names_; }

 private:
  std::int32_t next_number(std::uint32_t machine);

  Fabric& fabric_;
  Random random_;
  std::vector<Kernel> kernels_;
  std::vector<HostNeighbors*> processes_;
  Names names_;
  std::int32_t next_number_ = 300;
  std::vector<std::pair<std::uint32_t, std::int32_t>> free_numbers_;  ///< machine, number
};

}  // namespace orbite::sim
