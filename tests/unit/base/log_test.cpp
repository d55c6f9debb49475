// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>
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

/// It may stand there with a lock of an engine, which the other one needs before the first goes on.
TEST(Log, OneThreadInsideOfTheSinkDoesNotStopAnother) {
  std::promise<void> other_logged;
  std::future<void> logged = other_logged.get_future();
  bool in_time = false;
  std::thread other;
  set_log_sink([&](LogLevel, std::string_view line) {
    if (line == "other") {
      other_logged.set_value();
      return;
    }
    other = std::thread([] { log(LogLevel::kError, "other"); });
    in_time = logged.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  });
  log(LogLevel::kError, "first");
  other.join();
  set_log_sink(nullptr);
  EXPECT_TRUE(in_time);
}

TEST(Log, LaterIsAfterTheOutermostInOrder) {
  std::vector<std::string> lines;
  set_log_sink([&lines](LogLevel, std::string_view line) { lines.emplace_back(line); });
  {
    const LogLater outer;
    log(LogLevel::kError, "1");
    {
      const LogLater inner;
      log(LogLevel::kError, "2");
    }
    log(LogLevel::kError, "3");
    std::thread([] { log(LogLevel::kError, "another thread's"); }).join();
    EXPECT_EQ(lines, std::vector<std::string>{"another thread's"});
  }
  log(LogLevel::kError, "4");
  set_log_sink(nullptr);
  EXPECT_EQ(lines, (std::vector<std::string>{"another thread's", "1", "2", "3", "4"}));
}

TEST(Log, LaterKeepsSoManyLinesAndTheNumberOfTheRest) {
  std::vector<std::string> lines;
  set_log_sink([&lines](LogLevel, std::string_view line) { lines.emplace_back(line); });
  {
    const LogLater later;
    for (std::size_t i = 0; i < LogLater::kLinesMax + 3; ++i) {
      log(LogLevel::kError, "%zu", i);
    }
  }
  set_log_sink(nullptr);
  ASSERT_EQ(lines.size(), LogLater::kLinesMax + 1);
  EXPECT_EQ(lines[LogLater::kLinesMax - 1], std::to_string(LogLater::kLinesMax - 1));
  EXPECT_EQ(lines.back(), "3 further lines are lost");
}

}  // namespace
}  // namespace orbite::base
