// SPDX-License-Identifier: Apache-2.0
#include "sim/page_file.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.hpp"

namespace orbite::sim {

SimPageFile::SimPageFile(std::uint64_t bytes)
    : bytes_(bytes), descriptor_(memfd_create("orbite-sim", MFD_CLOEXEC)) {
  ORBITE_CHECK(bytes > 0 && descriptor_ >= 0);
  ORBITE_CHECK(ftruncate(descriptor_, static_cast<off_t>(bytes)) == 0);
  memory_ = map(true);
}

SimPageFile::~SimPageFile() {
  unmap(memory_);
  ::close(descriptor_);
}

std::byte* SimPageFile::map(bool writable) const {
  void* const mapping = mmap(nullptr, bytes_, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                             MAP_SHARED, descriptor_, 0);
  ORBITE_CHECK(mapping != MAP_FAILED);
  return static_cast<std::byte*>(mapping);
}

void SimPageFile::unmap(std::byte* mapping) const noexcept { munmap(mapping, bytes_); }

}  // namespace orbite::sim
