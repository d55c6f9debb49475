// SPDX-License-Identifier: Apache-2.0
// The served side of TCP, by a peer that speaks the wire format by hand. The clock is the test's.
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "support/faulty_network.hpp"
#include "support/raw_peer.hpp"
#include "support/tcp_node.hpp"

namespace orbite::test {
namespace {

using Connection = std::unique_ptr<RawConnection>;

base::SourceEpoch epoch_of(std::uint32_t number) {
  base::SourceEpoch epoch;
  std::memcpy(epoch.bytes.data(), &number, sizeof(number));
  epoch.bytes[15] = 1;
  return epoch;
}

/// The system's network; the listener is out of descriptors while the test says so.
class ListenerNetwork final : public platform::Network {
 public:
  using Socket = platform::Socket;
  using IoResult = platform::IoResult;
  using SocketAddress = platform::SocketAddress;

  bool exhausted = false;
  int accepts = 0;

  Result<Socket> accept(Socket listener, SocketAddress& peer) override {
    ++accepts;
    if (exhausted) {
      return fail(Error::make_native(ErrorCode::kSystem, EMFILE, "cannot accept"));
    }
    return system_.accept(listener, peer);
  }
  Result<Socket> listen(const SocketAddress& address) override { return system_.listen(address); }
  Result<SocketAddress> local_address(Socket socket) override {
    return system_.local_address(socket);
  }
  Result<Socket> connect(const SocketAddress& address, const SocketAddress* source) override {
    return system_.connect(address, source);
  }
  IoResult connect_result(Socket socket) override { return system_.connect_result(socket); }
  IoResult send(Socket socket, std::span<const iovec> buffers) override {
    return system_.send(socket, buffers);
  }
  IoResult receive(Socket socket, std::span<const iovec> buffers) override {
    return system_.receive(socket, buffers);
  }
  void shutdown_send(Socket socket) override { system_.shutdown_send(socket); }
  void close(Socket socket) override { system_.close(socket); }
  void configure(Socket socket, const SocketOptions& options) override {
    system_.configure(socket, options);
  }
  Result<Socket> make_poller() override { return system_.make_poller(); }
  Result<void> poller_add(Socket poller, Socket socket, std::uint32_t events,
                          std::uint64_t token) override {
    return system_.poller_add(poller, socket, events, token);
  }
  void poller_modify(Socket poller, Socket socket, std::uint32_t events,
                     std::uint64_t token) override {
    system_.poller_modify(poller, socket, events, token);
  }
  void poller_remove(Socket poller, Socket socket) override {
    system_.poller_remove(poller, socket);
  }
  std::size_t poller_wait(Socket poller, std::span<platform::PollEvent> events,
                          base::Nanoseconds timeout_ns) override {
    return system_.poller_wait(poller, events, timeout_ns);
  }
  Result<Socket> make_wakeup() override { return system_.make_wakeup(); }
  void signal(Socket wakeup) override { system_.signal(wakeup); }
  void clear(Socket wakeup) override { system_.clear(wakeup); }

 private:
  platform::SystemNetwork system_;
};

/// One node; `lane` opens connections to it that have passed the handshake.
class Served {
 public:
  explicit Served(Config config = TcpNode::default_config(), platform::Network* network = nullptr)
      : node({.name = "far",
              .config = std::move(config),
              .seed = 2,
              .network = network,
              .clock = &clock}) {}

  void turn() {
    clock.advance(20 * base::kMicrosecond);
    node.turn();
  }
  void turns(int count) {
    for (int i = 0; i < count; ++i) {
      turn();
    }
  }
  Connection connect() {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
    sockaddr_in address = RawListener::loopback(node.transport->port());
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    // Small requests follow each other: none waits for an acknowledgement of the kernel's.
    const int on = 1;
    EXPECT_EQ(::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), 0);
    return std::make_unique<RawConnection>(fd, [this] { turn(); });
  }
  Connection lane(const RawConnection::Identity& identity) {
    Connection connection = connect();
    EXPECT_TRUE(connection->handshake(node.blob(), identity));
    return connection;
  }
  ErrorCode hello(const RawConnection::Identity& identity) {
    const Connection connection = connect();
    EXPECT_TRUE(connection->send_hello(node.blob(), identity));
    return connection->finish_handshake(node.blob()).value_or(ErrorCode::kPeerDisconnected);
  }

  base::ManualClock clock;
  TcpNode node;
};

/// Ids only rise on a lane, so they rise everywhere.
std::uint64_t next_frame_id() {
  static std::uint64_t last = 0;
  return ++last;
}

RawRequest request_of(wire::FrameType type) {
  RawRequest request;
  request.header.frame_id = next_frame_id();
  request.header.type = static_cast<std::uint8_t>(type);
  return request;
}

RawRequest drain_of(std::uint64_t lane_id) {
  RawRequest request = request_of(wire::FrameType::kDrain);
  request.trailer.resize(sizeof(lane_id));
  std::memcpy(request.trailer.data(), &lane_id, sizeof(lane_id));
  return request.fit();
}

std::vector<std::uint8_t> envelope_of(const RawConnection::Identity& identity,
                                      std::size_t message_bytes) {
  const std::vector<std::uint8_t> message(message_bytes, 42);
  return wire::encode_envelope({identity.epoch, identity.name, message}).value();
}

RawRequest notify_of(const RawConnection::Identity& identity, std::size_t message_bytes) {
  RawRequest request = request_of(wire::FrameType::kNotify);
  request.trailer = envelope_of(identity, message_bytes);
  return request.fit();
}

RawRequest access_of(wire::FrameType type, const Buffer& buffer, std::uint32_t bytes) {
  RawRequest request = request_of(type);
  wire::RegistrationRef& entry = request.table.emplace_back();
  entry.index = buffer.handle.index;
  entry.generation = buffer.handle.generation;
  std::memcpy(entry.key, buffer.registration->key().bytes.data(), sizeof(entry.key));
  request.extents.push_back({0, bytes, 0});
  if (type == wire::FrameType::kWrite) {
    request.payload.assign(bytes, 9);
  }
  return request.fit();
}

std::optional<ErrorCode> ask(RawConnection& connection, RawRequest request) {
  request.header.frame_id = next_frame_id();
  EXPECT_TRUE(connection.send(request));
  const auto response = connection.read_response();
  return response ? std::optional(response->status()) : std::nullopt;
}

bool serves(RawConnection& connection) {
  return ask(connection, request_of(wire::FrameType::kPing)) == ErrorCode::kOk;
}

constexpr auto kControl = wire::LaneClass::kControl;
constexpr auto kLatency = wire::LaneClass::kLatency;

// ---- Drains

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
    lanes.push_back(served.lane({epoch_of(1), i + 1, "raw", kLatency}));
    EXPECT_TRUE(serves(*lanes.back()));
  }
  EXPECT_EQ(served.hello({epoch_of(1), 9, "raw", kLatency}), ErrorCode::kBudgetExhausted);
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
  EXPECT_TRUE(std::all_of(buffer.bytes.begin(), buffer.bytes.end(),
                          [](std::uint8_t byte) { return byte == 0; }));
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

TEST_F(ServedBudget, UnfinishedNotificationsOfAllLanesShareIt) {
  constexpr std::size_t kBegun = 1'000'000;
  const RawRequest request = notify_of(identity(1), kMessageBytes);
  std::vector<Connection> lanes;
  for (std::uint64_t id = 1; id <= 6; ++id) {
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
            6);
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
  for (int i = 0; i < 1'000 && sent < all; ++i) {
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
  ListenerNetwork network;
  Served served(TcpNode::default_config(), &network);
  network.exhausted = true;
  const Connection lane = served.connect();
  served.turns(50);
  EXPECT_GE(network.accepts, 1);
  EXPECT_LE(network.accepts, 2) << "the listener stayed readable for the worker";
  served.clock.advance(base::kSecond);
  served.turns(50);
  EXPECT_LE(network.accepts, 4);
  network.exhausted = false;
  served.clock.advance(base::kSecond);
  EXPECT_TRUE(lane->handshake(served.node.blob(), {epoch_of(1), 1, "raw", kLatency}));
  EXPECT_TRUE(serves(*lane));
}

// ---- Time

class ServedPause : public ::testing::Test {
 protected:
  /// As after a long stop of our process: the worker looks at its timers first.
  void pause() {
    served_.clock.advance(40 * base::kSecond);
    served_.node.transport->on_tick(served_.clock.now_ns());
  }
  Served served_;
};

TEST_F(ServedPause, OfOursDoesNotEndALaneWhoseBytesAreHere) {
  Buffer buffer(served_.node.registry, 4'096);
  const Connection lane = served_.lane({epoch_of(1), 1, "raw", kLatency});
  ASSERT_TRUE(serves(*lane));
  RawRequest write = access_of(wire::FrameType::kWrite, buffer, 4'096);
  const std::vector<std::uint8_t> rest(2'000, 9);
  write.payload.resize(4'096 - rest.size());
  ASSERT_TRUE(lane->send(write));
  served_.turns(50);
  EXPECT_EQ(served_.node.registry.counts().loans, 1U);
  ASSERT_TRUE(lane->write(rest));
  pause();
  const auto response = lane->read_response();
  ASSERT_TRUE(response.has_value());
  EXPECT_EQ(response->status(), ErrorCode::kOk);
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
  pause();
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
