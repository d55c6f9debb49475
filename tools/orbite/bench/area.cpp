// SPDX-License-Identifier: Apache-2.0
#include "bench/area.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cinttypes>
#include <utility>

#include "base/result.hpp"

namespace orbite::tool::bench {

Result<Area> Area::map(std::uint64_t bytes, Pages pages) {
  Area area;
  if (pages == Pages::kShared) {
    ORBITE_ASSIGN_OR_RETURN(area.shared_, allocate_shm_memory(bytes, {.name = "orbite-bench"}));
    area.data_ = reinterpret_cast<std::uint8_t*>(area.shared_->data());
    area.bytes_ = bytes;
    return area;
  }
  void* const data =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return fail(Error::make_native(ErrorCode::kOutOfMemory, errno, "%" PRIu64 " bytes", bytes));
  }
  area.data_ = static_cast<std::uint8_t*>(data);
  area.bytes_ = bytes;
  return area;
}

Area::Area(Area&& other) noexcept
    : shared_(std::exchange(other.shared_, std::nullopt)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Area& Area::operator=(Area&& other) noexcept {
  std::swap(shared_, other.shared_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Area::~Area() {
  if (data_ != nullptr && !shared_) {
    ::munmap(data_, bytes_);
  }
}

}  // namespace orbite::tool::bench
