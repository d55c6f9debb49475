// SPDX-License-Identifier: Apache-2.0
// Bare TCP: what two processes reach that do nothing but call send and receive.
#pragma once

#include <string>
#include <vector>

#include "bench/area.hpp"
#include "bench/messages.hpp"
#include "bench/sockets.hpp"

namespace orbite::tool::bench {

/// One thread for each stream, with a buffer of its own, in calls of 1 MiB.
class Streams {
 public:
  /// `congestion_control` is for streams over loopback; empty: the system's.
  Streams(const Stream& shape, std::string congestion_control)
      : shape_(shape), congestion_control_(std::move(congestion_control)) {}

  /// Accepts the streams, each of which begins with the token; others are turned away.
  Result<void> accept(int listener, std::uint64_t token);
  Result<void> connect(const HostPort& at, std::uint64_t token);
  /// Sends for the duration, then ends the streams.
  Result<std::uint64_t> send();
  /// Receives until the streams end.
  Result<std::uint64_t> receive();

 private:
  Result<void> add(FileDescriptor socket);
  Result<std::uint64_t> on_all(Result<std::uint64_t> (*move)(int, std::span<std::uint8_t>,
                                                             std::uint64_t));

  const Stream shape_;
  const std::string congestion_control_;
  std::vector<FileDescriptor> sockets_;
  std::vector<Area> buffers_;
};

}  // namespace orbite::tool::bench
