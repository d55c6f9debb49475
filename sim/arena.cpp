// SPDX-License-Identifier: Apache-2.0
#include "sim/arena.hpp"

#include <sys/mman.h>

#include "base/assert.hpp"

namespace orbite::sim {
namespace {

constexpr std::uint64_t kReserved = kArenaPage + kArenaBytes + kArenaPage;

}  // namespace

Arena::Arena() : copy_(kArenaBytes) {
  void* const reserved =
      mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ORBITE_CHECK(reserved != MAP_FAILED);
  bytes_ = static_cast<std::uint8_t*>(reserved) + kArenaPage;
  unshare();
}

Arena::~Arena() { munmap(bytes_ - kArenaPage, kReserved); }

void Arena::share(std::uint64_t offset, std::uint64_t length, const SimPageFile& file,
                  std::uint64_t file_offset) {
  ORBITE_CHECK(offset <= kArenaBytes && length <= kArenaBytes - offset);
  file.map_at(bytes_ + offset, file_offset, length);
  accept(offset, length);
}

void Arena::unshare() {
  ORBITE_CHECK(mmap(bytes_, kArenaBytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == bytes_);
  accept(0, kArenaBytes);
}

}  // namespace orbite::sim
