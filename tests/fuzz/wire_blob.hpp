// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace orbite::fuzz {

/// The same blob with magic, size and checksum put right: without it, hardly any input of a fuzzer
/// would get past the checksum.
inline std::vector<std::uint8_t> resealed(std::span<const std::uint8_t> input,
                                          std::uint32_t magic) {
  std::vector<std::uint8_t> bytes(input.begin(), input.end());
  if (bytes.size() < 16) {
    return bytes;
  }
  const auto size = static_cast<std::uint16_t>(bytes.size());
  std::memcpy(bytes.data(), &magic, sizeof(magic));
  std::memcpy(bytes.data() + 6, &size, sizeof(size));
  const std::uint64_t checksum = XXH3_64bits(bytes.data(), bytes.size() - 8);
  std::memcpy(bytes.data() + bytes.size() - 8, &checksum, sizeof(checksum));
  return bytes;
}

}  // namespace orbite::fuzz
