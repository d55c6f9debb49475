// SPDX-License-Identifier: Apache-2.0
// Several callers and the workers of both sides at once. ThreadSanitizer looks on.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "support/flows.hpp"
#include "support/honesty.hpp"
#include "support/tcp_node.hpp"
#include "transport/local/local_transport.hpp"

namespace orbite::test {
namespace {

constexpr int kCallers = 3;
constexpr int kRounds = 60;
constexpr std::size_t kBufferBytes = 64 << 10;

/// One caller's own buffers and range.
struct Corner {
  std::unique_ptr<Buffer> near;
  std::unique_ptr<Buffer> far;
  Handle range;
};

/// Posts, drives, stops now and then, and checks what came of it. `see_far_side` orders what the
/// far side did to its memory before what follows here: a socket does so, but unseen by the
/// sanitizer.
void call(Caller& caller, transfer::Transport& transport, const std::shared_ptr<peer::Peer>& peer,
          Corner& corner, std::uint64_t seed, const std::function<void()>& see_far_side) {
  base::SeededRandom random(seed);
  auto& flow = test::only_flow(*peer);
  for (int round = 0; round < kRounds; ++round) {
    const Operation operation = round % 2 == 0 ? Operation::kWrite : Operation::kRead;
    const bool stops = random.next_u64() % 3 == 0;
    const bool drives = random.next_u64() % 2 == 0;
    const auto qos =
        random.next_u64() % 2 == 0 ? policy::QosClass::kLatency : policy::QosClass::kBulk;
    const Stage set(operation, draw_blocks(random, 1 + random.next_u64() % 20, 2000), *corner.near,
                    *corner.far, random.next_u64());
    const auto prepared = caller.prepare(transport, peer, *corner.near, *corner.far, corner.range,
                                         {operation, set.blocks, qos});
    const auto execution = caller.launch(
        transport, prepared,
        round % 5 == 0 ? Caller::Message(std::vector<std::uint8_t>{1, 2}) : Caller::Message());
    if (stops) {
      caller.stop(transport, *execution, ErrorCode::kCanceled);
    }
    const bool ended = step_until(
        [&] {
          if (drives) {
            transfer::WorkLimit limit{1 << 16, 8};
            transport.drive(flow, limit, transfer::Driver::kCaller);
          }
          std::this_thread::yield();
        },
        [&] { return execution->terminal(); }, std::chrono::seconds(60));
    ASSERT_TRUE(ended);
    see_far_side();
    const Outcome outcome = execution->outcome();
    EXPECT_TRUE(outcome.logical == Logical::kSuccess ||
                (stops && outcome.logical == Logical::kCanceled))
        << error_text(outcome.code);
    set.expect_honest(outcome);
  }
}

void call_from_all_sides(Caller& caller, transfer::Transport& transport,
                         const std::shared_ptr<peer::Peer>& peer,
                         std::array<Corner, kCallers>& corners,
                         const std::vector<std::function<void()>>& workers,
                         const std::function<void()>& see_far_side) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (const auto& work : workers) {
    threads.emplace_back([&] {
      while (!stop.load(std::memory_order_acquire)) {
        work();
      }
    });
  }
  std::vector<std::thread> callers;
  for (std::uint64_t i = 0; i < kCallers; ++i) {
    callers.emplace_back(
        [&, i] { call(caller, transport, peer, corners.at(i), i + 1, see_far_side); });
  }
  for (std::thread& thread : callers) {
    thread.join();
  }
  stop.store(true, std::memory_order_release);
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(caller.terminals.load(std::memory_order_relaxed), kCallers * kRounds);
  EXPECT_TRUE(caller.all_given_back());
}

TEST(TransportThreads, TcpServesCallersWhileItsWorkersWork) {
  Config config = TcpNode::default_config();
  config.tcp.slice_bytes = 4096;
  TcpNode near({.name = "near", .config = config, .seed = 1});
  TcpNode far({.name = "far", .config = config, .seed = 2});
  const auto peer = near.import("far", far.blob());
  std::array<Corner, kCallers> corners;
  for (Corner& corner : corners) {
    corner.near = std::make_unique<Buffer>(near.registry, kBufferBytes);
    corner.far = std::make_unique<Buffer>(far.registry, kBufferBytes);
    corner.range = near.caller.import(peer, corner.far->blob(far.epoch));
  }
  std::mutex far_turn;
  const auto near_works = [&] { near.turn(100 * base::kMicrosecond); };
  const auto far_works = [&] {
    const std::lock_guard lock(far_turn);
    far.turn(50 * base::kMicrosecond);
  };
  call_from_all_sides(near.caller, *near.transport, peer, corners, {near_works, far_works},
                      [&] { const std::lock_guard lock(far_turn); });
}

TEST(TransportThreads, LocalServesCallersWhileItsWorkerWorks) {
  base::SeededRandom random(1);
  memory::Registry registry({.registrations_max = 64}, random);
  Caller caller(registry);
  std::atomic<int> delivered{0};
  const platform::SystemClock clock;
  transport::local::LocalTransport transport(caller.planner, clock, 4096,
                                             [&](std::span<const std::uint8_t>) -> Result<void> {
                                               delivered.fetch_add(1, std::memory_order_relaxed);
                                               return {};
                                             });
  caller.planner.set_transport(transport.kind(), &transport);
  const auto peer = std::make_shared<peer::Peer>("self", wire::ConnectionBlob{}, true);
  test::set_flow(*peer, transport.open(*peer).value());
  std::array<Corner, kCallers> corners;
  for (Corner& corner : corners) {
    corner.near = std::make_unique<Buffer>(registry, kBufferBytes);
    corner.far = std::make_unique<Buffer>(registry, kBufferBytes);
    corner.range = caller.import_own(corner.far->handle);
  }
  call_from_all_sides(caller, transport, peer, corners, {[&] {
                        transfer::WorkLimit limit{1 << 16, 8};
                        transport.drive(test::only_flow(*peer), limit, transfer::Driver::kWorker);
                        registry.reap();
                        std::this_thread::yield();
                      }},
                      [] {});
  EXPECT_LE(delivered.load(std::memory_order_relaxed), kCallers * kRounds / 5);
}

}  // namespace
}  // namespace orbite::test
