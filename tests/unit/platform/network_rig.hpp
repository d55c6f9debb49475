// SPDX-License-Identifier: Apache-2.0
// Connections over loopback.
#pragma once

#include <gtest/gtest.h>
#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "platform/network.hpp"

namespace orbite::platform {

inline constexpr base::Nanoseconds kLong = 10 * base::kSecond;

inline iovec buffer(std::span<std::uint8_t> bytes) {
  return {.iov_base = bytes.data(), .iov_len = bytes.size()};
}

inline bool host_has(const SocketAddress& loopback) {
  SystemNetwork network;
  auto probe = loopback;
  probe.set_port(0);
  auto socket = network.listen(probe);
  if (socket) {
    network.close(*socket);
  }
  return socket.has_value();
}

inline std::vector<std::uint8_t> loopback_families() {
  // A kernel without ::1 has no such interface address either; nothing else may hide it.
  if (host_has(SocketAddress::loopback(6, 0))) {
    return {4, 6};
  }
  return {4};
}

/// Waits for one event of one socket.
inline bool wait_for(SystemNetwork& network, Socket socket, std::uint32_t events) {
  const Socket poller = *network.make_poller();
  PollEvent found;
  const bool added = network.poller_add(poller, socket, events, 1).has_value();
  const std::size_t count = network.poller_wait(poller, {&found, 1}, kLong);
  network.close(poller);
  return added && count == 1;
}

/// A listener on loopback and a connection to it.
struct Connection {
  explicit Connection(std::uint8_t family) {
    listener = *network.listen(SocketAddress::loopback(family, 0));
    address = *network.local_address(listener);
    client = *network.connect(address, nullptr);
    EXPECT_TRUE(wait_for(network, client, kPollOut));
    EXPECT_EQ(network.connect_result(client).kind, IoResult::Kind::kBytes);
    EXPECT_TRUE(wait_for(network, listener, kPollIn));
    server = *network.accept(listener, peer);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() {
    for (const Socket socket : {listener, client, server}) {
      if (socket != kNoSocket) {
        network.close(socket);
      }
    }
  }
  void close(Socket& socket) { network.close(std::exchange(socket, kNoSocket)); }

  SystemNetwork network;
  SocketAddress address;
  SocketAddress peer;
  Socket listener = kNoSocket;
  Socket client = kNoSocket;
  Socket server = kNoSocket;
};

}  // namespace orbite::platform
