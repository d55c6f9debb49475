// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

namespace orbite::fuzz {

/// What came from the peer and was not read yet.
using Input = std::span<const std::uint8_t>;

/// False when too little is left for it.
template <typename Struct>
bool take(Input& input, Struct& record) {
  if (input.size() < sizeof(record)) {
    return false;
  }
  std::memcpy(static_cast<void*>(&record), input.data(), sizeof(record));
  input = input.subspan(sizeof(record));
  return true;
}

}  // namespace orbite::fuzz
