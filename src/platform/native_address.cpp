// SPDX-License-Identifier: Apache-2.0
#include "platform/native_address.hpp"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace orbite::platform {

NativeAddress NativeAddress::from(const SocketAddress& address) noexcept {
  NativeAddress native;
  if (address.family() == 4) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(address.port());
    std::memcpy(&in.sin_addr, address.bytes().data(), sizeof(in.sin_addr));
    std::memcpy(&native.storage, &in, sizeof(in));
    native.bytes = sizeof(in);
  } else if (address.family() == 6) {
    sockaddr_in6 in6{};
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(address.port());
    std::memcpy(&in6.sin6_addr, address.bytes().data(), sizeof(in6.sin6_addr));
    std::memcpy(&native.storage, &in6, sizeof(in6));
    native.bytes = sizeof(in6);
  }
  return native;
}

SocketAddress to_socket_address(const sockaddr* address) noexcept {
  std::array<std::uint8_t, 16> bytes{};
  if (address == nullptr) {
    return {};
  }
  if (address->sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, address, sizeof(in));
    std::memcpy(bytes.data(), &in.sin_addr, sizeof(in.sin_addr));
    return SocketAddress::from_bytes(4, bytes, ntohs(in.sin_port));
  }
  if (address->sa_family != AF_INET6) {
    return {};
  }
  sockaddr_in6 in6{};
  std::memcpy(&in6, address, sizeof(in6));
  std::memcpy(bytes.data(), &in6.sin6_addr, sizeof(in6.sin6_addr));
  if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) {
    std::copy_n(bytes.begin() + 12, 4, bytes.begin());
    return SocketAddress::from_bytes(4, bytes, ntohs(in6.sin6_port));
  }
  return SocketAddress::from_bytes(6, bytes, ntohs(in6.sin6_port));
}

}  // namespace orbite::platform
