// SPDX-License-Identifier: Apache-2.0
#include "orbite_log.h"

#include <cstdio>

namespace orbite::nixl {

void log_line(const std::string& agent, const std::string& text) noexcept {
  std::fprintf(stderr, "orbite: NIXL agent '%s': %s\n", agent.c_str(), text.c_str());
}

void FailureLog::add(const char* call, int32_t status, const std::string& text) noexcept {
  try {
    uint32_t lines = 0;
    {
      const std::lock_guard lock(mutex_);
      uint32_t& count = lines_[{call, status}];
      if (count == kLinesMax) {
        return;
      }
      lines = ++count;
    }
    std::string line = std::string(call) + ": " + text;
    if (lines == kLinesMax) {
      line += " (not logged again for this call and status " + std::to_string(status) + ")";
    }
    log_line(agent_, line);
  } catch (...) {
    log_line(agent_, call);
  }
}

}  // namespace orbite::nixl
