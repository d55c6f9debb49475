// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <numeric>
#include <thread>
#include <vector>

#include "platform/network.hpp"
#include "platform/system.hpp"
#include "unit/platform/child_process.hpp"
#include "unit/platform/network_rig.hpp"

namespace orbite::platform {
namespace {

using testing::deny_system_call;
using testing::in_child;

/// What one look at the poller shows, by token.
std::vector<PollEvent> look(SystemNetwork& network, Socket poller,
                            base::Nanoseconds timeout_ns = 0) {
  std::vector<PollEvent> events(16);
  events.resize(network.poller_wait(poller, events, timeout_ns));
  std::sort(events.begin(), events.end(),
            [](const PollEvent& a, const PollEvent& b) { return a.token < b.token; });
  return events;
}

TEST(NetworkPoller, IsLevelTriggeredAndFollowsModify) {
  Connection connection(4);
  SystemNetwork& network = connection.network;
  const Socket poller = *network.make_poller();
  ASSERT_TRUE(network.poller_add(poller, connection.client, kPollOut, 10));
  ASSERT_TRUE(network.poller_add(poller, connection.server, kPollIn, ~std::uint64_t{0}));
  const auto idle = look(network, poller);
  ASSERT_EQ(idle.size(), 1U);
  EXPECT_EQ(idle[0].token, 10U);
  EXPECT_EQ(idle[0].events, kPollOut);

  std::uint8_t byte = 1;
  const iovec one = buffer({&byte, 1});
  ASSERT_EQ(network.send(connection.client, {&one, 1}).bytes, 1U);
  network.poller_modify(poller, connection.client, 0, 10);
  for (int i = 0; i < 3; ++i) {
    const auto readable = look(network, poller, kLong);
    ASSERT_EQ(readable.size(), 1U);
    EXPECT_EQ(readable[0].token, ~std::uint64_t{0});
    EXPECT_EQ(readable[0].events, kPollIn);
  }
  network.poller_modify(poller, connection.server, 0, 11);
  EXPECT_TRUE(look(network, poller).empty());
  network.poller_modify(poller, connection.server, kPollIn | kPollOut, 12);
  const auto both = look(network, poller);
  ASSERT_EQ(both.size(), 1U);
  EXPECT_EQ(both[0].token, 12U);
  EXPECT_EQ(both[0].events, kPollIn | kPollOut);
  ASSERT_EQ(network.receive(connection.server, {&one, 1}).bytes, 1U);
  network.poller_remove(poller, connection.server);
  network.poller_remove(poller, connection.server);
  EXPECT_TRUE(look(network, poller).empty());
  network.close(poller);
}

TEST(NetworkPoller, ReportsAResetToASocketThatAskedForNothing) {
  Connection connection(4);
  SystemNetwork& network = connection.network;
  const Socket poller = *network.make_poller();
  ASSERT_TRUE(network.poller_add(poller, connection.client, 0, 3));
  std::uint8_t byte = 1;
  const iovec one = buffer({&byte, 1});
  ASSERT_EQ(network.send(connection.client, {&one, 1}).bytes, 1U);
  ASSERT_TRUE(wait_for(network, connection.server, kPollIn));
  EXPECT_TRUE(look(network, poller).empty());
  connection.close(connection.server);
  const auto events = look(network, poller, kLong);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].token, 3U);
  EXPECT_EQ(events[0].events, kPollError);
  network.close(poller);
}

TEST(NetworkPoller, AnAnnouncedEndIsReadableAndNoError) {
  Connection connection(4);
  SystemNetwork& network = connection.network;
  const Socket poller = *network.make_poller();
  ASSERT_TRUE(network.poller_add(poller, connection.server, kPollIn, 4));
  network.shutdown_send(connection.client);
  const auto events = look(network, poller, kLong);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].events, kPollIn);
  network.close(poller);
}

TEST(NetworkPoller, WritesNoMoreEventsThanThereIsRoomFor) {
  SystemNetwork network;
  const Socket poller = *network.make_poller();
  std::vector<Socket> wakeups;
  for (std::uint64_t i = 0; i < 100; ++i) {
    wakeups.push_back(*network.make_wakeup());
    network.signal(wakeups.back());
    ASSERT_TRUE(network.poller_add(poller, wakeups.back(), kPollIn, i));
  }
  PollEvent events[3] = {};
  events[2].token = 1234;
  EXPECT_EQ(network.poller_wait(poller, {events, 0}, kLong), 0U);
  EXPECT_EQ(network.poller_wait(poller, {events, 2}, kLong), 2U);
  EXPECT_EQ(events[2].token, 1234U);
  // What one look leaves out, the next ones show.
  std::vector<int> seen(100);
  std::vector<PollEvent> room(1000);
  for (int i = 0; i < 10; ++i) {
    const std::size_t count = network.poller_wait(poller, room, 0);
    for (std::size_t k = 0; k < count; ++k) {
      seen.at(room[k].token) = 1;
    }
  }
  EXPECT_EQ(std::accumulate(seen.begin(), seen.end(), 0), 100);
  for (const Socket socket : wakeups) {
    network.close(socket);
  }
  network.close(poller);
}

TEST(NetworkPoller, AddAnswersWhatCannotBePolled) {
  SystemNetwork network;
  const Socket poller = *network.make_poller();
  const Socket wakeup = *network.make_wakeup();
  ASSERT_TRUE(network.poller_add(poller, wakeup, kPollIn, 1));
  const auto twice = network.poller_add(poller, wakeup, kPollIn, 1);
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().native_errno(), EEXIST);
  const auto none = network.poller_add(poller, kNoSocket, kPollIn, 1);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), ErrorCode::kSystem);
  network.close(wakeup);
  network.close(poller);
}

/// How long a poller with nothing to report waits.
base::Nanoseconds waited_ns(base::Nanoseconds timeout_ns) {
  SystemNetwork network;
  const SystemClock clock;
  const Socket poller = *network.make_poller();
  PollEvent event;
  const auto before = clock.now_ns();
  const std::size_t count = network.poller_wait(poller, {&event, 1}, timeout_ns);
  const auto waited = clock.now_ns() - before;
  network.close(poller);
  return count == 0 ? waited : 0;
}

TEST(NetworkPoller, WaitsAtLeastTheTimeGiven) {
  for (const base::Nanoseconds timeout_ns : {base::Nanoseconds{0}, 200 * base::kMicrosecond,
                                             1'500 * base::kMicrosecond, 5 * base::kMillisecond}) {
    const auto waited = waited_ns(timeout_ns);
    EXPECT_GE(waited, timeout_ns);
    EXPECT_LT(waited, timeout_ns + 5 * base::kSecond);
  }
}

TEST(NetworkPoller, WaitsAtLeastTheTimeGivenOnAnOldKernel) {
  for (const int reason : {ENOSYS, EPERM}) {
    EXPECT_EQ(in_child([&]() -> std::string {
                if (auto failure = deny_system_call(SYS_epoll_pwait2, reason); !failure.empty()) {
                  return failure;
                }
                for (const base::Nanoseconds timeout_ns :
                     {base::Nanoseconds{0}, base::Nanoseconds{1}, 1'500 * base::kMicrosecond}) {
                  // A timeout that is not a whole number of milliseconds counts as the next one.
                  const auto least = (timeout_ns + 999'999) / base::kMillisecond;
                  if (waited_ns(timeout_ns) < least * base::kMillisecond) {
                    return "woke early from " + std::to_string(timeout_ns) + " ns";
                  }
                }
                SystemNetwork network;
                const Socket poller = *network.make_poller();
                const Socket wakeup = *network.make_wakeup();
                network.signal(wakeup);
                const bool added = network.poller_add(poller, wakeup, kPollIn, 9).has_value();
                PollEvent event;
                // The longest time that can be asked for is longer than the old call can wait.
                const auto count = network.poller_wait(poller, {&event, 1}, ~std::uint64_t{0});
                return added && count == 1 && event.token == 9 ? "" : "no event";
              }),
              "");
  }
}

TEST(NetworkWakeup, WakesAPollerFromAnotherThread) {
  SystemNetwork network;
  const Socket poller = *network.make_poller();
  const Socket wakeup = *network.make_wakeup();
  ASSERT_TRUE(network.poller_add(poller, wakeup, kPollIn, 77));
  std::atomic<bool> woken{false};
  std::thread waiter([&] {
    PollEvent event;
    const std::size_t count = network.poller_wait(poller, {&event, 1}, ~base::Nanoseconds{0});
    woken.store(count == 1 && event.token == 77 && event.events == kPollIn,
                std::memory_order_relaxed);
  });
  network.signal(wakeup);
  waiter.join();
  EXPECT_TRUE(woken.load(std::memory_order_relaxed));
  network.close(wakeup);
  network.close(poller);
}

TEST(NetworkWakeup, ManySignalsAreOneAndClearTakesThemAll) {
  SystemNetwork network;
  const Socket poller = *network.make_poller();
  const Socket wakeup = *network.make_wakeup();
  ASSERT_TRUE(network.poller_add(poller, wakeup, kPollIn, 1));
  network.clear(wakeup);
  EXPECT_TRUE(look(network, poller).empty());
  for (int i = 0; i < 3; ++i) {
    network.signal(wakeup);
  }
  EXPECT_EQ(look(network, poller).size(), 1U);
  EXPECT_EQ(look(network, poller).size(), 1U);
  network.clear(wakeup);
  EXPECT_TRUE(look(network, poller).empty());
  network.close(wakeup);
  network.close(poller);
}

}  // namespace
}  // namespace orbite::platform
