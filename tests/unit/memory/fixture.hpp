// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "base/random.hpp"
#include "memory/registry.hpp"

namespace orbite::memory::testing {

/// A registry with room for `registrations_max`, and descriptors that count their retirements.
struct World {
  explicit World(std::uint64_t registrations_max = 64,
                 std::uint32_t generation_max = std::numeric_limits<std::uint32_t>::max())
      : registry({.registrations_max = registrations_max, .generation_max = generation_max},
                 random) {}

  static MemoryDescriptor descriptor(std::uint64_t address, std::uint64_t length,
                                     std::uint8_t access = kAccessAll) {
    MemoryDescriptor made;
    made.address = address;
    made.length = length;
    made.access = access;
    return made;
  }
  /// The same, counting into `retired_calls`.
  static MemoryDescriptor counting(std::uint64_t address, std::uint64_t length,
                                   const std::shared_ptr<int>& retired_calls,
                                   std::uint8_t access = kAccessAll) {
    MemoryDescriptor made = descriptor(address, length, access);
    made.retired = [retired_calls] { ++*retired_calls; };
    return made;
  }

  base::SeededRandom random{1};
  Registry registry;
};

inline base::ByteRange range(std::uint64_t address, std::uint64_t length) {
  return *base::ByteRange::make(address, length);
}

}  // namespace orbite::memory::testing
