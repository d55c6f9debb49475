// SPDX-License-Identifier: Apache-2.0
#include "sim/allocation_fault.hpp"

#include <cstdlib>
#include <new>

namespace orbite::sim {

thread_local AllocationState allocation_state;

namespace {

bool fails() noexcept {
  AllocationState& state = allocation_state;
  if (!state.counts) {
    return false;
  }
  const std::uint64_t number = state.seen++;
  const bool failing = number >= state.first && number - state.first < state.failures;
  state.failed += failing ? 1 : 0;
  return failing;
}

}  // namespace
}  // namespace orbite::sim

// In a file of their own: a compiler that inlines one of a pair reports the other.
void* operator new(std::size_t bytes) {
  void* const memory = orbite::sim::fails() ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}
void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return orbite::sim::fails() ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }
