// SPDX-License-Identifier: Apache-2.0
#include "platform/network.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "unit/platform/child_process.hpp"
#include "unit/platform/network_rig.hpp"

namespace orbite::platform {
namespace {

using testing::deny_system_call;
using testing::in_child;
using testing::in_new_network_namespace;

/// Cuts `bytes` into buffers of mixed sizes, empty ones included.
std::vector<iovec> cut(std::span<std::uint8_t> bytes, std::uint64_t seed) {
  base::SeededRandom random(seed);
  std::vector<iovec> buffers;
  while (!bytes.empty()) {
    const std::size_t length = std::min<std::size_t>(random.next_u64() % 2000, bytes.size());
    buffers.push_back(buffer(bytes.first(length)));
    bytes = bytes.subspan(length);
  }
  return buffers;
}

/// Drops the first `count` bytes of what is left to move.
void advance(std::vector<iovec>& buffers, std::size_t& first, std::size_t count) {
  while (first < buffers.size() && (count > 0 || buffers[first].iov_len == 0)) {
    iovec& it = buffers[first];
    const std::size_t step = std::min(count, it.iov_len);
    it.iov_base = static_cast<std::uint8_t*>(it.iov_base) + step;
    it.iov_len -= step;
    count -= step;
    first += it.iov_len == 0 ? 1 : 0;
  }
}

/// Moves all buffers, one side of a stream; false when the stream fails.
struct Mover {
  Mover(SystemNetwork& network_to_use, Socket socket_to_use, bool sends_bytes,
        std::vector<iovec> to_move)
      : network(network_to_use),
        socket(socket_to_use),
        sends(sends_bytes),
        buffers(std::move(to_move)) {}
  bool step() {
    if (done()) {
      return true;
    }
    const std::span<const iovec> rest = std::span(buffers).subspan(first);
    const IoResult result = sends ? network.send(socket, rest) : network.receive(socket, rest);
    advance(buffers, first, result.bytes);
    largest = std::max(largest, result.bytes);
    return result.kind == IoResult::Kind::kBytes || result.kind == IoResult::Kind::kWouldBlock;
  }
  [[nodiscard]] bool done() const { return first == buffers.size(); }

  SystemNetwork& network;
  Socket socket;
  bool sends;
  std::vector<iovec> buffers;
  std::size_t first = 0;
  std::size_t largest = 0;
};

bool move_all(SystemNetwork& network, Socket from, std::span<std::uint8_t> source, Socket to,
              std::span<std::uint8_t> target) {
  Mover sender(network, from, true, cut(source, 1));
  Mover receiver(network, to, false, cut(target, 2));
  for (int i = 0; i < 1'000'000 && !(sender.done() && receiver.done()); ++i) {
    if (!sender.step() || !receiver.step()) {
      return false;
    }
  }
  return sender.done() && receiver.done() && sender.largest > 2000;
}

TEST(NetworkLoopback, EchoesVectoredBuffersInEveryFamily) {
  for (const std::uint8_t family : loopback_families()) {
    Connection connection(family);
    EXPECT_EQ(connection.peer.family(), family);
    EXPECT_TRUE(connection.peer.is_loopback()) << connection.peer.text();
    EXPECT_EQ(connection.peer, *connection.network.local_address(connection.client));
    // Far more buffers than one system call takes.
    std::vector<std::uint8_t> sent(5'000'000);
    base::SeededRandom(family).fill(sent);
    std::vector<std::uint8_t> received(sent.size());
    ASSERT_TRUE(move_all(connection.network, connection.client, sent, connection.server, received));
    EXPECT_TRUE(sent == received);
    std::vector<std::uint8_t> echoed(sent.size());
    ASSERT_TRUE(
        move_all(connection.network, connection.server, received, connection.client, echoed));
    EXPECT_TRUE(sent == echoed);
  }
}

TEST(NetworkLoopback, EverySocketIsNonBlockingAndCloseOnExec) {
  Connection connection(4);
  const Socket poller = *connection.network.make_poller();
  const Socket wakeup = *connection.network.make_wakeup();
  for (const Socket socket :
       {connection.listener, connection.client, connection.server, poller, wakeup}) {
    EXPECT_NE(::fcntl(socket, F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_TRUE(socket == poller || (::fcntl(socket, F_GETFL) & O_NONBLOCK) != 0);
  }
  connection.network.close(poller);
  connection.network.close(wakeup);
}

TEST(NetworkListen, OnAnyIpv6AddressServesBothFamilies) {
  SystemNetwork network;
  const Socket listener = *network.listen(SocketAddress::any(6, 0));
  const auto bound = *network.local_address(listener);
  EXPECT_TRUE(bound.is_any());
  EXPECT_NE(bound.port(), 0);
  for (const std::uint8_t family : loopback_families()) {
    const Socket client = *network.connect(SocketAddress::loopback(family, bound.port()), nullptr);
    ASSERT_TRUE(wait_for(network, listener, kPollIn));
    SocketAddress peer;
    const auto server = network.accept(listener, peer);
    ASSERT_TRUE(server) << server.error().message();
    EXPECT_EQ(peer.family(), family) << peer.text();
    EXPECT_EQ(peer, *network.local_address(client));
    network.close(*server);
    network.close(client);
  }
  network.close(listener);
}

TEST(NetworkListen, OnAnyIpv6AddressFallsBackToIpv4) {
  for (const int reason : {EAFNOSUPPORT, EPROTONOSUPPORT}) {
    EXPECT_EQ(in_child([&]() -> std::string {
                if (auto failure = deny_system_call(SYS_socket, reason, AF_INET6);
                    !failure.empty()) {
                  return failure;
                }
                SystemNetwork network;
                const auto listener = network.listen(SocketAddress::any(6, 0));
                if (!listener) {
                  return listener.error().message();
                }
                const auto bound = *network.local_address(*listener);
                const auto v6 = network.listen(SocketAddress::loopback(6, 0));
                const auto out = network.connect(SocketAddress::loopback(6, 1), nullptr);
                return bound.family() == 4 && bound.is_any() && !v6 &&
                               v6.error().native_errno() == reason && !out &&
                               out.error().code() == ErrorCode::kPeerUnreachable
                           ? ""
                           : bound.text();
              }),
              "");
  }
}

TEST(NetworkListen, APortInUseIsAnErrorThatNamesTheAddress) {
  SystemNetwork network;
  for (const std::uint8_t family : loopback_families()) {
    const Socket first = *network.listen(SocketAddress::loopback(family, 0));
    const auto address = *network.local_address(first);
    const auto second = network.listen(address);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code(), ErrorCode::kAddressInUse);
    EXPECT_EQ(second.error().native_errno(), EADDRINUSE);
    EXPECT_NE(second.error().message().find(address.text()), std::string::npos)
        << second.error().message();
    network.close(first);
    const auto third = network.listen(address);
    ASSERT_TRUE(third) << third.error().message();
    network.close(*third);
  }
}

TEST(NetworkListen, AnAddressOfAnotherHostIsAnErrorThatNamesIt) {
  SystemNetwork network;
  const auto result = network.listen(*SocketAddress::parse("203.0.113.7", 4711));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::kAddressNotLocal);
  EXPECT_NE(result.error().message().find("203.0.113.7:4711"), std::string::npos);
}

TEST(NetworkListen, AnUnsetAddressIsRefused) {
  SystemNetwork network;
  const auto result = network.listen(SocketAddress());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::kInvalidArgument);
}

TEST(NetworkAccept, NobodyIsNotFound) {
  SystemNetwork network;
  const Socket listener = *network.listen(SocketAddress::loopback(4, 0));
  SocketAddress peer;
  const auto result = network.accept(listener, peer);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::kNotFound);
  network.close(listener);
}

TEST(NetworkAccept, WithoutDescriptorsIsASystemErrorAndNotNobody) {
  EXPECT_EQ(
      in_child([]() -> std::string {
        SystemNetwork network;
        const Socket listener = *network.listen(SocketAddress::loopback(4, 0));
        static_cast<void>(*network.connect(*network.local_address(listener), nullptr));
        if (!wait_for(network, listener, kPollIn)) {
          return "no client";
        }
        rlimit before{};
        if (::getrlimit(RLIMIT_NOFILE, &before) != 0) {
          return "getrlimit";
        }
        const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
        if (::setrlimit(RLIMIT_NOFILE, &none) != 0) {
          return "setrlimit";
        }
        SocketAddress peer;
        const auto result = network.accept(listener, peer);
        const auto poller = network.make_poller();
        const auto wakeup = network.make_wakeup();
        const auto out = network.connect(SocketAddress::loopback(4, 1), nullptr);
        // The sanitizers' own checks need descriptors too.
        if (::setrlimit(RLIMIT_NOFILE, &before) != 0) {
          return "setrlimit";
        }
        for (const Error& error : {result.error(), poller.error(), wakeup.error(), out.error()}) {
          if (error.code() != ErrorCode::kSystem || error.native_errno() != EMFILE) {
            return error.message();
          }
        }
        return "";
      }),
      "");
}

/// A loopback address whose port nobody listens on.
SocketAddress closed_address(SystemNetwork& network, std::uint8_t family) {
  const Socket listener = *network.listen(SocketAddress::loopback(family, 0));
  const auto address = *network.local_address(listener);
  network.close(listener);
  return address;
}

TEST(NetworkConnect, ARefusalStaysAFailure) {
  SystemNetwork network;
  const auto socket = network.connect(closed_address(network, 4), nullptr);
  ASSERT_TRUE(socket) << socket.error().message();
  ASSERT_TRUE(wait_for(network, *socket, kPollOut));
  const IoResult first = network.connect_result(*socket);
  EXPECT_EQ(first.kind, IoResult::Kind::kFailed);
  EXPECT_EQ(first.native_errno, ECONNREFUSED);
  const IoResult second = network.connect_result(*socket);
  EXPECT_EQ(second.kind, IoResult::Kind::kFailed);
  EXPECT_NE(second.native_errno, 0);
  network.close(*socket);
}

TEST(NetworkConnect, UndecidedIsWouldBlock) {
  // The queue of a listener that accepts nobody is full, so the kernel drops what comes.
  EXPECT_EQ(in_child([]() -> std::string {
              SystemNetwork network;
              const Socket listener = *network.listen(SocketAddress::loopback(4, 0));
              if (::listen(listener, 0) != 0) {
                return "listen";
              }
              const auto address = *network.local_address(listener);
              for (int i = 0; i < 8; ++i) {
                const Socket socket = *network.connect(address, nullptr);
                if (network.connect_result(socket).kind == IoResult::Kind::kWouldBlock) {
                  return "";
                }
              }
              return "all eight were decided at once";
            }),
            "");
}

TEST(NetworkConnect, AConnectionToItselfIsARefusal) {
  SystemNetwork network;
  const auto address = closed_address(network, 4);
  const auto socket = network.connect(address, &address);
  ASSERT_TRUE(socket) << socket.error().message();
  ASSERT_TRUE(wait_for(network, *socket, kPollOut));
  const IoResult result = network.connect_result(*socket);
  EXPECT_EQ(result.kind, IoResult::Kind::kFailed);
  EXPECT_EQ(result.native_errno, ECONNREFUSED);
  network.close(*socket);
}

TEST(NetworkConnect, ComesFromTheSourceAddress) {
  SystemNetwork network;
  const Socket listener = *network.listen(SocketAddress::any(4, 0));
  const auto address = SocketAddress::loopback(4, network.local_address(listener)->port());
  const auto source = *SocketAddress::parse("127.0.0.77", 0);
  const auto client = network.connect(address, &source);
  ASSERT_TRUE(client) << client.error().message();
  ASSERT_TRUE(wait_for(network, listener, kPollIn));
  SocketAddress peer;
  const Socket server = *network.accept(listener, peer);
  EXPECT_EQ(peer.bytes(), source.bytes()) << peer.text();
  EXPECT_NE(peer.port(), 0);
  for (const Socket socket : {listener, *client, server}) {
    network.close(socket);
  }
}

TEST(NetworkConnect, BadAddressesAreRefusedByName) {
  SystemNetwork network;
  const auto loopback = SocketAddress::loopback(4, 9);
  const auto not_ours = *SocketAddress::parse("203.0.113.7", 0);
  const auto ipv6 = SocketAddress::loopback(6, 0);
  const auto foreign = network.connect(loopback, &not_ours);
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error().code(), ErrorCode::kAddressNotLocal);
  EXPECT_NE(foreign.error().message().find("203.0.113.7"), std::string::npos);
  const auto mixed = network.connect(loopback, &ipv6);
  ASSERT_FALSE(mixed);
  EXPECT_EQ(mixed.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(mixed.error().message().find("[::1]:0"), std::string::npos);
  const auto no_port = network.connect(SocketAddress::loopback(4, 0), nullptr);
  ASSERT_FALSE(no_port);
  EXPECT_EQ(no_port.error().code(), ErrorCode::kInvalidArgument);
  const auto unset = network.connect(SocketAddress(), nullptr);
  ASSERT_FALSE(unset);
  EXPECT_EQ(unset.error().code(), ErrorCode::kInvalidArgument);
}

TEST(NetworkConnect, WithoutARouteIsUnreachable) {
  EXPECT_EQ(in_new_network_namespace([]() -> std::string {
              SystemNetwork network;
              const auto result = network.connect(*SocketAddress::parse("203.0.113.7", 9), nullptr);
              if (result) {
                return "connected";
              }
              return result.error().code() == ErrorCode::kPeerUnreachable &&
                             result.error().message().find("203.0.113.7:9") != std::string::npos
                         ? ""
                         : result.error().message();
            }),
            "");
}

TEST(NetworkStream, NothingToReadWouldBlock) {
  Connection connection(4);
  std::uint8_t byte = 0;
  const iovec one = buffer({&byte, 1});
  EXPECT_EQ(connection.network.receive(connection.client, {&one, 1}).kind,
            IoResult::Kind::kWouldBlock);
}

TEST(NetworkStream, EmptyBuffersSayNothingAboutThePeer) {
  Connection connection(4);
  std::uint8_t byte = 7;
  // The kernel sees 1,024 of these, all empty.
  std::vector<iovec> buffers(1025, buffer({}));
  buffers[1024] = buffer({&byte, 1});
  for (const std::span<const iovec> empty :
       {std::span<const iovec>(), std::span<const iovec>(buffers)}) {
    EXPECT_EQ(connection.network.send(connection.client, empty).kind, IoResult::Kind::kWouldBlock);
    EXPECT_EQ(connection.network.receive(connection.client, empty).kind,
              IoResult::Kind::kWouldBlock);
  }
}

TEST(NetworkStream, FinEndsOneDirectionOnly) {
  Connection connection(4);
  std::uint8_t byte = 42;
  const iovec one = buffer({&byte, 1});
  ASSERT_EQ(connection.network.send(connection.client, {&one, 1}).bytes, 1U);
  connection.network.shutdown_send(connection.client);
  connection.network.shutdown_send(connection.client);
  ASSERT_TRUE(wait_for(connection.network, connection.server, kPollIn));
  byte = 0;
  EXPECT_EQ(connection.network.receive(connection.server, {&one, 1}).bytes, 1U);
  EXPECT_EQ(byte, 42);
  ASSERT_TRUE(wait_for(connection.network, connection.server, kPollIn));
  EXPECT_EQ(connection.network.receive(connection.server, {&one, 1}).kind, IoResult::Kind::kEnded);
  EXPECT_EQ(connection.network.send(connection.server, {&one, 1}).bytes, 1U);
  ASSERT_TRUE(wait_for(connection.network, connection.client, kPollIn));
  EXPECT_EQ(connection.network.receive(connection.client, {&one, 1}).bytes, 1U);
  EXPECT_EQ(connection.network.send(connection.client, {&one, 1}).native_errno, EPIPE);
}

TEST(NetworkStream, AResetIsAFailureWithItsErrno) {
  Connection connection(4);
  std::uint8_t byte = 1;
  const iovec one = buffer({&byte, 1});
  // A peer that says nothing before it resets, as at the end of a process with bytes unread.
  const linger at_once{1, 0};
  ASSERT_EQ(::setsockopt(connection.server, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
  ASSERT_EQ(::close(std::exchange(connection.server, kNoSocket)), 0);
  ASSERT_TRUE(wait_for(connection.network, connection.client, 0));
  const IoResult result = connection.network.receive(connection.client, {&one, 1});
  EXPECT_EQ(result.kind, IoResult::Kind::kFailed);
  EXPECT_EQ(result.native_errno, ECONNRESET);
}

TEST(NetworkStream, AFullSocketBlocksUntilThePeerReads) {
  Connection connection(4);
  std::vector<std::uint8_t> bytes(1 << 20);
  const iovec many = buffer(bytes);
  IoResult result{.kind = IoResult::Kind::kBytes, .bytes = 0, .native_errno = 0};
  std::size_t total = 0;
  for (int i = 0; i < 10'000 && result.kind == IoResult::Kind::kBytes; ++i) {
    result = connection.network.send(connection.client, {&many, 1});
    total += result.bytes;
  }
  ASSERT_EQ(result.kind, IoResult::Kind::kWouldBlock);
  const Socket poller = *connection.network.make_poller();
  ASSERT_TRUE(connection.network.poller_add(poller, connection.client, kPollOut, 5));
  PollEvent event;
  for (int i = 0; i < 1'000'000 && total > 0; ++i) {
    const IoResult read = connection.network.receive(connection.server, {&many, 1});
    ASSERT_NE(read.kind, IoResult::Kind::kFailed);
    total -= read.bytes;
  }
  EXPECT_EQ(total, 0U);
  ASSERT_EQ(connection.network.poller_wait(poller, {&event, 1}, kLong), 1U);
  EXPECT_EQ(event.token, 5U);
  EXPECT_EQ(event.events, kPollOut);
  connection.network.close(poller);
}

int option_of(Socket socket, int level, int name) {
  int value = -1;
  socklen_t bytes = sizeof(value);
  EXPECT_EQ(::getsockopt(socket, level, name, &value, &bytes), 0);
  return value;
}

std::string congestion_control_of(Socket socket) {
  char name[16] = {};
  socklen_t bytes = sizeof(name);
  EXPECT_EQ(::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, &bytes), 0);
  return name;
}

TEST(NetworkConfigure, SetsWhatTheSystemAllows) {
  Connection connection(4);
  const std::string before = congestion_control_of(connection.client);
  connection.network.configure(connection.client, {});
  EXPECT_NE(option_of(connection.client, IPPROTO_TCP, TCP_NODELAY), 0);
  EXPECT_EQ(option_of(connection.client, SOL_SOCKET, SO_KEEPALIVE), 0);
  EXPECT_EQ(congestion_control_of(connection.client), before);

  const int user_timeout = option_of(connection.client, IPPROTO_TCP, TCP_USER_TIMEOUT);
  connection.network.configure(
      connection.client, {.keepalive_idle_ns = 60 * base::kSecond, .congestion_control = "reno"});
  EXPECT_NE(option_of(connection.client, SOL_SOCKET, SO_KEEPALIVE), 0);
  EXPECT_EQ(option_of(connection.client, IPPROTO_TCP, TCP_KEEPIDLE), 60);
  EXPECT_EQ(option_of(connection.client, IPPROTO_TCP, TCP_KEEPINTVL), 12);
  EXPECT_EQ(option_of(connection.client, IPPROTO_TCP, TCP_KEEPCNT), 5);
  EXPECT_EQ(option_of(connection.client, IPPROTO_TCP, TCP_USER_TIMEOUT), user_timeout);
  EXPECT_EQ(congestion_control_of(connection.client), "reno");

  connection.network.configure(connection.client, {.keepalive_idle_ns = ~base::Nanoseconds{0},
                                                   .congestion_control = "no-such-algorithm"});
  EXPECT_EQ(option_of(connection.client, IPPROTO_TCP, TCP_KEEPIDLE), 32767);
  EXPECT_EQ(congestion_control_of(connection.client), "reno");
  connection.network.configure(
      connection.client, {.keepalive_idle_ns = 1, .congestion_control = std::string(5000, 'x')});
  EXPECT_EQ(option_of(connection.client, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
  EXPECT_EQ(option_of(connection.client, IPPROTO_TCP, TCP_KEEPIDLE), 1);
  connection.network.configure(
      connection.client, {.congestion_control = {}, .unacknowledged_max_ns = 3 * base::kSecond});
  EXPECT_EQ(option_of(connection.client, IPPROTO_TCP, TCP_USER_TIMEOUT), 3000);
  connection.network.configure(connection.client, {.congestion_control = {},
                                                   .unacknowledged_max_ns = ~base::Nanoseconds{0}});
  EXPECT_EQ(option_of(connection.client, IPPROTO_TCP, TCP_USER_TIMEOUT), INT_MAX);
  EXPECT_EQ(option_of(connection.client, IPPROTO_TCP, TCP_KEEPINTVL), 1);
  connection.network.configure(connection.client, {});
  EXPECT_EQ(option_of(connection.client, SOL_SOCKET, SO_KEEPALIVE), 0);
}

}  // namespace
}  // namespace orbite::platform
