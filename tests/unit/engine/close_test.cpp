// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "base/log.hpp"
#include "engine_pair.hpp"
#include "remote_process.hpp"
#include "support/log_lines.hpp"
#include "worker_threads.hpp"

namespace orbite {
namespace {

using test::eventually;
using test::LogLines;
using test::Node;
using test::RemoteProcess;

constexpr std::size_t kLarge = std::size_t{64} << 20;

std::uint16_t port_of(const Node& node) {
  const std::string info = node.engine->info_json();
  const std::string before = "\"listen\": \"127.0.0.1:";
  return static_cast<std::uint16_t>(std::stoi(info.substr(info.find(before) + before.size())));
}

TEST(EngineClose, IsOverOnlyWhenNobodyIsListenedToAnyMore) {
  for (int i = 0; i < 20; ++i) {
    Node node("a", 4096);
    Config config = test::loopback_config();
    config.listen.port = port_of(node);
    ASSERT_EQ(node.engine->close(20'000'000'000).phase, ClosePhase::kClosed);
    const auto next = TransferEngine::create({"b", config});
    ASSERT_TRUE(next.has_value()) << next.error().message();
  }
}

TEST(EngineClose, NeverGoesBackToAnEarlierPhase) {
  Node a("a", kLarge);
  Node b("b", kLarge);
  a.know("b", b);
  const Handle request = test::prepare(a, b, Operation::kWrite, {{0, 0, kLarge}}).value();
  ASSERT_TRUE(a.engine->post(request, {}).has_value());
  ClosePhase last = ClosePhase::kOpen;
  EXPECT_TRUE(eventually([&] {
    const ClosePhase phase = b.engine->close(0).phase;
    EXPECT_GE(phase, last);
    last = phase;
    return phase == ClosePhase::kClosed;
  }));
  EXPECT_TRUE(test::wait_terminal(*a.engine, request).terminal());
}

TEST(EngineClose, WaitsForEverWhenItIsToldSo) {
  Node a("a", kLarge);
  Node b("b", kLarge);
  a.know("b", b);
  const Handle request = test::prepare(a, b, Operation::kWrite, {{0, 0, kLarge}}).value();
  ASSERT_TRUE(a.engine->post(request, {}).has_value());
  EXPECT_EQ(a.engine->close(UINT64_MAX).phase, ClosePhase::kClosed);
}

TEST(EngineClose, EndsItsWorkerWhenEverythingIsResolved) {
  Node node("a", 4096);
  EXPECT_EQ(test::worker_threads().size(), 1U);
  ASSERT_EQ(node.engine->close(20'000'000'000).phase, ClosePhase::kClosed);
  EXPECT_TRUE(eventually([] { return test::worker_threads().empty(); }));
  EXPECT_EQ(node.engine->close(0).phase, ClosePhase::kClosed);
}

/// Whoever posts while an engine closes is refused or stopped.
TEST(EngineClose, StopsWhateverItLetIn) {
  constexpr std::size_t kCopy = std::size_t{4} << 20;
  constexpr std::size_t kRequests = 12;
  Config config;
  config.tcp.enabled = false;
  config.tcp.slice_bytes = 64 << 10;
  for (int trial = 0; trial < 32; ++trial) {
    Node node("a", (1 + kRequests) * kCopy, config);
    const Handle self = node.engine->self_peer().value();
    const Handle range = node.engine->local_range(node.registration).value();
    const Descriptor from{node.address(), kCopy, node.registration};
    std::vector<Handle> requests;
    for (std::size_t i = 0; i < kRequests; ++i) {
      // Each into bytes of its own: several threads may copy at a time.
      const Descriptor to{node.address((1 + i) * kCopy), kCopy, range};
      requests.push_back(
          node.engine->prepare({Operation::kWrite, self, {&from, 1}, {&to, 1}}).value());
    }
    std::atomic<std::size_t> posted{0};
    std::thread poster([&] {
      for (const Handle request : requests) {
        if (!node.engine->post(request, {}).has_value()) {
          return;
        }
        posted.fetch_add(1, std::memory_order_acq_rel);
      }
    });
    const auto enough = static_cast<std::size_t>(trial % 8);
    while (posted.load(std::memory_order_acquire) < enough) {
    }
    node.engine->close(0);
    poster.join();
    for (std::size_t i = 0; i < posted.load(std::memory_order_acquire); ++i) {
      ASSERT_NE(node.engine->query(requests[i])->logical, Logical::kNone) << "trial " << trial;
    }
  }
}

TEST(EngineQuarantine, KeepsWhatIsUnprovedSleepsAndEndsWithTheProof) {
  RemoteProcess remote(kLarge);
  const std::size_t descriptors = test::open_descriptors();
  LogLines log;
  std::atomic<int> retired{0};
  std::vector<std::uint8_t> idle(4096);
  Config config = test::loopback_config();
  config.close.timeout_ms = 100;
  auto node = std::make_unique<Node>("a", 4096, config);
  std::vector<std::uint8_t> lent(kLarge);
  const auto add = [&](std::vector<std::uint8_t>& bytes) {
    MemoryDescriptor memory;
    memory.address = reinterpret_cast<std::uint64_t>(bytes.data());
    memory.length = bytes.size();
    memory.retired = [&retired] { retired.fetch_add(1, std::memory_order_relaxed); };
    return node->engine->register_memory(memory).value();
  };
  add(idle);
  const Handle registration = add(lent);
  remote.introduce_to(*node);
  const Descriptor from{reinterpret_cast<std::uint64_t>(lent.data()), kLarge, registration};
  const Descriptor to{remote.address(), kLarge, node->range};
  const Handle request =
      node->engine->prepare({Operation::kWrite, node->peer, {&from, 1}, {&to, 1}}).value();
  ASSERT_TRUE(node->engine->post(request, {}).has_value());
  ASSERT_EQ(test::wait_terminal(*node->engine, request).logical, Logical::kSuccess);
  remote.stop();
  ASSERT_TRUE(node->engine->post(request, {}).has_value());
  node.reset();
  EXPECT_EQ(retired.load(std::memory_order_relaxed), 1) << "the one that nobody used";
  EXPECT_NE(log.text().find("engine 'a' keeps 1 executions and 1 registrations in quarantine"),
            std::string::npos)
      << log.text();
  ASSERT_EQ(test::worker_threads().size(), 1U) << "it goes on seeking the proof";
  EXPECT_LT(test::worker_wakes(std::chrono::milliseconds(500)), 200U);
  Config strict = config;
  strict.limits.quarantined_engines_max = 0;
  const auto refused = TransferEngine::create({"b", strict});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kBudgetExhausted);
  EXPECT_NE(refused.error().context().find("limits.quarantined_engines_max"), std::string::npos);
  EXPECT_TRUE(TransferEngine::create({"c", config}).has_value());
  remote.kill();
  EXPECT_TRUE(eventually([] { return test::worker_threads().empty(); }));
  EXPECT_TRUE(TransferEngine::create({"d", strict}).has_value());
  EXPECT_EQ(test::open_descriptors(), descriptors) << "what is resolved is destroyed";
  EXPECT_EQ(retired.load(std::memory_order_relaxed), 1) << "never called once the engine is gone";
}

TEST(EngineCreate, SaysThatTheSystemHasNoThreadToGive) {
  pthread_attr_t usual;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  pthread_attr_t greedy;
  ASSERT_EQ(pthread_attr_init(&greedy), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&greedy, std::size_t{1} << 50), 0);
  ASSERT_EQ(pthread_setattr_default_np(&greedy), 0);
  const auto created = TransferEngine::create({"a", test::loopback_config()});
  ASSERT_EQ(pthread_setattr_default_np(&usual), 0);
  ASSERT_FALSE(created.has_value());
  EXPECT_EQ(created.error().code(), ErrorCode::kSystem);
  pthread_attr_destroy(&greedy);
  pthread_attr_destroy(&usual);
}

}  // namespace
}  // namespace orbite
