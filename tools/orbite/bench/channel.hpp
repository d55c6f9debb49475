// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.hpp"
#include "bench/file_descriptor.hpp"
#include "orbite/error.hpp"

namespace orbite::tool::bench {

inline constexpr std::size_t kMessageBytesMax = std::size_t{64} << 10;

struct Message {
  std::uint16_t kind = 0;
  std::vector<std::uint8_t> body;
};

/// Framed messages over a stream socket, for one thread. Whatever the other side sends is bounded
/// before it is stored. After an error the channel is of no use.
class Channel {
 public:
  explicit Channel(FileDescriptor socket) : socket_(std::move(socket)) {}

  Result<void> send(std::uint16_t kind, std::span<const std::uint8_t> body);
  /// kPeerDisconnected at the end of the stream, kDeadlineExceeded, kProtocolViolation.
  Result<Message> receive(base::Nanoseconds timeout_ns);
  [[nodiscard]] int socket() const { return socket_.get(); }

 private:
  FileDescriptor socket_;
};

}  // namespace orbite::tool::bench
