// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <string_view>

#include "engine_pair.hpp"
#include "support/log_lines.hpp"

namespace orbite {
namespace {

using test::Node;

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST(EngineLog, TellsTheLifeOfAnEngineAndNothingOfTransfers) {
  const test::LogLines log;
  base::set_log_level(base::LogLevel::kInfo);
  {
    Node near("near", 4'096);
    Node far("far", 4'096);
    EXPECT_EQ(count_of(log.text(), " listens on 127.0.0.1:"), 2U) << log.text();
    near.know("far", far);
    ASSERT_TRUE(near.engine->connect_peer(near.peer, 0).has_value());
    ASSERT_TRUE(test::eventually([&] {
      return count_of(log.text(), "has connected") == 1 &&
             count_of(log.text(), "is connected") == 1;
    }));
    EXPECT_EQ(count_of(log.text(), "peer 'far' is connected at 127.0.0.1:"), 1U) << log.text();
    EXPECT_EQ(count_of(log.text(), "peer 'near' has connected from 127.0.0.1:"), 1U) << log.text();
    const std::string before = log.text();
    const Handle request = test::prepare(near, far, Operation::kWrite, {{0, 0, 4'096}}).value();
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(near.engine->post(request, {}).has_value());
      ASSERT_EQ(test::wait_terminal(*near.engine, request).logical, Logical::kSuccess);
    }
    EXPECT_EQ(log.text(), before);
  }
  base::set_log_level(base::LogLevel::kWarn);
  for (const std::string name : {"near", "far"}) {
    EXPECT_EQ(count_of(log.text(), "engine '" + name + "' closes, 0 executions"), 1U);
    EXPECT_EQ(count_of(log.text(), "engine '" + name + "' is closed"), 1U);
  }
}

/// The worker has logged what it did to the lane, and stands in the sink: callers drive the lane.
TEST(EngineLog, ASinkThatBlocksHoldsUpNoLane) {
  Node near("near", 4'096);
  const Node far("far", 4'096);
  near.peer = near.engine->import_peer("far", far.engine->connection_blob()).value();
  std::promise<void> done;
  const std::shared_future<void> end = done.get_future().share();
  std::atomic<bool> is_inside{false};
  std::atomic<bool> was_in_time{false};
  base::set_log_level(base::LogLevel::kInfo);
  base::set_log_sink([&](base::LogLevel, std::string_view line) {
    if (line.find("is connected at") != std::string_view::npos) {
      is_inside.store(true, std::memory_order_relaxed);
      was_in_time.store(end.wait_for(std::chrono::seconds(15)) == std::future_status::ready,
                        std::memory_order_relaxed);
    }
  });
  EXPECT_TRUE(near.engine->connect_peer(near.peer, 5'000'000'000).has_value());
  EXPECT_TRUE(test::eventually([&] { return is_inside.load(std::memory_order_relaxed); }));
  near.know("far", far);
  const Handle request = test::prepare(near, far, Operation::kWrite, {{0, 0, 4'096}}).value();
  EXPECT_TRUE(near.engine->post(request, {}).has_value());
  EXPECT_EQ(test::wait_terminal(*near.engine, request).logical, Logical::kSuccess);
  done.set_value();
  near.engine.reset();
  EXPECT_TRUE(was_in_time.load(std::memory_order_relaxed));
  base::set_log_sink(nullptr);
  base::set_log_level(base::LogLevel::kWarn);
}

}  // namespace
}  // namespace orbite
