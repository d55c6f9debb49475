// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

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
    ASSERT_TRUE(test::eventually([&] { return count_of(log.text(), "has connected") == 1; }));
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

}  // namespace
}  // namespace orbite
