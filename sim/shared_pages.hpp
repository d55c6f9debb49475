// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "memory/shared_allocations.hpp"
#include "sim/model.hpp"
#include "sim/page_file.hpp"

namespace orbite::sim {

/// A part of a host's memory whose pages its neighbours may map, in one life of it. What the world
/// knows of it stays true when the host has freed it or is dead: neighbours may still have them.
struct SharedPages {
  [[nodiscard]] bool contains(std::uint64_t offset, std::uint64_t length) const noexcept {
    return offset >= begin && length <= end - begin && offset - begin <= end - begin - length;
  }
  /// Of an offset in the arena that it contains.
  [[nodiscard]] std::uint64_t in_file(std::uint64_t offset) const noexcept {
    return file_offset + (offset - begin);
  }

  Life life;
  std::uint64_t begin = 0;  ///< offsets in the arena
  std::uint64_t end = 0;
  std::uint64_t file_offset = 0;
  const SimPageFile* pages = nullptr;     ///< while `file` has not expired
  std::weak_ptr<const SimPageFile> file;  ///< held by whoever has it
  /// The host lives on, and has other pages in their place.
  bool freed = false;
};

/// As the host's application has it.
struct AllocationModel {
  std::shared_ptr<SharedPages> pages;
  std::shared_ptr<const memory::SharedAllocation> allocation;
};

}  // namespace orbite::sim
