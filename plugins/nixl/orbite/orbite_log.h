// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace orbite::nixl {

// One line to standard error. NIXL keeps a status at most, never the reason for it, and hides what
// goes wrong while it loads a plugin.
void log_line(const std::string& agent, const std::string& text) noexcept;

// The log of one engine. A consumer may repeat a failing call for ever, so only the first lines of
// each pair of call and status are written. Thread-safe; never throws.
class FailureLog {
 public:
  static constexpr uint32_t kLinesMax = 8;

  explicit FailureLog(std::string agent) : agent_(std::move(agent)) {}

  // `call` has static storage.
  void add(const char* call, int32_t status, const std::string& text) noexcept;

 private:
  const std::string agent_;
  std::mutex mutex_;
  std::map<std::pair<std::string, int32_t>, uint32_t> lines_;
};

}  // namespace orbite::nixl
