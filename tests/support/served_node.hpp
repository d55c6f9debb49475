// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <netinet/tcp.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "support/raw_peer.hpp"
#include "support/tcp_node.hpp"

namespace orbite::test {

using Connection = std::unique_ptr<RawConnection>;

inline base::SourceEpoch epoch_of(std::uint32_t number) {
  base::SourceEpoch epoch;
  std::memcpy(epoch.bytes.data(), &number, sizeof(number));
  epoch.bytes[15] = 1;
  return epoch;
}

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
inline std::uint64_t next_frame_id() {
  static std::uint64_t last = 0;
  return ++last;
}

inline RawRequest request_of(wire::FrameType type) {
  RawRequest request;
  request.header.frame_id = next_frame_id();
  request.header.type = static_cast<std::uint8_t>(type);
  return request;
}

inline RawRequest drain_of(std::uint64_t lane_id) {
  RawRequest request = request_of(wire::FrameType::kDrain);
  request.trailer.resize(sizeof(lane_id));
  std::memcpy(request.trailer.data(), &lane_id, sizeof(lane_id));
  return request.fit();
}

inline std::vector<std::uint8_t> envelope_of(const RawConnection::Identity& identity,
                                             std::size_t message_bytes) {
  const std::vector<std::uint8_t> message(message_bytes, 42);
  return wire::encode_envelope({identity.epoch, identity.name, message}).value();
}

inline RawRequest notify_of(const RawConnection::Identity& identity, std::size_t message_bytes) {
  RawRequest request = request_of(wire::FrameType::kNotify);
  request.trailer = envelope_of(identity, message_bytes);
  return request.fit();
}

inline RawRequest access_of(wire::FrameType type, const Buffer& buffer, std::uint32_t bytes) {
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

inline std::optional<ErrorCode> ask(RawConnection& connection, RawRequest request) {
  request.header.frame_id = next_frame_id();
  EXPECT_TRUE(connection.send(request));
  const auto response = connection.read_response();
  return response ? std::optional(response->status()) : std::nullopt;
}

inline bool serves(RawConnection& connection) {
  return ask(connection, request_of(wire::FrameType::kPing)) == ErrorCode::kOk;
}

}  // namespace orbite::test
