// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "platform/network.hpp"

namespace orbite::test {

/// Flips bits of the byte at `position` of what a receive put into `buffers`. False: it is not
/// there.
inline bool corrupt(std::span<const iovec> buffers, std::size_t position, std::size_t moved,
                    std::uint8_t bits) {
  if (position >= moved) {
    return false;
  }
  for (const iovec& part : buffers) {
    if (position < part.iov_len) {
      static_cast<std::uint8_t*>(part.iov_base)[position] ^= bits;
      return true;
    }
    position -= part.iov_len;
  }
  return false;
}

/// The operating system's network with a script of faults before it. Sockets are told apart by who
/// made them: the n-th that connect() or accept() gave, counted from 0.
class FaultyNetwork final : public platform::Network {
 public:
  using Socket = platform::Socket;
  using IoResult = platform::IoResult;
  using SocketAddress = platform::SocketAddress;

  /// What the script is asked for one send or receive.
  struct Call {
    enum class Kind : std::uint8_t { kSend, kReceive };
    Kind kind;
    bool initiated;        ///< of a socket that connect() made, else accept()
    std::uint32_t number;  ///< of the socket
    std::uint32_t sends;   ///< of this socket before this call
    std::uint32_t receives;
    std::uint64_t sent_bytes;  ///< by it so far
    std::uint64_t received_bytes;
    std::span<const iovec> buffers;
  };
  /// Instead of the call; nothing: the call is made.
  std::function<std::optional<IoResult>(const Call&)> before;
  /// After a receive that moved bytes; may change them.
  std::function<void(const Call&, std::size_t moved)> after_receive;
  /// Instead of connect(), for its n-th call.
  std::function<std::optional<Error>(std::uint32_t number)> before_connect;

  /// Told of a socket, a poller or a wakeup that is about to be closed.
  std::function<void(Socket socket)> before_close;
  /// How often a wakeup was signalled. Relaxed: a count.
  std::atomic<std::uint64_t> signals{0};

  /// Instead of accept().
  std::function<std::optional<Error>()> before_accept;

  /// Each call moves a random number of bytes up to this; 0: as many as it can. Handshakes are
  /// spared: a kernel takes the first few hundred bytes of a connection whole.
  void set_short_io(std::size_t bytes_max, std::uint32_t would_block_thousandths,
                    std::uint64_t seed) {
    const std::lock_guard lock(mutex_);
    short_bytes_max_ = bytes_max;
    would_block_thousandths_ = would_block_thousandths;
    random_ = std::make_unique<base::SeededRandom>(seed);
  }

  Result<Socket> listen(const SocketAddress& address) override { return system_.listen(address); }
  Result<SocketAddress> local_address(Socket socket) override {
    return system_.local_address(socket);
  }
  Result<Socket> accept(Socket listener, SocketAddress& peer) override {
    if (before_accept) {
      if (auto refused = before_accept()) {
        return fail(*refused);
      }
    }
    auto socket = system_.accept(listener, peer);
    if (socket) {
      enter(*socket, false);
    }
    return socket;
  }
  Result<Socket> connect(const SocketAddress& address, const SocketAddress* source) override {
    const std::uint32_t number = connects_++;
    if (before_connect) {
      if (auto refused = before_connect(number)) {
        return fail(*refused);
      }
    }
    auto socket = system_.connect(address, source);
    if (socket) {
      enter(*socket, true);
    }
    return socket;
  }
  IoResult connect_result(Socket socket) override { return system_.connect_result(socket); }
  IoResult send(Socket socket, std::span<const iovec> buffers) override {
    return call(Call::Kind::kSend, socket, buffers);
  }
  IoResult receive(Socket socket, std::span<const iovec> buffers) override {
    return call(Call::Kind::kReceive, socket, buffers);
  }
  void shutdown_send(Socket socket) override { system_.shutdown_send(socket); }
  void close(Socket socket) override {
    if (before_close) {
      before_close(socket);
    }
    {
      const std::lock_guard lock(mutex_);
      sockets_.erase(socket);
    }
    system_.close(socket);
  }
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
  void signal(Socket wakeup) override {
    signals.fetch_add(1, std::memory_order_relaxed);
    system_.signal(wakeup);
  }
  void clear(Socket wakeup) override { system_.clear(wakeup); }

  /// Sockets of connect() and accept() that are open.
  [[nodiscard]] std::size_t open_sockets() const {
    const std::lock_guard lock(mutex_);
    return sockets_.size();
  }
  [[nodiscard]] std::uint32_t connects() const noexcept { return connects_; }

 private:
  struct Entry {
    bool initiated = false;
    std::uint32_t number = 0;
    std::uint32_t sends = 0;
    std::uint32_t receives = 0;
    std::uint64_t sent_bytes = 0;
    std::uint64_t received_bytes = 0;
  };

  void enter(Socket socket, bool initiated) {
    const std::lock_guard lock(mutex_);
    std::uint32_t& next = initiated ? next_initiated_ : next_accepted_;
    sockets_[socket] = Entry{initiated, next++, 0, 0, 0, 0};
  }

  IoResult call(Call::Kind kind, Socket socket, std::span<const iovec> buffers) {
    const bool sends = kind == Call::Kind::kSend;
    Call what{kind, false, 0, 0, 0, 0, 0, buffers};
    std::vector<iovec> cut;
    {
      const std::lock_guard lock(mutex_);
      Entry& entry = sockets_[socket];
      what.initiated = entry.initiated;
      what.number = entry.number;
      what.sends = sends ? entry.sends++ : entry.sends;
      what.receives = sends ? entry.receives : entry.receives++;
      what.sent_bytes = entry.sent_bytes;
      what.received_bytes = entry.received_bytes;
      if (random_ != nullptr && !is_handshake(what)) {
        if (random_->next_u64() % 1000 < would_block_thousandths_) {
          return {};
        }
        if (short_bytes_max_ != 0) {
          cut = first_bytes(buffers, 1 + random_->next_u64() % short_bytes_max_);
          buffers = cut;
        }
      }
    }
    if (before) {
      if (auto instead = before(what)) {
        return *instead;
      }
    }
    const IoResult result =
        sends ? system_.send(socket, buffers) : system_.receive(socket, buffers);
    if (result.kind == IoResult::Kind::kBytes) {
      if (!sends && after_receive) {
        after_receive(what, result.bytes);
      }
      const std::lock_guard lock(mutex_);
      Entry& entry = sockets_[socket];
      (sends ? entry.sent_bytes : entry.received_bytes) += result.bytes;
    }
    return result;
  }

  static bool is_handshake(const Call& call) {
    return call.kind == Call::Kind::kSend && call.sends < (call.initiated ? 2U : 1U);
  }

  static std::vector<iovec> first_bytes(std::span<const iovec> buffers, std::size_t bytes) {
    std::vector<iovec> first;
    for (iovec part : buffers) {
      if (bytes == 0) {
        break;
      }
      part.iov_len = std::min(part.iov_len, bytes);
      bytes -= part.iov_len;
      first.push_back(part);
    }
    return first;
  }

  platform::SystemNetwork system_;
  mutable std::mutex mutex_;
  std::unordered_map<Socket, Entry> sockets_;
  std::uint32_t next_initiated_ = 0;
  std::uint32_t next_accepted_ = 0;
  std::uint32_t connects_ = 0;
  std::size_t short_bytes_max_ = 0;
  std::uint32_t would_block_thousandths_ = 0;
  std::unique_ptr<base::SeededRandom> random_;
};

}  // namespace orbite::test
