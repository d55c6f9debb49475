// SPDX-License-Identifier: Apache-2.0
#include "entry.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>
#include <new>

#include "base/byte_range.hpp"
#include "base/log.hpp"

namespace orbite::bridge {
namespace {

// No allocation: an error must be told when memory is out, too.
void write_message(const Error& failure, orbite_nixl_error_t& error) noexcept {
  const std::string_view text = error_text(failure.code());
  const std::string_view context = failure.context();
  int written = std::snprintf(
      error.message, sizeof(error.message), "%.*s%s%.*s", static_cast<int>(text.size()),
      text.data(), context.empty() ? "" : ": ", static_cast<int>(context.size()), context.data());
  if (failure.native_errno() == 0 || written < 0) {
    return;
  }
  const std::size_t used = std::min(static_cast<std::size_t>(written), sizeof(error.message) - 1);
  char buffer[128];
  // The GNU strerror_r: returns the text, which need not stand in the buffer.
  const char* native = ::strerror_r(failure.native_errno(), buffer, sizeof(buffer));
  std::snprintf(error.message + used, sizeof(error.message) - used, " (%s)", native);
}

}  // namespace

Result<void> check_address(const void* pointer, std::size_t alignment, const char* name) noexcept {
  if (pointer == nullptr) {
    return fail(ErrorCode::kInvalidArgument, "%s is NULL", name);
  }
  if (reinterpret_cast<std::uintptr_t>(pointer) % alignment != 0) {
    return fail(ErrorCode::kInvalidArgument, "%s is at %p, which is not a multiple of %zu", name,
                pointer, alignment);
  }
  return {};
}

Result<void> check_head(const orbite_nixl_record_t& head, std::size_t size, const char* name,
                        MajorCheck major) noexcept {
  if (head.size != size) {
    return fail(ErrorCode::kAbiMismatch, "%s has a record of %u bytes; this library knows %zu",
                name, head.size, size);
  }
  if (major == MajorCheck::kStrict && head.abi_major != ORBITE_NIXL_ABI_MAJOR) {
    return fail(ErrorCode::kAbiMismatch, "%s has a record of ABI %u.%u; this library knows %d.x",
                name, unsigned{head.abi_major}, unsigned{head.abi_minor}, ORBITE_NIXL_ABI_MAJOR);
  }
  return {};
}

Result<std::span<const std::uint8_t>> input_bytes(const void* pointer, std::size_t bytes,
                                                  const char* name) noexcept {
  if (pointer == nullptr) {
    if (bytes != 0) {
      return fail(ErrorCode::kInvalidArgument, "%s is NULL with %zu bytes; NULL needs 0", name,
                  bytes);
    }
    return std::span<const std::uint8_t>();
  }
  if (bytes >
      std::numeric_limits<std::uintptr_t>::max() - reinterpret_cast<std::uintptr_t>(pointer)) {
    return fail(ErrorCode::kInvalidRange, "%s at %p with %zu bytes ends past 2^64", name, pointer,
                bytes);
  }
  // SAFETY: any object may be read as bytes; the caller owns them for the length of the call.
  return std::span(static_cast<const std::uint8_t*>(pointer), bytes);
}

Result<void> check_range(std::uint64_t address, std::uint64_t length, const char* name) noexcept {
  if (const auto range = base::ByteRange::make(address, length); !range) {
    const std::string_view context = range.error().context();
    return fail(ErrorCode::kInvalidRange, "%s: %.*s", name, static_cast<int>(context.size()),
                context.data());
  }
  return {};
}

Result<void> copy_out(std::span<const std::uint8_t> data, void* buffer, std::size_t* bytes,
                      const char* name) noexcept {
  const std::size_t capacity = buffer == nullptr ? 0 : *bytes;
  *bytes = data.size();
  if (buffer == nullptr || data.size() > capacity) {
    return fail(ErrorCode::kBufferTooSmall, "%s has %zu bytes; %zu are needed", name, capacity,
                data.size());
  }
  if (!data.empty()) {
    std::memcpy(buffer, data.data(), data.size());
  }
  return {};
}

orbite_nixl_status_t answer(const Error& failure, orbite_nixl_error_t* error) noexcept {
  const auto status = static_cast<orbite_nixl_status_t>(failure.code());
  if (error != nullptr) {
    error->status = status;
    error->native_errno = failure.native_errno();
    write_message(failure, *error);
  }
  return status;
}

orbite_nixl_status_t answer_exception(orbite_nixl_error_t* error) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return answer(Error(ErrorCode::kOutOfMemory), error);
  } catch (const std::exception& exception) {
    base::log(base::LogLevel::kError, "an exception reached the C ABI: %s", exception.what());
    return answer(Error::make(ErrorCode::kInternal, "exception: %s", exception.what()), error);
  } catch (...) {
    base::log(base::LogLevel::kError, "an exception of unknown type reached the C ABI");
    return answer(Error::make(ErrorCode::kInternal, "exception of unknown type"), error);
  }
}

}  // namespace orbite::bridge
