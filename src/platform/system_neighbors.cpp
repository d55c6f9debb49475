// SPDX-License-Identifier: Apache-2.0
#include "platform/system_neighbors.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>

#include "platform/descriptor.hpp"
#include "platform/system_pages.hpp"
#include "platform/system_process.hpp"

namespace orbite::platform {
namespace {

constexpr std::size_t kNameBytesMax = 100;
constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD; younger than some C libraries that we build with

IoResult failed(int native_errno) {
  return {.kind = IoResult::Kind::kFailed, .bytes = 0, .native_errno = native_errno};
}

IoResult io_error(int native_errno) {
  const bool later = native_errno == EAGAIN || native_errno == EWOULDBLOCK || native_errno == EINTR;
  return later ? IoResult{} : failed(native_errno);
}

struct Address {
  sockaddr_un native;
  socklen_t bytes;
  [[nodiscard]] const sockaddr* get() const noexcept {
    // SAFETY: the socket interface's own way to pass addresses of any family.
    return reinterpret_cast<const sockaddr*>(&native);
  }
};

/// Abstract: no file, gone with the socket, one name space for each network namespace.
Result<Address> address_of(std::string_view name) {
  if (name.empty() || name.size() > kNameBytesMax || name.find('\0') != std::string_view::npos) {
    return fail(ErrorCode::kInvalidArgument,
                "no name for a socket: %zu bytes, allowed are 1 to %zu, none of them 0",
                name.size(), kNameBytesMax);
  }
  Address address{};
  address.native.sun_family = AF_UNIX;
  static_assert(sizeof(address.native.sun_path) > kNameBytesMax);
  std::memcpy(address.native.sun_path + 1, name.data(), name.size());
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Error name_error(ErrorCode code, int native_errno, const char* what, std::string_view name) {
  return Error::make_native(code, native_errno, "%s '%.*s'", what, static_cast<int>(name.size()),
                            name.data());
}

Descriptor open_socket() {
  return Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

/// Room for the descriptors of one message.
struct Control {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(Neighbors::kFilesMax * sizeof(int))> bytes{};
};

void attach(msghdr& header, Control& control, const Neighbors::Files& files) {
  header.msg_control = control.bytes.data();
  header.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
  cmsghdr* const rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
  for (std::size_t i = 0; i < files.size(); ++i) {
    const int fd = system_file(*files[i]).descriptor();
    std::memcpy(CMSG_DATA(rights) + i * sizeof(fd), &fd, sizeof(fd));
  }
}

/// Owns what came with a message. The kernel may round the room up and fit one descriptor more
/// than we asked for.
struct Arrived {
  std::array<Descriptor, Neighbors::kFilesMax + 1> descriptors;
  std::size_t count = 0;
};

void take(msghdr& header, Arrived& arrived) {
  for (cmsghdr* it = CMSG_FIRSTHDR(&header); it != nullptr; it = CMSG_NXTHDR(&header, it)) {
    if (it->cmsg_level != SOL_SOCKET || it->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const std::size_t count = (it->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(it) + i * sizeof(fd), sizeof(fd));
      Descriptor owned(fd);
      if (arrived.count < arrived.descriptors.size()) {
        arrived.descriptors[arrived.count++] = std::move(owned);
      }
    }
  }
}

/// The errno of why the message is refused; 0.
int refusal(int flags, const Arrived& arrived) {
  if ((flags & MSG_TRUNC) != 0 || arrived.count > Neighbors::kFilesMax) {
    return EMSGSIZE;
  }
  if ((flags & MSG_CTRUNC) != 0) {
    // With room left, it was this process that could not open another descriptor.
    return arrived.count == Neighbors::kFilesMax ? EMSGSIZE : EMFILE;
  }
  return 0;
}

int open_files(Arrived& arrived, Neighbors::Files& files) {
  try {
    files.reserve(arrived.count);
    for (std::size_t i = 0; i < arrived.count; ++i) {
      const auto bytes = sealed_bytes(arrived.descriptors[i].get());
      if (!bytes) {
        files.clear();
        return EBADF;
      }
      files.push_back(
          std::make_shared<const SystemPageFile>(std::move(arrived.descriptors[i]), *bytes));
    }
    return 0;
  } catch (const std::bad_alloc&) {
    files.clear();
    return ENOMEM;
  }
}

/// Connected, and neither end has closed.
bool is_open(Socket socket) {
  pollfd look{.fd = socket, .events = POLLRDHUP, .revents = 0};
  return ::poll(&look, 1, 0) == 0;
}

Error process_error(int native_errno, pid_t number) {
  const char* what = "no handle of process %d";
  auto code = ErrorCode::kSystem;
  if (native_errno == ESRCH || native_errno == EINVAL) {
    what = "process %d is gone";
    code = ErrorCode::kPeerDisconnected;
  } else if (native_errno == ENOSYS || native_errno == ENODATA) {
    code = ErrorCode::kUnsupported;
  }
  return Error::make_native(code, native_errno, what, number);
}

/// Of the process that the kernel noted when the connection was made.
Result<Descriptor> end_of(Socket socket, pid_t number) {
  int fd = -1;
  socklen_t bytes = sizeof(fd);
  if (::getsockopt(socket, SOL_SOCKET, kPeerPidfd, &fd, &bytes) == 0) {
    return Descriptor(fd);
  }
  if (errno != ENOPROTOOPT) {
    return fail(process_error(errno, number));
  }
  Descriptor end(static_cast<int>(::syscall(SYS_pidfd_open, number, 0)));
  if (end.get() < 0) {
    return fail(process_error(errno, number));
  }
  // The number could have become another's before it was looked up; but not while the one who
  // connected keeps the connection open.
  if (!is_open(socket)) {
    return fail(process_error(ESRCH, number));
  }
  return end;
}

}  // namespace

Result<Socket> SystemNeighbors::listen(std::string_view name) {
  ORBITE_ASSIGN_OR_RETURN(const Address address, address_of(name));
  Descriptor socket = open_socket();
  if (socket.get() < 0) {
    return fail(name_error(ErrorCode::kSystem, errno, "no socket for", name));
  }
  if (::bind(socket.get(), address.get(), address.bytes) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    return fail(name_error(errno == EADDRINUSE ? ErrorCode::kAddressInUse : ErrorCode::kSystem,
                           errno, "cannot listen on", name));
  }
  return socket.release();
}

Result<Socket> SystemNeighbors::accept(Socket listener) {
  Descriptor socket(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.get() >= 0) {
    return socket.release();
  }
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ECONNABORTED) {
    return fail(ErrorCode::kNotFound, "nobody is waiting");
  }
  return fail(Error::make_native(ErrorCode::kSystem, errno, "cannot accept"));
}

Result<Socket> SystemNeighbors::connect(std::string_view name) {
  ORBITE_ASSIGN_OR_RETURN(const Address address, address_of(name));
  Descriptor socket = open_socket();
  if (socket.get() < 0) {
    return fail(name_error(ErrorCode::kSystem, errno, "no socket for", name));
  }
  if (::connect(socket.get(), address.get(), address.bytes) != 0) {
    const bool local = errno == ENOMEM || errno == ENOBUFS;
    return fail(name_error(local ? ErrorCode::kSystem : ErrorCode::kPeerUnreachable, errno,
                           "cannot connect to", name));
  }
  return socket.release();
}

Result<std::unique_ptr<Process>> SystemNeighbors::process_of(Socket socket) try {
  ucred credentials{};
  socklen_t bytes = sizeof(credentials);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) {
    return fail(
        Error::make_native(ErrorCode::kSystem, errno, "nobody known behind socket %d", socket));
  }
  if (credentials.pid <= 0) {
    return fail(ErrorCode::kUnsupported, "the process behind socket %d is in another PID namespace",
                socket);
  }
  ORBITE_ASSIGN_OR_RETURN(Descriptor end, end_of(socket, credentials.pid));
  return std::make_unique<SystemProcess>(credentials.pid, std::move(end));
} catch (const std::bad_alloc&) {
  return fail(ErrorCode::kOutOfMemory, "no memory for the process behind socket %d", socket);
}

IoResult SystemNeighbors::send(Socket socket, std::span<const std::uint8_t> message,
                               const Files& files) {
  if (message.empty() || files.size() > kFilesMax) {
    return failed(EINVAL);
  }
  // SAFETY: the kernel only reads what a message to send points to.
  iovec part{const_cast<std::uint8_t*>(message.data()), message.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  Control control;
  if (!files.empty()) {
    attach(header, control, files);
  }
  const ssize_t moved = ::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (moved < 0) {
    return io_error(errno);
  }
  return {
      .kind = IoResult::Kind::kBytes, .bytes = static_cast<std::size_t>(moved), .native_errno = 0};
}

IoResult SystemNeighbors::receive(Socket socket, std::span<std::uint8_t> buffer, Files& files) {
  files.clear();
  iovec part{buffer.data(), buffer.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  Control control;
  header.msg_control = control.bytes.data();
  header.msg_controllen = control.bytes.size();
  const ssize_t moved = ::recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (moved < 0) {
    return io_error(errno);
  }
  Arrived arrived;
  take(header, arrived);
  if (const int reason = refusal(header.msg_flags, arrived); reason != 0) {
    return failed(reason);
  }
  if (moved == 0) {
    return {.kind = IoResult::Kind::kEnded, .bytes = 0, .native_errno = 0};
  }
  if (const int reason = open_files(arrived, files); reason != 0) {
    return failed(reason);
  }
  return {
      .kind = IoResult::Kind::kBytes, .bytes = static_cast<std::size_t>(moved), .native_errno = 0};
}

Result<std::shared_ptr<const PageFile>> SystemNeighbors::make_pages(std::string_view name,
                                                                    std::uint64_t bytes,
                                                                    PageOptions options) try {
  return make_page_file(name, bytes, options.huge);
} catch (const std::bad_alloc&) {
  return fail(ErrorCode::kOutOfMemory, "no memory for a page file");
}

Result<std::unique_ptr<PageMapping>> SystemNeighbors::map(const PageFile& file, PageAccess access,
                                                          AfterFork after_fork) try {
  return map_page_file(system_file(file), access, after_fork);
} catch (const std::bad_alloc&) {
  return fail(ErrorCode::kOutOfMemory, "no memory for a mapping");
}

Result<void> SystemNeighbors::forbid_writes(const PageFile& file) {
  return seal_against_writes(system_file(file));
}

}  // namespace orbite::platform
