// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim/host_network.hpp"

namespace orbite::test {

/// Two processes on two machines of a fabric, or on one, and connections between them.
class Pair {
 public:
  using Socket = platform::Socket;
  using Kind = platform::IoResult::Kind;
  static constexpr std::uint16_t kPort = 7000;

  explicit Pair(std::uint32_t client_machine = 0) : machines_{client_machine, 1} {
    for (std::uint32_t i = 0; i < 2; ++i) {
      restart(i);
    }
    listener = network(1).listen(platform::SocketAddress::any(6, kPort)).value();
  }

  void restart(std::uint32_t index) {
    sim::HostNetwork::Observer observer;
    observer.on_send = [this](std::uint64_t, std::uint64_t length) { sent += length; };
    observer.on_receive = [this](std::uint64_t, std::uint64_t length) { received += length; };
    observer.on_ready = [this, index] { ++ready[index]; };
    observer.on_misuse = [this](const char* what, Socket) { misuses.emplace_back(what); };
    networks_[index] =
        std::make_unique<sim::HostNetwork>(fabric, machines_[index], std::move(observer));
  }
  sim::HostNetwork& network(std::uint32_t index) { return *networks_[index]; }

  void run(base::Nanoseconds time_ns = 10 * base::kMillisecond) {
    scheduler.run_until(scheduler.now_ns() + time_ns);
  }
  Socket connect(const platform::SocketAddress& address = sim::Fabric::address_of(1, kPort)) {
    return network(0).connect(address, nullptr).value();
  }
  /// A connection that both sides have.
  void open(const platform::SocketAddress& address = sim::Fabric::address_of(1, kPort)) {
    client = connect(address);
    run();
    ASSERT_EQ(network(0).connect_result(client).kind, Kind::kBytes);
    server = network(1).accept(listener, client_address).value();
  }

  platform::IoResult send(std::uint32_t from, Socket socket, std::string_view text) {
    const iovec part{const_cast<char*>(text.data()), text.size()};
    return network(from).send(socket, {&part, 1});
  }
  struct Received {
    platform::IoResult result;
    std::string text;
  };
  Received receive(std::uint32_t at, Socket socket, std::size_t bytes = 65'536) {
    Received got;
    got.text.resize(bytes);
    const iovec part{got.text.data(), bytes};
    got.result = network(at).receive(socket, {&part, 1});
    got.text.resize(got.result.kind == Kind::kBytes ? got.result.bytes : 0);
    return got;
  }

  sim::Scheduler scheduler{1};
  sim::Trace trace{false};
  sim::Fabric fabric{scheduler, trace, 2, 2};
  Socket listener = platform::kNoSocket;
  Socket client = platform::kNoSocket;
  Socket server = platform::kNoSocket;
  platform::SocketAddress client_address;  ///< as the server sees it
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  std::uint64_t ready[2] = {0, 0};
  std::vector<std::string> misuses;

 private:
  const std::uint32_t machines_[2];
  std::unique_ptr<sim::HostNetwork> networks_[2];
};

}  // namespace orbite::test
