// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "base/result.hpp"
#include "wire/frame.hpp"

namespace orbite::wire {

// For records whose bytes are sent as they stand.

/// kProtocolViolation names what it is, and both numbers.
inline Result<void> check_magic(const char* what, std::uint32_t magic, std::uint32_t allowed) {
  if (magic != allowed) {
    return fail(ErrorCode::kProtocolViolation, "%s: magic is 0x%08x, allowed: 0x%08x", what, magic,
                allowed);
  }
  return {};
}

/// kProtocolViolation for a number outside its range.
inline Result<void> check_range(const char* what, const char* field, std::uint64_t value,
                                std::uint64_t minimum, std::uint64_t maximum) {
  if (value < minimum || value > maximum) {
    return fail(ErrorCode::kProtocolViolation, "%s: %s is %llu, allowed: %llu to %llu", what, field,
                static_cast<unsigned long long>(value), static_cast<unsigned long long>(minimum),
                static_cast<unsigned long long>(maximum));
  }
  return {};
}

/// A message that is one record and nothing else. kProtocolViolation for another size.
template <typename Record>
Result<Record> record_of(std::span<const std::uint8_t> message, const char* what) {
  static_assert(kIsWireStruct<Record>);
  Record record;
  if (message.size() != sizeof(record)) {
    return fail(ErrorCode::kProtocolViolation, "%s of %zu bytes, allowed: %zu", what,
                message.size(), sizeof(record));
  }
  std::memcpy(static_cast<void*>(&record), message.data(), sizeof(record));
  return record;
}

template <typename Record>
std::span<const std::uint8_t> bytes_of(const Record& record) {
  static_assert(kIsWireStruct<Record>);
  return {reinterpret_cast<const std::uint8_t*>(&record), sizeof(record)};
}

}  // namespace orbite::wire
