// SPDX-License-Identifier: Apache-2.0
// What a forked child holds of the sockets of its parent: nothing.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string>
#include <utility>

#include "platform/network.hpp"
#include "unit/platform/child_process.hpp"

namespace orbite::platform {
namespace {

constexpr base::Nanoseconds kLong = 20 * base::kSecond;

/// Forked on construction, does nothing, killed on destruction.
class LivingChild {
 public:
  LivingChild() : pid_(::fork()) {
    if (pid_ == 0) {
      while (true) {
        ::pause();
      }
    }
  }
  LivingChild(const LivingChild&) = delete;
  LivingChild& operator=(const LivingChild&) = delete;
  ~LivingChild() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  [[nodiscard]] bool lives() const { return pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) == 0; }

 private:
  pid_t pid_;
};

/// The first thing that a socket has to say, within a bound.
IoResult next(SystemNetwork& network, Socket socket) {
  const Socket poller = *network.make_poller();
  PollEvent event;
  EXPECT_TRUE(network.poller_add(poller, socket, kPollIn, 1).has_value());
  network.poller_wait(poller, {&event, 1}, kLong);
  network.close(poller);
  std::array<std::uint8_t, 16> bytes{};
  const iovec part{bytes.data(), bytes.size()};
  return network.receive(socket, {&part, 1});
}

class NetworkFork : public ::testing::Test {
 protected:
  NetworkFork() {
    listener_ = *network_.listen(SocketAddress::loopback(4, 0));
    address_ = *network_.local_address(listener_);
    client_ = *network_.connect(address_, nullptr);
    SocketAddress peer;
    server_ = *network_.accept(listener_, peer);
  }
  ~NetworkFork() override {
    for (const Socket socket : {server_, client_, listener_}) {
      if (socket != kNoSocket) {
        network_.close(socket);
      }
    }
  }
  void close(Socket& socket) { network_.close(std::exchange(socket, kNoSocket)); }

  SystemNetwork network_;
  Socket listener_ = kNoSocket;
  SocketAddress address_;
  Socket client_ = kNoSocket;
  Socket server_ = kNoSocket;
};

TEST_F(NetworkFork, AClosedConnectionEndsAlthoughAChildLives) {
  const LivingChild child;
  close(server_);
  EXPECT_EQ(next(network_, client_).kind, IoResult::Kind::kEnded);
  EXPECT_TRUE(child.lives());
}

TEST_F(NetworkFork, AClosedListenersPortIsFreeAtOnceAlthoughAChildLives) {
  const LivingChild child;
  close(listener_);
  const auto again = network_.listen(address_);
  ASSERT_TRUE(again.has_value()) << again.error().message();
  network_.close(*again);
  EXPECT_TRUE(child.lives());
}

TEST_F(NetworkFork, AChildDoesNotShutTheConnectionsOfItsParentDown) {
  ASSERT_EQ(testing::in_child([] { return std::string(); }), "");
  std::array<std::uint8_t, 1> byte{7};
  const iovec part{byte.data(), byte.size()};
  EXPECT_EQ(network_.send(server_, {&part, 1}).kind, IoResult::Kind::kBytes);
  EXPECT_EQ(next(network_, client_).kind, IoResult::Kind::kBytes);
  const auto second = network_.connect(address_, nullptr);
  ASSERT_TRUE(second.has_value());
  network_.close(*second);
}

TEST_F(NetworkFork, AChildHasNoneOfTheDescriptorsAndOpensItsOwn) {
  const Socket poller = *network_.make_poller();
  const Socket wakeup = *network_.make_wakeup();
  const Socket closed = *network_.make_wakeup();
  network_.close(closed);
  // The same number, of somebody else now.
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  const std::string answer = testing::in_child([&]() -> std::string {
    for (const Socket socket : {listener_, client_, server_, poller, wakeup}) {
      if (::fcntl(socket, F_GETFD) != -1 || errno != EBADF) {
        return "descriptor " + std::to_string(socket) + " is open";
      }
    }
    if (::fcntl(ends[0], F_GETFD) == -1 || ::fcntl(ends[1], F_GETFD) == -1) {
      return "a descriptor of somebody else is closed";
    }
    SystemNetwork own;
    const auto listener = own.listen(SocketAddress::loopback(4, 0));
    const auto client = own.connect(*own.local_address(*listener), nullptr);
    SocketAddress peer;
    return client && own.accept(*listener, peer) ? "" : "the child cannot accept";
  });
  EXPECT_EQ(answer, "");
  ::close(ends[0]);
  ::close(ends[1]);
  network_.close(poller);
  network_.close(wakeup);
}

/// Killed, a process tells its peers by the FIN or RST of its kernel: its child has no say in it.
TEST_F(NetworkFork, AKilledParentsConnectionEndsAlthoughItsChildLives) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    SystemNetwork network;
    const auto socket = network.connect(address_, nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
      while (true) {
        ::pause();
      }
    }
    const ssize_t written = ::write(ends[1], &child, sizeof(child));
    while (socket && written == sizeof(child)) {
      ::pause();
    }
    ::_exit(1);
  }
  pid_t child = -1;
  ASSERT_EQ(::read(ends[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  SocketAddress peer;
  const auto accepted = network_.accept(listener_, peer);
  ASSERT_TRUE(accepted.has_value());
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  EXPECT_EQ(next(network_, *accepted).kind, IoResult::Kind::kEnded);
  EXPECT_EQ(::kill(child, 0), 0);
  ::kill(child, SIGKILL);
  network_.close(*accepted);
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace orbite::platform
