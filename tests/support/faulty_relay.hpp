// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <list>
#include <thread>
#include <vector>

#include "base/random.hpp"

namespace orbite::test {

/// Stands between two engines on the loopback and resets each connection after a random number of
/// bytes, towards both of them. It never sends a FIN of its own: that would be a lie about the
/// peer.
class FaultyRelay {
 public:
  explicit FaultyRelay(std::uint64_t seed) : random_(seed) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_in address = loopback(0);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(listener_, 64), 0);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  FaultyRelay(const FaultyRelay&) = delete;
  FaultyRelay& operator=(const FaultyRelay&) = delete;
  ~FaultyRelay() {
    stop_.store(true, std::memory_order_relaxed);
    if (thread_.joinable()) {
      thread_.join();
    }
    while (!pairs_.empty()) {
      reset(pairs_.begin());
    }
    ::close(listener_);
  }

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  void start(std::uint16_t target) {
    target_ = target;
    thread_ = std::thread([this] { run(); });
  }
  /// From now on connections live.
  void heal() noexcept { faulty_.store(false, std::memory_order_relaxed); }
  void break_again() noexcept { faulty_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t resets() const noexcept {
    return resets_.load(std::memory_order_relaxed);
  }

 private:
  struct Side {
    int fd = -1;
    std::vector<std::uint8_t> out;  ///< to be sent on it
    bool ended = false;             ///< it sent its FIN
    bool told = false;              ///< and the other side knows
  };
  struct Pair {
    std::array<Side, 2> sides;
    std::uint64_t bytes_left = 0;
  };
  using Pairs = std::list<Pair>;

  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
  }

  void run() {
    while (!stop_.load(std::memory_order_relaxed)) {
      std::vector<pollfd> waiting{{listener_, POLLIN, 0}};
      for (const Pair& pair : pairs_) {
        for (std::size_t i = 0; i < 2; ++i) {
          const bool reads = !pair.sides[i].ended && pair.sides[1 - i].out.empty();
          const bool writes = !pair.sides[i].out.empty();
          waiting.push_back({pair.sides[i].fd,
                             static_cast<short>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0)), 0});
        }
      }
      ::poll(waiting.data(), waiting.size(), 10);
      for (auto pair = pairs_.begin(); pair != pairs_.end();) {
        const auto next = std::next(pair);
        if (!move(*pair)) {
          reset(pair);
        } else if (pair->sides[0].told && pair->sides[1].told) {
          end(pair);
        }
        pair = next;
      }
      accept_waiting();
    }
  }

  void accept_waiting() {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      return;
    }
    const int far = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = loopback(target_);
    Pair& pair = pairs_.emplace_back();
    pair.sides[0].fd = fd;
    pair.sides[1].fd = far;
    pair.bytes_left = 20'000 + random_.next_u64() % 2'000'000;
    if (::connect(far, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      reset(std::prev(pairs_.end()));
      return;
    }
    const int on = 1;
    for (const Side& side : pair.sides) {
      ::fcntl(side.fd, F_SETFL, ::fcntl(side.fd, F_GETFL) | O_NONBLOCK);
      ::setsockopt(side.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }
  }

  /// False: the connection ends with a reset.
  bool move(Pair& pair) {
    for (std::size_t i = 0; i < 2; ++i) {
      Side& from = pair.sides[i];
      Side& to = pair.sides[1 - i];
      if (!from.ended && to.out.empty()) {
        to.out.resize(64 << 10);
        const ssize_t got = ::recv(from.fd, to.out.data(), to.out.size(), 0);
        const int failure = errno;
        to.out.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
        from.ended = got == 0;
        if (got < 0 && failure != EAGAIN) {
          return false;
        }
      }
      if (!to.out.empty()) {
        const ssize_t sent = ::send(to.fd, to.out.data(), to.out.size(), MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) {
          return false;
        }
        const std::uint64_t moved = sent > 0 ? static_cast<std::uint64_t>(sent) : 0;
        to.out.erase(to.out.begin(), to.out.begin() + static_cast<std::ptrdiff_t>(moved));
        if (faulty_.load(std::memory_order_relaxed) && moved > pair.bytes_left) {
          resets_.fetch_add(1, std::memory_order_relaxed);
          return false;
        }
        pair.bytes_left -= std::min(moved, pair.bytes_left);
      }
      if (from.ended && to.out.empty() && !from.told) {
        ::shutdown(to.fd, SHUT_WR);
        from.told = true;
      }
    }
    return true;
  }

  void reset(Pairs::iterator pair) {
    const linger now{1, 0};
    for (const Side& side : pair->sides) {
      ::setsockopt(side.fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    }
    end(pair);
  }
  void end(Pairs::iterator pair) {
    for (const Side& side : pair->sides) {
      ::close(side.fd);
    }
    pairs_.erase(pair);
  }

  base::SeededRandom random_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::uint16_t target_ = 0;
  Pairs pairs_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> faulty_{true};
  std::atomic<std::uint64_t> resets_{0};
  std::thread thread_;
};

}  // namespace orbite::test
