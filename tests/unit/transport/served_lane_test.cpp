// SPDX-License-Identifier: Apache-2.0
// The served side of TCP, by a peer that speaks the wire format by hand. The clock is the test's.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "support/faulty_network.hpp"
#include "support/served_node.hpp"

namespace orbite::test {
namespace {

constexpr auto kControl = wire::LaneClass::kControl;
constexpr auto kLatency = wire::LaneClass::kLatency;

bool is_untouched(const Buffer& buffer, std::size_t from = 0) {
  return std::all_of(buffer.bytes.begin() + static_cast<std::ptrdiff_t>(from), buffer.bytes.end(),
                     [](std::uint8_t byte) { return byte == 0; });
}

// ---- Writes

TEST(ServedWrite, IsAcknowledgedOnlyWhenItsLastByteIsInPlace) {
  Served served;
  Buffer buffer(served.node.registry, 4'096);
  const Connection lane = served.lane({epoch_of(1), 1, "raw", kLatency});
  const RawRequest write = access_of(wire::FrameType::kWrite, buffer, 3'000);
  RawRequest head = write;
  head.payload.clear();
  ASSERT_TRUE(lane->send(head));
  for (std::size_t sent = 0; sent < write.payload.size(); sent += 300) {
    served.turns(20);
    ASSERT_FALSE(lane->has_bytes()) << "acknowledged after " << sent << " of 3000 bytes";
    ASSERT_EQ(served.node.registry.counts().loans, 1U);
    ASSERT_TRUE(lane->write(write.payload.data() + sent, 300));
  }
  const auto response = lane->read_response();
  ASSERT_TRUE(response.has_value());
  EXPECT_EQ(response->header.prefix_bytes, 3'000U);
  EXPECT_EQ(served.node.registry.counts().loans, 0U);
  EXPECT_EQ(std::count(buffer.bytes.begin(), buffer.bytes.end(), 9), 3'000);
}

TEST(ServedWrite, WhoseLengthsAreNotItsPayloadTouchesNothing) {
  Served served;
  Buffer buffer(served.node.registry, 4'096);
  for (const std::uint32_t second : {1U, 32U, 4'000U, UINT32_MAX - 15}) {
    SCOPED_TRACE(second);
    const Connection lane = served.lane({epoch_of(1), 1, "raw", kLatency});
    RawRequest write = access_of(wire::FrameType::kWrite, buffer, 16);
    // The last one makes the sum 0 where it is kept in 32 bits.
    write.extents.push_back({0, second, 0});
    write.header.extent_count = 2;
    ASSERT_TRUE(lane->send(write));
    // What a longer payload would take in.
    lane->send(request_of(wire::FrameType::kPing));
    EXPECT_EQ(lane->read_to_end(), 0U);
    EXPECT_TRUE(is_untouched(buffer));
  }
  EXPECT_EQ(served.node.counters.protocol_violations.value(), 4U);
}

// ---- Drains

TEST(ServedDrain, IsRememberedWhenAHelloWithItsIdComesLate) {
  Served served;
  Buffer buffer(served.node.registry, 4'096);
  const base::SourceEpoch epoch = epoch_of(1);
  const Connection control = served.lane({epoch, 9, "raw", kControl});
  // The connection of the lane has not arrived yet; its drain says that it will do nothing.
  ASSERT_EQ(ask(*control, drain_of(5)), ErrorCode::kOk);
  const Connection late = served.connect();
  ASSERT_TRUE(late->send_hello(served.node.blob(), {epoch, 5, "raw", kLatency}));
  EXPECT_EQ(late->finish_handshake(served.node.blob()), ErrorCode::kHandshakeRejected);
  late->send(access_of(wire::FrameType::kWrite, buffer, 100));
  EXPECT_TRUE(late->read_to_end().has_value());
  EXPECT_TRUE(is_untouched(buffer));
  EXPECT_EQ(served.node.counters.served_frames.value(), 1U);
}

TEST(ServedDrain, EndsTheNamedLaneAloneAndRefusesItsIdAndSmallerOnes) {
  Served served;
  const base::SourceEpoch epoch = epoch_of(1);
  const Connection third = served.lane({epoch, 3, "raw", kLatency});
  const Connection fifth = served.lane({epoch, 5, "raw", kLatency});
  const Connection stranger = served.lane({epoch_of(2), 5, "raw", kLatency});
  const Connection control = served.lane({epoch, 9, "raw", kControl});
  EXPECT_EQ(ask(*control, drain_of(5)), ErrorCode::kOk);
  EXPECT_EQ(fifth->read_to_end(), 0U);
  EXPECT_TRUE(serves(*third));
  EXPECT_TRUE(serves(*stranger));
  EXPECT_EQ(served.hello({epoch, 5, "raw", kLatency}), ErrorCode::kHandshakeRejected);
  EXPECT_EQ(served.hello({epoch, 4, "raw", kLatency}), ErrorCode::kHandshakeRejected);
  EXPECT_EQ(served.hello({epoch, 10, "raw", kLatency}), ErrorCode::kOk);
  EXPECT_EQ(served.hello({epoch_of(2), 4, "raw", kLatency}), ErrorCode::kOk);
  // The smaller one can be drained still.
  EXPECT_EQ(ask(*control, drain_of(3)), ErrorCode::kOk);
  EXPECT_EQ(third->read_to_end(), 0U);
}

TEST(ServedDrain, ALateProofDoesNotReviveTheLane) {
  Served served;
  const base::SourceEpoch epoch = epoch_of(1);
  const Connection late = served.connect();
  ASSERT_TRUE(late->send_hello(served.node.blob(), {epoch, 5, "raw", kLatency}));
  served.turns(20);
  const Connection control = served.lane({epoch, 9, "raw", kControl});
  EXPECT_EQ(ask(*control, drain_of(5)), ErrorCode::kOk);
  // What it had sent before the drain is of no use.
  late->finish_handshake(served.node.blob());
  late->write_struct(request_of(wire::FrameType::kPing).header);
  EXPECT_TRUE(late->read_to_end().has_value());
  EXPECT_EQ(served.node.counters.served_frames.value(), 1U);
}

TEST(ServedDrain, ManyDrainsOfOnePeerTakeNothingFromAnother) {
  Served served;
  const Connection one = served.lane({epoch_of(1), 1, "one", kControl});
  constexpr std::uint64_t kDrains = 70'000;
  constexpr std::uint64_t kAtOnce = 500;
  for (std::uint64_t id = 2; id < kDrains; id += kAtOnce) {
    std::vector<std::uint8_t> bytes;
    for (std::uint64_t i = 0; i < kAtOnce; ++i) {
      const RawRequest drain = drain_of(id + i);
      const auto* const head = reinterpret_cast<const std::uint8_t*>(&drain.header);
      bytes.insert(bytes.end(), head, head + sizeof(drain.header));
      bytes.insert(bytes.end(), drain.trailer.begin(), drain.trailer.end());
    }
    ASSERT_TRUE(one->write(bytes));
    std::vector<wire::ResponseHeader> responses(kAtOnce);
    ASSERT_TRUE(one->read(responses.data(), kAtOnce * sizeof(responses[0])));
    for (const wire::ResponseHeader& response : responses) {
      ASSERT_EQ(response.status, 0) << "drain of about " << id;
    }
  }
  const Connection other = served.lane({epoch_of(2), 1, "other", kControl});
  EXPECT_EQ(ask(*other, drain_of(7)), ErrorCode::kOk);
}

TEST(ServedDrain, RemembersABoundedNumberOfEpochsAndNeverRefusesOne) {
  Served served;
  const Connection living = served.lane({epoch_of(0), 3, "raw", kLatency});
  {
    const Connection control = served.lane({epoch_of(0), 9, "raw", kControl});
    EXPECT_EQ(ask(*control, drain_of(8)), ErrorCode::kOk);
  }
  for (std::uint32_t number = 1; number < 4'200; ++number) {
    const Connection control = served.lane({epoch_of(number), 2, "raw", kControl});
    ASSERT_EQ(ask(*control, drain_of(1)), ErrorCode::kOk) << number;
    control->reset();
  }
  // That of a peer which is connected outlives them all.
  EXPECT_EQ(served.hello({epoch_of(0), 8, "raw", kLatency}), ErrorCode::kHandshakeRejected);
  EXPECT_EQ(served.hello({epoch_of(4'199), 1, "raw", kLatency}), ErrorCode::kHandshakeRejected);
  EXPECT_TRUE(serves(*living));
}

// ---- Control lanes

TEST(ServedControl, ANewLaneOfAnEpochReplacesTheOldOne) {
  Served served;
  const Connection first = served.lane({epoch_of(1), 1, "raw", kControl});
  const Connection other = served.lane({epoch_of(2), 1, "raw", kControl});
  EXPECT_TRUE(serves(*first));
  const Connection second = served.lane({epoch_of(1), 2, "raw", kControl});
  EXPECT_TRUE(serves(*second));
  EXPECT_EQ(first->read_to_end(), 0U);
  EXPECT_TRUE(serves(*other));
}

TEST(ServedControl, StandsBesideAFullTableButInBoundedNumber) {
  Config config = TcpNode::default_config();
  config.tcp.served_lanes_max = 4;
  Served served(config);
  std::vector<Connection> lanes;
  for (std::uint32_t i = 0; i < 4; ++i) {
    lanes.push_back(served.lane({epoch_of(i + 1), i + 1, "raw", kLatency}));
    EXPECT_TRUE(serves(*lanes.back()));
  }
  EXPECT_EQ(served.hello({epoch_of(9), 9, "raw", kLatency}), ErrorCode::kBudgetExhausted);
  for (std::uint32_t i = 0; i < 10; ++i) {
    lanes.push_back(served.lane({epoch_of(i), 20, "raw", kControl}));
    EXPECT_TRUE(serves(*lanes.back()));
  }
  served.clock.advance(base::kSecond);
  served.turn();
  EXPECT_EQ(served.node.transport->served_lanes(), 8U);
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(serves(*lanes[i]));
  }
}

TEST(ServedLanes, OnePeerDoesNotTakeAllOfThem) {
  Config config = TcpNode::default_config();
  config.tcp.served_lanes_max = 16;
  Served served(config);
  std::vector<Connection> lanes;
  std::uint64_t id = 0;
  const auto fill = [&](std::uint32_t peer) {
    std::size_t count = 0;
    while (served.hello({epoch_of(peer), 100 + id, "raw", kLatency}) == ErrorCode::kOk) {
      lanes.push_back(served.lane({epoch_of(peer), ++id, "raw", kLatency}));
      EXPECT_TRUE(serves(*lanes.back()));
      ++count;
    }
    return count;
  };
  EXPECT_EQ(fill(1), 8U);
  EXPECT_EQ(fill(2), 4U);
  EXPECT_EQ(fill(3), 2U);
  EXPECT_EQ(served.node.transport->proved_lanes(), 14U);
  EXPECT_GE(served.node.transport->lanes_out_of_room(), 3U);
  // What a peer gives back is there for it, and for others.
  lanes.erase(lanes.begin(), lanes.begin() + 8);
  served.turns(50);
  EXPECT_EQ(served.node.transport->proved_lanes(), 6U);
  EXPECT_GE(fill(4), 4U);
}

TEST(ServedControl, CarriesNoData) {
  Served served;
  const Buffer buffer(served.node.registry, 4'096);
  const RawConnection::Identity identity{epoch_of(1), 1, "raw", kControl};
  for (const RawRequest& request :
       {access_of(wire::FrameType::kWrite, buffer, 100),
        access_of(wire::FrameType::kRead, buffer, 100), notify_of(identity, 10)}) {
    const std::uint64_t before = served.node.counters.protocol_violations.value();
    const Connection control = served.lane(identity);
    control->send(request);
    EXPECT_EQ(control->read_to_end(), 0U);
    EXPECT_EQ(served.node.counters.protocol_violations.value(), before + 1);
  }
  EXPECT_TRUE(is_untouched(buffer));
  EXPECT_TRUE(served.node.inbox.empty());
}

// ---- Notifications

TEST(ServedNotification, OneThatIsTooLongIsRefusedAndTheLaneLives) {
  Config config = TcpNode::default_config();
  config.notifications.message_bytes_max = 1'000;
  Served served(config);
  Buffer buffer(served.node.registry, 4'096);
  const RawConnection::Identity identity{epoch_of(1), 1, "raw", kLatency};
  const Connection lane = served.lane(identity);
  for (const std::size_t bytes : {std::size_t{1'001}, std::size_t{5'000}, std::size_t{16} << 20}) {
    SCOPED_TRACE(bytes);
    EXPECT_EQ(ask(*lane, notify_of(identity, bytes)), ErrorCode::kInvalidArgument);
    RawRequest write = access_of(wire::FrameType::kWrite, buffer, 100);
    write.trailer = envelope_of(identity, bytes);
    ASSERT_TRUE(lane->send(write.fit()));
    const auto response = lane->read_response();
    ASSERT_TRUE(response.has_value());
    EXPECT_EQ(response->status(), ErrorCode::kNotificationFailed);
    EXPECT_EQ(response->header.effect, static_cast<std::uint8_t>(wire::FrameEffect::kComplete));
    EXPECT_EQ(response->header.prefix_bytes, 100U);
  }
  EXPECT_TRUE(std::all_of(buffer.bytes.begin(), buffer.bytes.begin() + 100,
                          [](std::uint8_t byte) { return byte == 9; }));
  EXPECT_TRUE(served.node.inbox.empty());
  EXPECT_EQ(ask(*lane, notify_of(identity, 1'000)), ErrorCode::kOk);
  EXPECT_EQ(served.node.inbox.size(), 1U);
  EXPECT_EQ(served.node.counters.protocol_violations.value(), 0U);
}

TEST(ServedNotification, OnePastTheWireMaximumOrMalformedEndsTheLane) {
  Served served;
  const RawConnection::Identity identity{epoch_of(1), 1, "raw", kLatency};
  RawRequest past = request_of(wire::FrameType::kNotify);
  past.header.trailer_bytes =
      wire::kEnvelopeHeadBytes + wire::kEnvelopeNameBytesMax + wire::kEnvelopeMessageBytesMax + 1;
  RawRequest malformed = notify_of(identity, 100);
  malformed.trailer.pop_back();
  malformed.fit();
  for (const RawRequest& request : {past, malformed}) {
    const Connection lane = served.lane(identity);
    ASSERT_TRUE(lane->send(request));
    EXPECT_EQ(lane->read_to_end(), 0U);
  }
  EXPECT_EQ(served.node.counters.protocol_violations.value(), 2U);
}

class ServedBudget : public ::testing::Test {
 protected:
  static constexpr std::size_t kMessageBytes = 1 << 20;
  static Config config() {
    Config made = TcpNode::default_config();
    made.notifications.message_bytes_max = kMessageBytes;
    made.notifications.inbox_bytes_max = kMessageBytes;
    return made;
  }
  static RawConnection::Identity identity(std::uint64_t id) {
    return {epoch_of(1), id, "raw", kLatency};
  }
  /// All of a notification but its last bytes.
  void begin(RawConnection& lane, const RawRequest& request, std::size_t bytes) {
    ASSERT_TRUE(lane.write_struct(request.header));
    ASSERT_TRUE(lane.write(request.trailer.data(), bytes));
    served_.turns(200);
  }
  std::optional<ErrorCode> finish(RawConnection& lane, const RawRequest& request,
                                  std::size_t bytes) {
    EXPECT_TRUE(lane.write(request.trailer.data() + bytes, request.trailer.size() - bytes));
    const auto response = lane.read_response();
    return response ? std::optional(response->status()) : std::nullopt;
  }
  Served served_{config()};
};

TEST_F(ServedBudget, OnePeerThatStallsLeavesRoomForTheNotificationsOfOthers) {
  const RawRequest request = notify_of(identity(1), kMessageBytes);
  std::vector<Connection> lanes;
  for (std::uint64_t id = 1; id <= 20; ++id) {
    lanes.push_back(served_.lane(identity(id)));
    begin(*lanes.back(), request, 1'000'000);
  }
  const RawConnection::Identity other{epoch_of(2), 1, "other", kLatency};
  const Connection lane = served_.lane(other);
  EXPECT_EQ(ask(*lane, notify_of(other, kMessageBytes)), ErrorCode::kOk);
}

TEST_F(ServedBudget, UnfinishedNotificationsOfAllLanesShareIt) {
  constexpr std::size_t kBegun = 1'000'000;
  const RawRequest request = notify_of(identity(1), kMessageBytes);
  std::vector<Connection> lanes;
  for (std::uint64_t id = 1; id <= 9; ++id) {
    lanes.push_back(served_.lane(identity(id)));
    begin(*lanes.back(), request, kBegun);
  }
  std::vector<std::optional<ErrorCode>> statuses;
  for (const Connection& lane : lanes) {
    statuses.push_back(finish(*lane, request, kBegun));
    EXPECT_TRUE(serves(*lane));
  }
  const std::optional<ErrorCode> ok = ErrorCode::kOk;
  const std::optional<ErrorCode> refused = ErrorCode::kBudgetExhausted;
  EXPECT_GE(std::count(statuses.begin(), statuses.end(), ok), 1);
  EXPECT_GE(std::count(statuses.begin(), statuses.end(), refused), 3);
  EXPECT_EQ(std::count(statuses.begin(), statuses.end(), ok) +
                std::count(statuses.begin(), statuses.end(), refused),
            9);
  // All of it is back.
  for (const Connection& lane : lanes) {
    EXPECT_EQ(ask(*lane, request), ErrorCode::kOk);
  }
}

TEST_F(ServedBudget, WhatIsOnlyAnnouncedTakesNothingAndAnEndedLaneGivesBack) {
  const RawRequest request = notify_of(identity(1), kMessageBytes);
  std::vector<Connection> lanes;
  for (std::uint64_t id = 1; id <= 40; ++id) {
    lanes.push_back(served_.lane(identity(id)));
    begin(*lanes.back(), request, 10);
  }
  const Connection other = served_.lane(identity(100));
  EXPECT_EQ(ask(*other, request), ErrorCode::kOk);
  for (std::uint64_t id = 1; id <= 6; ++id) {
    const Connection lane = served_.lane(identity(200 + id));
    begin(*lane, request, 1'000'000);
    lane->reset();
    served_.turns(20);
  }
  EXPECT_EQ(ask(*other, request), ErrorCode::kOk);
}

// ---- Turns

TEST(ServedTurn, BufferedReadsDoNotPassItsLimitAndAreServedInTheNextTurns) {
  FaultyNetwork network;
  std::uint64_t sent = 0;
  bool swallow = false;
  // As if the peer took everything at once.
  network.before = [&](const FaultyNetwork::Call& call) -> std::optional<platform::IoResult> {
    if (!swallow || call.kind != FaultyNetwork::Call::Kind::kSend) {
      return std::nullopt;
    }
    std::size_t bytes = 0;
    for (const iovec& part : call.buffers) {
      bytes += part.iov_len;
    }
    sent += bytes;
    return platform::IoResult{
        .kind = platform::IoResult::Kind::kBytes, .bytes = bytes, .native_errno = 0};
  };
  Served served(TcpNode::default_config(), &network);
  constexpr std::uint32_t kEach = 512 << 10;
  constexpr std::uint64_t kReads = 400;
  const Buffer buffer(served.node.registry, kEach);
  const Connection lane = served.lane({epoch_of(1), 1, "raw", kLatency});
  ASSERT_TRUE(serves(*lane));
  swallow = true;
  std::vector<std::uint8_t> bytes;
  RawRequest read = access_of(wire::FrameType::kRead, buffer, kEach);
  const auto put = [&bytes](const void* data, std::size_t size) {
    const auto* const from = static_cast<const std::uint8_t*>(data);
    bytes.insert(bytes.end(), from, from + size);
  };
  for (std::uint64_t i = 0; i < kReads; ++i) {
    read.header.frame_id = next_frame_id();
    put(&read.header, sizeof(read.header));
    put(read.table.data(), read.table.size() * sizeof(read.table[0]));
    put(read.extents.data(), read.extents.size() * sizeof(read.extents[0]));
  }
  ASSERT_TRUE(lane->write(bytes));
  const std::uint64_t all = kReads * (sizeof(wire::ResponseHeader) + kEach);
  for (int i = 0; i < 10'000 && sent < all; ++i) {
    const std::uint64_t before = sent;
    served.turn();
    ASSERT_LE(sent - before, std::uint64_t{4} << 20) << "in one turn";
  }
  EXPECT_EQ(sent, all);
}

TEST(ServedTurn, AnExceptionEndsThatLaneAlone) {
  Served served;
  const RawConnection::Identity identity{epoch_of(1), 1, "raw", kLatency};
  const Connection lane = served.lane(identity);
  const Connection other = served.lane({epoch_of(2), 1, "other", kLatency});
  served.node.on_deliver = [] { throw std::bad_alloc(); };
  ASSERT_TRUE(lane->send(notify_of(identity, 10)));
  EXPECT_EQ(lane->read_to_end(), 0U);
  EXPECT_TRUE(serves(*other));
  EXPECT_EQ(served.node.transport->served_lanes(), 1U);
}

// ---- Accepting

TEST(ServedListener, RestsWhileTheSystemHasNoDescriptorAndComesBack) {
  FaultyNetwork network;
  bool exhausted = false;
  int accepts = 0;
  network.before_accept = [&]() -> std::optional<Error> {
    ++accepts;
    return exhausted ? std::optional(Error::make_native(ErrorCode::kSystem, EMFILE, "accept"))
                     : std::nullopt;
  };
  Served served(TcpNode::default_config(), &network);
  exhausted = true;
  const Connection lane = served.connect();
  served.turns(50);
  EXPECT_GE(accepts, 1);
  EXPECT_LE(accepts, 2) << "the listener stayed readable for the worker";
  served.clock.advance(base::kSecond);
  served.turns(50);
  EXPECT_LE(accepts, 4);
  exhausted = false;
  served.clock.advance(base::kSecond);
  EXPECT_TRUE(lane->handshake(served.node.blob(), {epoch_of(1), 1, "raw", kLatency}));
  EXPECT_TRUE(serves(*lane));
}

// ---- Time

class ServedPause : public ::testing::Test {
 protected:
  static constexpr base::Nanoseconds kPause = 40 * base::kSecond;
  /// As after a long stop of our process: the worker looks at its timers first.
  void pause() {
    served_.clock.advance(kPause);
    served_.node.transport->on_tick(served_.clock.now_ns());
  }
  /// A WRITE of which the peer sends the first half, and then `go_on` the rest.
  template <typename GoOn>
  void expect_to_survive_a_pause(GoOn go_on) {
    Buffer buffer(served_.node.registry, 4'096);
    const Connection lane = served_.lane({epoch_of(1), 1, "raw", kLatency});
    ASSERT_TRUE(serves(*lane));
    RawRequest write = access_of(wire::FrameType::kWrite, buffer, 4'096);
    const std::vector<std::uint8_t> rest(2'000, 9);
    write.payload.resize(4'096 - rest.size());
    ASSERT_TRUE(lane->send(write));
    served_.turns(50);
    EXPECT_EQ(served_.node.registry.counts().loans, 1U);
    go_on(*lane, rest, [this] { pause(); });
    const auto response = lane->read_response();
    ASSERT_TRUE(response.has_value());
    EXPECT_EQ(response->status(), ErrorCode::kOk);
  }
  /// The worker looks whenever it said that it would.
  void silence() {
    const base::Nanoseconds end_ns = served_.clock.now_ns() + kPause;
    while (served_.clock.now_ns() < end_ns) {
      served_.clock.advance(served_.node.transport->on_tick(served_.clock.now_ns()));
    }
  }
  Served served_;
};

TEST_F(ServedPause, OfOursDoesNotEndALaneWhoseBytesAreHere) {
  expect_to_survive_a_pause([](RawConnection& lane, auto&& rest, auto&& pause) {
    ASSERT_TRUE(lane.write(rest));
    pause();
  });
}

TEST_F(ServedPause, OfOursAndThePeersDoesNotEndItsLane) {
  expect_to_survive_a_pause([](RawConnection& lane, auto&& rest, auto&& pause) {
    pause();
    ASSERT_TRUE(lane.write(rest));
  });
}

TEST_F(ServedPause, OfOursDoesNotEndAHandshakeWhoseBytesAreHere) {
  const Connection lane = served_.connect();
  ASSERT_TRUE(lane->send_hello(served_.node.blob(), {epoch_of(1), 1, "raw", kLatency}));
  wire::ServerHello server;
  ASSERT_TRUE(lane->read_struct(server));
  wire::ClientProof proof;
  wire::sign_client(served_.node.secret, lane->hello, server, proof);
  ASSERT_TRUE(lane->write_struct(proof));
  pause();
  EXPECT_TRUE(serves(*lane));
}

TEST_F(ServedPause, OfThePeerEndsItsLaneAndItsHandshake) {
  Buffer buffer(served_.node.registry, 4'096);
  const Connection stranger = served_.connect();
  const Connection lane = served_.lane({epoch_of(1), 1, "raw", kLatency});
  ASSERT_TRUE(serves(*lane));
  RawRequest write = access_of(wire::FrameType::kWrite, buffer, 4'096);
  write.payload.resize(100);
  ASSERT_TRUE(lane->send(write));
  served_.turns(50);
  silence();
  EXPECT_EQ(served_.node.registry.counts().loans, 0U);
  EXPECT_EQ(lane->read_to_end(), 0U);
  EXPECT_EQ(stranger->read_to_end(), 0U);
}

// ---- Fork

TEST(ServedFork, ALivingChildKeepsNeitherConnectionsNorThePort) {
  Served served;
  const Connection lane = served.lane({epoch_of(1), 1, "raw", kLatency});
  ASSERT_TRUE(serves(*lane));
  Config config = TcpNode::default_config();
  config.listen.port = served.node.transport->port();
  const pid_t child = ::fork();
  if (child == 0) {
    while (true) {
      ::pause();
    }
  }
  served.node.die();
  EXPECT_EQ(lane->read_to_end(), 0U);
  const TcpNode again({.config = config});
  EXPECT_EQ(again.transport->port(), config.listen.port);
  EXPECT_EQ(::waitpid(child, nullptr, WNOHANG), 0);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace orbite::test
