// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/byte_range.hpp"
#include "base/result.hpp"
#include "orbite/shared_memory.hpp"
#include "platform/neighbors.hpp"

namespace orbite::memory {

/// A range of this process whose pages others can map. For as long as somebody holds it, pages that
/// it has itself stay mapped.
struct SharedAllocation {
  std::shared_ptr<const platform::PageFile> file;
  std::uint64_t id;  ///< counts up: no other that this process made or inherited has it
  base::ByteRange range;
  std::uint64_t file_offset;                       ///< of the range in the file
  std::unique_ptr<platform::PageMapping> mapping;  ///< null: the caller's
};

/// A range inside one allocation.
struct SharedPart {
  std::shared_ptr<const SharedAllocation> allocation;
  std::uint64_t offset = 0;  ///< of the part in the allocation's file
};

/// The shared allocations of this process that are known. Safe from any thread.
class SharedAllocations {
 public:
  using Allocation = std::shared_ptr<const SharedAllocation>;

  /// A child made by fork() has one of its own, empty at first. May throw std::bad_alloc.
  static SharedAllocations& of_process();
  /// Null: nothing was ever shared in this process.
  static SharedAllocations* if_any() noexcept;

  SharedAllocations() noexcept;
  SharedAllocations(const SharedAllocations&) = delete;
  SharedAllocations& operator=(const SharedAllocations&) = delete;

  /// As allocate_shm_memory and import_shm_memory. Its user holds the one reference beside the
  /// table's until somebody finds it. May throw std::bad_alloc.
  Result<Allocation> allocate(std::uint64_t bytes, const SharedMemoryOptions& options);
  Result<Allocation> adopt(int fd, std::uint64_t address, std::uint64_t bytes);

  /// Only where the whole range lies in one allocation.
  [[nodiscard]] std::optional<SharedPart> find(const base::ByteRange& range) const noexcept;

  /// Nobody finds it any more; who holds a part of it keeps that. Nothing for one that is not here.
  void forget(const SharedAllocation& allocation) noexcept;
  /// The same, but false and nothing done while anybody but its user holds it.
  [[nodiscard]] bool forget_unused(const Allocation& allocation) noexcept;

  /// A number that was given before this process was forked from the one that gave it.
  [[nodiscard]] bool is_inherited(std::uint64_t id) const noexcept {
    return id != 0 && id <= inherited_ids_;
  }

 private:
  Result<Allocation> insert(SharedAllocation allocation);

  const std::uint64_t inherited_ids_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, Allocation> by_address_;  ///< of their starts; they do not overlap
};

}  // namespace orbite::memory
