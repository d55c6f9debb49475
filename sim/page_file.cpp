// SPDX-License-Identifier: Apache-2.0
#include "sim/page_file.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "base/assert.hpp"

namespace orbite::sim {

SimPageFile::SimPageFile(std::uint64_t bytes)
    : bytes_(bytes), descriptor_(memfd_create("orbite-sim", MFD_CLOEXEC)) {
  ORBITE_CHECK(bytes > 0 && descriptor_ >= 0);
  ORBITE_CHECK(ftruncate(descriptor_, static_cast<off_t>(bytes)) == 0);
  memory_ = map(true);
}

SimPageFile::SimPageFile(std::shared_ptr<const SimPageFile> whole, std::uint64_t bytes)
    : whole_(std::move(whole)),
      bytes_(bytes),
      descriptor_(whole_->descriptor_),
      writes_forbidden_(whole_->writes_forbidden_) {
  ORBITE_CHECK(bytes > 0 && bytes <= whole_->bytes_ && whole_->whole_ == nullptr);
  memory_ = map(true);
}

SimPageFile::~SimPageFile() {
  unmap(memory_);
  if (whole_ == nullptr) {
    ::close(descriptor_);
  }
}

std::byte* SimPageFile::map(bool writable) const {
  void* const mapping = mmap(nullptr, bytes_, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                             MAP_SHARED, descriptor_, 0);
  ORBITE_CHECK(mapping != MAP_FAILED);
  return static_cast<std::byte*>(mapping);
}

void SimPageFile::unmap(std::byte* mapping) const noexcept { munmap(mapping, bytes_); }

void SimPageFile::map_at(void* address, std::uint64_t offset, std::uint64_t length) const {
  ORBITE_CHECK(offset <= bytes_ && length <= bytes_ - offset);
  ORBITE_CHECK(mmap(address, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor_,
                    static_cast<off_t>(offset)) == address);
}

}  // namespace orbite::sim
