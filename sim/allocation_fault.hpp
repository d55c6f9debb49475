// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

namespace orbite::sim {

/// What `operator new` of this thread does. In the whole executable that links it.
struct AllocationState {
  bool counts = false;         ///< else every allocation succeeds, and none is counted
  std::uint64_t seen = 0;      ///< allocations asked for
  std::uint64_t first = 0;     ///< the number of the first one that fails, from 0
  std::uint64_t failures = 0;  ///< how many fail from there on
  std::uint64_t failed = 0;
};
extern thread_local AllocationState allocation_state;

/// In its scope, `failures` allocations of this thread fail from number `first` on.
class AllocationFault {
 public:
  AllocationFault(std::uint64_t first, std::uint64_t failures) noexcept
      : outer_(std::exchange(allocation_state, {true, 0, first, failures, 0})) {}
  AllocationFault(const AllocationFault&) = delete;
  AllocationFault& operator=(const AllocationFault&) = delete;
  ~AllocationFault() { allocation_state = outer_; }

  [[nodiscard]] std::uint64_t seen() const noexcept { return allocation_state.seen; }
  [[nodiscard]] std::uint64_t failed() const noexcept { return allocation_state.failed; }

 private:
  const AllocationState outer_;
};

/// In its scope every allocation succeeds and none is counted: it is not the engine that asks.
class AllocationShelter {
 public:
  AllocationShelter() noexcept : counted_(std::exchange(allocation_state.counts, false)) {}
  AllocationShelter(const AllocationShelter&) = delete;
  AllocationShelter& operator=(const AllocationShelter&) = delete;
  ~AllocationShelter() { allocation_state.counts = counted_; }

 private:
  const bool counted_;
};

}  // namespace orbite::sim
