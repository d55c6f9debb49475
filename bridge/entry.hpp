// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.hpp"
#include "orbite/nixl.h"

namespace orbite::bridge {

/// Who sees a record of another major version: everybody but the call that tells of it.
enum class MajorCheck : std::uint8_t { kStrict, kNone };

/// kInvalidArgument for a null or misaligned pointer; `name` is the argument's.
Result<void> check_address(const void* pointer, std::size_t alignment, const char* name) noexcept;

template <typename T>
Result<void> check_pointer(const T* pointer, const char* name) noexcept {
  return check_address(pointer, alignof(T), name);
}

/// kAbiMismatch unless the head says the size and the major version of this library.
Result<void> check_head(const orbite_nixl_record_t& head, std::size_t size, const char* name,
                        MajorCheck major) noexcept;

template <typename T>
Result<void> check_record(const T* record, const char* name,
                          MajorCheck major = MajorCheck::kStrict) noexcept {
  ORBITE_TRY(check_pointer(record, name));
  return check_head(record->record, sizeof(T), name, major);
}

/// The bytes of an input. Null with 0 bytes is empty; null with more is kInvalidArgument, an end
/// beyond the address space kInvalidRange.
Result<std::span<const std::uint8_t>> input_bytes(const void* pointer, std::size_t bytes,
                                                  const char* name) noexcept;

/// kInvalidRange for a null address, no bytes, or an end that overflows.
Result<void> check_range(std::uint64_t address, std::uint64_t length, const char* name) noexcept;

/// The in/out buffer protocol: kBufferTooSmall sets *bytes to what is needed and copies nothing.
Result<void> copy_out(std::span<const std::uint8_t> data, void* buffer, std::size_t* bytes,
                      const char* name) noexcept;

/// Fills `error`, when there is one, and returns the status of the failure.
orbite_nixl_status_t answer(const Error& failure, orbite_nixl_error_t* error) noexcept;

/// The same for the exception in flight. Only inside a handler.
orbite_nixl_status_t answer_exception(orbite_nixl_error_t* error) noexcept;

/// The barrier of every entry: runs `body`, which returns Result<void>, and lets nothing out but a
/// status. A bad error record is answered by the status alone, before anything else is looked at.
template <typename Body>
orbite_nixl_status_t guarded(orbite_nixl_error_t* error, Body&& body,
                             MajorCheck major = MajorCheck::kStrict) noexcept {
  if (error != nullptr) {
    if (const Result<void> usable = check_record(error, "error", major); !usable) {
      return answer(usable.error(), nullptr);
    }
  }
  try {
    const Result<void> result = body();
    return result ? ORBITE_NIXL_OK : answer(result.error(), error);
  } catch (...) {
    return answer_exception(error);
  }
}

}  // namespace orbite::bridge
