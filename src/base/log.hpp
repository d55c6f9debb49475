// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace orbite::base {

enum class LogLevel : std::uint8_t { kTrace, kDebug, kInfo, kWarn, kError, kOff };

/// Where a host wants the lines; called from any thread, from several at a time, with the line
/// already formatted. Must neither call into OrbiTE nor wait for a thread that does. Only the
/// thread that logs waits for it: it holds no lock of a lane or of the copy workers then. It may be
/// an engine's worker, for which others wait.
using LogSink = std::function<void(LogLevel, std::string_view line)>;

/// nullptr puts the default back (stderr). Lines under way go to either sink. A child of fork() has
/// the default until it sets a sink of its own.
void set_log_sink(LogSink sink);
/// In a child of fork(), before anything else of it logs. Async-signal-safe.
void forget_log() noexcept;
void set_log_level(LogLevel level) noexcept;
[[nodiscard]] bool log_enabled(LogLevel level) noexcept;
/// "trace".."error", "off"; anything else leaves `level` alone and returns false.
bool parse_log_level(std::string_view text, LogLevel& level) noexcept;

/// printf-style; the line is cut at 1 KiB. Nothing per transfer above debug.
void log(LogLevel level, const char* format, ...) noexcept __attribute__((format(printf, 2, 3)));

/// What the thread logs while it lives is written when it ends, or the outermost of several does.
/// It stands before a lock that others wait for, so that none of them waits for a sink.
class LogLater {
 public:
  LogLater() noexcept;
  LogLater(const LogLater&) = delete;
  LogLater& operator=(const LogLater&) = delete;
  ~LogLater();

  static constexpr std::size_t kLinesMax = 64;  ///< of further ones only the number is told

 private:
  friend void log(LogLevel level, const char* format, ...) noexcept;
  struct Line {
    LogLevel level;
    std::chrono::system_clock::time_point time;
    std::string text;
  };
  void keep(LogLevel level, std::string_view text) noexcept;

  std::vector<Line> lines_;
  std::uint64_t lost_ = 0;
};

}  // namespace orbite::base
