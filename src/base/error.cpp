// SPDX-License-Identifier: Apache-2.0
#include "orbite/error.hpp"

#include <cstdio>
#include <cstring>

#include "base/error_line.hpp"

namespace orbite {

std::string_view error_text(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kOk:
      return "ok";
#define ORBITE_ERROR_CODE(number, name, text) \
  case ErrorCode::name:                       \
    return text;
#include "orbite/error_codes.def"
#undef ORBITE_ERROR_CODE
  }
  return "unknown error";
}

std::string_view error_name(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kOk:
      return "Ok";
#define ORBITE_ERROR_CODE(number, name, text) \
  case ErrorCode::name:                       \
    return std::string_view(#name).substr(1);
#include "orbite/error_codes.def"
#undef ORBITE_ERROR_CODE
  }
  return "Unknown";
}

bool is_error_code(std::uint16_t number) noexcept {
  return error_name(static_cast<ErrorCode>(number)) != "Unknown";
}

void Error::format_context(const char* format, std::va_list arguments) noexcept {
  const int written = std::vsnprintf(context_, sizeof(context_), format, arguments);
  const std::size_t length = written < 0 ? 0 : static_cast<std::size_t>(written);
  context_bytes_ =
      static_cast<std::uint16_t>(length < sizeof(context_) ? length : sizeof(context_) - 1);
}

Error Error::make(ErrorCode code, const char* format, ...) noexcept {
  Error error(code);
  std::va_list arguments;
  va_start(arguments, format);
  error.format_context(format, arguments);
  va_end(arguments);
  return error;
}

Error Error::make_native(ErrorCode code, std::int32_t native_errno, const char* format,
                         ...) noexcept {
  Error error(code, native_errno);
  std::va_list arguments;
  va_start(arguments, format);
  error.format_context(format, arguments);
  va_end(arguments);
  return error;
}

base::FixedText<512> base::error_line(const Error& error) noexcept {
  FixedText<512> text(error_text(error.code()));
  if (!error.context().empty()) {
    text.append(": ");
    text.append(error.context());
  }
  if (error.native_errno() != 0) {
    char buffer[128];
    text.append(" (");
    text.append(::strerror_r(error.native_errno(), buffer, sizeof(buffer)));
    text.append(")");
  }
  return text;
}

std::string Error::message() const { return base::error_line(*this).string(); }

}  // namespace orbite
