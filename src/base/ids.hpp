// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>

#include "orbite/handle.hpp"

namespace orbite::base {

/// 128 random bits drawn at each engine start. Never reused: a changed epoch is another peer.
struct SourceEpoch {
  std::array<std::uint8_t, 16> bytes{};
  friend auto operator<=>(const SourceEpoch&, const SourceEpoch&) = default;
};

/// Random, one for each registration; checked at the target of every frame.
struct RegistrationKey {
  std::array<std::uint8_t, 16> bytes{};
  friend bool operator==(const RegistrationKey&, const RegistrationKey&) = default;
};

/// One boot of one kernel, and one network namespace of it: who shares both shares a loopback.
struct HostIdentity {
  std::array<std::uint8_t, 16> boot_id{};
  std::uint64_t network_namespace = 0;
  friend bool operator==(const HostIdentity&, const HostIdentity&) = default;
};

using orbite::Handle;

/// Lower-case hexadecimal, for logs and JSON.
template <std::size_t N>
std::string to_hex(const std::array<std::uint8_t, N>& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * N);
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace orbite::base
