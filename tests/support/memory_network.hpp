// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/assert.hpp"
#include "platform/network.hpp"

namespace orbite::test {

/// Connections without an operating system: whoever holds this object is every peer. One thread.
/// Sockets are counted up and never given twice.
class MemoryNetwork final : public platform::Network {
 public:
  using Socket = platform::Socket;
  using IoResult = platform::IoResult;
  using SocketAddress = platform::SocketAddress;

  // The peers' side.

  /// Somebody connects to the listener.
  Socket arrive() {
    const Socket socket = make();
    connections_.at(socket).connected = true;
    waiting_.push_back(socket);
    return socket;
  }
  /// Sockets that connect() made and nobody has answered, oldest first.
  [[nodiscard]] const std::deque<Socket>& asking() const noexcept { return asking_; }
  Socket answer() {
    const Socket socket = asking_.front();
    asking_.pop_front();
    if (auto* connection = find(socket)) {
      connection->connected = true;
    }
    return socket;
  }
  /// False once the code under test has closed it.
  [[nodiscard]] bool is_open(Socket socket) const { return connections_.contains(socket); }
  void give(Socket socket, std::span<const std::uint8_t> bytes) {
    if (auto* connection = find(socket)) {
      connection->incoming.insert(connection->incoming.end(), bytes.begin(), bytes.end());
    }
  }
  /// FIN after what was given.
  void finish(Socket socket) {
    if (auto* connection = find(socket)) {
      connection->finished = true;
    }
  }
  /// RST: what was given and not taken is lost.
  void reset(Socket socket) {
    if (auto* connection = find(socket)) {
      connection->reset = true;
      connection->incoming.clear();
    }
  }
  /// How many bytes more the code under test can send.
  void set_room(Socket socket, std::size_t bytes) {
    if (auto* connection = find(socket)) {
      connection->room = bytes;
    }
  }
  /// What the code under test sent since the last call, of a closed socket too.
  std::vector<std::uint8_t> take_sent(Socket socket) { return std::exchange(sent_[socket], {}); }

  /// Instead of connect().
  std::function<std::optional<Error>(const SocketAddress&)> before_connect;

  // Network.

  Result<Socket> listen(const SocketAddress& address) override {
    listening_ = address;
    listening_.set_port(1);
    listener_ = next_++;
    return listener_;
  }
  Result<SocketAddress> local_address(Socket /*socket*/) override { return listening_; }
  Result<Socket> accept(Socket /*listener*/, SocketAddress& peer) override {
    if (waiting_.empty()) {
      return fail(ErrorCode::kNotFound, "nobody");
    }
    peer = SocketAddress::loopback(4, 2);
    const Socket socket = waiting_.front();
    waiting_.pop_front();
    return socket;
  }
  Result<Socket> connect(const SocketAddress& address, const SocketAddress* /*source*/) override {
    if (before_connect) {
      if (auto refused = before_connect(address)) {
        return fail(*refused);
      }
    }
    const Socket socket = make();
    asking_.push_back(socket);
    return socket;
  }
  IoResult connect_result(Socket socket) override {
    const Connection& connection = connections_.at(socket);
    if (connection.reset) {
      return {IoResult::Kind::kFailed, 0, ECONNREFUSED};
    }
    return {connection.connected ? IoResult::Kind::kBytes : IoResult::Kind::kWouldBlock, 0, 0};
  }
  IoResult send(Socket socket, std::span<const iovec> buffers) override {
    Connection& connection = connections_.at(socket);
    if (connection.reset) {
      return {IoResult::Kind::kFailed, 0, EPIPE};
    }
    std::size_t moved = 0;
    for (const iovec& buffer : buffers) {
      const std::size_t step = std::min(buffer.iov_len, connection.room);
      const auto* const from = static_cast<const std::uint8_t*>(buffer.iov_base);
      std::vector<std::uint8_t>& sent = sent_[socket];
      sent.insert(sent.end(), from, from + step);
      connection.room -= step;
      moved += step;
    }
    return {moved > 0 ? IoResult::Kind::kBytes : IoResult::Kind::kWouldBlock, moved, 0};
  }
  IoResult receive(Socket socket, std::span<const iovec> buffers) override {
    Connection& connection = connections_.at(socket);
    if (connection.reset) {
      return {IoResult::Kind::kFailed, 0, ECONNRESET};
    }
    std::size_t moved = 0;
    for (const iovec& buffer : buffers) {
      const std::size_t step = std::min(buffer.iov_len, connection.incoming.size() - moved);
      std::copy_n(connection.incoming.begin() + static_cast<std::ptrdiff_t>(moved), step,
                  static_cast<std::uint8_t*>(buffer.iov_base));
      moved += step;
    }
    connection.incoming.erase(connection.incoming.begin(),
                              connection.incoming.begin() + static_cast<std::ptrdiff_t>(moved));
    if (moved > 0) {
      return {IoResult::Kind::kBytes, moved, 0};
    }
    return {connection.finished ? IoResult::Kind::kEnded : IoResult::Kind::kWouldBlock, 0, 0};
  }
  void shutdown_send(Socket /*socket*/) override {}
  void close(Socket socket) override {
    ORBITE_CHECK(socket == listener_ || socket == kPoller || connections_.erase(socket) == 1);
    polled_.erase(socket);
    std::erase(asking_, socket);
  }
  void configure(Socket /*socket*/, const SocketOptions& /*options*/) override {}
  Result<Socket> make_poller() override { return kPoller; }
  Result<void> poller_add(Socket /*poller*/, Socket socket, std::uint32_t events,
                          std::uint64_t token) override {
    polled_[socket] = {token, events};
    return {};
  }
  void poller_modify(Socket /*poller*/, Socket socket, std::uint32_t events,
                     std::uint64_t token) override {
    polled_[socket] = {token, events};
  }
  void poller_remove(Socket /*poller*/, Socket socket) override { polled_.erase(socket); }
  std::size_t poller_wait(Socket /*poller*/, std::span<platform::PollEvent> events,
                          base::Nanoseconds /*timeout_ns*/) override {
    std::size_t count = 0;
    for (const auto& [socket, wanted] : polled_) {
      const std::uint32_t ready = ready_events(socket) & (wanted.events | platform::kPollError);
      if (ready != 0 && count < events.size()) {
        events[count++] = {wanted.token, ready};
      }
    }
    return count;
  }
  Result<Socket> make_wakeup() override { return fail(ErrorCode::kUnsupported, "one thread"); }
  void signal(Socket /*wakeup*/) override {}
  void clear(Socket /*wakeup*/) override {}

 private:
  static constexpr Socket kPoller = 0;

  struct Connection {
    std::vector<std::uint8_t> incoming;  ///< given and not received
    std::size_t room = std::numeric_limits<std::size_t>::max();
    bool connected = false;
    bool finished = false;
    bool reset = false;
  };

  Socket make() {
    const Socket socket = next_++;
    connections_.emplace(socket, Connection{});
    return socket;
  }
  Connection* find(Socket socket) {
    const auto found = connections_.find(socket);
    return found == connections_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] std::uint32_t ready_events(Socket socket) const {
    if (socket == listener_) {
      return waiting_.empty() ? 0 : platform::kPollIn;
    }
    const Connection& connection = connections_.at(socket);
    std::uint32_t ready = 0;
    if (!connection.incoming.empty() || connection.finished || connection.reset) {
      ready |= platform::kPollIn;
    }
    if (connection.connected && connection.room > 0) {
      ready |= platform::kPollOut;
    }
    return connection.reset ? ready | platform::kPollOut | platform::kPollError : ready;
  }

  std::map<Socket, Connection> connections_;
  std::map<Socket, std::vector<std::uint8_t>> sent_;
  std::map<Socket, platform::PollEvent> polled_;
  std::deque<Socket> waiting_;
  std::deque<Socket> asking_;
  SocketAddress listening_;
  Socket listener_ = platform::kNoSocket;
  Socket next_ = 1;
};

}  // namespace orbite::test
