// SPDX-License-Identifier: Apache-2.0
#include "unit/memory/allocation_failure.hpp"

#include <cstdlib>
#include <new>

namespace orbite::memory::testing {

thread_local int allocations_left = -1;

}  // namespace orbite::memory::testing

// In a file of their own: a compiler that inlines one of a pair reports the other.
void* operator new(std::size_t bytes) {
  using orbite::memory::testing::allocations_left;
  const bool fails = allocations_left == 0;
  allocations_left -= allocations_left >= 0 ? 1 : 0;
  void* const memory = fails ? nullptr : std::malloc(bytes);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }
