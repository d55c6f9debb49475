// SPDX-License-Identifier: Apache-2.0
// Hosts of a world that copy through mappings of each other's shared allocations: what the checkers
// see of it, whoever stops, dies, or frees pages meanwhile.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "quiet_world.hpp"
#include "sim/run.hpp"
#include "sim/world.hpp"
#include "support/log_lines.hpp"

namespace orbite::test {
namespace {

/// Host 0 has mapped a shared allocation of host 1. Nobody but the test copies, as host 0's engine
/// would.
class SimSharedWorld : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kLength = 100;
  static constexpr std::uint64_t kBegin = 2 * sim::kArenaPage;
  static constexpr std::uint64_t kEnd = 6 * sim::kArenaPage;
  static constexpr std::uint64_t kNear = 500;
  static constexpr std::uint64_t kFar = kBegin + 1000;

  SimSharedWorld() {
    for (const auto& host : world_.hosts) {
      EXPECT_TRUE(world_.start(*host));
      // Whatever was drawn.
      host->arena.unshare();
      host->allocations.clear();
      host->arena.fill(world_.random, 0, sim::kArenaBytes);
    }
    world_.neighborhood.kernel(0) = {};
    share();
  }

  void share() {
    world_.share(far_, kBegin, kEnd);
    far_.arena.fill(world_.random, kBegin, kEnd - kBegin);
    mapping_ = near_.neighbors
                   ->map(*far_.allocations.back().allocation->file,
                         platform::Neighbors::PageAccess::kReadWrite,
                         platform::Neighbors::AfterFork::kAbsent)
                   .value();
    shift_ = far_.allocations.back().pages->in_file(kBegin) - kBegin;
  }

  /// As the engine: the world is told, and then it copies.
  void copy(Operation operation, std::uint64_t near, std::uint64_t far) {
    const sim::World::Call call(world_, near_);
    const std::uint64_t local = near_.arena.address() + near;
    const std::uint64_t remote =
        reinterpret_cast<std::uint64_t>(mapping_->pages().data()) + shift_ + far;  // NOLINT
    const std::uint64_t target = operation == Operation::kRead ? local : remote;
    const std::uint64_t source = operation == Operation::kRead ? remote : local;
    world_.on_copy(near_, target, source, kLength);
    // SAFETY: both are mapped, the one as the arena, the other by host 0.
    std::memcpy(reinterpret_cast<void*>(target),        // NOLINT
                reinterpret_cast<const void*>(source),  // NOLINT
                kLength);
  }
  /// As the workload does it, for ranges of both hosts.
  sim::RequestPtr post(Operation operation) {
    auto request = std::make_shared<sim::RequestModel>();
    request->operation = operation;
    request->owner = near_.life();
    request->peer = far_life_;
    request->bytes = kLength;
    const auto registration_of = [](sim::Life life) {
      auto registration = std::make_shared<sim::RegistrationModel>();
      registration->life = life;
      return registration;
    };
    request->extents.push_back(
        {kNear, kFar, kLength, 0, registration_of(near_.life()), registration_of(far_life_)});
    request->execution = std::make_shared<sim::ExecutionModel>();
    request->execution->id = ++executions_;
    request->execution->sent.resize(kLength);
    request->execution->landed.resize(kLength);
    std::vector<std::uint8_t> bytes(kLength);
    world_.random.fill(bytes);
    request->execution->source = bytes;
    const bool writes = operation == Operation::kWrite;
    world_.put(writes ? near_.life() : far_life_, writes ? kNear : kFar, bytes);
    for (std::uint8_t& byte : bytes) {
      byte = static_cast<std::uint8_t>(~byte);
    }
    world_.put(writes ? far_life_ : near_.life(), writes ? kFar : kNear, bytes);
    near_.claims.add({kNear, kNear + kLength, request, 0, true});
    world_.claims_of(far_life_)->add({kFar, kFar + kLength, request, 0, false});
    return request;
  }
  [[nodiscard]] std::uint8_t far_byte(std::uint64_t offset) const {
    return far_.arena.data()[kFar + offset];
  }
  std::vector<std::string> broken() {
    std::vector<std::string> found;
    for (const sim::Violation& violation : world_.checkers.violations()) {
      found.push_back(violation.invariant + " host" + std::to_string(violation.host));
    }
    return found;
  }

  using Broken = std::vector<std::string>;
  const LogLines log_;
  sim::World world_{1, quiet_neighbors(2)};
  sim::Host& near_ = world_.host(0);
  sim::Host& far_ = world_.host(1);
  const sim::Life far_life_{1, 1};
  std::unique_ptr<platform::PageMapping> mapping_;
  std::uint64_t shift_ = 0;  ///< of the mapping against the arena
  std::uint64_t executions_ = 0;
};

TEST_F(SimSharedWorld, WhatAnExecutionCopiesIsItsOwnOnBothSides) {
  const auto writes = post(Operation::kWrite);
  copy(Operation::kWrite, kNear, kFar);
  EXPECT_EQ(writes->execution->landed_count, kLength);
  EXPECT_EQ(writes->execution->sent, std::vector<bool>(kLength, true));
  world_.compare_memory(far_);
  world_.release_claims(writes);
  const auto reads = post(Operation::kRead);
  copy(Operation::kRead, kNear, kFar);
  EXPECT_EQ(reads->execution->landed_count, kLength);
  EXPECT_EQ(broken(), Broken{});
  EXPECT_EQ(world_.neighborhood.counts.mapped_copies, 2U);
  EXPECT_EQ(world_.neighborhood.counts.mapped_bytes, 2 * kLength);
}

TEST_F(SimSharedWorld, WhatNoExecutionHasIsSeenOnBothSides) {
  (void)post(Operation::kRead);
  copy(Operation::kRead, kNear, kFar + kLength);  // from elsewhere: the bytes are wrong, too
  EXPECT_EQ(broken(), (Broken{"S1 host1", "S1 host0"}));
}

TEST_F(SimSharedWorld, ACopyThatWasToldAndNotMadeIsSeen) {
  (void)post(Operation::kRead);
  {
    const sim::World::Call call(world_, near_);
    world_.on_copy(
        near_, near_.arena.address() + kNear,
        reinterpret_cast<std::uint64_t>(mapping_->pages().data()) + shift_ + kFar,  // NOLINT
        kLength);
  }
  EXPECT_EQ(broken(), Broken{"S1 host0"});
}

TEST_F(SimSharedWorld, TheWrongDirectionIsSeen) {
  (void)post(Operation::kRead);
  copy(Operation::kWrite, kNear, kFar);
  EXPECT_EQ(broken(), Broken{"S1 host0"}) << "one violation of an execution is told";
}

TEST_F(SimSharedWorld, ACopyAfterTheEndIsSeen) {
  const auto writes = post(Operation::kWrite);
  writes->execution->told_terminal = true;
  copy(Operation::kWrite, kNear, kFar);
  EXPECT_EQ(broken(), Broken{"S2 host0"});
}

TEST_F(SimSharedWorld, ACopyOfARetiredRegistrationIsSeen) {
  const auto writes = post(Operation::kWrite);
  writes->extents[0].remote_registration->retired_calls = 1;
  copy(Operation::kWrite, kNear, kFar);
  EXPECT_EQ(broken(), Broken{"S3 host1"});
}

TEST_F(SimSharedWorld, CopyingTwiceIsSeen) {
  (void)post(Operation::kWrite);
  copy(Operation::kWrite, kNear, kFar);
  copy(Operation::kWrite, kNear, kFar);
  EXPECT_EQ(broken(), Broken{"S4 host0"});
}

TEST_F(SimSharedWorld, AnAddressThatIsNobodysIsSeen) {
  (void)post(Operation::kWrite);
  // Of the file, but not of the allocation.
  const auto more = std::make_shared<const sim::SimPageFile>(sim::kArenaPage);
  mapping_ = near_.neighbors
                 ->map(*more, platform::Neighbors::PageAccess::kReadWrite,
                       platform::Neighbors::AfterFork::kAbsent)
                 .value();
  shift_ = 0;
  copy(Operation::kWrite, kNear, 0);
  EXPECT_EQ(broken(), Broken{"S1 host0"});
}

/// Pages of an allocation that was freed are nobody's, whatever lies at their owner's addresses.
TEST_F(SimSharedWorld, ACopyIntoPagesThatWereFreedIsSeen) {
  (void)post(Operation::kWrite);
  const std::uint64_t address = far_.arena.address();
  const std::uint64_t id = far_.allocations[0].allocation->id;
  world_.replace_pages(far_, 0);
  EXPECT_EQ(far_.arena.address(), address);
  EXPECT_GT(far_.allocations[0].allocation->id, id);
  copy(Operation::kWrite, kNear, kFar);
  EXPECT_EQ(broken(), Broken{"S3 host1"});
  world_.compare_memory(far_);
  EXPECT_EQ(broken(), Broken{"S3 host1"}) << "the pages that came after are another matter";
}

/// A neighbour may not know yet that the owner is dead: it copies, and nobody is harmed.
TEST_F(SimSharedWorld, PagesOfTheDeadAreTheirLastLifes) {
  const auto before = post(Operation::kWrite);
  world_.kill(far_);
  copy(Operation::kWrite, kNear, kFar);
  EXPECT_EQ(before->execution->landed_count, kLength);
  world_.release_claims(before);
  ASSERT_TRUE(world_.start(far_));
  const auto after = post(Operation::kRead);
  EXPECT_EQ(after->peer.number + 1, far_.life_number);
  copy(Operation::kRead, kNear, kFar);
  EXPECT_EQ(after->execution->landed_count, kLength);
  world_.compare_memory(far_);
  EXPECT_EQ(broken(), Broken{});
  EXPECT_TRUE(far_.claims.all().empty()) << "nothing of it is the new life's";
}

TEST_F(SimSharedWorld, AProcessStandsStillBeforeACopyAndInTheMiddleOfIt) {
  const auto writes = post(Operation::kWrite);
  std::uint64_t landed_before = kLength;
  std::uint64_t landed_inside = 0;
  const base::Nanoseconds begin_ns = world_.now_ns();
  world_.scheduler.at(begin_ns + 1000, sim::Layer::kNetwork,
                      [&] { landed_before = writes->execution->landed_count; });
  world_.scheduler.at(begin_ns + 7000, sim::Layer::kNetwork, [&] {
    landed_inside = writes->execution->landed_count;
    EXPECT_TRUE(world_.stopped(near_));
    for (std::uint64_t i = 0; i < kLength; ++i) {
      const std::uint8_t byte = writes->execution->source[i];
      EXPECT_EQ(far_byte(i), i < landed_inside ? byte : static_cast<std::uint8_t>(~byte));
    }
  });
  near_.neighbors->lay({.stop_before_ns = 5000, .stop_after_ns = 5000});
  copy(Operation::kWrite, kNear, kFar);
  EXPECT_EQ(world_.now_ns(), begin_ns + 10'000);
  EXPECT_EQ(landed_before, 0U);
  EXPECT_LT(landed_inside, kLength);
  EXPECT_EQ(writes->execution->landed_count, kLength);
  EXPECT_EQ(world_.neighborhood.counts.stopped_inside_mapped, 2U);
  EXPECT_EQ(broken(), Broken{});
}

TEST_F(SimSharedWorld, TheOwnerMayDieAndComeBackWhileItsBorrowerStandsStill) {
  const auto reads = post(Operation::kRead);
  world_.scheduler.at(world_.now_ns() + 1000, sim::Layer::kNetwork, [&] {
    world_.kill(far_);
    ASSERT_TRUE(world_.start(far_));
  });
  near_.neighbors->lay({.stop_before_ns = 5000});
  copy(Operation::kRead, kNear, kFar);
  EXPECT_EQ(reads->execution->landed_count, kLength);
  EXPECT_EQ(broken(), Broken{});
}

TEST_F(SimSharedWorld, ARegistrationThatRetiresWhileItsBorrowerStandsStillIsSeen) {
  const auto writes = post(Operation::kWrite);
  world_.scheduler.at(world_.now_ns() + 1000, sim::Layer::kNetwork,
                      [&] { writes->extents[0].remote_registration->retired_calls = 1; });
  near_.neighbors->lay({.stop_before_ns = 5000});
  copy(Operation::kWrite, kNear, kFar);
  EXPECT_EQ(broken(), Broken{"S3 host1"});
}

TEST_F(SimSharedWorld, AKillInsideACopyLeavesAPrefix) {
  const auto writes = post(Operation::kWrite);
  near_.neighbors->lay({.kills = true});
  copy(Operation::kWrite, kNear, kFar);  // the dead engine's code goes on, and makes all of it
  EXPECT_TRUE(near_.struck);
  mapping_ = nullptr;
  world_.end_step(near_);
  EXPECT_EQ(near_.state, sim::Host::State::kDown);
  const std::uint64_t prefix = writes->execution->landed_count;
  for (std::uint64_t i = 0; i < kLength; ++i) {
    const std::uint8_t byte = writes->execution->source[i];
    ASSERT_EQ(far_byte(i), i < prefix ? byte : static_cast<std::uint8_t>(~byte)) << i;
  }
  world_.compare_memory(far_);
  EXPECT_EQ(broken(), Broken{});
  EXPECT_EQ(world_.neighborhood.counts.killed_inside_mapped, 1U);
}

/// It reads into memory that is shared itself: what its neighbours have of that changes no more.
TEST_F(SimSharedWorld, WhatTheDeadStillReadIsNotInTheirPages) {
  world_.share(near_, 0, sim::kArenaPage);
  near_.arena.fill(world_.random, 0, sim::kArenaPage);
  const auto pages = near_.allocations[0].pages;
  const auto theirs =
      far_.neighbors
          ->map(*near_.allocations[0].allocation->file, platform::Neighbors::PageAccess::kRead,
                platform::Neighbors::AfterFork::kAbsent)
          .value();
  const auto reads = post(Operation::kRead);
  near_.neighbors->lay({.kills = true});
  copy(Operation::kRead, kNear, kFar);
  mapping_ = nullptr;
  world_.end_step(near_);
  const std::uint64_t prefix = reads->execution->landed_count;
  for (std::uint64_t i = 0; i < kLength; ++i) {
    const std::uint8_t byte = reads->execution->source[i];
    ASSERT_EQ(static_cast<std::uint8_t>(theirs->pages()[pages->in_file(kNear) + i]),
              i < prefix ? byte : static_cast<std::uint8_t>(~byte))
        << i;
  }
  EXPECT_EQ(broken(), Broken{});
}

/// Their engines find no memory now and then, so what they log is not kept either.
class QuietLog {
 public:
  QuietLog() { base::set_log_level(base::LogLevel::kOff); }
  ~QuietLog() { base::set_log_level(base::LogLevel::kWarn); }
};

/// What the seeds do reaches what it is meant to reach.
TEST(SimSharedWorlds, AreDrawnByManySeeds) {
  const QuietLog quiet;
  sim::Stats total;
  sim::Options options;
  options.machines = 1;
  options.neighbors = sim::NeighborsUse::kAll;
  for (std::uint64_t seed = 1; seed <= 250; ++seed) {
    const sim::Stats stats = sim::run(seed, options).stats;
    for (std::size_t kind = 0; kind < total.executions_by.size(); ++kind) {
      total.executions_by[kind] += stats.executions_by[kind];
    }
    total.mapped_copies += stats.mapped_copies;
    total.killed_inside_mapped += stats.killed_inside_mapped;
    total.stopped_inside_mapped += stats.stopped_inside_mapped;
    total.pages_replaced += stats.pages_replaced;
    total.pages_lost += stats.pages_lost;
    total.pages_shortened += stats.pages_shortened;
  }
  EXPECT_GT(total.by(policy::TransportKind::kShm), 500U);
  EXPECT_GT(total.by(policy::TransportKind::kCma), 500U);
  EXPECT_GT(total.by(policy::TransportKind::kTcp), 500U);
  EXPECT_GT(total.mapped_copies, 500U);
  EXPECT_GT(total.killed_inside_mapped, 3U);
  EXPECT_GT(total.stopped_inside_mapped, 3U);
  EXPECT_GT(total.pages_replaced, 300U);
  EXPECT_GT(total.pages_lost, 20U);
  EXPECT_GT(total.pages_shortened, 5U);
}

/// And some of those that nobody has chosen.
TEST(SimSharedWorlds, AreAmongAllSeeds) {
  const QuietLog quiet;
  std::uint64_t seeds = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    seeds += sim::run(seed, {}).stats.by(policy::TransportKind::kShm) > 0 ? 1 : 0;
  }
  EXPECT_GT(seeds, 10U);
}

}  // namespace
}  // namespace orbite::test
