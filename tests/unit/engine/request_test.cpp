// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "engine_pair.hpp"
#include "remote_process.hpp"
#include "unit/transfer/execution_world.hpp"

namespace orbite {
namespace {

using test::eventually;
using test::Node;
using test::RemoteProcess;

TEST(EngineNotification, OfABulkRequestDoesNotWaitForOtherBulkRequests) {
  constexpr std::size_t kLarge = std::size_t{64} << 20;
  Node a("a", kLarge);
  Node b("b", kLarge);
  a.know("b", b);
  const std::vector<std::uint8_t> message{1, 2, 3};
  PostOptions options;
  options.notification = message;
  const Handle first =
      test::prepare(a, b, Operation::kWrite, {{0, 0, std::size_t{8} << 20}}).value();
  ASSERT_TRUE(a.engine->post(first, options).has_value());
  std::vector<Handle> others;
  for (int i = 0; i < 6; ++i) {
    others.push_back(test::prepare(a, b, Operation::kWrite, {{0, 0, kLarge}}).value());
    ASSERT_TRUE(a.engine->post(others.back(), {}).has_value());
  }
  ASSERT_EQ(test::wait_terminal(*a.engine, first).logical, Logical::kSuccess);
  EXPECT_FALSE(a.engine->query(others[3])->terminal());
  EXPECT_TRUE(b.engine->receive_notification().has_value());
  for (const Handle other : others) {
    EXPECT_EQ(test::wait_terminal(*a.engine, other).logical, Logical::kSuccess);
  }
}

/// A little while, so that two threads meet at many points of their ways.
void linger(std::size_t steps) {
  for (std::size_t i = 0; i < steps; ++i) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
}

TEST(EngineRelease, EndsARequestThatNobodyCanPostAnyMore) {
  constexpr std::size_t kBytes = 4096;
  constexpr std::size_t kRequests = 60'000;
  RemoteProcess remote(kBytes);
  Node node("a", kBytes);
  remote.introduce_to(node);
  std::vector<Handle> requests;
  for (std::size_t i = 0; i < kRequests; ++i) {
    requests.push_back(remote.prepare(node, Operation::kWrite, 64).value());
    ASSERT_TRUE(node.engine->post(requests.back(), {}).has_value());
  }
  for (const Handle request : requests) {
    ASSERT_EQ(test::wait_terminal(*node.engine, request).logical, Logical::kSuccess);
  }
  remote.stop();  // what is posted from here on does not end
  std::atomic<std::size_t> turn{0};
  std::vector<std::uint8_t> reposted(kRequests);
  std::thread poster([&] {
    for (std::size_t i = 0; i < kRequests; ++i) {
      while (turn.load(std::memory_order_acquire) <= i) {
      }
      linger(i % 61);
      reposted[i] = node.engine->post(requests[i], {}).has_value() ? 1 : 0;
    }
  });
  std::vector<std::uint8_t> released(kRequests);
  for (std::size_t i = 0; i < kRequests; ++i) {
    turn.store(i + 1, std::memory_order_release);
    linger(i % 97);
    released[i] = node.engine->release(requests[i]).has_value() ? 1 : 0;
  }
  poster.join();
  for (std::size_t i = 0; i < kRequests; ++i) {
    ASSERT_NE(reposted[i] != 0, released[i] != 0) << "request " << i;
  }
  remote.go_on();
}

TEST(EngineWorker, SeesWorkThatCameWhileItWasAboutToSleep) {
  constexpr std::size_t kCopy = std::size_t{4} << 20;
  std::mutex mutex;
  std::condition_variable changed;
  bool worker_is_in = false;
  bool go_on = false;
  std::vector<std::uint8_t> lent(kCopy);
  Node node("a", 2 * kCopy);
  const Handle self = node.engine->self_peer().value();
  const Handle range = node.engine->local_range(node.registration).value();
  MemoryDescriptor memory;
  memory.address = reinterpret_cast<std::uint64_t>(lent.data());
  memory.length = lent.size();
  const std::thread::id this_thread = std::this_thread::get_id();
  // The worker calls it after it has looked for local work.
  memory.retired = [&] {
    if (std::this_thread::get_id() == this_thread) {
      return;  // the copy was over before its range was deregistered
    }
    std::unique_lock lock(mutex);
    worker_is_in = true;
    changed.notify_all();
    changed.wait_for(lock, std::chrono::seconds(10), [&] { return go_on; });
  };
  const auto copy = [&](std::uint64_t address, Handle owner) {
    const Descriptor from{address, kCopy, owner};
    const Descriptor to{node.address(kCopy), kCopy, range};
    const Handle request =
        node.engine->prepare({Operation::kWrite, self, {&from, 1}, {&to, 1}}).value();
    EXPECT_TRUE(node.engine->post(request, {}).has_value());
    return request;
  };
  // Until the worker is the one that gives the last loan back.
  ASSERT_TRUE(eventually([&] {
    const Handle registration = node.engine->register_memory(memory).value();
    copy(memory.address, registration);
    return node.engine->deregister_memory(registration).value() == RegistrationState::kFenced;
  }));
  {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(10), [&] { return worker_is_in; }));
  }
  const Handle request = copy(node.address(), node.registration);
  {
    const std::lock_guard lock(mutex);
    go_on = true;
    changed.notify_all();
  }
  // It sleeps for a second at most: less than that tells that it was woken.
  EXPECT_TRUE(eventually([&] { return node.engine->query(request)->terminal(); },
                         std::chrono::milliseconds(900)));
}

TEST(EnginePeers, ComeBackAfterTheyWereDeclaredFenced) {
  Node a("a", 4096);
  Node b("b", 4096);
  a.know("b", b);
  ASSERT_TRUE(a.engine->confirm_peer_fenced(a.peer).has_value());
  EXPECT_EQ(test::prepare(a, b, Operation::kWrite, {{0, 0, 4096}}).error().code(),
            ErrorCode::kPeerRetired);
  a.know("b", b);
  const auto request = test::prepare(a, b, Operation::kWrite, {{0, 0, 4096}});
  ASSERT_TRUE(request.has_value()) << request.error().message();
  ASSERT_TRUE(a.engine->post(*request, {}).has_value());
  EXPECT_EQ(test::wait_terminal(*a.engine, *request).logical, Logical::kSuccess);
  ASSERT_TRUE(a.engine->confirm_peer_fenced(a.engine->self_peer().value()).has_value());
  const Handle self = a.engine->self_peer().value();
  const Handle range = a.engine->local_range(a.registration).value();
  const Descriptor from{a.address(), 1024, a.registration};
  const Descriptor to{a.address(2048), 1024, range};
  EXPECT_TRUE(a.engine->prepare({Operation::kWrite, self, {&from, 1}, {&to, 1}}).has_value());
}

TEST(EnginePeers, MayNotifyAfterARestartThatFollowedTheirFencing) {
  Node a("a", 4096);
  auto b = std::make_unique<Node>("b", 4096);
  a.know("b", *b);
  b.reset();
  ASSERT_TRUE(a.engine->confirm_peer_fenced(a.peer).has_value());
  b = std::make_unique<Node>("b", 4096);
  b->know("a", a);
  const std::vector<std::uint8_t> message{7};
  ASSERT_TRUE(b->engine->send_notification(b->peer, message).has_value());
  EXPECT_TRUE(eventually([&] { return a.engine->receive_notification().has_value(); },
                         std::chrono::seconds(5)));
}

TEST(ExecutionOfAPeer, IsNotCanceledByThePeer) {
  using transfer::testing::FakeTransport;
  transfer::testing::World world;
  const auto execution = world.make({.extents = {50}});
  transfer::Slice* const slice = world.transport.hand_out(*execution);
  FakeTransport::complete_with(*slice, {ErrorCode::kCanceled, 0, 0, RemoteEffect::kNone, false});
  world.transport.retire_now(*slice);
  EXPECT_EQ(execution->outcome().logical, Logical::kFailed);
  EXPECT_EQ(execution->outcome().code, ErrorCode::kProtocolViolation);
}

}  // namespace
}  // namespace orbite
