// SPDX-License-Identifier: Apache-2.0
#include "bench/messages.hpp"

#include <algorithm>
#include <array>
#include <cinttypes>

#include "base/result.hpp"
#include "wire/bytes.hpp"

namespace orbite::tool::bench {
namespace {

constexpr ErrorCode kBad = ErrorCode::kProtocolViolation;

template <typename... Fields>
Body body_of(const Fields&... fields) {
  Body body((sizeof(fields) + ...));
  wire::Writer writer(body);
  (writer.put(fields), ...);
  return body;
}

std::vector<std::uint8_t> take_blob(wire::Reader& reader, const char* field) {
  const auto bytes = reader.take<std::uint32_t>(field);
  const auto blob = reader.take_bytes(bytes, field);
  return {blob.begin(), blob.end()};
}

Result<void> check_blob(const std::vector<std::uint8_t>& blob, const char* field) {
  if (blob.empty() || blob.size() > kBlobBytesMax) {
    return fail(kBad, "%s of %zu bytes, allowed 1..%zu", field, blob.size(), kBlobBytesMax);
  }
  return {};
}

}  // namespace

Body encode(const Open& message) { return body_of(message.version, message.bytes); }

Result<Open> decode_open(std::span<const std::uint8_t> body) {
  wire::Reader reader(body);
  Open message;
  message.version = reader.take<std::uint32_t>("version");
  if (!reader.failed() && message.version != kProtocolVersion) {
    return fail(ErrorCode::kIncompatible, "protocol version %u, this side has %u", message.version,
                kProtocolVersion);
  }
  message.bytes = reader.take<std::uint64_t>("bytes");
  ORBITE_TRY(reader.finish(kBad, "open"));
  return message;
}

Body encode(const Opened& message) {
  Body body(sizeof(std::uint64_t) + 2 * sizeof(std::uint32_t) + message.connection.size() +
            message.range.size());
  wire::Writer writer(body);
  writer.put(message.address);
  for (const auto* blob : {&message.connection, &message.range}) {
    writer.put(static_cast<std::uint32_t>(blob->size()));
    writer.put(std::span<const std::uint8_t>(*blob));
  }
  return body;
}

Result<Opened> decode_opened(std::span<const std::uint8_t> body) {
  wire::Reader reader(body);
  Opened message;
  message.address = reader.take<std::uint64_t>("address");
  message.connection = take_blob(reader, "connection blob");
  message.range = take_blob(reader, "range blob");
  ORBITE_TRY(reader.finish(kBad, "opened"));
  ORBITE_TRY(check_blob(message.connection, "connection blob"));
  ORBITE_TRY(check_blob(message.range, "range blob"));
  return message;
}

Body encode(const Verify& message) {
  const Layout& layout = message.layout;
  return body_of(layout.runs, layout.blocks, layout.size, layout.gap, layout.run_gap,
                 layout.adjacent_percent, message.slots, message.block_key, message.guard_key);
}

Result<Verify> decode_verify(std::span<const std::uint8_t> body) {
  wire::Reader reader(body);
  Verify message;
  message.layout.runs = reader.take<std::uint32_t>("runs");
  message.layout.blocks = reader.take<std::uint32_t>("blocks");
  message.layout.size = reader.take<std::uint64_t>("size");
  message.layout.gap = reader.take<std::uint64_t>("gap");
  message.layout.run_gap = reader.take<std::uint64_t>("run gap");
  message.layout.adjacent_percent = reader.take<std::uint32_t>("adjacent percent");
  message.slots = reader.take<std::uint32_t>("slots");
  message.block_key = reader.take<std::uint64_t>("block key");
  message.guard_key = reader.take<std::uint64_t>("guard key");
  ORBITE_TRY(reader.finish(kBad, "verify"));
  if (const auto checked = check_layout(message.layout); !checked) {
    return fail(kBad, "verify: %s", std::string(checked.error().context()).c_str());
  }
  return message;
}

Body encode(const Mismatch& message) {
  return body_of(message.bytes_wrong, message.guards_wrong, message.first_wrong);
}

Result<Mismatch> decode_mismatch(std::span<const std::uint8_t> body) {
  wire::Reader reader(body);
  Mismatch message;
  message.bytes_wrong = reader.take<std::uint64_t>("bytes wrong");
  message.guards_wrong = reader.take<std::uint64_t>("guards wrong");
  message.first_wrong = reader.take<std::uint64_t>("first wrong");
  ORBITE_TRY(reader.finish(kBad, "verified"));
  return message;
}

Body encode(const Stream& message) {
  return body_of(std::uint32_t{message.target_sends}, message.streams, message.buffer_bytes,
                 message.duration_ns);
}

Result<Stream> decode_stream(std::span<const std::uint8_t> body) {
  wire::Reader reader(body);
  Stream message;
  const auto direction = reader.take<std::uint32_t>("direction");
  message.target_sends = direction == 1;
  message.streams = reader.take<std::uint32_t>("streams");
  message.buffer_bytes = reader.take<std::uint64_t>("buffer bytes");
  message.duration_ns = reader.take<std::uint64_t>("duration");
  ORBITE_TRY(reader.finish(kBad, "stream"));
  const bool good = direction <= 1 && message.streams >= 1 && message.streams <= kStreamsMax &&
                    message.buffer_bytes >= 1 && message.buffer_bytes <= kStreamBytesMax &&
                    message.duration_ns >= 1 && message.duration_ns <= kStreamNsMax;
  if (!good) {
    return fail(kBad,
                "stream: direction %u, %u streams of %" PRIu64 " bytes for %" PRIu64
                " ns; allowed 0..1, 1..%u, 1..%" PRIu64 ", 1..%" PRIu64,
                direction, message.streams, message.buffer_bytes, message.duration_ns, kStreamsMax,
                kStreamBytesMax, kStreamNsMax);
  }
  return message;
}

Body encode(const StreamReady& message) { return body_of(message.port, message.token); }

Result<StreamReady> decode_stream_ready(std::span<const std::uint8_t> body) {
  wire::Reader reader(body);
  StreamReady message;
  message.port = reader.take<std::uint16_t>("port");
  message.token = reader.take<std::uint64_t>("token");
  ORBITE_TRY(reader.finish(kBad, "stream ready"));
  if (message.port == 0) {
    return fail(kBad, "stream ready: port 0, allowed 1..65535");
  }
  return message;
}

Body encode_number(std::uint64_t number) { return body_of(number); }

Result<std::uint64_t> decode_number(std::span<const std::uint8_t> body) {
  wire::Reader reader(body);
  const auto number = reader.take<std::uint64_t>("number");
  ORBITE_TRY(reader.finish(kBad, "a number"));
  return number;
}

Result<void> decode_nothing(std::span<const std::uint8_t> body) {
  return wire::Reader(body).finish(kBad, "a message without a body");
}

Body encode_reason(const std::string& reason) {
  const std::size_t bytes = std::min(reason.size(), kReasonBytesMax);
  return {reason.begin(), reason.begin() + static_cast<std::ptrdiff_t>(bytes)};
}

std::string decode_reason(std::span<const std::uint8_t> body) {
  std::string reason;
  for (const std::uint8_t byte : body.first(std::min(body.size(), kReasonBytesMax))) {
    reason += byte >= 0x20 && byte < 0x7F ? static_cast<char>(byte) : '?';
  }
  return reason;
}

}  // namespace orbite::tool::bench
