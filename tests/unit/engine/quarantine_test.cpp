// SPDX-License-Identifier: Apache-2.0
#include "engine/quarantine.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "engine_pair.hpp"
#include "sim/allocation_fault.hpp"

namespace orbite {
namespace {

/// Stands for an engine that was given up.
class Resident {
 public:
  Resident() {
    auto engine = std::make_unique<Engine>();
    alive_ = engine->alive;
    engine->resolved = resolved_;
    Quarantine::of_process().keep<[](const Engine& asked) { return *asked.resolved; }>(
        Quarantine::make_place(), std::move(engine));
  }
  ~Resident() {
    resolve();
    Quarantine::of_process().reap();
  }
  void resolve() { *resolved_ = true; }
  [[nodiscard]] bool destroyed() const { return alive_.expired(); }

 private:
  struct Engine {
    std::shared_ptr<int> alive = std::make_shared<int>(0);
    std::shared_ptr<bool> resolved;
  };
  std::shared_ptr<bool> resolved_ = std::make_shared<bool>(false);
  std::weak_ptr<int> alive_;
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

TEST(Quarantine, TakesAnEngineInWithoutMemory) {
  struct Engine {};
  Quarantine& quarantine = Quarantine::of_process();
  const std::size_t before = quarantine.size();
  auto engine = std::make_unique<Engine>();
  Quarantine::Place place = Quarantine::make_place();
  {
    const sim::AllocationFault fault(0, UINT64_MAX);
    quarantine.keep<[](const Engine&) { return true; }>(std::move(place), std::move(engine));
    EXPECT_EQ(quarantine.size(), before);
    quarantine.reap();
    EXPECT_EQ(fault.seen(), 0U);
  }
}

/// What an engine owns may ask here again while it is destroyed.
TEST(Quarantine, DestroysOutsideItsLock) {
  struct Looks {
    ~Looks() { (void)Quarantine::of_process().size(); }
  };
  Quarantine::of_process().keep<[](const Looks&) { return true; }>(Quarantine::make_place(),
                                                                   std::make_unique<Looks>());
  const auto left = Quarantine::of_process().size();
  Quarantine::of_process().reap();
  EXPECT_EQ(Quarantine::of_process().size(), left);
}

}  // namespace
}  // namespace orbite
