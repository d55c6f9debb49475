// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include "base/result.hpp"

namespace orbite::base {

/// A non-empty range of addresses whose end does not overflow. Made only by `make`, so holding one
/// is the proof.
class ByteRange {
 public:
  /// kInvalidRange for a null address, zero length or an end past 2^64 - 1.
  static Result<ByteRange> make(std::uint64_t address, std::uint64_t length) {
    if (address == 0) {
      return fail(ErrorCode::kInvalidRange, "address is null (length %llu)", ull(length));
    }
    if (length == 0) {
      return fail(ErrorCode::kInvalidRange, "length is 0 at address 0x%llx", ull(address));
    }
    if (length > std::numeric_limits<std::uint64_t>::max() - address) {
      return fail(ErrorCode::kInvalidRange, "address 0x%llx + length %llu overflows", ull(address),
                  ull(length));
    }
    return ByteRange(address, length);
  }

  [[nodiscard]] std::uint64_t address() const noexcept { return address_; }
  [[nodiscard]] std::uint64_t length() const noexcept { return length_; }
  [[nodiscard]] std::uint64_t end() const noexcept { return address_ + length_; }

  [[nodiscard]] bool covers(const ByteRange& other) const noexcept {
    return address_ <= other.address_ && other.end() <= end();
  }
  [[nodiscard]] bool overlaps(const ByteRange& other) const noexcept {
    return address_ < other.end() && other.address_ < end();
  }
  friend bool operator==(const ByteRange&, const ByteRange&) = default;

 private:
  ByteRange(std::uint64_t address, std::uint64_t length) : address_(address), length_(length) {}
  static unsigned long long ull(std::uint64_t value) { return value; }

  std::uint64_t address_;
  std::uint64_t length_;
};

}  // namespace orbite::base
