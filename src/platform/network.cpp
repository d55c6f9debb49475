// SPDX-License-Identifier: Apache-2.0
#include "platform/network.hpp"

#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <ctime>

#include "base/assert.hpp"
#include "platform/native_address.hpp"
#include "platform/open_descriptors.hpp"

namespace orbite::platform {
namespace {

static_assert(IOV_MAX == 1024, "the contract of send and receive names it");

constexpr int kAcceptTriesMax = 16;
constexpr std::size_t kEventsPerWaitMax = 64;
constexpr base::Nanoseconds kKeepaliveSecondsMax = 32'767;  // the kernel's
constexpr int kKeepaliveProbes = 5;

/// Closes what a failed call leaves behind.
class OwnedSocket {
 public:
  explicit OwnedSocket(int fd) : fd_(fd) {}
  OwnedSocket(const OwnedSocket&) = delete;
  OwnedSocket& operator=(const OwnedSocket&) = delete;
  ~OwnedSocket() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }
  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] Socket release() noexcept {
    note_opened(fd_);
    return std::exchange(fd_, -1);
  }

 private:
  int fd_;
};

// Best effort: what the system refuses stays as it was.
void set_option(int fd, int level, int name, int value) {
  static_cast<void>(::setsockopt(fd, level, name, &value, sizeof(value)));
}

tl::unexpected<Error> fail_native(ErrorCode code, int native_errno, const char* what,
                                  const SocketAddress& address) {
  return fail(Error::make_native(code, native_errno, "%s %s", what, address.text().c_str()));
}

ErrorCode bind_error(int native_errno) {
  switch (native_errno) {
    case EADDRINUSE:
      return ErrorCode::kAddressInUse;
    case EADDRNOTAVAIL:
      return ErrorCode::kAddressNotLocal;
    default:
      return ErrorCode::kSystem;
  }
}

int open_stream(const SocketAddress& address) {
  return ::socket(address.family() == 4 ? AF_INET : AF_INET6,
                  SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
}

/// The host has no IPv6, or has it switched off.
bool means_no_ipv6(int native_errno) {
  return native_errno == EAFNOSUPPORT || native_errno == EPROTONOSUPPORT ||
         native_errno == EADDRNOTAVAIL;
}

Result<Socket> listen_on(const SocketAddress& address) {
  OwnedSocket socket(open_stream(address));
  if (socket.get() < 0) {
    return fail_native(ErrorCode::kSystem, errno, "no socket for", address);
  }
  set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.family() == 6) {
    set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, address.is_any() ? 0 : 1);
  }
  const NativeAddress native = NativeAddress::from(address);
  // Two sockets with SO_REUSEADDR may both bind a port; the second one's listen() is refused.
  if (::bind(socket.get(), native.get(), native.bytes) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    return fail_native(bind_error(errno), errno, "cannot listen on", address);
  }
  return socket.release();
}

Result<void> bind_source(int fd, const SocketAddress& source) {
  if (source.port() == 0) {
    // The port is chosen by connect(), which knows the destination: many more fit.
    set_option(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
  } else {
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  }
  const NativeAddress native = NativeAddress::from(source);
  if (::bind(fd, native.get(), native.bytes) != 0) {
    return fail_native(bind_error(errno), errno, "cannot connect from", source);
  }
  return {};
}

ErrorCode connect_error(int native_errno) {
  switch (native_errno) {
    case ECONNREFUSED:
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENETDOWN:
    case ETIMEDOUT:
    case EADDRNOTAVAIL:  // no route from here, or no free port
    case EACCES:         // a firewall
    case EPERM:
      return ErrorCode::kPeerUnreachable;
    default:
      return ErrorCode::kSystem;
  }
}

/// Names of both ends are equal: a connect to a free port of our own may meet itself.
bool is_connected_to_itself(int fd, const NativeAddress& peer) {
  NativeAddress local;
  local.bytes = sizeof(local.storage);
  return ::getsockname(fd, local.get(), &local.bytes) == 0 &&
         to_socket_address(local.get()) == to_socket_address(peer.get());
}

IoResult failed(int native_errno) {
  return {.kind = IoResult::Kind::kFailed, .bytes = 0, .native_errno = native_errno};
}

IoResult would_block() { return {}; }

/// Nothing moved because the caller gave no room: that says nothing about the peer.
bool all_empty(std::span<const iovec> buffers) {
  return std::all_of(buffers.begin(), buffers.end(), [](const iovec& b) { return b.iov_len == 0; });
}

IoResult io_result(ssize_t moved) {
  if (moved > 0) {
    return {.kind = IoResult::Kind::kBytes,
            .bytes = static_cast<std::size_t>(moved),
            .native_errno = 0};
  }
  if (moved < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
    return failed(errno);
  }
  return would_block();
}

msghdr message_of(std::span<const iovec> buffers) {
  msghdr message{};
  // SAFETY: the kernel does not write the vector, only what it points to.
  message.msg_iov = const_cast<iovec*>(buffers.data());
  message.msg_iovlen = buffers.size();
  return message;
}

std::span<const iovec> first_buffers(std::span<const iovec> buffers) {
  return buffers.first(std::min<std::size_t>(buffers.size(), IOV_MAX));
}

std::uint32_t native_events(std::uint32_t events) {
  return ((events & kPollIn) != 0 ? static_cast<std::uint32_t>(EPOLLIN) : 0) |
         ((events & kPollOut) != 0 ? static_cast<std::uint32_t>(EPOLLOUT) : 0);
}

std::uint32_t poll_events(std::uint32_t native) {
  return ((native & EPOLLIN) != 0 ? kPollIn : 0) | ((native & EPOLLOUT) != 0 ? kPollOut : 0) |
         ((native & (EPOLLERR | EPOLLHUP)) != 0 ? kPollError : 0);
}

int control(Socket poller, int operation, Socket socket, std::uint32_t events,
            std::uint64_t token) {
  epoll_event event{};
  event.events = native_events(events);
  event.data.u64 = token;
  return ::epoll_ctl(poller, operation, socket, &event);
}

int wait_milliseconds(Socket poller, std::span<epoll_event> events, base::Nanoseconds timeout_ns) {
  const base::Nanoseconds rounded_up =
      timeout_ns / base::kMillisecond + (timeout_ns % base::kMillisecond != 0 ? 1 : 0);
  return ::epoll_wait(poller, events.data(), static_cast<int>(events.size()),
                      static_cast<int>(std::min<base::Nanoseconds>(rounded_up, INT_MAX)));
}

int wait_nanoseconds(Socket poller, std::span<epoll_event> events, base::Nanoseconds timeout_ns) {
  // By number: the C library's wrapper is younger than some systems that we run on.
  // Relaxed: each thread would find out for itself.
  static std::atomic<bool> available{true};
  if (available.load(std::memory_order_relaxed)) {
    const timespec timeout{.tv_sec = static_cast<time_t>(timeout_ns / base::kSecond),
                           .tv_nsec = static_cast<long>(timeout_ns % base::kSecond)};
    const long count = ::syscall(SYS_epoll_pwait2, poller, events.data(),
                                 static_cast<int>(events.size()), &timeout, nullptr, 0);
    // EPERM: what some system call filters answer for a call that they do not know.
    if (count >= 0 || (errno != ENOSYS && errno != EPERM)) {
      return static_cast<int>(count);
    }
    available.store(false, std::memory_order_relaxed);
  }
  return wait_milliseconds(poller, events, timeout_ns);
}

}  // namespace

Result<Socket> SystemNetwork::listen(const SocketAddress& address) {
  if (address.family() == 0) {
    return fail(ErrorCode::kInvalidArgument, "no address to listen on");
  }
  auto socket = listen_on(address);
  if (!socket && address.family() == 6 && address.is_any() &&
      means_no_ipv6(socket.error().native_errno())) {
    return listen_on(SocketAddress::any(4, address.port()));
  }
  return socket;
}

Result<SocketAddress> SystemNetwork::local_address(Socket socket) {
  NativeAddress native;
  native.bytes = sizeof(native.storage);
  if (::getsockname(socket, native.get(), &native.bytes) != 0) {
    return fail(
        Error::make_native(ErrorCode::kSystem, errno, "no local address of socket %d", socket));
  }
  return to_socket_address(native.get());
}

Result<Socket> SystemNetwork::accept(Socket listener, SocketAddress& peer) {
  for (int i = 0; i < kAcceptTriesMax; ++i) {
    NativeAddress native;
    native.bytes = sizeof(native.storage);
    const int fd = ::accept4(listener, native.get(), &native.bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      note_opened(fd);
      peer = to_socket_address(native.get());
      return fd;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM ||
        errno == EBADF || errno == EINVAL || errno == ENOTSOCK || errno == EOPNOTSUPP) {
      return fail(Error::make_native(ErrorCode::kSystem, errno, "cannot accept"));
    }
    // Anything else is the fate of the one connection that was next.
  }
  return fail(ErrorCode::kNotFound, "nobody is waiting");
}

Result<Socket> SystemNetwork::connect(const SocketAddress& address, const SocketAddress* source) {
  if (address.family() == 0 || address.port() == 0) {
    return fail(ErrorCode::kInvalidArgument, "cannot connect to %s", address.text().c_str());
  }
  if (source != nullptr && source->family() != address.family()) {
    return fail(ErrorCode::kInvalidArgument, "cannot connect to %s from %s: other family",
                address.text().c_str(), source->text().c_str());
  }
  OwnedSocket socket(open_stream(address));
  if (socket.get() < 0) {
    return fail_native(means_no_ipv6(errno) ? ErrorCode::kPeerUnreachable : ErrorCode::kSystem,
                       errno, "no socket for", address);
  }
  if (source != nullptr) {
    ORBITE_TRY(bind_source(socket.get(), *source));
  }
  const NativeAddress native = NativeAddress::from(address);
  if (::connect(socket.get(), native.get(), native.bytes) != 0 && errno != EINPROGRESS &&
      errno != EINTR) {
    return fail_native(connect_error(errno), errno, "cannot connect to", address);
  }
  return socket.release();
}

IoResult SystemNetwork::connect_result(Socket socket) {
  int error = 0;
  socklen_t bytes = sizeof(error);
  if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) {
    return failed(errno);
  }
  if (error != 0) {
    return failed(error);
  }
  NativeAddress peer;
  peer.bytes = sizeof(peer.storage);
  if (::getpeername(socket, peer.get(), &peer.bytes) == 0) {
    if (is_connected_to_itself(socket, peer)) {
      return failed(ECONNREFUSED);
    }
    return {.kind = IoResult::Kind::kBytes, .bytes = 0, .native_errno = 0};
  }
  const int reason = errno;
  // SO_ERROR is told once; a socket that is not trying any more has failed, whoever read why.
  tcp_info info{};
  bytes = sizeof(info);
  const bool trying = ::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
                      info.tcpi_state == TCP_SYN_SENT;
  return trying ? would_block() : failed(reason);
}

IoResult SystemNetwork::send(Socket socket, std::span<const iovec> buffers) {
  const msghdr message = message_of(first_buffers(buffers));
  return io_result(::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT));
}

IoResult SystemNetwork::receive(Socket socket, std::span<const iovec> buffers) {
  const std::span<const iovec> first = first_buffers(buffers);
  msghdr message = message_of(first);
  const ssize_t moved = ::recvmsg(socket, &message, MSG_DONTWAIT);
  if (moved == 0 && !all_empty(first)) {
    return {.kind = IoResult::Kind::kEnded, .bytes = 0, .native_errno = 0};
  }
  return io_result(moved);
}

void SystemNetwork::shutdown_send(Socket socket) {
  // Fails only when the connection has ended already.
  static_cast<void>(::shutdown(socket, SHUT_WR));
}

void SystemNetwork::close(Socket socket) {
  note_closing(socket);
  // Ends the connection, or frees the port, although a forked child may hold the descriptor too.
  // What is not connected, or no socket, refuses it.
  static_cast<void>(::shutdown(socket, SHUT_RDWR));
  // The descriptor is gone whatever close() answers.
  static_cast<void>(::close(socket));
}

void SystemNetwork::configure(Socket socket, const SocketOptions& options) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  const base::Nanoseconds idle_s = std::clamp<base::Nanoseconds>(
      options.keepalive_idle_ns / base::kSecond, 1, kKeepaliveSecondsMax);
  if (options.keepalive_idle_ns == 0) {
    set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 0);
  } else {
    set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(idle_s));
    set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL,
               static_cast<int>(std::max<base::Nanoseconds>(idle_s / kKeepaliveProbes, 1)));
    set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kKeepaliveProbes);
    set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  }
  if (options.unacknowledged_max_ns != 0) {
    set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT,
               static_cast<int>(std::clamp<base::Nanoseconds>(
                   options.unacknowledged_max_ns / base::kMillisecond, 1, INT_MAX)));
  }
  if (!options.congestion_control.empty()) {
    static_cast<void>(::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION,
                                   options.congestion_control.data(),
                                   static_cast<socklen_t>(options.congestion_control.size())));
  }
}

Result<Socket> SystemNetwork::make_poller() {
  const int fd = ::epoll_create1(EPOLL_CLOEXEC);
  if (fd < 0) {
    return fail(Error::make_native(ErrorCode::kSystem, errno, "no poller"));
  }
  note_opened(fd);
  return fd;
}

Result<void> SystemNetwork::poller_add(Socket poller, Socket socket, std::uint32_t events,
                                       std::uint64_t token) {
  if (control(poller, EPOLL_CTL_ADD, socket, events, token) != 0) {
    return fail(Error::make_native(ErrorCode::kSystem, errno, "cannot poll socket %d", socket));
  }
  return {};
}

void SystemNetwork::poller_modify(Socket poller, Socket socket, std::uint32_t events,
                                  std::uint64_t token) {
  const int result = control(poller, EPOLL_CTL_MOD, socket, events, token);
  ORBITE_DCHECK(result == 0);
}

void SystemNetwork::poller_remove(Socket poller, Socket socket) {
  const int result = control(poller, EPOLL_CTL_DEL, socket, 0, 0);
  ORBITE_DCHECK(result == 0 || errno == ENOENT);
}

std::size_t SystemNetwork::poller_wait(Socket poller, std::span<PollEvent> events,
                                       base::Nanoseconds timeout_ns) {
  if (events.empty()) {
    return 0;
  }
  std::array<epoll_event, kEventsPerWaitMax> native;
  const std::span<epoll_event> room =
      std::span(native).first(std::min(events.size(), native.size()));
  const int count = wait_nanoseconds(poller, room, timeout_ns);
  ORBITE_DCHECK(count >= 0 || errno == EINTR);
  const std::size_t found = count > 0 ? static_cast<std::size_t>(count) : 0;
  for (std::size_t i = 0; i < found; ++i) {
    events[i] = {.token = native[i].data.u64, .events = poll_events(native[i].events)};
  }
  return found;
}

Result<Socket> SystemNetwork::make_wakeup() {
  const int fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0) {
    return fail(Error::make_native(ErrorCode::kSystem, errno, "no wakeup"));
  }
  note_opened(fd);
  return fd;
}

void SystemNetwork::signal(Socket wakeup) {
  // EAGAIN: the counter is at its end, so it is readable already.
  const std::uint64_t one = 1;
  const ssize_t written = ::write(wakeup, &one, sizeof(one));
  ORBITE_DCHECK(written == sizeof(one) || errno == EAGAIN);
}

void SystemNetwork::clear(Socket wakeup) {
  // EAGAIN: nobody has signalled.
  std::uint64_t count = 0;
  const ssize_t taken = ::read(wakeup, &count, sizeof(count));
  ORBITE_DCHECK(taken == sizeof(count) || errno == EAGAIN);
}

}  // namespace orbite::platform
