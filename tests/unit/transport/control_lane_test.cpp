// SPDX-License-Identifier: Apache-2.0
// How the proof for a lost lane is sought: when the control lane connects and asks, and how long it
// rests after it failed. Peers and clock are the test's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "support/caller.hpp"
#include "support/flows.hpp"
#include "support/memory_network.hpp"
#include "support/tcp_node.hpp"
#include "transport/tcp/lane.hpp"

namespace orbite::test {
namespace {

using base::kMillisecond;
using base::kSecond;
using base::Nanoseconds;
using platform::Socket;

constexpr std::uint64_t kBytes = 16;
/// The worker looks this often while something is unproved.
constexpr Nanoseconds kLook = 10 * kMillisecond;

/// How a connection ends that somebody took who is not there any more.
enum class End : std::uint8_t { kReset, kFin };
void PrintTo(End end, std::ostream* out) { *out << (end == End::kReset ? "Reset" : "Fin"); }

class ControlLane : public ::testing::Test {
 protected:
  using ExecutionPtr = std::shared_ptr<transfer::Execution>;

  ControlLane() {
    near_.random.fill(epoch_.bytes);
    near_.random.fill(secret_);
    peer_ = near_.import("far", near_.make_blob(epoch_, secret_, 77));
    range_ = near_.caller.import(peer_, far_.blob(epoch_));
  }
  ~ControlLane() override {
    near_.transport->confirm_fenced(test::only_flow(*peer_));
    near_.turn();
  }

  void pass(Nanoseconds span_ns) {
    clock_.advance(span_ns);
    near_.turn();
  }
  ExecutionPtr post_write() {
    const auto prepared =
        near_.caller.prepare(*near_.transport, peer_, near_buffer_, far_, range_,
                             {Operation::kWrite, {{0, 0, kBytes}}, policy::QosClass::kLatency});
    auto execution = near_.caller.launch(*near_.transport, prepared);
    near_.turn();
    return execution;
  }

  template <typename Struct>
  Struct take(Socket socket) {
    const std::vector<std::uint8_t> sent = network_.take_sent(socket);
    Struct value{};
    EXPECT_GE(sent.size(), sizeof(value));
    std::memcpy(&value, sent.data(), std::min(sent.size(), sizeof(value)));
    return value;
  }
  template <typename Struct>
  void give(Socket socket, const Struct& value) {
    network_.give(socket, {reinterpret_cast<const std::uint8_t*>(&value), sizeof(value)});
    near_.turn();
  }

  /// The peer takes the connection that waits and proves itself.
  Socket serve() {
    const Socket socket = network_.answer();
    near_.turn();
    const auto hello = take<wire::ClientHello>(socket);
    wire::ServerHello server;
    server.server_epoch = epoch_;
    wire::sign_server(secret_, hello, server);
    give(socket, server);
    return socket;
  }
  /// The drains that were asked for since the last look.
  std::vector<wire::RequestHeader> take_drains(Socket control) {
    const std::vector<std::uint8_t> sent = network_.take_sent(control);
    std::vector<wire::RequestHeader> drains;
    constexpr std::size_t kDrainBytes = sizeof(wire::RequestHeader) + wire::kDrainTrailerBytes;
    static_assert(sizeof(wire::ClientProof) == kDrainBytes);
    for (std::size_t at = 0; at < sent.size(); at += sizeof(wire::ClientProof)) {
      wire::RequestHeader header;
      std::memcpy(&header, sent.data() + at, sizeof(header));
      if (header.magic == wire::kRequestMagic) {
        drains.push_back(header);
      }
    }
    return drains;
  }
  void answer(Socket control, const wire::RequestHeader& drain, ErrorCode code) {
    wire::ResponseHeader response;
    response.type = static_cast<std::uint8_t>(wire::ResponseType::kDrained);
    response.frame_id = drain.frame_id;
    response.status = static_cast<std::uint16_t>(code);
    give(control, response);
  }
  void acknowledge_write(Socket lane, std::uint64_t frame_id) {
    wire::ResponseHeader response;
    response.type = static_cast<std::uint8_t>(wire::ResponseType::kWriteAck);
    response.effect = static_cast<std::uint8_t>(wire::FrameEffect::kComplete);
    response.frame_id = frame_id;
    response.prefix_bytes = kBytes;
    give(lane, response);
  }
  /// A write is under way over a lane of the peer when the peer's kernel resets that lane.
  ExecutionPtr lose_a_write() {
    auto execution = post_write();
    const Socket lane = serve();
    near_.turn();
    network_.reset(lane);
    near_.turn();
    EXPECT_NE(execution->outcome().logical, Logical::kNone);
    EXPECT_FALSE(execution->terminal());
    return execution;
  }

  /// Nobody is at the addresses that are tried now.
  void refuse_all() {
    while (!network_.asking().empty()) {
      network_.reset(network_.answer());
      near_.turn();
    }
  }
  /// The first address has a listener that still takes the connection, and is gone then.
  void take_and_end(End end) {
    const Socket taken = network_.answer();
    near_.turn();
    if (end == End::kReset) {
      network_.reset(taken);
    } else {
      network_.finish(taken);
    }
    near_.turn();
    refuse_all();
  }

  /// The times of the attempts in that span, each of which ends as `end` says.
  template <typename Ending>
  std::vector<Nanoseconds> attempts(Nanoseconds span_ns, Ending end) {
    std::vector<Nanoseconds> found;
    const Nanoseconds stop_ns = clock_.now_ns() + span_ns;
    while (clock_.now_ns() < stop_ns) {
      if (!network_.asking().empty()) {
        found.push_back(clock_.now_ns());
        end();
      }
      pass(kMillisecond);
    }
    return found;
  }
  static void expect_growing_pauses(const std::vector<Nanoseconds>& times) {
    ASSERT_GE(times.size(), 8U);
    EXPECT_LE(times[1] - times[0], kLook);
    for (std::size_t i = 2; i < times.size(); ++i) {
      const Nanoseconds before = times[i - 1] - times[i - 2];
      EXPECT_GE(times[i] - times[i - 1] + kMillisecond, before) << "attempt " << i;
      EXPECT_LE(times[i] - times[i - 1], 2 * before + kMillisecond) << "attempt " << i;
    }
    const Nanoseconds last = times.back() - times[times.size() - 2];
    EXPECT_GE(last, transport::tcp::kControlRestMax);
    EXPECT_LE(last, transport::tcp::kControlRestMax + kMillisecond);
  }

  /// It is on another machine, and advertises these.
  void move_far_to(std::vector<wire::Address> addresses) {
    wire::ConnectionBlob blob = near_.make_blob(epoch_, secret_, 77);
    blob.loopback_reachable = false;
    blob.addresses = std::move(addresses);
    peer_ = near_.import("far", blob);
    range_ = near_.caller.import(peer_, far_.blob(epoch_));
  }

  MemoryNetwork network_;
  SharedClock clock_;
  TcpNode near_{{.name = "near", .network = &network_, .clock = &clock_}};
  base::SourceEpoch epoch_;
  wire::Secret secret_{};
  base::SeededRandom far_random_{5};
  memory::Registry far_registry_{{.registrations_max = 1}, far_random_};
  Buffer near_buffer_{near_.registry, kBytes};
  Buffer far_{far_registry_, kBytes};
  std::shared_ptr<peer::Peer> peer_;
  Handle range_;
};

TEST_F(ControlLane, ProvesAtOnceThatNobodyListensAnyMore) {
  const ExecutionPtr execution = lose_a_write();
  refuse_all();
  EXPECT_TRUE(execution->terminal());
}

// ---- Addresses

Error no_such_address() { return {ErrorCode::kPeerUnreachable, EADDRNOTAVAIL}; }

TEST_F(ControlLane, NeedsNoLoopbackAddressThatTheLaneDidNotUse) {
  network_.before_connect = [](const platform::SocketAddress& address) {
    return address.family() == 6 ? std::optional(no_such_address()) : std::nullopt;
  };
  const ExecutionPtr execution = lose_a_write();
  refuse_all();
  EXPECT_TRUE(execution->terminal());
}

TEST_F(ControlLane, TakesNoOtherLoopbackAddressForTheOneThatTheLaneUsed) {
  bool has_ipv4 = true;
  network_.before_connect = [&](const platform::SocketAddress& address) {
    return address.family() == 4 && !has_ipv4 ? std::optional(no_such_address()) : std::nullopt;
  };
  const ExecutionPtr execution = post_write();
  const Socket lane = serve();
  near_.turn();
  has_ipv4 = false;
  network_.reset(lane);
  const auto times = attempts(kSecond, [&] { refuse_all(); });
  EXPECT_GE(times.size(), 5U);
  EXPECT_FALSE(execution->terminal());
}

TEST_F(ControlLane, LooksAtEveryAddressOfAnotherMachine) {
  move_far_to({{4, {10, 0, 0, 1}}, {4, {10, 0, 0, 2}}});
  const ExecutionPtr execution = lose_a_write();
  network_.reset(network_.answer());
  near_.turn();
  ASSERT_FALSE(execution->terminal());
  network_.reset(network_.answer());
  near_.turn();
  EXPECT_TRUE(execution->terminal());
}

/// A loopback address that a peer advertises leads to it by a tunnel, whose end is not the peer's.
TEST_F(ControlLane, TakesATunnelForNoProofOfItsOwn) {
  move_far_to({{4, {127, 0, 0, 1}}, {4, {10, 0, 0, 2}}});
  network_.before_connect = [](const platform::SocketAddress& address) {
    return address.is_loopback() ? std::nullopt : std::optional(no_such_address());
  };
  const ExecutionPtr execution = lose_a_write();
  const auto times = attempts(kSecond, [&] { refuse_all(); });
  EXPECT_GE(times.size(), 5U);
  EXPECT_FALSE(execution->terminal());
}

TEST_F(ControlLane, BeginsWithTheFirstAddressAfterEachProof) {
  for (int i = 0; i < 2; ++i) {
    const ExecutionPtr execution = lose_a_write();
    network_.reset(network_.answer());
    near_.turn();
    EXPECT_TRUE(execution->terminal()) << "time " << i;
    EXPECT_TRUE(network_.asking().empty()) << "time " << i;
  }
}

// ---- The kernel of a killed peer resets the lanes first, and takes connections for a moment more.

class DyingListener : public ControlLane, public ::testing::WithParamInterface<End> {};

TEST_P(DyingListener, IsLookedForAgainSoon) {
  const ExecutionPtr execution = lose_a_write();
  const Nanoseconds begin_ns = clock_.now_ns();
  take_and_end(GetParam());
  ASSERT_FALSE(execution->terminal());
  while (!execution->terminal() && clock_.now_ns() < begin_ns + kSecond) {
    pass(kLook);
    refuse_all();
  }
  ASSERT_TRUE(execution->terminal());
  EXPECT_LE(clock_.now_ns() - begin_ns, 2 * kLook);
  EXPECT_EQ(execution->outcome().code, ErrorCode::kPeerDisconnected);
}

TEST_P(DyingListener, ThatDoesNotDieIsTriedLessAndLessOften) {
  const ExecutionPtr execution = lose_a_write();
  const auto times = attempts(20 * kSecond, [&] { take_and_end(GetParam()); });
  expect_growing_pauses(times);
  EXPECT_LE(times.size(), 31U);
  EXPECT_FALSE(execution->terminal());
}

INSTANTIATE_TEST_SUITE_P(Ends, DyingListener, ::testing::Values(End::kReset, End::kFin),
                         ::testing::PrintToStringParamName());

// ---- Peers that answer

TEST_F(ControlLane, APeerThatEndsEachControlLaneIsTriedLessAndLessOften) {
  const ExecutionPtr execution = lose_a_write();
  const auto times = attempts(20 * kSecond, [&] {
    network_.finish(serve());
    near_.turn();
  });
  expect_growing_pauses(times);
  EXPECT_FALSE(execution->terminal());
}

TEST_F(ControlLane, APeerThatPromisesNothingIsAskedLessAndLessOften) {
  const ExecutionPtr execution = lose_a_write();
  const Socket control = serve();
  near_.turn();
  std::vector<Nanoseconds> times;
  const Nanoseconds stop_ns = clock_.now_ns() + 20 * kSecond;
  while (clock_.now_ns() < stop_ns) {
    for (const wire::RequestHeader& drain : take_drains(control)) {
      times.push_back(clock_.now_ns());
      answer(control, drain, ErrorCode::kBudgetExhausted);
    }
    pass(kMillisecond);
  }
  expect_growing_pauses(times);
  EXPECT_FALSE(execution->terminal());
}

TEST_F(ControlLane, AnAnsweredDrainMakesTheNextRestShort) {
  const ExecutionPtr first = lose_a_write();
  attempts(20 * kSecond, [&] { take_and_end(End::kReset); });
  while (network_.asking().empty()) {
    pass(kLook);
  }
  const Socket control = serve();
  near_.turn();
  const std::vector<wire::RequestHeader> drains = take_drains(control);
  ASSERT_EQ(drains.size(), 1U);
  answer(control, drains[0], ErrorCode::kOk);
  ASSERT_TRUE(first->terminal());

  // The next trouble: the peer dies, and the control lane is lost with the others.
  const ExecutionPtr second = lose_a_write();
  const Nanoseconds begin_ns = clock_.now_ns();
  network_.reset(control);
  while (!second->terminal() && clock_.now_ns() < begin_ns + kSecond) {
    pass(kLook);
    refuse_all();
  }
  EXPECT_LE(clock_.now_ns() - begin_ns, 2 * kLook);
}

/// A peer that goes on after a silence answers what had reached it, and only then the drain, at
/// which it ends the connection: whatever was sent over it between the two would be lost for
/// nothing.
TEST_F(ControlLane, ALaneWhoseDrainWasAskedForCarriesNothingMore) {
  const ExecutionPtr silent = post_write();
  const Socket lane = serve();
  near_.turn();
  take<wire::ClientProof>(lane);
  while (silent->outcome().logical == Logical::kNone) {
    pass(kSecond);
  }
  ASSERT_EQ(silent->outcome().code, ErrorCode::kPeerSilent);
  ASSERT_FALSE(silent->terminal());
  const Socket control = serve();
  near_.turn();
  ASSERT_EQ(take_drains(control).size(), 1U);
  acknowledge_write(lane, 1);
  ASSERT_TRUE(silent->terminal());

  const ExecutionPtr next = post_write();
  network_.finish(lane);
  near_.turn();
  ASSERT_EQ(next->outcome().logical, Logical::kNone);
  EXPECT_FALSE(network_.is_open(lane));
  acknowledge_write(serve(), 2);
  EXPECT_EQ(next->outcome().logical, Logical::kSuccess);
}

TEST_F(ControlLane, WhenNothingIsUnprovedAnyMoreTheNextRestIsShort) {
  const ExecutionPtr first = lose_a_write();
  attempts(20 * kSecond, [&] { take_and_end(End::kReset); });
  near_.transport->confirm_fenced(test::only_flow(*peer_));
  ASSERT_TRUE(first->terminal());
  refuse_all();
  pass(kLook);

  const ExecutionPtr second = lose_a_write();
  const Nanoseconds begin_ns = clock_.now_ns();
  take_and_end(End::kReset);
  while (!second->terminal() && clock_.now_ns() < begin_ns + kSecond) {
    pass(kLook);
    refuse_all();
  }
  EXPECT_LE(clock_.now_ns() - begin_ns, 2 * kLook);
}

}  // namespace
}  // namespace orbite::test
