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

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "wire/envelope.hpp"
#include "wire/frame.hpp"
#include "wire/handshake.hpp"
#include "wire/metadata.hpp"

namespace orbite::test {

/// What else has to go on while a raw peer waits: a turn of the transport under test, or nothing
/// when that has a thread of its own.
using Meanwhile = std::function<void()>;

/// A request as it came over the wire, or is to go over it.
struct RawRequest {
  wire::RequestHeader header;
  std::vector<wire::RegistrationRef> table;
  std::vector<wire::WireExtent> extents;
  std::vector<std::uint8_t> payload;
  std::vector<std::uint8_t> trailer;

  /// Sets the counts and sizes of the header to what is there.
  RawRequest& fit() {
    header.table_count = static_cast<std::uint16_t>(table.size());
    header.extent_count = static_cast<std::uint32_t>(extents.size());
    header.trailer_bytes = static_cast<std::uint32_t>(trailer.size());
    header.payload_bytes = 0;
    for (const wire::WireExtent& extent : extents) {
      header.payload_bytes += extent.length;
    }
    return *this;
  }
  [[nodiscard]] wire::FrameType type() const { return static_cast<wire::FrameType>(header.type); }
};

/// A TCP connection that says what the test wants. Every wait is bounded.
class RawConnection {
 public:
  RawConnection(int fd, Meanwhile meanwhile) : fd_(fd), meanwhile_(std::move(meanwhile)) {
    ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) | O_NONBLOCK);
  }
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;
  ~RawConnection() { close(); }

  void close() {
    if (fd_ >= 0) {
      ::close(std::exchange(fd_, -1));
    }
  }
  /// RST instead of FIN.
  void reset() {
    const linger now{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close();
  }

  bool write(const void* data, std::size_t bytes) {
    const auto* from = static_cast<const std::uint8_t*>(data);
    return until([&] {
      while (bytes > 0) {
        const ssize_t sent = ::send(fd_, from, bytes, MSG_NOSIGNAL);
        if (sent < 0) {
          return errno == EAGAIN ? Turn::kAgain : Turn::kFailed;
        }
        from += sent;
        bytes -= static_cast<std::size_t>(sent);
      }
      return Turn::kDone;
    });
  }
  bool write(std::span<const std::uint8_t> bytes) { return write(bytes.data(), bytes.size()); }
  template <typename Struct>
  bool write_struct(const Struct& value) {
    return write(&value, sizeof(value));
  }

  /// False when the other side ends before that many bytes, or time runs out.
  bool read(void* data, std::size_t bytes) {
    auto* to = static_cast<std::uint8_t*>(data);
    return until([&] {
      while (bytes > 0) {
        const ssize_t got = ::recv(fd_, to, bytes, 0);
        if (got <= 0) {
          return got < 0 && errno == EAGAIN ? Turn::kAgain : Turn::kFailed;
        }
        to += got;
        bytes -= static_cast<std::size_t>(got);
      }
      return Turn::kDone;
    });
  }
  template <typename Struct>
  bool read_struct(Struct& value) {
    return read(&value, sizeof(value));
  }
  /// Discards what comes until the other side ends the connection; how many bytes, or nothing when
  /// it does not end in time.
  std::optional<std::uint64_t> read_to_end() {
    std::uint64_t count = 0;
    std::vector<std::uint8_t> sink(64 << 10);
    const bool ended = until([&] {
      while (true) {
        const ssize_t got = ::recv(fd_, sink.data(), sink.size(), 0);
        if (got < 0) {
          return errno == EAGAIN ? Turn::kAgain : Turn::kDone;
        }
        if (got == 0) {
          return Turn::kDone;
        }
        count += static_cast<std::uint64_t>(got);
      }
    });
    return ended ? std::optional(count) : std::nullopt;
  }
  /// Bytes that wait to be read, without waiting for any.
  [[nodiscard]] bool has_bytes() const {
    pollfd waiting{fd_, POLLIN, 0};
    std::uint8_t byte = 0;
    return ::poll(&waiting, 1, 0) == 1 && ::recv(fd_, &byte, 1, MSG_PEEK) == 1;
  }

  // The target's side.

  /// Takes the hello and the proof. False: the other side gave up.
  bool serve_handshake(const base::SourceEpoch& epoch, const wire::Secret& secret) {
    if (!read_struct(hello)) {
      return false;
    }
    wire::ServerHello server;
    server.server_epoch = epoch;
    std::memset(server.nonce, 9, sizeof(server.nonce));
    wire::sign_server(secret, hello, server);
    wire::ClientProof proof;
    return write_struct(server) && read_struct(proof) &&
           wire::verify_client(secret, hello, server, proof);
  }
  /// The next request, its payload included (without it when `head_only`).
  std::optional<RawRequest> read_request(bool head_only = false) {
    RawRequest request;
    if (!read_struct(request.header) ||
        !wire::check_request_header(request.header, wire::FrameLimits{})) {
      return std::nullopt;
    }
    request.table.resize(request.header.table_count);
    request.extents.resize(request.header.extent_count);
    const bool carries = request.type() == wire::FrameType::kWrite && !head_only;
    request.payload.resize(carries ? request.header.payload_bytes : 0);
    request.trailer.resize(head_only ? 0 : request.header.trailer_bytes);
    if (!read(request.table.data(), request.table.size() * sizeof(request.table[0])) ||
        !read(request.extents.data(), request.extents.size() * sizeof(request.extents[0])) ||
        !read(request.payload.data(), request.payload.size()) ||
        !read(request.trailer.data(), request.trailer.size())) {
      return std::nullopt;
    }
    EXPECT_TRUE(wire::check_extents(request.header, request.table, request.extents).has_value());
    return request;
  }
  /// A success for that request, for the test to spoil.
  static wire::ResponseHeader success_of(const RawRequest& request) {
    wire::ResponseHeader response;
    response.type = static_cast<std::uint8_t>(request.header.type + 64);
    response.frame_id = request.header.frame_id;
    if (request.type() == wire::FrameType::kWrite) {
      response.effect = static_cast<std::uint8_t>(wire::FrameEffect::kComplete);
      response.prefix_bytes = request.header.payload_bytes;
    }
    if (request.type() == wire::FrameType::kRead) {
      response.payload_bytes = static_cast<std::uint32_t>(request.header.payload_bytes);
    }
    return response;
  }

  // The initiator's side.

  struct Identity {
    base::SourceEpoch epoch{{1, 2, 3}};
    std::uint64_t lane_id = 1;
    std::string name = "raw";
    wire::LaneClass lane_class = wire::LaneClass::kLatency;
  };
  bool send_hello(const wire::ConnectionBlob& blob, const Identity& identity) {
    hello = wire::ClientHello{};
    hello.client_epoch = identity.epoch;
    hello.expected_epoch = blob.epoch;
    std::memset(hello.nonce, 7, sizeof(hello.nonce));
    hello.lane_id = identity.lane_id;
    hello.lane_class = static_cast<std::uint8_t>(identity.lane_class);
    hello.name_bytes = static_cast<std::uint16_t>(identity.name.size());
    std::memcpy(hello.name, identity.name.data(), identity.name.size());
    return write_struct(hello);
  }
  /// The status that the server answers, its mac checked when that is 0; nothing when it hangs up.
  std::optional<ErrorCode> finish_handshake(const wire::ConnectionBlob& blob) {
    wire::ServerHello server;
    if (!read_struct(server)) {
      return std::nullopt;
    }
    if (server.status != 0) {
      return static_cast<ErrorCode>(server.status);
    }
    EXPECT_TRUE(wire::verify_server(blob.secret, hello, server));
    wire::ClientProof proof;
    wire::sign_client(blob.secret, hello, server, proof);
    EXPECT_TRUE(write_struct(proof));
    return ErrorCode::kOk;
  }
  bool handshake(const wire::ConnectionBlob& blob, const Identity& identity) {
    return send_hello(blob, identity) && finish_handshake(blob) == ErrorCode::kOk;
  }
  bool send(const RawRequest& request) {
    return write_struct(request.header) &&
           write(request.table.data(), request.table.size() * sizeof(request.table[0])) &&
           write(request.extents.data(), request.extents.size() * sizeof(request.extents[0])) &&
           write(request.payload) && write(request.trailer);
  }
  /// As send, of a frame without payload; false when the other side has taken nothing for a while.
  bool offer(const RawRequest& request) {
    const auto* from = reinterpret_cast<const std::uint8_t*>(&request.header);
    std::size_t left = sizeof(request.header);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    while (left > 0) {
      const ssize_t sent = ::send(fd_, from, left, MSG_NOSIGNAL);
      if (sent > 0) {
        from += sent;
        left -= static_cast<std::size_t>(sent);
      } else if (errno != EAGAIN || std::chrono::steady_clock::now() > deadline) {
        return false;
      }
    }
    return true;
  }
  struct Response {
    wire::ResponseHeader header;
    std::vector<std::uint8_t> payload;
    [[nodiscard]] ErrorCode status() const { return static_cast<ErrorCode>(header.status); }
  };
  std::optional<Response> read_response() {
    Response response;
    if (!read_struct(response.header)) {
      return std::nullopt;
    }
    EXPECT_TRUE(wire::check_response_header(response.header, wire::FrameLimits{}).has_value());
    response.payload.resize(response.header.payload_bytes);
    return read(response.payload.data(), response.payload.size()) ? std::optional(response)
                                                                  : std::nullopt;
  }

  wire::ClientHello hello{};

 private:
  enum class Turn : std::uint8_t { kDone, kAgain, kFailed };

  template <typename Attempt>
  bool until(Attempt attempt) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (true) {
      switch (attempt()) {
        case Turn::kDone:
          return true;
        case Turn::kFailed:
          return false;
        case Turn::kAgain:
          break;
      }
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "a raw peer waited in vain";
        return false;
      }
      if (meanwhile_) {
        meanwhile_();
      } else {
        pollfd waiting{fd_, POLLIN, 0};
        ::poll(&waiting, 1, 1);
      }
    }
  }

  int fd_;
  Meanwhile meanwhile_;
};

/// A port of 127.0.0.1 that speaks the wire format by hand, or not at all.
class RawListener {
 public:
  explicit RawListener(Meanwhile meanwhile = {}) : meanwhile_(std::move(meanwhile)) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_in address = loopback(0);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(fd_, 64), 0);
    socklen_t bytes = sizeof(address);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    port_ = ntohs(address.sin_port);
  }
  RawListener(const RawListener&) = delete;
  RawListener& operator=(const RawListener&) = delete;
  ~RawListener() { close(); }
  void close() {
    if (fd_ >= 0) {
      ::close(std::exchange(fd_, -1));
    }
  }

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// Nothing when nobody connects within `bound`.
  std::unique_ptr<RawConnection> accept(
      std::chrono::milliseconds bound = std::chrono::seconds(20)) {
    const auto deadline = std::chrono::steady_clock::now() + bound;
    do {
      const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd >= 0) {
        return std::make_unique<RawConnection>(fd, meanwhile_);
      }
      if (meanwhile_) {
        meanwhile_();
      } else {
        pollfd waiting{fd_, POLLIN, 0};
        ::poll(&waiting, 1, 1);
      }
    } while (std::chrono::steady_clock::now() < deadline);
    return nullptr;
  }

  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

 private:
  int fd_ = -1;
  std::uint16_t port_ = 0;
  Meanwhile meanwhile_;
};

inline std::unique_ptr<RawConnection> connect_raw(std::uint16_t port, Meanwhile meanwhile = {}) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = RawListener::loopback(port);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0)
      << std::strerror(errno);
  // A frame is written in parts: none waits for an acknowledgement of the kernel's.
  const int on = 1;
  EXPECT_EQ(::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), 0);
  return std::make_unique<RawConnection>(fd, std::move(meanwhile));
}

}  // namespace orbite::test
