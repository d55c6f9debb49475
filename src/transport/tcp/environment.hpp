// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <string>

#include "base/clock.hpp"
#include "base/ids.hpp"
#include "base/random.hpp"
#include "base/waiter.hpp"
#include "memory/registry.hpp"
#include "orbite/config.hpp"
#include "platform/network.hpp"
#include "telemetry/counters.hpp"
#include "transfer/transport.hpp"
#include "wire/envelope.hpp"
#include "wire/handshake.hpp"

namespace orbite::transport::tcp {

/// Everything that the transport is given. All of it outlives the transport.
struct Environment {
  platform::Network& network;
  const base::Clock& clock;
  base::WatchedClock& watched_clock;
  base::RandomSource& random;  ///< safe from any thread
  base::Waiter& waiter;
  memory::Registry& registry;
  telemetry::Counters& counters;
  const Config& config;
  std::string name;  ///< of this engine, as peers see it
  base::SourceEpoch epoch;
  wire::Secret secret{};
  base::HostIdentity host;
  platform::Socket poller = platform::kNoSocket;
  /// Takes a notification from a peer that has passed the handshake.
  std::function<Result<void>(const wire::Envelope&)> deliver;
  /// See transfer::CallerPatience; may be empty.
  std::function<bool()> processors_are_short = {};
};

/// What the token of a poll event names: the kind in the top byte, an id below. Ids are never
/// reused, so an event for something that is gone finds nothing.
inline constexpr std::uint64_t kTokenListener = 1ULL << 56;
inline constexpr std::uint64_t kTokenServed = 2ULL << 56;
inline constexpr std::uint64_t kTokenLane = 3ULL << 56;
inline constexpr std::uint64_t kTokenKindMask = 0xFFULL << 56;

/// One send or receive moves at most this much, so that no lane is served for long at a time.
inline constexpr std::size_t kCallBytesMax = std::size_t{1} << 20;

/// What one call moves under `limit`: no more than it allows, and not so little that the end of a
/// limit is made of tiny calls.
inline constexpr std::uint64_t kCallBytesMin = std::uint64_t{64} << 10;
[[nodiscard]] constexpr std::size_t call_bytes(const transfer::WorkLimit& limit) noexcept {
  return static_cast<std::size_t>(
      std::clamp<std::uint64_t>(limit.bytes_max, kCallBytesMin, kCallBytesMax));
}

/// A message of middling size leaves in two calls, a short first one: its receiver wakes up while
/// the rest is still being copied into the socket. Larger ones overlap by themselves.
inline constexpr std::size_t kFirstChunkBytes = std::size_t{8} << 10;
inline constexpr std::size_t kTwoChunksBytesMax = std::size_t{128} << 10;
[[nodiscard]] constexpr std::size_t first_call_bytes(std::uint64_t message_bytes) noexcept {
  return message_bytes > 2 * kFirstChunkBytes && message_bytes <= kTwoChunksBytesMax
             ? kFirstChunkBytes
             : kCallBytesMax;
}

}  // namespace orbite::transport::tcp
