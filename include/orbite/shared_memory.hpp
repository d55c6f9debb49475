// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "orbite/error.hpp"

namespace orbite {

namespace memory {
struct SharedAllocation;
}

/// At most this much in one piece: 64 TiB.
inline constexpr std::uint64_t kSharedBytesMax = std::uint64_t{1} << 46;

struct SharedMemoryOptions {
  /// For people who look at the process: at most 64 bytes, none of them 0.
  std::string name = "orbite";
  /// Of the system's huge pages: kUnsupported when it has not enough of them to give.
  bool huge_pages = false;
};

/// Memory that engines of other processes on this host can map. A range that lies in one piece of
/// it and is registered with an engine of this process can be reached by them without a copy
/// through the network or the kernel; ordinary memory never can.
///
/// It belongs to the process, not to an engine. At its end it is known to no new registration;
/// pages that it has itself go when the last registration of them has retired. A child made by
/// fork() sees the same pages until it ends, and they are no shared memory to its engines.
///
/// Different objects from any thread; one object from one thread at a time.
class SharedMemory {
 public:
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  /// Null and 0 for one that was moved from.
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

  /// Its number, which no other of this process ever has; 0 for one that was moved from.
  [[nodiscard]] std::uint64_t id() const noexcept;

  /// Its end, unless a registration holds part of it: then false, and nothing has changed. For who
  /// imported pages and wants to unmap them. True in a child of the process that made it.
  [[nodiscard]] bool end_if_unused() noexcept;

 private:
  friend Result<SharedMemory> allocate_shm_memory(std::uint64_t, const SharedMemoryOptions&);
  friend Result<SharedMemory> import_shm_memory(int, void*, std::uint64_t);
  SharedMemory(std::shared_ptr<const memory::SharedAllocation> allocation, void* data,
               std::uint64_t bytes) noexcept;
  void forget() noexcept;

  std::shared_ptr<const memory::SharedAllocation> allocation_;
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

/// Zeros, of whole pages inside: 1 to kSharedBytesMax bytes. kInvalidArgument names the value;
/// kUnsupported, kOutOfMemory, kSystem.
Result<SharedMemory> allocate_shm_memory(std::uint64_t bytes,
                                         const SharedMemoryOptions& options = {});

/// Pages that the caller has mapped already. `fd` must be a memfd sealed with F_SEAL_SHRINK and
/// F_SEAL_GROW, open for reading and writing, and [address, address + bytes) must be one run of it,
/// mapped with MAP_SHARED for reading and writing: all of that is checked. The descriptor is
/// duplicated. The mapping stays the caller's and must stay until the SharedMemory has ended and
/// every registration of the range has retired. kInvalidArgument and kInvalidRange name the value
/// and what is allowed; a range that overlaps other shared memory of this process is kInvalidRange.
Result<SharedMemory> import_shm_memory(int fd, void* address, std::uint64_t bytes);

}  // namespace orbite
