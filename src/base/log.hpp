// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace orbite::base {

enum class LogLevel : std::uint8_t { kTrace, kDebug, kInfo, kWarn, kError, kOff };

/// Where a host wants the lines; called from any thread, from several at a time, with the line
/// already formatted. Must neither call into OrbiTE nor wait for a thread that does: locks of an
/// engine may be held. Other threads that log do not wait for it.
using LogSink = std::function<void(LogLevel, std::string_view line)>;

/// nullptr puts the default back (stderr). Lines under way go to either sink.
void set_log_sink(LogSink sink);
void set_log_level(LogLevel level) noexcept;
[[nodiscard]] bool log_enabled(LogLevel level) noexcept;
/// "trace".."error", "off"; anything else leaves `level` alone and returns false.
bool parse_log_level(std::string_view text, LogLevel& level) noexcept;

/// printf-style; the line is cut at 1 KiB. Nothing per transfer above debug.
void log(LogLevel level, const char* format, ...) noexcept __attribute__((format(printf, 2, 3)));

}  // namespace orbite::base
