// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "bench/file_descriptor.hpp"
#include "orbite/error.hpp"

namespace orbite::tool::bench {

/// A second process of this program, at the other end of a socket pair, which it finds as the
/// descriptor kChildDescriptor. It is gone when this object is.
class Child {
 public:
  static constexpr int kChildDescriptor = 3;
  static Result<Child> start(const std::vector<std::string>& arguments);
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  ~Child();

  /// Only once.
  FileDescriptor take_socket() { return std::move(socket_); }
  [[nodiscard]] pid_t number() const { return pid_; }

 private:
  Child(pid_t pid, FileDescriptor socket) : pid_(pid), socket_(std::move(socket)) {}

  pid_t pid_;
  FileDescriptor socket_;
};

}  // namespace orbite::tool::bench
