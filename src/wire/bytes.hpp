// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/assert.hpp"
#include "base/result.hpp"

namespace orbite::wire {

static_assert(std::endian::native == std::endian::little,
              "integers are copied as they lie in memory, the formats are little-endian");

/// Appends to a buffer that the caller has sized for all of it. Aborts past its end: the size of
/// what we write is our own arithmetic, never input.
class Writer {
 public:
  explicit Writer(std::span<std::uint8_t> out) : out_(out) {}

  template <std::unsigned_integral Integer>
  void put(Integer value) {
    put(std::span(reinterpret_cast<const std::uint8_t*>(&value), sizeof(value)));
  }
  template <std::size_t N>
  void put(const std::array<std::uint8_t, N>& bytes) {
    put(std::span<const std::uint8_t>(bytes));
  }
  void put(std::span<const std::uint8_t> bytes) {
    ORBITE_CHECK(bytes.size() <= out_.size() - position_);
    if (!bytes.empty()) {
      std::memcpy(out_.data() + position_, bytes.data(), bytes.size());
      position_ += bytes.size();
    }
  }

  [[nodiscard]] std::size_t position() const noexcept { return position_; }

 private:
  std::span<std::uint8_t> out_;
  std::size_t position_ = 0;
};

/// Reads fields in order. The first one that does not fit is remembered by its name, and it and
/// every later one read as zeros and empty views, so a decoder asks once, at its end or before it
/// uses a count.
class Reader {
 public:
  explicit Reader(std::span<const std::uint8_t> in) : in_(in) {}

  template <std::unsigned_integral Integer>
  [[nodiscard]] Integer take(const char* field) {
    Integer value = 0;
    const auto bytes = take_bytes(sizeof(value), field);
    if (!bytes.empty()) {
      std::memcpy(&value, bytes.data(), sizeof(value));
    }
    return value;
  }
  template <std::size_t N>
  [[nodiscard]] std::array<std::uint8_t, N> take_array(const char* field) {
    std::array<std::uint8_t, N> value{};
    const auto bytes = take_bytes(N, field);
    if (!bytes.empty()) {
      std::memcpy(value.data(), bytes.data(), N);
    }
    return value;
  }
  /// A view of `count` bytes of the input; empty if they are not there.
  [[nodiscard]] std::span<const std::uint8_t> take_bytes(std::size_t count, const char* field) {
    if (failed_field_ != nullptr || count > left()) {
      if (failed_field_ == nullptr) {
        failed_field_ = field;
        failed_count_ = count;
      }
      return {};
    }
    const auto bytes = in_.subspan(position_, count);
    position_ += count;
    return bytes;
  }

  [[nodiscard]] std::size_t left() const noexcept { return in_.size() - position_; }
  [[nodiscard]] bool failed() const noexcept { return failed_field_ != nullptr; }

  /// An error with `code` if a field did not fit or if bytes are left over.
  [[nodiscard]] Result<void> finish(ErrorCode code, const char* what) const {
    if (failed_field_ != nullptr) {
      return fail(code, "%s: %s needs %zu bytes at offset %zu, %zu are left", what, failed_field_,
                  failed_count_, position_, left());
    }
    if (left() != 0) {
      return fail(code, "%s: %zu bytes after the last field, 0 are allowed", what, left());
    }
    return {};
  }

 private:
  std::span<const std::uint8_t> in_;
  std::size_t position_ = 0;
  const char* failed_field_ = nullptr;
  std::size_t failed_count_ = 0;
};

}  // namespace orbite::wire
