// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "platform/network.hpp"

namespace orbite::platform {
namespace {

constexpr std::array<std::uint8_t, 12> kMappedPrefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

/// For a message: at most 64 bytes, and nothing that a terminal would act on.
std::string printable(std::string_view text) {
  std::string shown(text.substr(0, 64));
  for (char& c : shown) {
    c = c >= ' ' && c <= '~' ? c : '?';
  }
  return shown;
}

}  // namespace

Result<SocketAddress> SocketAddress::parse(std::string_view literal, std::uint16_t port) {
  char text[INET6_ADDRSTRLEN] = {};
  const bool fits = literal.size() < sizeof(text) && literal.find('\0') == std::string_view::npos;
  if (fits) {
    literal.copy(text, literal.size());
    std::array<std::uint8_t, 16> bytes{};
    if (::inet_pton(AF_INET, text, bytes.data()) == 1) {
      return from_bytes(4, bytes, port);
    }
    if (::inet_pton(AF_INET6, text, bytes.data()) == 1) {
      return from_bytes(6, bytes, port);
    }
  }
  return fail(ErrorCode::kInvalidArgument,
              "\"%s\" is not an IPv4 or IPv6 literal (as 10.0.0.1 or fd00::1)",
              printable(literal).c_str());
}

SocketAddress SocketAddress::from_bytes(std::uint8_t family,
                                        const std::array<std::uint8_t, 16>& bytes,
                                        std::uint16_t port) {
  SocketAddress address;
  if (family == 4 || family == 6) {
    address.family_ = family;
    address.port_ = port;
    std::copy_n(bytes.begin(), family == 4 ? 4 : 16, address.bytes_.begin());
  }
  return address;
}

SocketAddress SocketAddress::any(std::uint8_t family, std::uint16_t port) {
  return from_bytes(family, {}, port);
}

SocketAddress SocketAddress::loopback(std::uint8_t family, std::uint16_t port) {
  std::array<std::uint8_t, 16> bytes{};
  if (family == 4) {
    bytes[0] = 127;
    bytes[3] = 1;
  } else {
    bytes[15] = 1;
  }
  return from_bytes(family, bytes, port);
}

bool SocketAddress::is_loopback() const noexcept {
  if (family_ == 4) {
    return bytes_[0] == 127;
  }
  if (family_ != 6) {
    return false;
  }
  const bool mapped = std::equal(kMappedPrefix.begin(), kMappedPrefix.end(), bytes_.begin());
  const bool zeros = std::all_of(bytes_.begin(), bytes_.end() - 1, [](auto b) { return b == 0; });
  return (mapped && bytes_[12] == 127) || (zeros && bytes_[15] == 1);
}

bool SocketAddress::is_any() const noexcept {
  return family_ != 0 && std::all_of(bytes_.begin(), bytes_.end(), [](auto b) { return b == 0; });
}

base::FixedText<64> SocketAddress::line() const noexcept {
  char literal[INET6_ADDRSTRLEN] = {};
  if (family_ == 0 || ::inet_ntop(family_ == 4 ? AF_INET : AF_INET6, bytes_.data(), literal,
                                  sizeof(literal)) == nullptr) {
    return {"unset"};
  }
  char port[16] = {};
  std::snprintf(port, sizeof(port), ":%u", unsigned{port_});
  base::FixedText<64> text(family_ == 4 ? "" : "[");
  text.append(literal);
  text.append(family_ == 4 ? "" : "]");
  text.append(port);
  return text;
}

}  // namespace orbite::platform
