// SPDX-License-Identifier: Apache-2.0
// Several threads on one engine without NIXL's locks (surprise 0.14, vLLM and SGLang).
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "nixl/direct/plugin.hpp"

namespace orbite::test {
namespace {

TEST(Threads, ThreeThreadsOnOneEngineWithoutLocks) {
  Node node("shared");
  Node target("target");
  Node newcomer("newcomer");
  Region source(node, 1 << 16, 1);
  Region destination(target, 1 << 16, 2);
  Region late(newcomer, 4096, 3);
  node.meet(target);
  nixlBackendMD* const remote = destination.at(node);
  std::atomic<int> delivered{0};

  // Posts and polls.
  std::thread transfers([&] {
    for (int i = 0; i < 200; ++i) {
      Request request = prepared(node, i % 2 == 0 ? NIXL_WRITE : NIXL_READ,
                                 list_of({source.part(0, 32768, source.local())}),
                                 list_of({destination.part(0, 32768, remote)}), "target");
      EXPECT_EQ(run(node, request), NIXL_SUCCESS);
      EXPECT_EQ(node->releaseReqH(request.handle), NIXL_SUCCESS);
    }
  });
  // A handshake thread: adds and removes a peer.
  std::thread handshakes([&] {
    for (int i = 0; i < 100; ++i) {
      node.meet(newcomer);
      nixlBackendMD* const metadata = late.at(node);
      EXPECT_EQ(node->unloadMD(metadata), NIXL_SUCCESS);
      EXPECT_EQ(node->disconnect("newcomer"), NIXL_SUCCESS);
    }
  });
  // Registers, notifies and drains.
  std::thread notifications([&] {
    for (int i = 0; i < 100; ++i) {
      Region scratch(node, 4096, 4);
      EXPECT_FALSE(scratch.public_blob().empty());
      EXPECT_EQ(node->genNotif("shared", std::to_string(i)), NIXL_SUCCESS);
      delivered += static_cast<int>(receive(node, 1).size());
    }
  });
  transfers.join();
  handshakes.join();
  notifications.join();
  EXPECT_EQ(delivered.load(), 100);
  EXPECT_TRUE(source.guards_intact() && destination.guards_intact());
}

// A garbage collector releases handles from its own thread, after the peer may be gone.
TEST(Threads, HandlesAreReleasedLateFromAnotherThread) {
  Node node("owner");
  auto peer = std::make_unique<Node>("peer");
  Region source(node, 1 << 16, 1);
  auto destination = std::make_unique<Region>(*peer, 1 << 16, 2);
  node.meet(*peer);
  nixlBackendMD* const remote = destination->at(node);
  std::vector<Request> finished;
  for (size_t i = 0; i < 64; ++i) {
    finished.push_back(prepared(node, NIXL_WRITE, list_of({source.part(i, 512, source.local())}),
                                list_of({destination->part(1024 * i, 512, remote)}), "peer"));
    EXPECT_EQ(run(node, finished.back()), NIXL_SUCCESS);
  }
  EXPECT_EQ(node->unloadMD(remote), NIXL_SUCCESS);
  EXPECT_EQ(node->disconnect("peer"), NIXL_SUCCESS);
  peer->destroy();
  std::thread collector([&] {
    for (const Request& request : finished) {
      EXPECT_EQ(node->releaseReqH(request.handle), NIXL_SUCCESS);
    }
  });
  collector.join();
}

// In its RW mode NIXL lets two threads into one handle.
TEST(Threads, TwoThreadsOnOneHandle) {
  Node node("node");
  Region region(node, 1 << 16, 1);
  for (int i = 0; i < 50; ++i) {
    Request request = prepared(node, NIXL_WRITE, list_of({region.part(0, 16384, region.local())}),
                               list_of({region.part(32768, 16384, region.self())}), "node");
    ASSERT_GE(post(node, request), 0);
    std::atomic<int> released{0};
    const auto poll_and_release = [&] {
      nixl_status_t status = finish(node, request);
      EXPECT_TRUE(status == NIXL_SUCCESS || status == NIXL_ERR_INVALID_PARAM) << status;
      released += node->releaseReqH(request.handle) == NIXL_SUCCESS ? 1 : 0;
    };
    std::thread first(poll_and_release);
    std::thread second(poll_and_release);
    first.join();
    second.join();
    EXPECT_EQ(released.load(), 1);
  }
}

TEST(Threads, SeveralEnginesRegisterOneRange) {
  std::vector<uint8_t> memory(1 << 20);
  const nixlBlobDesc descriptor(reinterpret_cast<uintptr_t>(memory.data()), memory.size(), 0);
  std::vector<std::thread> threads;
  for (int engine = 0; engine < 4; ++engine) {
    threads.emplace_back([&, engine] {
      Node node("engine-" + std::to_string(engine));
      nixlBackendMD* registration = nullptr;
      nixlBackendMD* self = nullptr;
      ASSERT_EQ(node->registerMem(descriptor, DRAM_SEG, registration), NIXL_SUCCESS);
      ASSERT_EQ(node->loadLocalMD(registration, self), NIXL_SUCCESS);
      const size_t quarter = memory.size() / 4;
      const uintptr_t base = descriptor.addr + static_cast<size_t>(engine) * quarter;
      const MetaList local = list_of({{base, quarter / 2, 0, registration}});
      const MetaList remote = list_of({{base + quarter / 2, quarter / 2, 0, self}});
      Request request = prepared(node, NIXL_WRITE, local, remote, node.name());
      EXPECT_EQ(run(node, request), NIXL_SUCCESS);
      EXPECT_EQ(node->releaseReqH(request.handle), NIXL_SUCCESS);
      EXPECT_EQ(node->deregisterMem(registration), NIXL_SUCCESS);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace orbite::test
