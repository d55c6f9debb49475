// SPDX-License-Identifier: Apache-2.0
#include "sim/trace.hpp"

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace orbite::sim {

void Trace::note(base::Nanoseconds now_ns, const char* format, ...) {
  std::array<char, 512> line{};
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line.data(), line.size(), format, arguments);
  va_end(arguments);
  mix(now_ns);
  std::uint64_t word = 0;
  const std::size_t length = std::strlen(line.data());
  for (std::size_t i = 0; i < length; i += sizeof(word)) {
    std::memcpy(&word, line.data() + i, sizeof(word));  // the array is zero behind the text
    mix(word);
  }
  if (keeps_log_) {
    std::array<char, 32> stamp{};
    std::snprintf(stamp.data(), stamp.size(), "%12.6f ms  ", static_cast<double>(now_ns) / 1e6);
    log_.push_back(std::string(stamp.data()) + line.data());
  }
}

}  // namespace orbite::sim
