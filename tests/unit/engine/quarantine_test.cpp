// SPDX-License-Identifier: Apache-2.0
#include "engine/quarantine.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "engine_pair.hpp"

namespace orbite {
namespace {

/// Stands for an engine that was given up.
class Resident {
 public:
  Resident() {
    auto engine = std::make_shared<int>(0);
    engine_ = engine;
    Quarantine::of_process().keep(std::move(engine), [resolved = resolved_] { return *resolved; });
  }
  ~Resident() {
    resolve();
    Quarantine::of_process().reap();
  }
  void resolve() { *resolved_ = true; }
  [[nodiscard]] bool destroyed() const { return engine_.expired(); }

 private:
  std::shared_ptr<bool> resolved_ = std::make_shared<bool>(false);
  std::weak_ptr<int> engine_;
};

TEST(Quarantine, CountsTheUnresolvedAndDestroysNothingByThat) {
  const Quarantine& quarantine = Quarantine::of_process();
  const std::size_t before = quarantine.size();
  Resident first;
  const Resident second;
  EXPECT_EQ(quarantine.size(), before + 2);
  first.resolve();
  EXPECT_EQ(quarantine.size(), before + 1);
  EXPECT_FALSE(first.destroyed());
}

TEST(Quarantine, DestroysWhatIsResolvedWhenItIsToldTo) {
  Resident resolved;
  const Resident other;
  resolved.resolve();
  Quarantine::of_process().reap();
  EXPECT_TRUE(resolved.destroyed());
  EXPECT_FALSE(other.destroyed());
}

TEST(Quarantine, DestroysWhatIsResolvedWhenTheNextComes) {
  Resident resolved;
  resolved.resolve();
  const Resident next;
  EXPECT_TRUE(resolved.destroyed());
  EXPECT_FALSE(next.destroyed());
}

TEST(Quarantine, DestroysWhatIsResolvedWhenAnEngineIsMade) {
  Resident resolved;
  const Resident other;
  resolved.resolve();
  Config none_left = test::loopback_config();
  none_left.limits.quarantined_engines_max = Quarantine::of_process().size();
  EXPECT_TRUE(TransferEngine::create({"a", none_left}).has_value());
  EXPECT_TRUE(resolved.destroyed());
  EXPECT_FALSE(other.destroyed());
}

/// What an engine owns may ask here again while it is destroyed.
TEST(Quarantine, DestroysOutsideItsLock) {
  struct Looks {
    ~Looks() { (void)Quarantine::of_process().size(); }
  };
  Quarantine::of_process().keep(std::make_shared<Looks>(), [] { return true; });
  const auto left = Quarantine::of_process().size();
  Quarantine::of_process().reap();
  EXPECT_EQ(Quarantine::of_process().size(), left);
}

}  // namespace
}  // namespace orbite
