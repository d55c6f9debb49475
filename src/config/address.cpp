// SPDX-License-Identifier: Apache-2.0
#include "config/address.hpp"

#include <array>
#include <cstdint>

#include "platform/network.hpp"

namespace orbite::config {
namespace {

bool is_never_bound(const platform::SocketAddress& address) {
  const std::array<std::uint8_t, 16>& bytes = address.bytes();
  if (address.family() == 4) {
    // 224.0.0.0/4 is multicast, 240.0.0.0/4 is reserved and holds the broadcast address.
    return bytes[0] >= 224;
  }
  const bool multicast = bytes[0] == 0xFF;
  const bool link_local = bytes[0] == 0xFE && (bytes[1] & 0xC0) == 0x80;
  return multicast || link_local;
}

}  // namespace

bool is_listen_address(std::string_view text) {
  const Result<platform::SocketAddress> address = platform::SocketAddress::parse(text, 0);
  return address.has_value() && !is_never_bound(*address);
}

bool is_unicast_address(std::string_view text) {
  const Result<platform::SocketAddress> address = platform::SocketAddress::parse(text, 0);
  return address.has_value() && !is_never_bound(*address) && !address->is_any();
}

}  // namespace orbite::config
