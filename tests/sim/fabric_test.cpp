// SPDX-License-Identifier: Apache-2.0
// What the simulated network does, fault by fault: it must be what TCP does.
#include <cerrno>

#include "pair.hpp"

namespace orbite::test {
namespace {

using Kind = platform::IoResult::Kind;

TEST(SimFabric, BytesComeInOrderAndWhole) {
  Pair pair;
  pair.open();
  std::string text;
  for (int i = 0; i < 5000; ++i) {
    text += static_cast<char>('a' + i % 26);
  }
  ASSERT_EQ(pair.send(0, pair.client, text).bytes, text.size());
  pair.run();
  EXPECT_EQ(pair.receive(1, pair.server).text, text);
  EXPECT_EQ(pair.receive(1, pair.server).result.kind, Kind::kWouldBlock);
  EXPECT_EQ(pair.sent, text.size());
  EXPECT_EQ(pair.received, text.size());
}

TEST(SimFabric, NothingArrivesBeforeItsTime) {
  Pair pair;
  pair.open();
  (void)pair.send(0, pair.client, "early");
  EXPECT_EQ(pair.receive(1, pair.server).result.kind, Kind::kWouldBlock);
  pair.fabric.link(0, 1).latency_min_ns = pair.fabric.link(0, 1).latency_max_ns = base::kSecond;
  (void)pair.send(1, pair.server, "quick");
  pair.run();
  EXPECT_EQ(pair.receive(0, pair.client).text, "quick");
}

TEST(SimFabric, ShortCallsMoveAtLeastOneByte) {
  Pair pair;
  pair.open();
  // The first kilobyte goes whole.
  const std::string first(1024, 'x');
  pair.fabric.limits.call_bytes_max = 1;
  EXPECT_EQ(pair.send(0, pair.client, first).bytes, first.size());
  EXPECT_EQ(pair.send(0, pair.client, "abc").bytes, 1U);
  pair.run();
  EXPECT_EQ(pair.receive(1, pair.server).text, "x");
}

TEST(SimFabric, FullBuffersStopTheSender) {
  Pair pair;
  pair.open();
  const std::string much(1 << 20, 'y');
  std::size_t taken = 0;
  for (int i = 0; i < 100; ++i) {
    taken += pair.send(0, pair.client, much).bytes;
    pair.run();
  }
  EXPECT_EQ(pair.send(0, pair.client, much).kind, Kind::kWouldBlock);
  EXPECT_EQ(taken, pair.fabric.limits.send_buffer_bytes + pair.fabric.limits.receive_buffer_bytes);
  // Room at the receiver becomes room at the sender.
  std::size_t got = 0;
  while (got < taken) {
    const std::size_t step = pair.receive(1, pair.server).result.bytes;
    ASSERT_GT(step, 0U);
    got += step;
    pair.run();
  }
  EXPECT_EQ(pair.send(0, pair.client, "z").kind, Kind::kBytes);
}

TEST(SimFabric, AClogHoldsBytesBackUntilItEnds) {
  Pair pair;
  pair.open();
  pair.fabric.link(0, 1).clogged = true;
  (void)pair.send(0, pair.client, "stuck");
  pair.run(base::kSecond);
  EXPECT_EQ(pair.receive(1, pair.server).result.kind, Kind::kWouldBlock);
  pair.fabric.link(0, 1).clogged = false;
  pair.fabric.link_changed(0, 1);
  pair.run(base::kSecond);
  EXPECT_EQ(pair.receive(1, pair.server).text, "stuck");
}

TEST(SimFabric, ACutOneWayLeavesTheOtherWay) {
  Pair pair;
  pair.open();
  pair.fabric.link(0, 1).cut = true;
  (void)pair.send(0, pair.client, "lost?");
  (void)pair.send(1, pair.server, "through");
  pair.run(base::kSecond);
  EXPECT_EQ(pair.receive(1, pair.server).result.kind, Kind::kWouldBlock);
  EXPECT_EQ(pair.receive(0, pair.client).text, "through");
  pair.fabric.link(0, 1).cut = false;
  pair.fabric.link_changed(0, 1);
  pair.run(base::kSecond);
  EXPECT_EQ(pair.receive(1, pair.server).text, "lost?");  // sent again, and once
  EXPECT_EQ(pair.receive(1, pair.server).result.kind, Kind::kWouldBlock);
}

TEST(SimFabric, BytesThatNobodyAcknowledgesFillTheSendBuffer) {
  Pair pair;
  pair.open();
  pair.fabric.link(1, 0).cut = true;
  const std::string much(pair.fabric.limits.send_buffer_bytes, 'w');
  EXPECT_EQ(pair.send(0, pair.client, much).bytes, much.size());
  pair.run(base::kSecond);
  EXPECT_EQ(pair.receive(1, pair.server, 1 << 20).text.size(), much.size());
  EXPECT_EQ(pair.send(0, pair.client, "w").kind, Kind::kWouldBlock);
  pair.fabric.link(1, 0).cut = false;
  pair.fabric.link_changed(0, 1);
  pair.run(base::kSecond);
  EXPECT_EQ(pair.send(0, pair.client, "w").kind, Kind::kBytes);
}

TEST(SimFabric, FinComesBehindTheBytesAndLeavesTheOtherHalfOpen) {
  Pair pair;
  pair.open();
  (void)pair.send(0, pair.client, "last words");
  pair.network(0).shutdown_send(pair.client);
  pair.run();
  EXPECT_EQ(pair.receive(1, pair.server).text, "last words");
  EXPECT_EQ(pair.receive(1, pair.server).result.kind, Kind::kEnded);
  EXPECT_EQ(pair.send(0, pair.client, "more").native_errno, EPIPE);
  (void)pair.send(1, pair.server, "answer");
  pair.run();
  EXPECT_EQ(pair.receive(0, pair.client).text, "answer");
}

TEST(SimFabric, CloseSendsFin) {
  Pair pair;
  pair.open();
  (void)pair.send(0, pair.client, "bye");
  pair.network(0).close(pair.client);
  pair.run();
  EXPECT_EQ(pair.receive(1, pair.server).text, "bye");
  EXPECT_EQ(pair.receive(1, pair.server).result.kind, Kind::kEnded);
}

TEST(SimFabric, CloseWithUnreadBytesResets) {
  Pair pair;
  pair.open();
  (void)pair.send(1, pair.server, "never read");
  pair.run();
  pair.network(0).close(pair.client);
  pair.run();
  const auto got = pair.receive(1, pair.server).result;
  // The FIN of shutdown() may have come before the reset.
  EXPECT_TRUE(got.kind == Kind::kEnded ||
              (got.kind == Kind::kFailed && got.native_errno == ECONNRESET));
  EXPECT_EQ(pair.send(1, pair.server, "x").kind, Kind::kFailed);
}

TEST(SimFabric, BytesForAClosedSocketAreAnsweredWithAReset) {
  Pair pair;
  pair.open();
  pair.network(1).close(pair.server);
  pair.run();
  EXPECT_EQ(pair.receive(0, pair.client).result.kind, Kind::kEnded);
  EXPECT_EQ(pair.send(0, pair.client, "anybody?").kind, Kind::kBytes);
  pair.run();
  EXPECT_EQ(pair.send(0, pair.client, "anybody?").native_errno, EPIPE);
}

TEST(SimFabric, AResetIsToldOnceAndBehindWhatHadArrived) {
  Pair pair;
  pair.open();
  (void)pair.send(0, pair.client, "arrived");
  pair.run();
  pair.fabric.reset(*pair.fabric.connections().front(), 1);
  EXPECT_EQ(pair.receive(1, pair.server).text, "arrived");
  EXPECT_EQ(pair.receive(1, pair.server).result.native_errno, ECONNRESET);
  // From then on the end of the stream is the kernel's own.
  EXPECT_EQ(pair.receive(1, pair.server).result.kind, Kind::kEnded);
  EXPECT_EQ(pair.send(1, pair.server, "x").native_errno, EPIPE);
  // The other end learns of it when it sends.
  EXPECT_EQ(pair.send(0, pair.client, "y").kind, Kind::kBytes);
  pair.run();
  EXPECT_EQ(pair.receive(0, pair.client).result.native_errno, ECONNRESET);
}

TEST(SimFabric, AKilledProcessLeavesFin) {
  Pair pair;
  pair.open();
  pair.network(1).kill();
  pair.run();
  EXPECT_EQ(pair.receive(0, pair.client).result.kind, Kind::kEnded);
}

TEST(SimFabric, AMachineWithoutPowerIsSilentAndItsNextLifeResets) {
  Pair pair;
  pair.open();
  (void)pair.send(1, pair.server, "before");
  pair.run();
  EXPECT_EQ(pair.receive(0, pair.client).text, "before");
  pair.network(1).vanish();
  pair.fabric.power_off(1);
  (void)pair.send(0, pair.client, "hello?");
  pair.run(base::kSecond);
  EXPECT_EQ(pair.receive(0, pair.client).result.kind, Kind::kWouldBlock);
  pair.fabric.power_on(1);
  pair.run(base::kSecond);
  EXPECT_EQ(pair.receive(0, pair.client).result.native_errno, ECONNRESET);
}

TEST(SimFabric, KeepaliveFindsADeadMachine) {
  Pair pair;
  pair.open();
  pair.network(0).configure(pair.client, {base::kSecond, ""});
  pair.network(1).vanish();
  pair.fabric.power_off(1);
  pair.run(base::kSecond / 2);
  EXPECT_EQ(pair.receive(0, pair.client).result.kind, Kind::kWouldBlock);
  pair.run(5 * base::kSecond);
  EXPECT_EQ(pair.receive(0, pair.client).result.native_errno, ETIMEDOUT);
}

TEST(SimFabric, AKernelThatGivesUpSaysSo) {
  Pair pair;
  pair.open();
  pair.fabric.give_up(*pair.fabric.connections().front(), 0);
  EXPECT_EQ(pair.receive(0, pair.client).result.native_errno, ETIMEDOUT);
}

TEST(SimFabric, NobodyListens) {
  Pair pair;
  const auto refused = pair.network(0).connect(sim::Fabric::address_of(1, 7001), nullptr).value();
  pair.run();
  EXPECT_EQ(pair.network(0).connect_result(refused).native_errno, ECONNREFUSED);
}

TEST(SimFabric, AConnectWaitsForACutToEnd) {
  Pair pair;
  pair.fabric.link(1, 0).cut = true;
  const auto waiting = pair.connect();
  pair.run(base::kSecond);
  EXPECT_EQ(pair.network(0).connect_result(waiting).kind, Kind::kWouldBlock);
  pair.fabric.link(1, 0).cut = false;
  pair.run(base::kSecond);
  EXPECT_EQ(pair.network(0).connect_result(waiting).kind, Kind::kBytes);
}

TEST(SimFabric, AHostMayIgnoreConnects) {
  Pair pair;
  pair.fabric.machine(1).ignores_connects = true;
  const auto waiting = pair.connect();
  pair.run(base::kSecond);
  EXPECT_EQ(pair.network(0).connect_result(waiting).kind, Kind::kWouldBlock);
}

TEST(SimFabric, AcceptFailsForWantOfADescriptor) {
  Pair pair;
  (void)pair.connect();
  pair.run();
  platform::SocketAddress peer;
  pair.fabric.machine(1).accept_failures = 1000;
  const auto failed = pair.network(1).accept(pair.listener, peer);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), ErrorCode::kSystem);
  pair.fabric.machine(1).accept_failures = 0;
  EXPECT_TRUE(pair.network(1).accept(pair.listener, peer));
  EXPECT_EQ(pair.network(1).accept(pair.listener, peer).error().code(), ErrorCode::kNotFound);
}

TEST(SimFabric, WhoWaitsAtAListenerThatClosesIsReset) {
  Pair pair;
  const auto waiting = pair.connect();
  pair.run();
  EXPECT_EQ(pair.network(0).connect_result(waiting).kind, Kind::kBytes);
  pair.network(1).close(pair.listener);
  pair.run();
  EXPECT_EQ(pair.receive(0, waiting).result.native_errno, ECONNRESET);
}

TEST(SimFabric, APortIsTakenOnce) {
  Pair pair;
  const auto address = platform::SocketAddress::any(6, Pair::kPort);
  EXPECT_EQ(pair.network(1).listen(address).error().code(), ErrorCode::kAddressInUse);
  pair.network(1).close(pair.listener);
  EXPECT_TRUE(pair.network(1).listen(address));
  pair.fabric.machine(1).ports_taken.push_back(7005);
  EXPECT_FALSE(pair.network(1).listen(platform::SocketAddress::any(6, 7005)));
}

TEST(SimFabric, PollersAreLevelTriggered) {
  Pair pair;
  pair.open();
  auto& network = pair.network(1);
  const auto poller = network.make_poller().value();
  ASSERT_TRUE(network.poller_add(poller, pair.server, platform::kPollIn, 77));
  std::array<platform::PollEvent, 4> events;
  EXPECT_EQ(network.poller_wait(poller, events, 0), 0U);
  const std::uint64_t before = pair.ready[1];
  (void)pair.send(0, pair.client, "two");
  pair.run();
  EXPECT_GT(pair.ready[1], before);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(network.poller_wait(poller, events, 0), 1U);
    EXPECT_EQ(events[0].token, 77U);
    EXPECT_EQ(events[0].events, platform::kPollIn);
  }
  network.poller_modify(poller, pair.server, 0, 77);
  EXPECT_FALSE(network.any_ready());
  // Errors are told whatever was asked for.
  pair.fabric.reset(*pair.fabric.connections().front(), 1);
  ASSERT_EQ(network.poller_wait(poller, events, 0), 1U);
  EXPECT_NE(events[0].events & platform::kPollError, 0U);
}

TEST(SimFabric, WakeupsStayUntilTheyAreCleared) {
  Pair pair;
  auto& network = pair.network(0);
  const auto poller = network.make_poller().value();
  const auto wakeup = network.make_wakeup().value();
  ASSERT_TRUE(network.poller_add(poller, wakeup, platform::kPollIn, 0));
  std::array<platform::PollEvent, 4> events;
  network.signal(wakeup);
  EXPECT_EQ(network.poller_wait(poller, events, 0), 1U);
  EXPECT_EQ(network.poller_wait(poller, events, 0), 1U);
  network.clear(wakeup);
  EXPECT_EQ(network.poller_wait(poller, events, 0), 0U);
}

TEST(SimFabric, UseAfterCloseIsSeen) {
  Pair pair;
  pair.open();
  pair.network(0).close(pair.client);
  EXPECT_TRUE(pair.misuses.empty());
  (void)pair.receive(0, pair.client);
  pair.network(0).close(pair.client);
  EXPECT_EQ(pair.misuses, (std::vector<std::string>{"receive", "close"}));
}

}  // namespace
}  // namespace orbite::test
