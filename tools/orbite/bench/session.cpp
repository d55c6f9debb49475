// SPDX-License-Identifier: Apache-2.0
#include "bench/session.hpp"

#include <array>
#include <cinttypes>
#include <cstring>

#include "base/result.hpp"
#include "bench/sockets.hpp"
#include "bench/streams.hpp"
#include "platform/system.hpp"

namespace orbite::tool::bench {
namespace {

/// Longer than any round of transfers, in which the initiator says nothing.
constexpr base::Nanoseconds kIdleMax = 600 * base::kSecond;

std::uint64_t random_number() {
  std::array<std::uint8_t, sizeof(std::uint64_t)> bytes{};
  platform::SystemRandom().fill(bytes);
  std::uint64_t number = 0;
  std::memcpy(&number, bytes.data(), sizeof(number));
  return number;
}

}  // namespace

Result<void> Session::run() {
  while (!ended_) {
    ORBITE_ASSIGN_OR_RETURN(const Message message, channel_.receive(kIdleMax));
    if (const Result<void> answered = answer(message); !answered) {
      // The initiator is told why, if it still listens.
      (void)reply(Kind::kFailed, encode_reason(answered.error().message()));
      return answered;
    }
  }
  return {};
}

Result<void> Session::reply(Kind kind, const Body& body) {
  return channel_.send(static_cast<std::uint16_t>(kind), body);
}

Result<void> Session::answer(const Message& message) {
  const auto kind = static_cast<Kind>(message.kind);
  if (kind == Kind::kOpen) {
    return open(message.body);
  }
  if (!endpoint_) {
    return fail(ErrorCode::kProtocolViolation, "a message of kind %u before the first",
                message.kind);
  }
  switch (kind) {
    case Kind::kFill: {
      ORBITE_ASSIGN_OR_RETURN(const std::uint64_t key, decode_number(message.body));
      fill(area_.bytes(), key);
      return reply(Kind::kDone);
    }
    case Kind::kVerify:
      return verify(message.body);
    case Kind::kUsage:
      ORBITE_TRY(decode_nothing(message.body));
      return reply(Kind::kUsed, encode_number(process_cpu_ns()));
    case Kind::kStream:
      return stream(message.body);
    case Kind::kLend:
      return lend(message.body);
    case Kind::kEnd:
      ORBITE_TRY(decode_nothing(message.body));
      ended_ = true;
      return reply(Kind::kDone);
    default:
      return fail(ErrorCode::kProtocolViolation, "a message of kind %u is no question",
                  message.kind);
  }
}

Result<void> Session::open(const Body& body) {
  ORBITE_ASSIGN_OR_RETURN(const Open asked, decode_open(body));
  if (endpoint_) {
    return fail(ErrorCode::kProtocolViolation, "memory was asked for twice");
  }
  if (asked.bytes == 0 || asked.bytes > options_.memory_max) {
    return fail(ErrorCode::kNotAllowed,
                "%" PRIu64 " bytes of memory, allowed 1..%" PRIu64 " (--memory)", asked.bytes,
                options_.memory_max);
  }
  ORBITE_ASSIGN_OR_RETURN(area_, Area::map(asked.bytes, options_.pages));
  ORBITE_ASSIGN_OR_RETURN(Endpoint endpoint, Endpoint::create("bench-target", options_.config));
  ORBITE_ASSIGN_OR_RETURN(const Handle registration, endpoint.register_area(area_));
  Opened opened;
  opened.address = area_.address();
  opened.connection = endpoint.engine().connection_blob();
  ORBITE_ASSIGN_OR_RETURN(opened.range, endpoint.engine().export_memory(registration));
  endpoint_.emplace(std::move(endpoint));
  return reply(Kind::kOpened, encode(opened));
}

Result<void> Session::verify(const Body& body) {
  ORBITE_ASSIGN_OR_RETURN(const Verify asked, decode_verify(body));
  const std::uint64_t slots_max = area_.bytes().size() / asked.layout.extent();
  if (asked.slots > slots_max) {
    return fail(ErrorCode::kProtocolViolation, "%u layouts to compare, allowed 0..%" PRIu64,
                asked.slots, slots_max);
  }
  return reply(Kind::kVerified, encode(compare(area_.bytes(), asked.layout, asked.slots,
                                               asked.block_key, asked.guard_key)));
}

Result<void> Session::stream(const Body& body) {
  ORBITE_ASSIGN_OR_RETURN(const Stream shape, decode_stream(body));
  ORBITE_ASSIGN_OR_RETURN(HostPort at, local_end(channel_.socket()));
  at.port = 0;
  ORBITE_ASSIGN_OR_RETURN(const FileDescriptor listener, listen_on(at));
  ORBITE_ASSIGN_OR_RETURN(const HostPort bound, local_end(listener.get()));
  const StreamReady ready{bound.port, random_number()};
  ORBITE_TRY(reply(Kind::kStreamReady, encode(ready)));
  Streams streams(shape, options_.config.tcp.loopback_congestion_control);
  ORBITE_TRY(streams.accept(listener.get(), ready.token));
  ORBITE_ASSIGN_OR_RETURN(const std::uint64_t moved,
                          shape.target_sends ? streams.send() : streams.receive());
  return reply(Kind::kStreamed, encode_number(moved));
}

Result<void> Session::lend(const Body& body) {
  ORBITE_TRY(decode_nothing(body));
  if (!options_.lends) {
    return fail(ErrorCode::kNotAllowed, "this side lends no memory: it was not started for you");
  }
  if (lent_.bytes().empty()) {
    ORBITE_ASSIGN_OR_RETURN(lent_, Area::map(area_.bytes().size()));
    // Pages that nobody has written yet would cost the first round a fault each.
    fill(lent_.bytes(), 0);
  }
  return reply(Kind::kLent, encode_number(lent_.address()));
}

}  // namespace orbite::tool::bench
