// SPDX-License-Identifier: Apache-2.0
#include "orbite/shared_memory.hpp"

#include <new>
#include <utility>

#include "memory/shared_allocations.hpp"

namespace orbite {

using memory::SharedAllocations;

SharedMemory::SharedMemory(std::shared_ptr<const memory::SharedAllocation> allocation, void* data,
                           std::uint64_t bytes) noexcept
    : allocation_(std::move(allocation)), data_(static_cast<std::byte*>(data)), bytes_(bytes) {}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : allocation_(std::move(other.allocation_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this != &other) {
    forget();
    allocation_ = std::move(other.allocation_);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

SharedMemory::~SharedMemory() { forget(); }

std::uint64_t SharedMemory::id() const noexcept {
  return allocation_ == nullptr ? 0 : allocation_->id;
}

void SharedMemory::forget() noexcept {
  // In a child of the process that made it the table is another, or none.
  if (SharedAllocations* const table = SharedAllocations::if_any();
      allocation_ != nullptr && table != nullptr) {
    table->forget(*allocation_);
  }
  allocation_.reset();
  data_ = nullptr;
  bytes_ = 0;
}

bool SharedMemory::end_if_unused() noexcept {
  SharedAllocations* const table = SharedAllocations::if_any();
  if (allocation_ != nullptr && table != nullptr && !table->forget_unused(allocation_)) {
    return false;
  }
  forget();
  return true;
}

Result<SharedMemory> allocate_shm_memory(std::uint64_t bytes,
                                         const SharedMemoryOptions& options) try {
  ORBITE_ASSIGN_OR_RETURN(auto allocation,
                          SharedAllocations::of_process().allocate(bytes, options));
  void* const data = allocation->mapping->pages().data();
  return SharedMemory(std::move(allocation), data, bytes);
} catch (const std::bad_alloc&) {
  return fail(ErrorCode::kOutOfMemory, "no memory to keep account of shared memory");
}

Result<SharedMemory> import_shm_memory(int fd, void* address, std::uint64_t bytes) try {
  ORBITE_ASSIGN_OR_RETURN(
      auto allocation,
      SharedAllocations::of_process().adopt(fd, reinterpret_cast<std::uintptr_t>(address), bytes));
  return SharedMemory(std::move(allocation), address, bytes);
} catch (const std::bad_alloc&) {
  return fail(ErrorCode::kOutOfMemory, "no memory to keep account of shared memory");
}

}  // namespace orbite
