// SPDX-License-Identifier: Apache-2.0
#include "transport/local/local_transport.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "platform/system.hpp"
#include "support/caller.hpp"
#include "support/flows.hpp"

namespace orbite::transport::local {
namespace {

using test::Block;
using test::Buffer;
using test::Caller;

constexpr std::uint64_t kSliceBytes = 4'096;
constexpr std::size_t kBytes = 64 * kSliceBytes;

/// One transfer to ourselves, by callers and by workers that always find an idle processor.
class LocalCopies : public ::testing::Test {
 protected:
  LocalCopies() {
    caller_.planner.set_transport(transport_.kind(), &transport_);
    test::set_flow(*peer_, transport_.open(*peer_).value());
    far_range_ = caller_.import_own(far_.handle);
    near_.fill_as_source(1);
    far_.fill_as_target(2);
  }

  std::shared_ptr<transfer::Execution> write(std::vector<Block> blocks) {
    const auto prepared = caller_.prepare(transport_, peer_, near_, far_, far_range_,
                                          {Operation::kWrite, std::move(blocks)});
    return caller_.launch(transport_, prepared);
  }
  void drive(const transfer::Execution& execution, std::uint64_t bytes_max) {
    transfer::WorkLimit limit{bytes_max, UINT32_MAX};
    transport_.drive(Caller::flow_of(execution), limit, transfer::Driver::kCaller);
  }

  platform::SystemClock clock_;
  base::ThreadWaiter waiter_;
  std::atomic<int> looks_{0};
  copy::Workers workers_{3, copy::Workers::System{clock_, waiter_, platform::start_thread,
                                                  [this] {
                                                    looks_.fetch_add(1, std::memory_order_relaxed);
                                                    return 3U;
                                                  },
                                                  [this] { return clock_.now_ns(); }}};
  base::SeededRandom random_{1};
  memory::Registry registry_{{.registrations_max = 16}, random_};
  Buffer near_{registry_, kBytes};
  Buffer far_{registry_, kBytes};
  Caller caller_{registry_};
  LocalTransport transport_{caller_.planner,
                            clock_,
                            kSliceBytes,
                            [](std::span<const std::uint8_t>) { return Result<void>(); },
                            {},
                            {copy::Copier({0, 64}), &workers_, 4 * kSliceBytes, {}}};
  std::shared_ptr<peer::Peer> peer_ =
      std::make_shared<peer::Peer>("self", wire::ConnectionBlob{}, true);
  Handle far_range_;
};

TEST_F(LocalCopies, WorkersFinishWhatTheirCallerOnlyBegan) {
  const auto execution = write({{0, 0, kBytes}});
  drive(*execution, 1);
  while (!execution->terminal()) {
    std::this_thread::yield();
  }
  EXPECT_EQ(far_.bytes, near_.bytes);
  // They are still on their way out of the last slice.
  while (workers_.counts().active > 0) {
    std::this_thread::yield();
  }
  EXPECT_GE(workers_.counts().pieces, kBytes / kSliceBytes - 1);
}

TEST_F(LocalCopies, CallerAndWorkersTakeEachSliceOnce) {
  for (int round = 0; round < 50; ++round) {
    near_.fill_as_source(static_cast<std::uint64_t>(round) + 3);
    const auto execution = write({{0, 0, kBytes}});
    while (!execution->terminal()) {
      drive(*execution, kSliceBytes);
    }
    ASSERT_EQ(far_.bytes, near_.bytes);
  }
}

TEST_F(LocalCopies, NobodyIsAskedForLittle) {
  const auto execution = write({{0, 0, 3 * kSliceBytes}});
  while (!execution->terminal()) {
    drive(*execution, kSliceBytes);
  }
  EXPECT_EQ(looks_.load(), 0);
}

TEST_F(LocalCopies, WhoWaitsForSmallWorkCopiesNoBulk) {
  const auto bulk = write({{0, 0, 3 * kSliceBytes}});
  transfer::WorkLimit limit{kBytes, 100};
  transport_.drive(Caller::flow_of(*bulk), limit, transfer::Driver::kLatencyCaller);
  EXPECT_EQ(bulk->outcome().logical, Logical::kNone);
  EXPECT_TRUE(transport_.busy());
  transport_.drive(Caller::flow_of(*bulk), limit, transfer::Driver::kWorker);
  EXPECT_TRUE(bulk->terminal());
}

/// Each wake takes a processor from those who copy.
TEST_F(LocalCopies, TheWorkerIsWokenOnceAndThenLooksByItself) {
  const auto execution = write({{0, 0, 3 * kSliceBytes}});
  EXPECT_TRUE(transport_.waits_unwatched());
  drive(*execution, 1);
  const base::Nanoseconds now_ns = clock_.now_ns();
  for (int look = 0; look < 10; ++look) {
    const base::Nanoseconds next_ns = transport_.on_tick(now_ns);
    EXPECT_GE(next_ns, transfer::CallerPatience::kSilence);
    EXPECT_LE(next_ns, transfer::CallerPatience::kWatchMax);
    EXPECT_FALSE(transport_.waits_unwatched());
  }
  EXPECT_EQ(execution->outcome().logical, Logical::kNone);
  // The caller has gone: the worker does the rest, and sleeps until it is woken.
  while (!execution->terminal()) {
    transport_.on_tick(clock_.now_ns());
  }
  EXPECT_EQ(transport_.on_tick(clock_.now_ns()), base::kSecond);
  const auto next = write({{0, 0, kSliceBytes}});
  EXPECT_TRUE(transport_.waits_unwatched());
  drive(*next, kSliceBytes);
}

TEST_F(LocalCopies, BlocksOfAnyLengthAtAnyPlaceArriveAndNothingElseChanges) {
  base::SeededRandom random(7);
  for (int round = 0; round < 20; ++round) {
    near_.fill_as_source(2 * static_cast<std::uint64_t>(round) + 100);
    far_.fill_as_target(2 * static_cast<std::uint64_t>(round) + 101);
    std::vector<std::uint8_t> expected = far_.bytes;
    std::vector<Block> blocks;
    std::size_t at = random.next_u64() % 100;
    while (at + 5'000 < kBytes) {
      const Block block{random.next_u64() % (kBytes - 5'000), at, 1 + random.next_u64() % 4'900};
      std::copy_n(near_.bytes.begin() + static_cast<std::ptrdiff_t>(block.local), block.length,
                  expected.begin() + static_cast<std::ptrdiff_t>(block.remote));
      blocks.push_back(block);
      at += block.length + random.next_u64() % 200;
    }
    const auto execution = write(std::move(blocks));
    while (!execution->terminal()) {
      drive(*execution, 3 * kSliceBytes);
    }
    ASSERT_EQ(far_.bytes, expected);
  }
}

}  // namespace
}  // namespace orbite::transport::local
