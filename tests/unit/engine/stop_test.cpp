// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <time.h>

#include "engine_pair.hpp"
#include "remote_process.hpp"
#include "worker_threads.hpp"

namespace orbite {
namespace {

using test::eventually;
using test::Node;
using test::RemoteProcess;

constexpr std::size_t kBytes = std::size_t{4} << 20;

std::chrono::nanoseconds cpu_time_of_this_thread() {
  timespec time{};
  EXPECT_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time), 0);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

/// Posts `count` WRITEs to a stopped peer: what does not fit into its lanes waits in the planner.
std::vector<Handle> queue_up(Node& node, const RemoteProcess& remote, std::size_t count,
                             std::uint64_t timeout_ns) {
  PostOptions options;
  options.timeout_ns = timeout_ns;
  std::vector<Handle> requests;
  requests.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    requests.push_back(remote.prepare(node, Operation::kWrite, kBytes).value());
    EXPECT_TRUE(node.engine->post(requests.back(), options).has_value());
  }
  return requests;
}

TEST(EngineStop, CostsOfACloseGrowWithTheQueueAndNotWithItsSquare) {
  RemoteProcess remote(kBytes);
  Node node("a", kBytes);
  remote.introduce_to(node);
  test::warm_up(node, remote, kBytes);
  remote.stop();
  queue_up(node, remote, 50'000, 0);
  const auto start = cpu_time_of_this_thread();
  EXPECT_NE(node.engine->close(0).phase, ClosePhase::kOpen);
  EXPECT_LT(cpu_time_of_this_thread() - start, std::chrono::milliseconds(700));
  remote.go_on();
}

TEST(EngineStop, AQueuedExecutionIsTerminalAtOnceAndLeavesTheQueue) {
  RemoteProcess remote(kBytes);
  Node node("a", kBytes);
  remote.introduce_to(node);
  test::warm_up(node, remote, kBytes);
  remote.stop();
  const std::vector<Handle> requests = queue_up(node, remote, 500, 0);
  for (std::size_t i = requests.size() - 1; i >= 400; --i) {
    ASSERT_TRUE(node.engine->cancel(requests[i]).has_value());
    const Outcome outcome = node.engine->query(requests[i]).value();
    EXPECT_TRUE(outcome.terminal());
    EXPECT_EQ(outcome.effect, RemoteEffect::kNone);
    ASSERT_TRUE(node.engine->release(requests[i]).has_value());
  }
  // Nothing of them is kept while the peer is silent.
  EXPECT_NE(node.engine->info_json().find("\"requests\": {\n      \"used\": 400,"),
            std::string::npos)
      << node.engine->info_json();
  remote.go_on();
  EXPECT_EQ(test::wait_terminal(*node.engine, requests[399]).logical, Logical::kSuccess);
}

TEST(EngineStop, AnExpiredExecutionIsStoppedOnce) {
  RemoteProcess remote(kBytes);
  Node node("a", kBytes);
  remote.introduce_to(node);
  test::warm_up(node, remote, kBytes);
  remote.stop();
  const std::vector<Handle> requests = queue_up(node, remote, 100, 20'000'000);
  ASSERT_TRUE(eventually([&] {
    return node.engine->query(requests.front())->logical == Logical::kFailed &&
           node.engine->query(requests.back())->terminal();
  }));
  ASSERT_FALSE(node.engine->query(requests.front())->terminal()) << "bytes of it are on the way";
  // Its worker now waits for the peer: it looks at its timers, every 10 ms.
  EXPECT_LT(test::worker_wakes(std::chrono::milliseconds(500)), 200U);
  remote.go_on();
  EXPECT_EQ(test::wait_terminal(*node.engine, requests.front()).code, ErrorCode::kDeadlineExceeded);
}

TEST(EngineDeadline, FiresOnTimeAlsoBehindAnEarlierAndALaterOne) {
  RemoteProcess remote(kBytes);
  Node node("a", kBytes);
  remote.introduce_to(node);
  test::warm_up(node, remote, kBytes);
  remote.stop();
  std::vector<Handle> requests;
  for (const std::uint64_t timeout_ms : {60'000U, 300U, 100U, 200U}) {
    requests.push_back(queue_up(node, remote, 1, timeout_ms * 1'000'000).front());
  }
  const auto failed = [&](std::size_t i) {
    return node.engine->query(requests[i])->code == ErrorCode::kDeadlineExceeded;
  };
  EXPECT_TRUE(eventually([&] { return failed(2); }));
  EXPECT_TRUE(eventually([&] { return failed(3); }));
  EXPECT_TRUE(failed(2));
  EXPECT_TRUE(eventually([&] { return failed(1); }));
  EXPECT_TRUE(failed(3));
  EXPECT_FALSE(failed(0));
  remote.go_on();
  EXPECT_EQ(test::wait_terminal(*node.engine, requests[0]).logical, Logical::kSuccess);
}

TEST(EngineDeadline, OfTheLargestTimeoutNeverComes) {
  Node node("a", std::size_t{128} << 20);
  const Handle self = node.engine->self_peer().value();
  const Handle range = node.engine->local_range(node.registration).value();
  const std::size_t half = node.buffer.size() / 2;
  const Descriptor from{node.address(), half, node.registration};
  const Descriptor to{node.address(half), half, range};
  const Handle request =
      node.engine->prepare({Operation::kWrite, self, {&from, 1}, {&to, 1}}).value();
  PostOptions options;
  options.timeout_ns = UINT64_MAX;
  ASSERT_TRUE(node.engine->post(request, options).has_value());
  // The worker alone does it, so that it looks at the deadline on the way.
  ASSERT_TRUE(eventually([&] { return node.engine->query(request)->terminal(); }));
  EXPECT_EQ(node.engine->query(request)->logical, Logical::kSuccess);
}

TEST(EngineConnect, TakesTheLargestTimeout) {
  Node a("a", 4096);
  Node b("b", 4096);
  a.know("b", b);
  const auto connected = a.engine->connect_peer(a.peer, UINT64_MAX);
  EXPECT_TRUE(connected.has_value()) << connected.error().message();
}

}  // namespace
}  // namespace orbite
