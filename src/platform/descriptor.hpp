// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace orbite::platform {

/// Owns a descriptor that a child made by fork() does not have (limits: open_descriptors.hpp).
class Descriptor {
 public:
  Descriptor() = default;
  /// -1 is none.
  explicit Descriptor(int fd) noexcept;
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  /// -1: there is none. So it is in a child that was forked since: its number means nothing there.
  [[nodiscard]] int get() const noexcept;
  /// Gives it up, still known as one that a child does not have.
  [[nodiscard]] int release() noexcept;

 private:
  int fd_ = -1;
  std::uint32_t generation_ = 0;
};

}  // namespace orbite::platform
