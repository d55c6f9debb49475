// SPDX-License-Identifier: Apache-2.0
#include "bench/channel.hpp"

#include <array>

#include "base/result.hpp"
#include "bench/sockets.hpp"
#include "wire/bytes.hpp"

namespace orbite::tool::bench {
namespace {

constexpr std::uint32_t kMagic = 0x4254424F;  // "OBTB"
constexpr std::size_t kHeaderBytes = 12;
/// A side that has begun a message sends all of it soon.
constexpr base::Nanoseconds kMessageTimeout = 10 * base::kSecond;

}  // namespace

Result<void> Channel::send(std::uint16_t kind, std::span<const std::uint8_t> body) {
  std::vector<std::uint8_t> frame(kHeaderBytes + body.size());
  wire::Writer writer(frame);
  writer.put(kMagic);
  writer.put(kind);
  writer.put(std::uint16_t{0});
  writer.put(static_cast<std::uint32_t>(body.size()));
  writer.put(body);
  return send_all(socket_.get(), frame, now_ns() + kMessageTimeout);
}

Result<Message> Channel::receive(base::Nanoseconds timeout_ns) {
  std::array<std::uint8_t, kHeaderBytes> header{};
  ORBITE_TRY(receive_all(socket_.get(), header, now_ns() + timeout_ns));
  wire::Reader reader(header);
  const auto magic = reader.take<std::uint32_t>("magic");
  Message message;
  message.kind = reader.take<std::uint16_t>("kind");
  const auto reserved = reader.take<std::uint16_t>("reserved");
  const auto bytes = reader.take<std::uint32_t>("length");
  if (magic != kMagic || reserved != 0) {
    return fail(ErrorCode::kProtocolViolation, "the other side is no `orbite bench` of ours");
  }
  if (bytes > kMessageBytesMax) {
    return fail(ErrorCode::kProtocolViolation, "a message of %u bytes, allowed 0..%zu", bytes,
                kMessageBytesMax);
  }
  message.body.resize(bytes);
  ORBITE_TRY(receive_all(socket_.get(), message.body, now_ns() + kMessageTimeout));
  return message;
}

}  // namespace orbite::tool::bench
