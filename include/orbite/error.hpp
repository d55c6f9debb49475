// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdarg>
#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace orbite {

enum class ErrorCode : std::uint16_t {
  kOk = 0,
#define ORBITE_ERROR_CODE(number, name, text) name = number,
#include "orbite/error_codes.def"
#undef ORBITE_ERROR_CODE
};

/// The text of a code, for logs and messages. A code that is not in the list reads "unknown error".
std::string_view error_text(ErrorCode code) noexcept;
/// The name without its k, as `BudgetExhausted`. Counters and JSON use it.
std::string_view error_name(ErrorCode code) noexcept;
/// True for the numbers of the list (0 included): the check for codes that a peer sent.
bool is_error_code(std::uint16_t number) noexcept;

/// Answers a call. From prepare and post it means that nothing was admitted. Never an execution's
/// result: that is an Outcome. No heap: the context is cut at its capacity.
class [[nodiscard]] Error {
 public:
  static constexpr std::size_t kContextBytesMax = 240;

  explicit Error(ErrorCode code) noexcept : code_(code) {}
  Error(ErrorCode code, std::int32_t native_errno) noexcept
      : native_errno_(native_errno), code_(code) {}

  /// printf-style context: the value at fault and what is allowed.
  static Error make(ErrorCode code, const char* format, ...) noexcept
      __attribute__((format(printf, 2, 3)));
  static Error make_native(ErrorCode code, std::int32_t native_errno, const char* format,
                           ...) noexcept __attribute__((format(printf, 3, 4)));

  [[nodiscard]] ErrorCode code() const noexcept { return code_; }
  /// errno of the system call at fault, 0 if none was.
  [[nodiscard]] std::int32_t native_errno() const noexcept { return native_errno_; }
  [[nodiscard]] std::string_view context() const noexcept { return {context_, context_bytes_}; }
  /// "text: context (errno name)".
  [[nodiscard]] std::string message() const;

 private:
  void format_context(const char* format, std::va_list arguments) noexcept;

  std::int32_t native_errno_ = 0;
  ErrorCode code_;
  std::uint16_t context_bytes_ = 0;
  char context_[kContextBytesMax] = {};
};

template <typename T>
using Result = tl::expected<T, Error>;

/// `return fail(ErrorCode::kInvalidRange, "length %zu", n);`
template <typename... Arguments>
tl::unexpected<Error> fail(ErrorCode code, const char* format, Arguments... arguments) noexcept {
  if constexpr (sizeof...(arguments) == 0) {
    return tl::unexpected<Error>(Error::make(code, "%s", format));
  } else {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
    return tl::unexpected<Error>(Error::make(code, format, arguments...));
#pragma GCC diagnostic pop
  }
}

inline tl::unexpected<Error> fail(Error error) noexcept { return tl::unexpected<Error>(error); }

}  // namespace orbite
