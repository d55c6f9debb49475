// SPDX-License-Identifier: Apache-2.0
// Who waits for latency work where the worker has no processor of its own.
#include <gtest/gtest.h>

#include "engine/access.hpp"
#include "engine_pair.hpp"

namespace orbite {
namespace {

using test::Node;

constexpr std::size_t kSmall = 4'096;
constexpr std::size_t kBulk = std::size_t{8} << 20;

/// An engine whose worker moves only when it is told to.
Result<std::unique_ptr<TransferEngine>> create_still(bool crowded) {
  EngineEnvironment environment = system_environment();
  environment.starts_worker = false;
  environment.processors_are_short = [crowded] { return crowded; };
  return EngineAccess::create({"near", test::loopback_config()}, environment);
}

struct Parameters {
  Operation small;
  Operation bulk;
};

class WaitingCaller : public ::testing::TestWithParam<Parameters> {
 protected:
  /// The bulk is under way, and the worker has seen that callers are about.
  void begin(bool crowded) {
    near_ = std::make_unique<Node>(create_still(crowded), kBulk + kSmall);
    near_->fill(1);
    far_.fill(2);
    near_->know("far", far_);
    far_.know("near", *near_);
    small_ = test::prepare(*near_, far_, GetParam().small, {{0, 0, kSmall}}).value();
    bulk_ = test::prepare(*near_, far_, GetParam().bulk, {{kSmall, kSmall, kBulk}}).value();
    ASSERT_NO_FATAL_FAILURE(run_small());
    ASSERT_TRUE(engine().post(bulk_, {}).has_value());
    EngineAccess::work(engine());
  }
  TransferEngine& engine() { return *near_->engine; }
  /// Posts it and waits for it, and for nothing else.
  void run_small() {
    ASSERT_TRUE(engine().post(small_, {}).has_value());
    ASSERT_EQ(test::wait_terminal(engine(), small_).logical, Logical::kSuccess);
  }
  [[nodiscard]] Outcome bulk_outcome() { return engine().query(bulk_).value(); }
  void TearDown() override {
    EXPECT_TRUE(test::eventually([&] {
      EngineAccess::work(engine());
      return engine().check(bulk_).value().terminal();
    }));
    EXPECT_EQ(bulk_outcome().logical, Logical::kSuccess);
    EXPECT_EQ(near_->buffer, far_.buffer);
    static_cast<void>(engine().close(0));
    EXPECT_TRUE(test::eventually([&] {
      EngineAccess::work(engine());
      return EngineAccess::worker_ended(engine());
    }));
  }

  Node far_{"far", kBulk + kSmall};
  std::unique_ptr<Node> near_;
  Handle small_;
  Handle bulk_;
};

TEST_P(WaitingCaller, MovesTheBulkAsideWhereTheWorkerHasNoProcessor) {
  ASSERT_NO_FATAL_FAILURE(begin(true));
  for (int i = 0; i < 100'000 && !bulk_outcome().terminal(); ++i) {
    ASSERT_NO_FATAL_FAILURE(run_small());
  }
  EXPECT_TRUE(bulk_outcome().terminal());
}

TEST_P(WaitingCaller, LeavesTheBulkToTheWorkerElsewhere) {
  ASSERT_NO_FATAL_FAILURE(begin(false));
  for (int i = 0; i < 1'000; ++i) {
    ASSERT_NO_FATAL_FAILURE(run_small());
  }
  EXPECT_FALSE(bulk_outcome().terminal());
}

INSTANTIATE_TEST_SUITE_P(Both, WaitingCaller,
                         ::testing::Values(Parameters{Operation::kWrite, Operation::kRead},
                                           Parameters{Operation::kRead, Operation::kWrite}));

}  // namespace
}  // namespace orbite
