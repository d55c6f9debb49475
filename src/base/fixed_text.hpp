// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace orbite::base {

/// A short text that asks for no memory, for lines of the log that are written where nothing may
/// fail. What does not fit is cut.
template <std::size_t BytesMax>
class FixedText {
 public:
  FixedText() = default;
  FixedText(std::string_view text) noexcept { append(text); }  // NOLINT: as std::string

  void append(std::string_view text) noexcept {
    const std::size_t taken = std::min(text.size(), BytesMax - bytes_);
    std::copy_n(text.data(), taken, text_ + bytes_);
    bytes_ += taken;
    text_[bytes_] = '\0';
  }

  [[nodiscard]] const char* c_str() const noexcept { return text_; }
  [[nodiscard]] std::string_view view() const noexcept { return {text_, bytes_}; }
  [[nodiscard]] std::string string() const { return {text_, bytes_}; }
  [[nodiscard]] bool empty() const noexcept { return bytes_ == 0; }
  friend bool operator==(const FixedText& a, std::string_view b) noexcept { return a.view() == b; }

 private:
  std::size_t bytes_ = 0;
  char text_[BytesMax + 1] = {};
};

}  // namespace orbite::base
