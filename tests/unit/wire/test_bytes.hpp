// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.hpp"

namespace orbite::wire {

using Bytes = std::vector<std::uint8_t>;

inline std::string hex(std::span<const std::uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

template <typename Struct>
Bytes bytes_of(const Struct& record) {
  static_assert(std::is_trivially_copyable_v<Struct>);
  Bytes bytes(sizeof(record));
  std::memcpy(bytes.data(), &record, sizeof(record));
  return bytes;
}

template <typename Struct>
Struct from_bytes(std::span<const std::uint8_t> bytes) {
  static_assert(std::is_trivially_copyable_v<Struct>);
  Struct record;
  EXPECT_EQ(bytes.size(), sizeof(record));
  std::memcpy(static_cast<void*>(&record), bytes.data(), sizeof(record));
  return record;
}

/// first, first + 1, ... : every byte differs from its neighbours, so a swapped field is seen.
template <std::size_t N>
std::array<std::uint8_t, N> counting(std::uint8_t first) {
  std::array<std::uint8_t, N> bytes{};
  for (std::size_t i = 0; i < N; ++i) {
    bytes[i] = static_cast<std::uint8_t>(first + i);
  }
  return bytes;
}

/// An error with that code whose context names `part`.
template <typename T>
::testing::AssertionResult refused_with(const Result<T>& result, ErrorCode code,
                                        std::string_view part = {}) {
  if (result) {
    return ::testing::AssertionFailure() << "accepted";
  }
  if (result.error().code() != code) {
    return ::testing::AssertionFailure() << "refused with: " << result.error().message();
  }
  if (result.error().context().empty() ||
      result.error().context().find(part) == std::string_view::npos) {
    return ::testing::AssertionFailure()
           << "'" << part << "' is not in: " << result.error().message();
  }
  return ::testing::AssertionSuccess();
}

}  // namespace orbite::wire
