// SPDX-License-Identifier: Apache-2.0
#include "memory/shared_allocations.hpp"

#include <atomic>
#include <iterator>

#include "platform/page_import.hpp"
#include "platform/per_process.hpp"
#include "platform/system_pages.hpp"

namespace orbite::memory {
namespace {

constinit platform::PerProcess<SharedAllocations> allocations;
// Relaxed: only that no number is drawn twice matters.
constinit std::atomic<std::uint64_t> ids{0};

constexpr std::size_t kNameBytesMax = 64;

unsigned long long shown(std::uint64_t value) { return value; }

Result<void> check_size(std::uint64_t bytes) {
  if (bytes == 0 || bytes > kSharedBytesMax) {
    return fail(ErrorCode::kInvalidArgument, "%llu bytes of shared memory; allowed: 1 to %llu",
                shown(bytes), shown(kSharedBytesMax));
  }
  return {};
}

Result<void> check_name(const std::string& name) {
  if (name.size() > kNameBytesMax || name.find('\0') != std::string::npos) {
    return fail(ErrorCode::kInvalidArgument,
                "a name of %zu bytes for shared memory; allowed: at most %zu, none of them 0",
                name.size(), kNameBytesMax);
  }
  return {};
}

base::ByteRange range_of(const platform::PageMapping& mapping) {
  const auto pages = mapping.pages();
  // A mapping is never empty, and its end is an address.
  return *base::ByteRange::make(reinterpret_cast<std::uintptr_t>(pages.data()), pages.size());
}

}  // namespace

// The first process has given none before its table; a child starts with what its parent gave.
SharedAllocations::SharedAllocations() noexcept
    : inherited_ids_(ids.load(std::memory_order_relaxed)) {}

SharedAllocations& SharedAllocations::of_process() { return allocations.get(); }

SharedAllocations* SharedAllocations::if_any() noexcept { return allocations.look(); }

Result<SharedAllocations::Allocation> SharedAllocations::allocate(
    std::uint64_t bytes, const SharedMemoryOptions& options) {
  ORBITE_TRY(check_size(bytes));
  ORBITE_TRY(check_name(options.name));
  std::uint64_t multiple = platform::page_bytes();
  if (options.huge_pages) {
    ORBITE_ASSIGN_OR_RETURN(multiple, platform::huge_page_bytes());
  }
  const std::uint64_t rounded = (bytes + multiple - 1) / multiple * multiple;
  ORBITE_ASSIGN_OR_RETURN(std::shared_ptr<const platform::PageFile> file,
                          platform::make_page_file(options.name, rounded, options.huge_pages));
  ORBITE_ASSIGN_OR_RETURN(std::unique_ptr<platform::PageMapping> mapping,
                          platform::map_page_file(platform::system_file(*file),
                                                  platform::Neighbors::PageAccess::kReadWrite,
                                                  platform::Neighbors::AfterFork::kInherited));
  const base::ByteRange range = range_of(*mapping);
  return insert({.file = std::move(file),
                 .id = 0,
                 .range = range,
                 .file_offset = 0,
                 .mapping = std::move(mapping)});
}

Result<SharedAllocations::Allocation> SharedAllocations::adopt(int fd, std::uint64_t address,
                                                               std::uint64_t bytes) {
  ORBITE_TRY(check_size(bytes));
  ORBITE_ASSIGN_OR_RETURN(const base::ByteRange range, base::ByteRange::make(address, bytes));
  ORBITE_ASSIGN_OR_RETURN(platform::ImportedPages pages, platform::import_pages(fd, range));
  return insert({.file = std::move(pages.file),
                 .id = 0,
                 .range = range,
                 .file_offset = pages.offset,
                 .mapping = nullptr});
}

Result<SharedAllocations::Allocation> SharedAllocations::insert(SharedAllocation allocation) {
  allocation.id = ids.fetch_add(1, std::memory_order_relaxed) + 1;
  auto shared = std::make_shared<const SharedAllocation>(std::move(allocation));
  const base::ByteRange& range = shared->range;
  const std::lock_guard lock(mutex_);
  const auto behind = by_address_.lower_bound(range.end());
  if (behind != by_address_.begin()) {
    const SharedAllocation& last = *std::prev(behind)->second;
    if (last.range.overlaps(range)) {
      return fail(ErrorCode::kInvalidRange,
                  "%llu bytes at 0x%llx overlap shared memory %llu of this process: %llu bytes at "
                  "0x%llx",
                  shown(range.length()), shown(range.address()), shown(last.id),
                  shown(last.range.length()), shown(last.range.address()));
    }
  }
  by_address_.emplace_hint(behind, range.address(), shared);
  return shared;
}

std::optional<SharedPart> SharedAllocations::find(const base::ByteRange& range) const noexcept {
  const std::lock_guard lock(mutex_);
  const auto behind = by_address_.upper_bound(range.address());
  if (behind == by_address_.begin()) {
    return std::nullopt;
  }
  const Allocation& allocation = std::prev(behind)->second;
  if (!allocation->range.covers(range)) {
    return std::nullopt;
  }
  return SharedPart{
      .allocation = allocation,
      .offset = allocation->file_offset + (range.address() - allocation->range.address())};
}

void SharedAllocations::forget(const SharedAllocation& allocation) noexcept {
  const std::lock_guard lock(mutex_);
  const auto it = by_address_.find(allocation.range.address());
  if (it != by_address_.end() && it->second->id == allocation.id) {
    by_address_.erase(it);
  }
}

bool SharedAllocations::forget_unused(const Allocation& allocation) noexcept {
  const std::lock_guard lock(mutex_);
  const auto it = by_address_.find(allocation->range.address());
  if (it == by_address_.end() || it->second->id != allocation->id) {
    return true;
  }
  // Its user's and ours. New ones are made from ours under the lock, or from one of somebody else,
  // which would be counted.
  constexpr long kUnused = 2;
  if (allocation.use_count() > kUnused) {
    return false;
  }
  by_address_.erase(it);
  return true;
}

}  // namespace orbite::memory
