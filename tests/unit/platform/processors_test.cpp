// SPDX-License-Identifier: Apache-2.0
#include "platform/processors.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace orbite::platform {
namespace {

TEST(Processors, SizesOfCachesAreRead) {
  EXPECT_EQ(parse_cache_size("32K\n"), 32U << 10);
  EXPECT_EQ(parse_cache_size("32768K\n"), 32U << 20);
  EXPECT_EQ(parse_cache_size("1M"), 1U << 20);
  for (const char* text :
       {"", "\n", "K", "32", "32\n", "32G", "32KB", "-1K", "99999999999K", "1 K"}) {
    EXPECT_FALSE(parse_cache_size(text).has_value()) << text;
  }
}

TEST(Processors, RunningThreadsAreRead) {
  EXPECT_EQ(parse_running_threads("0.20 0.18 0.12 1/80 11206\n"), 1u);
  EXPECT_EQ(parse_running_threads("120.00 99.18 88.12 129/8000 11206\n"), 129u);
  for (const char* text : {"", "0.20", "0.20 0.18 0.12 ", "0.20 0.18 0.12 x/80 1", "0.2 0.1 0.1 1",
                           "0.2 0.1 0.1 -1/80 1", "0.2 0.1 0.1 1 80"}) {
    EXPECT_FALSE(parse_running_threads(text).has_value()) << text;
  }
}

TEST(Processors, TheSystemAnswers) {
  EXPECT_GE(usable_processors(), 1u);
  EXPECT_GE(last_level_cache_bytes(), 16U << 10);
  // This thread runs, so not all of them are idle.
  EXPECT_LT(idle_processors(), std::thread::hardware_concurrency());
  const base::Nanoseconds before_ns = thread_time_ns();
  EXPECT_GT(before_ns, 0U);
  while (thread_time_ns() == before_ns) {
  }
}

/// As many as there are, and one more.
TEST(Processors, TheyAreShortWhileMoreThreadsRunThanThereAre) {
  const auto online = static_cast<std::size_t>(::sysconf(_SC_NPROCESSORS_ONLN));
  std::atomic<bool> ends{false};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < online + 1; ++i) {
    threads.emplace_back([&ends] {
      while (!ends.load(std::memory_order_relaxed)) {
      }
    });
  }
  while (!processors_are_short()) {
  }
  EXPECT_EQ(idle_processors(), 0u);
  ends.store(true, std::memory_order_relaxed);
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace orbite::platform
