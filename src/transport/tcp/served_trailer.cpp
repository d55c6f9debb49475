// SPDX-License-Identifier: Apache-2.0
// ServedLane: what follows the payload of a frame, a notification or the name of a lane.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/planted.hpp"
#include "transport/tcp/served_lane.hpp"
#include "wire/envelope.hpp"

namespace orbite::transport::tcp {
namespace {

/// Of a trailer, this much is every lane's own; what is longer is charged to the shared budget.
constexpr std::size_t kTrailerFreeBytes = 4096;

}  // namespace

void ServedLane::begin_trailer() {
  trailer_filled_ = 0;
  phase_ = Phase::kTrailer;
  if (refusal_ != ErrorCode::kOk) {
    sink_trailer(refusal_);
  } else if (header_.trailer_bytes > trailer_bytes_max()) {
    sink_trailer(ErrorCode::kInvalidArgument);
  } else {
    trailer_.resize(std::min<std::size_t>(header_.trailer_bytes, kTrailerFreeBytes));
  }
}

/// Room for more of the trailer, twice as much as has arrived. False when the budget has none.
bool ServedLane::grow_trailer() {
  const std::size_t wanted = std::min<std::size_t>(header_.trailer_bytes, 2 * trailer_.size());
  // The copy lives as long as what it is made of.
  const std::uint64_t charge = wanted;
  if (!budget_.take(hello_.client_epoch, charge)) {
    return false;
  }
  const std::uint64_t before = std::exchange(trailer_charge_, charge);
  try {
    trailer_.reserve(wanted);
    trailer_.resize(wanted);
  } catch (...) {
    budget_.give_back(hello_.client_epoch, before);
    throw;
  }
  budget_.give_back(hello_.client_epoch, before);
  return true;
}

/// What has come of the trailer is forgotten, what is to come is not kept.
void ServedLane::sink_trailer(ErrorCode refusal) {
  trailer_refusal_ = refusal;
  sink_left_ = header_.trailer_bytes - trailer_filled_;
  drop_trailer();
  phase_ = Phase::kTrailerSink;
}

void ServedLane::drop_trailer() noexcept {
  if (trailer_.capacity() > kTrailerFreeBytes) {
    trailer_ = {};
  }
  trailer_.clear();
  trailer_filled_ = 0;
  budget_.give_back(hello_.client_epoch, std::exchange(trailer_charge_, 0));
}

bool ServedLane::parse_trailer_sink() {
  if (!sink_buffered()) {
    return false;
  }
  finish_trailer(trailer_refusal_);
  return true;
}

bool ServedLane::parse_trailer() {
  while (true) {
    const std::size_t step = std::min(trailer_.size() - trailer_filled_, received_.size());
    if (step > 0) {
      std::memcpy(trailer_.data() + trailer_filled_, received_.data().data(), step);
      received_.consume(step);
      trailer_filled_ += step;
    }
    if (trailer_filled_ < trailer_.size()) {
      return false;
    }
    if (trailer_filled_ == header_.trailer_bytes) {
      break;
    }
    if (!grow_trailer()) {
      sink_trailer(ErrorCode::kBudgetExhausted);
      return true;
    }
  }
  const bool drains = header_.type == static_cast<std::uint8_t>(wire::FrameType::kDrain);
  const ErrorCode notification = drains ? ErrorCode::kOk : deliver_trailer();
  if (ended()) {
    return false;
  }
  finish_trailer(notification);
  return !ended();
}

void ServedLane::finish_trailer(ErrorCode notification) {
  const auto type = static_cast<wire::FrameType>(header_.type);
  if (type == wire::FrameType::kDrain) {
    std::uint64_t lane_id = 0;
    std::memcpy(&lane_id, trailer_.data(), sizeof(lane_id));
    const ErrorCode drained = callbacks_.drain(hello_.client_epoch, lane_id);
    if (ended()) {
      return;  // the lane named itself
    }
    respond(wire::ResponseType::kDrained, drained, RemoteEffect::kNone, 0, 0);
  } else if (type == wire::FrameType::kNotify) {
    respond(wire::ResponseType::kNotifyAck, notification, RemoteEffect::kNone, 0, 0);
  } else {
    const bool written = refusal_ == ErrorCode::kOk;
    const bool delivered = notification == ErrorCode::kOk;
    respond(wire::ResponseType::kWriteAck,
            !written    ? refusal_
            : delivered ? ErrorCode::kOk
                        : ErrorCode::kNotificationFailed,
            written ? RemoteEffect::kComplete : RemoteEffect::kNone,
            written ? header_.payload_bytes : 0, 0);
  }
  drop_trailer();
  next_frame();
}

ErrorCode ServedLane::deliver_trailer() {
  auto envelope =
      wire::decode_envelope(trailer_, environment_.config.notifications.message_bytes_max);
  if (!envelope && envelope.error().code() == ErrorCode::kInvalidArgument) {
    return ErrorCode::kInvalidArgument;  // longer than we take: the sender is told, the lane lives
  }
  if (!envelope) {
    violation(envelope.error());
    return ErrorCode::kProtocolViolation;
  }
  if (envelope->sender_epoch != hello_.client_epoch ||
      envelope->sender_name != std::string_view(hello_.name, hello_.name_bytes)) {
    violation(Error::make(ErrorCode::kProtocolViolation,
                          "a notification whose sender is not the one of the handshake"));
    return ErrorCode::kProtocolViolation;
  }
  const auto delivered = environment_.deliver(*envelope);
  return delivered ? ErrorCode::kOk : delivered.error().code();
}

}  // namespace orbite::transport::tcp
