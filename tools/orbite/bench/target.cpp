// SPDX-License-Identifier: Apache-2.0
#include "bench/target.hpp"

#include "base/result.hpp"

namespace orbite::tool::bench {
namespace {

/// Filling and comparing all of a large memory takes seconds.
constexpr base::Nanoseconds kAnswerTimeout = 300 * base::kSecond;

}  // namespace

Result<Body> await(Channel& channel, Kind answer, base::Nanoseconds timeout_ns) {
  ORBITE_ASSIGN_OR_RETURN(Message message, channel.receive(timeout_ns));
  if (message.kind == static_cast<std::uint16_t>(Kind::kFailed)) {
    return fail(ErrorCode::kNotAllowed, "the other side says: %s",
                decode_reason(message.body).c_str());
  }
  if (message.kind != static_cast<std::uint16_t>(answer)) {
    return fail(ErrorCode::kProtocolViolation, "a message of kind %u, allowed %u", message.kind,
                static_cast<unsigned>(answer));
  }
  return std::move(message.body);
}

Result<Body> ask(Channel& channel, Kind question, const Body& body, Kind answer) {
  ORBITE_TRY(channel.send(static_cast<std::uint16_t>(question), body));
  return await(channel, answer, kAnswerTimeout);
}

Result<Remote> SelfTarget::introduce_to(Endpoint& endpoint) {
  ORBITE_ASSIGN_OR_RETURN(const Handle registration, endpoint.register_area(area_));
  Remote remote;
  remote.address = area_.address();
  ORBITE_ASSIGN_OR_RETURN(remote.peer, endpoint.engine().self_peer());
  ORBITE_ASSIGN_OR_RETURN(remote.range, endpoint.engine().local_range(registration));
  return remote;
}

Result<void> SelfTarget::fill(std::uint64_t key) {
  bench::fill(area_.bytes(), key);
  return {};
}

Result<Mismatch> SelfTarget::verify(const Verify& what) {
  return compare(area_.bytes(), what.layout, what.slots, what.block_key, what.guard_key);
}

Result<std::unique_ptr<RemoteTarget>> RemoteTarget::open(Channel& channel, std::uint64_t bytes) {
  Open message;
  message.bytes = bytes;
  ORBITE_ASSIGN_OR_RETURN(const Body body,
                          ask(channel, Kind::kOpen, encode(message), Kind::kOpened));
  ORBITE_ASSIGN_OR_RETURN(Opened opened, decode_opened(body));
  return std::unique_ptr<RemoteTarget>(new RemoteTarget(channel, bytes, std::move(opened)));
}

Result<Remote> RemoteTarget::introduce_to(Endpoint& endpoint) {
  Remote remote;
  remote.address = opened_.address;
  ORBITE_ASSIGN_OR_RETURN(remote.peer,
                          endpoint.engine().import_peer("bench-target", opened_.connection));
  ORBITE_ASSIGN_OR_RETURN(remote.range, endpoint.engine().import_range(remote.peer, opened_.range,
                                                                       opened_.address, bytes_));
  return remote;
}

Result<void> RemoteTarget::fill(std::uint64_t key) {
  ORBITE_ASSIGN_OR_RETURN(const Body body,
                          ask(channel_, Kind::kFill, encode_number(key), Kind::kDone));
  return decode_nothing(body);
}

Result<Mismatch> RemoteTarget::verify(const Verify& what) {
  ORBITE_ASSIGN_OR_RETURN(const Body body,
                          ask(channel_, Kind::kVerify, encode(what), Kind::kVerified));
  return decode_mismatch(body);
}

Result<std::optional<std::uint64_t>> RemoteTarget::cpu_ns() {
  ORBITE_ASSIGN_OR_RETURN(const Body body, ask(channel_, Kind::kUsage, {}, Kind::kUsed));
  ORBITE_ASSIGN_OR_RETURN(const std::uint64_t used_ns, decode_number(body));
  return used_ns;
}

Result<void> RemoteTarget::end() {
  ORBITE_ASSIGN_OR_RETURN(const Body body, ask(channel_, Kind::kEnd, {}, Kind::kDone));
  return decode_nothing(body);
}

}  // namespace orbite::tool::bench
