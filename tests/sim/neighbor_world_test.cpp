// SPDX-License-Identifier: Apache-2.0
// Hosts of a world that reach each other's memory: what the checkers see of it, and processes that
// stop or die in the middle of a copy.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "quiet_world.hpp"
#include "sim/world.hpp"
#include "support/log_lines.hpp"

namespace orbite::test {
namespace {

/// Host 0 has host 1's process. Nobody but the test copies.
class SimNeighborWorld : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kLength = 100;

  SimNeighborWorld() {
    for (const auto& host : world_.hosts) {
      EXPECT_TRUE(world_.start(*host));
    }
    world_.neighborhood.kernel(0) = {};
    listener_ = far_.neighbors->listen("here").value();
    socket_ = near_.neighbors->connect("here").value();
    process_ = near_.neighbors->process_of(socket_).value();
  }

  static iovec part(const sim::Host& host, std::uint64_t offset) {
    // SAFETY: what is written into an arena stays inside it.
    return {reinterpret_cast<void*>(host.arena.address() + offset), kLength};  // NOLINT
  }
  platform::ProcessCopy copy(Operation operation, std::uint64_t near, std::uint64_t far) {
    const sim::World::Call call(world_, near_);
    const iovec local = part(near_, near);
    const iovec remote = part(far_, far);
    return operation == Operation::kRead ? process_->read({&local, 1}, {&remote, 1})
                                         : process_->write({&local, 1}, {&remote, 1});
  }
  /// As the workload does it, for ranges of both hosts.
  sim::RequestPtr post(Operation operation, std::uint64_t near, std::uint64_t far) {
    auto request = std::make_shared<sim::RequestModel>();
    request->operation = operation;
    request->owner = near_.life();
    request->peer = far_.life();
    request->bytes = kLength;
    sim::ExtentModel extent{near, far, kLength, 0, registration_of(near_), registration_of(far_)};
    request->extents.push_back(extent);
    request->execution = std::make_shared<sim::ExecutionModel>();
    request->execution->id = ++executions_;
    request->execution->sent.resize(kLength);
    request->execution->landed.resize(kLength);
    const sim::Host& source = operation == Operation::kWrite ? near_ : far_;
    const std::uint8_t* const bytes =
        source.arena.data() + (operation == Operation::kWrite ? near : far);
    request->execution->source.assign(bytes, bytes + kLength);
    near_.claims.add({near, near + kLength, request, 0, true});
    far_.claims.add({far, far + kLength, request, 0, false});
    return request;
  }
  static sim::RegistrationPtr registration_of(const sim::Host& host) {
    auto registration = std::make_shared<sim::RegistrationModel>();
    registration->life = host.life();
    registration->end = sim::kArenaBytes;
    return registration;
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
  platform::Socket listener_ = platform::kNoSocket;
  platform::Socket socket_ = platform::kNoSocket;
  std::unique_ptr<platform::Process> process_;
  std::uint64_t executions_ = 0;
};

TEST_F(SimNeighborWorld, WhatAnExecutionCopiesIsItsOwnOnBothSides) {
  const auto writes = post(Operation::kWrite, 0, 1000);
  EXPECT_EQ(copy(Operation::kWrite, 0, 1000).bytes, kLength);
  EXPECT_EQ(writes->execution->landed_count, kLength);
  const auto reads = post(Operation::kRead, 5000, 7000);
  EXPECT_EQ(copy(Operation::kRead, 5000, 7000).bytes, kLength);
  EXPECT_EQ(reads->execution->landed_count, kLength);
  EXPECT_EQ(broken(), Broken{});
}

TEST_F(SimNeighborWorld, WhatNoExecutionHasIsSeenOnBothSides) {
  const auto reads = post(Operation::kRead, 5000, 7000);
  (void)copy(Operation::kRead, 5000, 8000);  // from elsewhere: the bytes are wrong, too
  EXPECT_EQ(broken(), (Broken{"S1 host1", "S1 host0"}));
}

TEST_F(SimNeighborWorld, TheWrongDirectionIsSeen) {
  (void)post(Operation::kRead, 5000, 7000);
  (void)copy(Operation::kWrite, 5000, 7000);
  EXPECT_EQ(broken(), Broken{"S1 host0"}) << "one violation of an execution is told";
}

TEST_F(SimNeighborWorld, ACopyAfterTheEndIsSeen) {
  const auto writes = post(Operation::kWrite, 0, 1000);
  writes->execution->told_terminal = true;
  (void)copy(Operation::kWrite, 0, 1000);
  EXPECT_EQ(broken(), Broken{"S2 host0"});
}

TEST_F(SimNeighborWorld, ACopyOfARetiredRegistrationIsSeen) {
  const auto writes = post(Operation::kWrite, 0, 1000);
  writes->extents[0].remote_registration->retired_calls = 1;
  (void)copy(Operation::kWrite, 0, 1000);
  EXPECT_EQ(broken(), Broken{"S3 host1"});
}

TEST_F(SimNeighborWorld, CopyingTwiceIsSeen) {
  (void)post(Operation::kWrite, 0, 1000);
  (void)copy(Operation::kWrite, 0, 1000);
  (void)copy(Operation::kWrite, 0, 1000);
  EXPECT_EQ(broken(), Broken{"S4 host0"});
}

TEST_F(SimNeighborWorld, TheMemoryOfALaterLifeIsOutOfReach) {
  world_.kill(far_);
  ASSERT_TRUE(world_.start(far_));
  EXPECT_EQ(copy(Operation::kWrite, 0, 1000).native_errno, ESRCH);
  EXPECT_EQ(broken(), Broken{});
}

TEST_F(SimNeighborWorld, AStepInWhichItsProcessDiesEndsInItsDeath) {
  const auto writes = post(Operation::kWrite, 0, 1000);
  const auto pages = near_.neighbors->make_pages("seats", 4096, {}).value();
  auto ours = near_.neighbors
                  ->map(*pages, platform::Neighbors::PageAccess::kReadWrite,
                        platform::Neighbors::AfterFork::kAbsent)
                  .value();
  const auto theirs = far_.neighbors
                          ->map(*pages, platform::Neighbors::PageAccess::kRead,
                                platform::Neighbors::AfterFork::kAbsent)
                          .value();
  const auto server = far_.neighbors->accept(listener_).value();
  const auto near_process = far_.neighbors->process_of(server).value();
  sim::Host* struck_down = nullptr;
  world_.on_struck_down = [&](sim::Host& host) { struck_down = &host; };

  near_.neighbors->lay({.kills = true});
  ours->pages()[0] = std::byte{1};
  EXPECT_NE(copy(Operation::kWrite, 0, 1000).native_errno, 0);
  EXPECT_TRUE(near_.struck);
  // The engine's code goes on to its end, and nobody hears of it.
  const std::uint64_t landed = writes->execution->landed_count;
  ours->pages()[0] = std::byte{2};
  EXPECT_EQ(copy(Operation::kWrite, 0, 1000).bytes, 0U);
  world_.checkers.violation("S1", 0, 0, "said by the dead");
  const std::uint64_t events = world_.scheduler.events_run();
  const base::Nanoseconds now_ns = world_.now_ns();
  EXPECT_NE(near_.engine->close(base::kSecond).phase, ClosePhase::kClosed);
  EXPECT_EQ(world_.scheduler.events_run(), events) << "it waits for nobody";
  process_ = nullptr;
  ours = nullptr;

  world_.end_step(near_);
  EXPECT_EQ(world_.now_ns(), now_ns);
  EXPECT_EQ(near_.state, sim::Host::State::kDown);
  EXPECT_EQ(near_.engine, nullptr);
  EXPECT_EQ(near_.network, nullptr);
  EXPECT_EQ(struck_down, &near_);
  EXPECT_EQ(theirs->pages()[0], std::byte{1});
  EXPECT_EQ(writes->execution->landed_count, landed);
  EXPECT_EQ(broken(), Broken{});
  EXPECT_FALSE(near_process->ended());
  world_.scheduler.run_until(world_.now_ns() + 10 * base::kMillisecond);
  EXPECT_TRUE(near_process->ended());
  std::vector<std::uint8_t> buffer(16);
  platform::Neighbors::Files files;
  EXPECT_EQ(far_.neighbors->receive(server, buffer, files).kind, platform::IoResult::Kind::kEnded);
  // The living are heard again, and there is another life.
  world_.checkers.violation("S1", 1, 0, "said by the living");
  EXPECT_EQ(broken(), Broken{"S1 host1"});
  ASSERT_TRUE(world_.start(near_));
  EXPECT_EQ(near_.clock.now_ns(), world_.now_ns()) << "the dead saw time pass, and nobody else";
}

TEST_F(SimNeighborWorld, AProcessThatStandsStillInsideACopyDoesNothingElse) {
  const base::Nanoseconds begin_ns = world_.now_ns();
  const base::Nanoseconds time_ns = world_.time_of(near_);
  constexpr base::Nanoseconds kStop = 50 * base::kMillisecond;
  std::uint64_t calls = 0;
  bool was_inside = false;
  world_.scheduler.at(begin_ns + kStop / 4, sim::Layer::kApplication, [&] {
    was_inside = world_.stopped(near_) && world_.inside(near_) && !world_.inside(far_);
    calls = near_.network->calls();
    world_.wake(near_, world_.now_ns());
    world_.wake(far_, world_.now_ns());
  });
  std::uint64_t calls_later = 0;
  world_.scheduler.at(begin_ns + kStop - 1, sim::Layer::kApplication,
                      [&] { calls_later = near_.network->calls(); });
  (void)post(Operation::kWrite, 0, 1000);
  near_.neighbors->lay({.stop_before_ns = kStop});
  EXPECT_EQ(copy(Operation::kWrite, 0, 1000).bytes, kLength);
  EXPECT_TRUE(was_inside);
  EXPECT_EQ(calls, calls_later);
  EXPECT_EQ(world_.now_ns(), begin_ns + kStop);
  EXPECT_EQ(world_.time_of(near_), time_ns);
  EXPECT_EQ(world_.time_of(far_), begin_ns + kStop);
  EXPECT_FALSE(world_.inside(near_));
  const std::uint64_t before = near_.network->calls();
  world_.scheduler.run_until(world_.now_ns() + base::kMillisecond);
  EXPECT_GT(near_.network->calls(), before) << "the turn that it missed comes";
  EXPECT_EQ(broken(), Broken{});
}

TEST(SimNeighborhood, IsDrawnBySomeSeeds) {
  std::uint32_t without = 0;
  std::uint32_t mixed = 0;
  std::uint32_t with = 0;
  std::uint32_t unreachable = 0;
  const LogLines log;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    sim::World world(seed, quiet_world(4, 1));
    std::size_t count = 0;
    for (const auto& host : world.hosts) {
      ASSERT_TRUE(world.start(*host));
      count += host->neighbors != nullptr ? 1 : 0;
    }
    EXPECT_TRUE(world.has_neighbors() || count == 0) << "seed " << seed;
    without += count == 0 ? 1 : 0;
    with += count == 4 ? 1 : 0;
    mixed += count > 0 && count < 4 ? 1 : 0;
    unreachable += world.neighborhood.kernel(0).forbids_copies ? 1 : 0;
  }
  EXPECT_GT(without, 2U);
  EXPECT_GT(mixed, 2U);
  EXPECT_GT(with, 25U);
  EXPECT_GT(unreachable, 0U);
  EXPECT_LT(unreachable, 20U);
}

}  // namespace
}  // namespace orbite::test
