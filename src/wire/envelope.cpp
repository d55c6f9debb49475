// SPDX-License-Identifier: Apache-2.0
#include "wire/envelope.hpp"

#include "wire/bytes.hpp"
#include "wire/frame.hpp"

namespace orbite::wire {
namespace {

static_assert(kEnvelopeHeadBytes + kEnvelopeNameBytesMax + (1U << 20) <=
                  FrameLimits{}.trailer_bytes_max,
              "a message of 1 MiB from the longest name fits in a trailer of the default limits");

Result<void> check_lengths(std::size_t name_bytes, std::size_t name_bytes_max,
                           std::size_t message_bytes, std::size_t message_bytes_max) {
  if (name_bytes > name_bytes_max) {
    return fail(ErrorCode::kInvalidArgument, "notification: name of %zu bytes, allowed: 0 to %zu",
                name_bytes, name_bytes_max);
  }
  if (message_bytes > message_bytes_max) {
    return fail(ErrorCode::kInvalidArgument,
                "notification: message of %zu bytes, allowed: 0 to %zu", message_bytes,
                message_bytes_max);
  }
  return {};
}

}  // namespace

Result<std::size_t> encode_envelope(const Envelope& envelope, std::span<std::uint8_t> out) {
  ORBITE_TRY(check_lengths(envelope.sender_name.size(), kEnvelopeNameBytesMax,
                           envelope.message.size(), kEnvelopeMessageBytesMax));
  const std::size_t size = envelope_bytes(envelope.sender_name, envelope.message);
  if (out.size() < size) {
    return fail(ErrorCode::kBufferTooSmall, "notification: %zu bytes into %zu", size, out.size());
  }
  Writer writer(out.first(size));
  writer.put(kEnvelopeVersion);
  writer.put(static_cast<std::uint16_t>(envelope.sender_name.size()));
  writer.put(static_cast<std::uint32_t>(envelope.message.size()));
  writer.put(envelope.sender_epoch.bytes);
  writer.put(std::span(reinterpret_cast<const std::uint8_t*>(envelope.sender_name.data()),
                       envelope.sender_name.size()));
  writer.put(envelope.message);
  return size;
}

Result<std::vector<std::uint8_t>> encode_envelope(const Envelope& envelope) {
  ORBITE_TRY(check_lengths(envelope.sender_name.size(), kEnvelopeNameBytesMax,
                           envelope.message.size(), kEnvelopeMessageBytesMax));
  std::vector<std::uint8_t> bytes(envelope_bytes(envelope.sender_name, envelope.message));
  ORBITE_TRY(encode_envelope(envelope, bytes));
  return bytes;
}

Result<Envelope> decode_envelope(std::span<const std::uint8_t> bytes, std::size_t message_bytes_max,
                                 std::size_t name_bytes_max) {
  constexpr const char* kWhat = "notification";
  Reader reader(bytes);
  const auto version = reader.take<std::uint16_t>("version");
  if (!reader.failed() && version != kEnvelopeVersion) {
    return fail(ErrorCode::kIncompatible, "%s: version is %u, this side reads %u", kWhat,
                unsigned{version}, unsigned{kEnvelopeVersion});
  }
  const auto name_bytes = reader.take<std::uint16_t>("name length");
  const auto message_bytes = reader.take<std::uint32_t>("message length");
  Envelope envelope;
  envelope.sender_epoch.bytes = reader.take_array<16>("sender epoch");
  const auto name = reader.take_bytes(name_bytes, "name");
  envelope.message = reader.take_bytes(message_bytes, "message");
  ORBITE_TRY(reader.finish(ErrorCode::kProtocolViolation, kWhat));
  ORBITE_TRY(
      check_lengths(name.size(), name_bytes_max, envelope.message.size(), message_bytes_max));
  envelope.sender_name = {reinterpret_cast<const char*>(name.data()), name.size()};
  return envelope;
}

}  // namespace orbite::wire
