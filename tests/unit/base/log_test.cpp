// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace orbite::base {
namespace {

TEST(Log, KeepsWhatOthersNamedOnOneLine) {
  std::vector<std::string> lines;
  set_log_sink([&lines](LogLevel, std::string_view line) { lines.emplace_back(line); });
  log(LogLevel::kError, "peer '%s'", "a\nerror: forged\r\x1B[2J\x7F \xC3\xBC");
  set_log_sink(nullptr);
  EXPECT_EQ(lines, std::vector<std::string>{"peer 'a?error: forged??[2J? \xC3\xBC'"});
}

}  // namespace
}  // namespace orbite::base
