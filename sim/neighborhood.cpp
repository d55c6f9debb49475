// SPDX-License-Identifier: Apache-2.0
#include "sim/neighborhood.hpp"

#include <algorithm>
#include <iterator>

#include "sim/host_neighbors.hpp"

namespace orbite::sim {
namespace {

/// So long after its death the kernel has reaped a process.
constexpr base::Nanoseconds kReapMax = base::kMillisecond;

}  // namespace

Neighborhood::Neighborhood(Fabric& fabric, std::uint64_t seed)
    : fabric_(fabric), random_(seed), kernels_(fabric.machines()) {}

base::Nanoseconds Neighborhood::latency(std::uint32_t machine) {
  return random_.chance(400) ? 0 : random_.below(kernels_[machine].latency_max_ns + 1);
}

/// Now and then that of a process that has ended: a number does not name a process for good.
std::int32_t Neighborhood::next_number(std::uint32_t machine) {
  const auto free = std::find_if(free_numbers_.begin(), free_numbers_.end(),
                                 [&](const auto& each) { return each.first == machine; });
  if (free == free_numbers_.end() || !random_.chance(250)) {
    return next_number_++;
  }
  const std::int32_t number = free->second;
  free_numbers_.erase(free);
  return number;
}

Neighborhood::RecordPtr Neighborhood::add(HostNeighbors& process, std::uint32_t machine) {
  auto record = std::make_shared<ProcessRecord>();
  record->machine = machine;
  record->number = next_number(machine);
  record->process = &process;
  processes_.push_back(&process);
  return record;
}

void Neighborhood::process_died(const RecordPtr& record) {
  record->process = nullptr;
  scheduler().after(random_.span(kReapMax), Layer::kNetwork, [this, record] {
    record->ended = true;
    free_numbers_.emplace_back(record->machine, record->number);
    for (const ProcessRecord::Watcher& watcher : record->watchers) {
      watcher.network->changed(watcher.socket);
    }
  });
}

void Neighborhood::remove(const HostNeighbors& process) { std::erase(processes_, &process); }

bool Neighborhood::known(std::uint64_t address) const {
  return std::any_of(processes_.begin(), processes_.end(), [&](const HostNeighbors* process) {
    return process->reachable(address, 1, false) > 0;
  });
}

}  // namespace orbite::sim
