// SPDX-License-Identifier: Apache-2.0
#include "platform/descriptor.hpp"

#include <unistd.h>

#include <utility>

#include "platform/open_descriptors.hpp"
#include "platform/system.hpp"

namespace orbite::platform {

Descriptor::Descriptor(int fd) noexcept : fd_(fd) {
  // Of a failed call errno stays as it was.
  if (fd_ >= 0) {
    generation_ = process_generation();
    note_opened(fd_);
  }
}

Descriptor::Descriptor(Descriptor&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), generation_(other.generation_) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    const Descriptor before(std::move(*this));
    fd_ = std::exchange(other.fd_, -1);
    generation_ = other.generation_;
  }
  return *this;
}

Descriptor::~Descriptor() {
  const int fd = get();
  if (fd >= 0) {
    note_closing(fd);
    // The descriptor is gone whatever close() answers.
    static_cast<void>(::close(fd));
  }
}

int Descriptor::get() const noexcept {
  return fd_ >= 0 && generation_ == process_generation() ? fd_ : -1;
}

int Descriptor::release() noexcept {
  const int fd = get();
  fd_ = -1;
  return fd;
}

}  // namespace orbite::platform
