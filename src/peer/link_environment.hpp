// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.hpp"
#include "base/ids.hpp"
#include "base/random.hpp"
#include "base/waiter.hpp"
#include "platform/neighbors.hpp"
#include "wire/frame.hpp"
#include "wire/handshake.hpp"

namespace orbite::peer {

/// A part of a shared allocation of ours.
struct SharedRange {
  std::shared_ptr<const platform::PageFile> file;
  std::uint64_t allocation = 0;  ///< the same number for the same file
  std::uint64_t offset = 0;      ///< in the file
};

/// Everything that the links between engines of one host are given. All of it outlives them.
struct LinkEnvironment {
  platform::Network& network;
  platform::Neighbors& neighbors;
  const base::Clock& clock;
  base::RandomSource& random;  ///< safe from any thread
  base::Waiter& waiter;
  std::string name;  ///< of this engine, as neighbours see it
  base::SourceEpoch epoch;
  wire::Secret secret{};
  base::HostIdentity host;
  platform::Socket poller = platform::kNoSocket;
  base::Nanoseconds handshake_timeout_ns = 0;
  std::uint64_t handshakes_max = 0;
  std::uint64_t borrowers_max = 0;
  std::uint64_t registrations_max = 0;
  /// What a registration of ours lies in, for who has its key. kUnsupported: in ordinary memory.
  std::function<Result<SharedRange>(const wire::RegistrationRef&)> share;
  /// Gets the worker out of its sleep.
  std::function<void()> wake;
};

/// What the token of a poll event names: the kind in the top byte, an id below; beside those of the
/// TCP transport. Ids are never used again.
inline constexpr std::uint64_t kTokenLenderListener = 4ULL << 56;
inline constexpr std::uint64_t kTokenBorrower = 5ULL << 56;
inline constexpr std::uint64_t kTokenBorrowerProcess = 6ULL << 56;
inline constexpr std::uint64_t kTokenLink = 7ULL << 56;
inline constexpr std::uint64_t kTokenLinkProcess = 8ULL << 56;
inline constexpr std::uint64_t kTokenKinds = 0xFFULL << 56;

/// Where the owner of that epoch waits for borrowers.
inline std::string link_name(const base::SourceEpoch& epoch) {
  return "orbite/" + base::to_hex(epoch.bytes);
}

/// What either side takes in at a time.
inline constexpr std::size_t kLinkMessageBytesMax = 512;
inline constexpr int kLinkMessagesPerEvent = 16;
inline constexpr base::Nanoseconds kLinkIdleSleep = base::kSecond;

}  // namespace orbite::peer
