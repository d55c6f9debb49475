// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"

namespace orbite::wire {

inline constexpr std::uint16_t kEnvelopeVersion = 1;
inline constexpr std::size_t kEnvelopeHeadBytes = 24;
inline constexpr std::size_t kEnvelopeNameBytesMax = 256;
/// The most that any configuration allows; what one side takes is usually far less.
inline constexpr std::size_t kEnvelopeMessageBytesMax = 16U << 20;
/// The longest envelope that is well-formed.
inline constexpr std::size_t kEnvelopeBytesMax =
    kEnvelopeHeadBytes + kEnvelopeNameBytesMax + kEnvelopeMessageBytesMax;

/// A notification on its way. After decoding, name and message are views into the input.
struct Envelope {
  base::SourceEpoch sender_epoch;
  std::string_view sender_name;           // of the sending agent; any bytes
  std::span<const std::uint8_t> message;  // any bytes, none of them included
};

[[nodiscard]] constexpr std::size_t envelope_bytes(std::string_view sender_name,
                                                   std::span<const std::uint8_t> message) noexcept {
  return kEnvelopeHeadBytes + sender_name.size() + message.size();
}

/// Writes the first envelope_bytes() bytes of `out` and returns their number. kInvalidArgument for
/// a name or message longer than the maxima above, kBufferTooSmall for too short an `out`; nothing
/// is written then.
[[nodiscard]] Result<std::size_t> encode_envelope(const Envelope& envelope,
                                                  std::span<std::uint8_t> out);
/// The same into a vector of its own.
[[nodiscard]] Result<std::vector<std::uint8_t>> encode_envelope(const Envelope& envelope);

/// kProtocolViolation if the head is cut or the lengths do not sum to exactly the input;
/// kIncompatible for another version; kInvalidArgument for a well-formed envelope whose name or
/// message is longer than this side takes, which is no reason to give up the lane.
[[nodiscard]] Result<Envelope> decode_envelope(std::span<const std::uint8_t> bytes,
                                               std::size_t message_bytes_max,
                                               std::size_t name_bytes_max = kEnvelopeNameBytesMax);

}  // namespace orbite::wire
