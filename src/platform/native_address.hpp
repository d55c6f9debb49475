// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include "platform/network.hpp"

namespace orbite::platform {

/// A SocketAddress as system calls want it.
struct NativeAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  /// Empty (bytes 0) for an unset address.
  static NativeAddress from(const SocketAddress& address) noexcept;

  [[nodiscard]] const sockaddr* get() const noexcept {
    // SAFETY: sockaddr_storage is made to be read through sockaddr, by the socket calls alone.
    return reinterpret_cast<const sockaddr*>(&storage);
  }
  [[nodiscard]] sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&storage); }
};

/// `address` may be nullptr. An IPv4 address mapped into IPv6 becomes IPv4; a family that is
/// neither gives an unset address.
SocketAddress to_socket_address(const sockaddr* address) noexcept;

}  // namespace orbite::platform
