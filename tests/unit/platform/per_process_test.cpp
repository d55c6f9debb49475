// SPDX-License-Identifier: Apache-2.0
#include "platform/per_process.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "unit/platform/child_process.hpp"

namespace orbite::platform {
namespace {

using testing::in_child;

struct Value {
  int number = 1;
};

TEST(PerProcess, IsOneForAllThreads) {
  static constinit PerProcess<Value> values;
  EXPECT_EQ(values.look(), nullptr);
  std::vector<Value*> seen(4);
  std::vector<std::thread> threads;
  for (Value*& mine : seen) {
    threads.emplace_back([&mine] { mine = &values.get(); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(std::set<Value*>(seen.begin(), seen.end()), std::set<Value*>{values.look()});
}

TEST(PerProcess, EachGenerationOfChildrenHasItsOwn) {
  static constinit PerProcess<Value> values;
  values.get().number = 2;
  const std::string answer = in_child([]() -> std::string {
    if (values.look() != nullptr) {
      return "the child looks at its parent's";
    }
    if (values.get().number != 1) {
      return "the child's is not new";
    }
    values.get().number = 3;
    return in_child([]() -> std::string {
      return values.look() == nullptr && values.get().number == 1 ? "" : "the grandchild's is not";
    });
  });
  EXPECT_EQ(answer, "");
  EXPECT_EQ(values.get().number, 2);
}

}  // namespace
}  // namespace orbite::platform
