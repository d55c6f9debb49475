// SPDX-License-Identifier: Apache-2.0
#include "bench/sockets.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <memory>

#include "base/result.hpp"
#include "platform/network.hpp"

namespace orbite::tool::bench {
namespace {

constexpr base::Nanoseconds kPollMax = 10 * base::kSecond;
constexpr int kBacklog = 16;

Error system_error(const char* what) {
  return Error::make_native(ErrorCode::kSystem, errno, "%s", what);
}

bool is_disconnect(int number) { return number == EPIPE || number == ECONNRESET; }

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Result<Addresses> resolve(const HostPort& at, bool to_listen) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (to_listen ? AI_NUMERICHOST | AI_PASSIVE : 0);
  addrinfo* list = nullptr;
  const std::string port = std::to_string(at.port);
  const int code = ::getaddrinfo(at.host.c_str(), port.c_str(), &hints, &list);
  if (code != 0) {
    return fail(ErrorCode::kInvalidArgument, "'%s' is no address: %s", at.host.c_str(),
                ::gai_strerror(code));
  }
  return Addresses(list);
}

void send_without_delay(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

Result<FileDescriptor> connect_one(const addrinfo& address, base::Nanoseconds deadline_ns) {
  FileDescriptor socket(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) {
    return fail(system_error("socket"));
  }
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0 && errno != EINPROGRESS) {
    return fail(system_error("connect"));
  }
  ORBITE_TRY(wait_for(socket.get(), POLLOUT, deadline_ns));
  int code = 0;
  socklen_t bytes = sizeof(code);
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &code, &bytes) != 0 || code != 0) {
    return fail(Error::make_native(ErrorCode::kPeerUnreachable, code, "connect"));
  }
  send_without_delay(socket.get());
  return socket;
}

Result<HostPort> end_of(int socket, int (*name)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  if (name(socket, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    return fail(system_error("the address of a socket"));
  }
  if (address.ss_family != AF_INET && address.ss_family != AF_INET6) {
    return HostPort{"127.0.0.1", 0};
  }
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  const int code =
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), bytes, host.data(), host.size(),
                    port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV);
  if (code != 0) {
    return fail(ErrorCode::kSystem, "getnameinfo: %s", ::gai_strerror(code));
  }
  // An IPv4 client of an IPv6 listener.
  constexpr std::string_view kMapped = "::ffff:";
  std::string text = host.data();
  if (text.starts_with(kMapped) && text.find('.') != std::string::npos) {
    text.erase(0, kMapped.size());
  }
  return HostPort{text, static_cast<std::uint16_t>(std::stoul(port.data()))};
}

}  // namespace

base::Nanoseconds now_ns() {
  return static_cast<base::Nanoseconds>(std::chrono::steady_clock::now().time_since_epoch() /
                                        std::chrono::nanoseconds(1));
}

Result<void> wait_for(int socket, short events, base::Nanoseconds deadline_ns) {
  for (;;) {
    const base::Nanoseconds now = now_ns();
    if (now >= deadline_ns) {
      return fail(ErrorCode::kDeadlineExceeded, "the other side of a connection is silent");
    }
    const base::Nanoseconds left = std::min(deadline_ns - now, kPollMax);
    pollfd entry{socket, events, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(left / base::kMillisecond) + 1);
    if (ready > 0) {
      return {};
    }
    if (ready < 0 && errno != EINTR) {
      return fail(system_error("poll"));
    }
  }
}

Result<void> send_all(int socket, std::span<const std::uint8_t> bytes,
                      base::Nanoseconds deadline_ns) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      ORBITE_TRY(wait_for(socket, POLLOUT, deadline_ns));
    } else if (is_disconnect(errno)) {
      return fail(Error::make_native(ErrorCode::kPeerDisconnected, errno, "send"));
    } else if (errno != EINTR) {
      return fail(system_error("send"));
    }
  }
  return {};
}

Result<std::size_t> receive_some(int socket, std::span<std::uint8_t> bytes,
                                 base::Nanoseconds deadline_ns) {
  for (;;) {
    const ssize_t received = ::recv(socket, bytes.data(), bytes.size(), 0);
    if (received >= 0) {
      return static_cast<std::size_t>(received);
    }
    if (errno == EAGAIN) {
      ORBITE_TRY(wait_for(socket, POLLIN, deadline_ns));
    } else if (is_disconnect(errno)) {
      return fail(Error::make_native(ErrorCode::kPeerDisconnected, errno, "receive"));
    } else if (errno != EINTR) {
      return fail(system_error("receive"));
    }
  }
}

Result<void> receive_all(int socket, std::span<std::uint8_t> bytes, base::Nanoseconds deadline_ns) {
  while (!bytes.empty()) {
    ORBITE_ASSIGN_OR_RETURN(const std::size_t count, receive_some(socket, bytes, deadline_ns));
    if (count == 0) {
      return fail(ErrorCode::kPeerDisconnected, "the other side ended the control connection");
    }
    bytes = bytes.subspan(count);
  }
  return {};
}

Result<FileDescriptor> connect_to(const HostPort& at, base::Nanoseconds deadline_ns) {
  ORBITE_ASSIGN_OR_RETURN(const Addresses list, resolve(at, false));
  Result<FileDescriptor> socket = fail(ErrorCode::kPeerUnreachable, "no address");
  for (const addrinfo* address = list.get(); address != nullptr; address = address->ai_next) {
    socket = connect_one(*address, deadline_ns);
    if (socket) {
      return socket;
    }
  }
  return fail(Error::make_native(ErrorCode::kPeerUnreachable, socket.error().native_errno(),
                                 "cannot connect to %s", text_of(at).c_str()));
}

Result<FileDescriptor> listen_on(const HostPort& at) {
  ORBITE_ASSIGN_OR_RETURN(const Addresses list, resolve(at, true));
  FileDescriptor socket(::socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (socket.get() < 0 ||
      ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      ::bind(socket.get(), list->ai_addr, list->ai_addrlen) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    const int number = errno;
    return fail(
        Error::make_native(number == EADDRINUSE ? ErrorCode::kAddressInUse : ErrorCode::kSystem,
                           number, "cannot listen on %s", text_of(at).c_str()));
  }
  return socket;
}

Result<FileDescriptor> accept_from(int listener, base::Nanoseconds deadline_ns) {
  const base::Nanoseconds until = deadline_ns == 0 ? UINT64_MAX : deadline_ns;
  for (;;) {
    ORBITE_TRY(wait_for(listener, POLLIN, until));
    FileDescriptor socket(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.get() >= 0) {
      send_without_delay(socket.get());
      return socket;
    }
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      return fail(system_error("accept"));
    }
  }
}

Result<HostPort> local_end(int socket) { return end_of(socket, ::getsockname); }
Result<HostPort> remote_end(int socket) { return end_of(socket, ::getpeername); }

std::string text_of(const HostPort& at) {
  const bool is_ipv6 = at.host.find(':') != std::string::npos;
  return (is_ipv6 ? '[' + at.host + ']' : at.host) + ':' + std::to_string(at.port);
}

bool is_loopback(const HostPort& at) {
  const auto address = platform::SocketAddress::parse(at.host, at.port);
  return address && address->is_loopback();
}

}  // namespace orbite::tool::bench
