// SPDX-License-Identifier: Apache-2.0
#include "bench/streams.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <thread>

#include "base/result.hpp"

namespace orbite::tool::bench {
namespace {

constexpr std::size_t kCallBytes = std::size_t{1} << 20;
constexpr base::Nanoseconds kConnectTimeout = 10 * base::kSecond;
constexpr base::Nanoseconds kTokenTimeout = base::kSecond;
constexpr base::Nanoseconds kStallTimeout = 10 * base::kSecond;

using Token = std::array<std::uint8_t, sizeof(std::uint64_t)>;

Token bytes_of(std::uint64_t token) {
  Token bytes{};
  std::memcpy(bytes.data(), &token, sizeof(token));
  return bytes;
}

/// The calls go round the buffer.
std::span<std::uint8_t> next_call(std::span<std::uint8_t> buffer, std::size_t& at) {
  if (at == buffer.size()) {
    at = 0;
  }
  return buffer.subspan(at, std::min(kCallBytes, buffer.size() - at));
}

Result<std::uint64_t> send_stream(int socket, std::span<std::uint8_t> buffer,
                                  std::uint64_t duration_ns) {
  const base::Nanoseconds end_ns = now_ns() + duration_ns;
  std::uint64_t moved = 0;
  std::size_t at = 0;
  while (now_ns() < end_ns) {
    const auto part = next_call(buffer, at);
    ORBITE_TRY(send_all(socket, part, now_ns() + kStallTimeout));
    at += part.size();
    moved += part.size();
  }
  ::shutdown(socket, SHUT_WR);
  return moved;
}

Result<std::uint64_t> receive_stream(int socket, std::span<std::uint8_t> buffer,
                                     std::uint64_t duration_ns) {
  // A sender that has not ended long after its time never will.
  const base::Nanoseconds end_ns = now_ns() + duration_ns + 3 * kStallTimeout;
  std::uint64_t moved = 0;
  std::size_t at = 0;
  while (now_ns() < end_ns) {
    const auto part = next_call(buffer, at);
    ORBITE_ASSIGN_OR_RETURN(const std::size_t count,
                            receive_some(socket, part, now_ns() + kStallTimeout));
    if (count == 0) {
      return moved;
    }
    at += count;
    moved += count;
  }
  return fail(ErrorCode::kDeadlineExceeded, "a bare stream did not end");
}

}  // namespace

Result<void> Streams::add(FileDescriptor socket) {
  ORBITE_ASSIGN_OR_RETURN(const HostPort other, remote_end(socket.get()));
  if (is_loopback(other) && !congestion_control_.empty()) {
    // As for the engine's connections, what the system does not have is left as it was.
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, congestion_control_.data(),
                 static_cast<socklen_t>(congestion_control_.size()));
  }
  ORBITE_ASSIGN_OR_RETURN(Area buffer, Area::map(shape_.buffer_bytes));
  // Pages that nobody has written yet would cost their first round a fault each.
  std::memset(buffer.bytes().data(), 1, buffer.bytes().size());
  sockets_.push_back(std::move(socket));
  buffers_.push_back(std::move(buffer));
  return {};
}

Result<void> Streams::accept(int listener, std::uint64_t token) {
  const base::Nanoseconds deadline_ns = now_ns() + kConnectTimeout;
  while (sockets_.size() < shape_.streams) {
    ORBITE_ASSIGN_OR_RETURN(FileDescriptor socket, accept_from(listener, deadline_ns));
    Token received{};
    if (receive_all(socket.get(), received, now_ns() + kTokenTimeout) &&
        received == bytes_of(token)) {
      ORBITE_TRY(add(std::move(socket)));
    }
  }
  return {};
}

Result<void> Streams::connect(const HostPort& at, std::uint64_t token) {
  const base::Nanoseconds deadline_ns = now_ns() + kConnectTimeout;
  while (sockets_.size() < shape_.streams) {
    ORBITE_ASSIGN_OR_RETURN(FileDescriptor socket, connect_to(at, deadline_ns));
    ORBITE_TRY(send_all(socket.get(), bytes_of(token), deadline_ns));
    ORBITE_TRY(add(std::move(socket)));
  }
  return {};
}

Result<std::uint64_t> Streams::send() { return on_all(send_stream); }
Result<std::uint64_t> Streams::receive() { return on_all(receive_stream); }

Result<std::uint64_t> Streams::on_all(Result<std::uint64_t> (*move)(int, std::span<std::uint8_t>,
                                                                    std::uint64_t)) {
  std::vector<Result<std::uint64_t>> results(sockets_.size(), std::uint64_t{0});
  std::vector<std::thread> threads;
  threads.reserve(sockets_.size());
  for (std::size_t i = 0; i < sockets_.size(); ++i) {
    threads.emplace_back([this, &results, i, move] {
      results[i] = move(sockets_[i].get(), buffers_[i].bytes(), shape_.duration_ns);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::uint64_t bytes = 0;
  for (const Result<std::uint64_t>& result : results) {
    if (!result) {
      return result;
    }
    bytes += *result;
  }
  return bytes;
}

}  // namespace orbite::tool::bench
