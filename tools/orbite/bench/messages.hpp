// SPDX-License-Identifier: Apache-2.0
// What the two sides of a measurement tell one another. The initiator asks, the target answers
// each message with the one below it, or with kFailed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/content.hpp"
#include "bench/layout.hpp"
#include "orbite/error.hpp"

namespace orbite::tool::bench {

inline constexpr std::uint32_t kProtocolVersion = 1;
inline constexpr std::size_t kBlobBytesMax = 16 << 10;
inline constexpr std::size_t kReasonBytesMax = 512;
inline constexpr std::uint32_t kStreamsMax = 16;
inline constexpr std::uint64_t kStreamBytesMax = std::uint64_t{64} << 20;
inline constexpr std::uint64_t kStreamNsMax = 60'000'000'000;

enum class Kind : std::uint16_t {
  kFailed = 1,  ///< text
  kDone = 2,    ///< nothing
  kOpen = 3,
  kOpened = 4,
  kFill = 5,  ///< key; answer kDone
  kVerify = 6,
  kVerified = 7,
  kUsage = 8,  ///< nothing
  kUsed = 9,   ///< CPU time of the process
  kStream = 10,
  kStreamReady = 11,
  kStreamed = 12,  ///< bytes, told without being asked when the streams have ended
  kEnd = 13,       ///< nothing; answer kDone
  kLend = 14,      ///< nothing
  kLent = 15       ///< address of memory to compare with, as large as the other
};

/// Memory of that many bytes, and an engine that serves it.
struct Open {
  std::uint32_t version = kProtocolVersion;
  std::uint64_t bytes = 0;
};
struct Opened {
  std::uint64_t address = 0;
  std::vector<std::uint8_t> connection;
  std::vector<std::uint8_t> range;
};
struct Verify {
  Layout layout;
  std::uint32_t slots = 0;
  std::uint64_t block_key = 0;
  std::uint64_t guard_key = 0;
};
/// Bare TCP streams, beside the engines.
struct Stream {
  bool target_sends = false;
  std::uint32_t streams = 1;
  std::uint64_t buffer_bytes = 0;  ///< of each stream
  std::uint64_t duration_ns = 0;
};
/// Where to connect, and what to send first on each stream.
struct StreamReady {
  std::uint16_t port = 0;
  std::uint64_t token = 0;
};

using Body = std::vector<std::uint8_t>;

Body encode(const Open& message);
Body encode(const Opened& message);
Body encode(const Verify& message);
Body encode(const Mismatch& message);
Body encode(const Stream& message);
Body encode(const StreamReady& message);
Body encode_number(std::uint64_t number);
/// The first kReasonBytesMax bytes.
Body encode_reason(const std::string& reason);

// kProtocolViolation for what is too short, too long or out of range.
Result<Open> decode_open(std::span<const std::uint8_t> body);
Result<Opened> decode_opened(std::span<const std::uint8_t> body);
Result<Verify> decode_verify(std::span<const std::uint8_t> body);
Result<Mismatch> decode_mismatch(std::span<const std::uint8_t> body);
Result<Stream> decode_stream(std::span<const std::uint8_t> body);
Result<StreamReady> decode_stream_ready(std::span<const std::uint8_t> body);
Result<std::uint64_t> decode_number(std::span<const std::uint8_t> body);
Result<void> decode_nothing(std::span<const std::uint8_t> body);
/// Printable ASCII; anything else is shown as '?'.
std::string decode_reason(std::span<const std::uint8_t> body);

}  // namespace orbite::tool::bench
