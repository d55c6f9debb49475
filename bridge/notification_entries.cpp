// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include "base/assert.hpp"
#include "codes.hpp"
#include "engine_table.hpp"
#include "entry.hpp"

using orbite::ErrorCode;
using orbite::Handle;
using orbite::Result;
using orbite::bridge::check_pointer;
using orbite::bridge::EngineLease;
using orbite::bridge::guarded;
using orbite::bridge::input_bytes;

orbite_nixl_status_t orbite_nixl_notification_send(orbite_nixl_engine_t engine,
                                                   orbite_nixl_peer_t peer, const void* message,
                                                   size_t message_bytes,
                                                   orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_ASSIGN_OR_RETURN(const auto bytes, input_bytes(message, message_bytes, "message"));
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    return lease->send_notification(Handle::unpack(peer), bytes);
  });
}

orbite_nixl_status_t orbite_nixl_notification_receive(orbite_nixl_engine_t engine, char* name,
                                                      size_t* name_bytes, void* message,
                                                      size_t* message_bytes,
                                                      orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_TRY(check_pointer(name_bytes, "name_bytes"));
    ORBITE_TRY(check_pointer(message_bytes, "message_bytes"));
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    const orbite::TransferEngine::NotificationSizes capacity{
        name == nullptr ? 0 : *name_bytes, message == nullptr ? 0 : *message_bytes};
    orbite::TransferEngine::NotificationSizes needed;
    const std::optional<orbite::Notification> taken = lease->receive_notification(capacity, needed);
    if (!taken.has_value()) {
      // A sender's name is never empty, so no size means no message.
      if (needed.sender_bytes == 0) {
        return fail(ErrorCode::kNotFound, "no message has been received");
      }
      *name_bytes = needed.sender_bytes;
      *message_bytes = needed.message_bytes;
      return fail(ErrorCode::kBufferTooSmall,
                  "buffers have %zu and %zu bytes; the message needs %zu (name) and %zu",
                  capacity.sender_bytes, capacity.message_bytes, needed.sender_bytes,
                  needed.message_bytes);
    }
    ORBITE_CHECK(taken->sender.size() <= capacity.sender_bytes);
    ORBITE_CHECK(taken->message.size() <= capacity.message_bytes);
    *name_bytes = taken->sender.size();
    *message_bytes = taken->message.size();
    std::copy(taken->sender.begin(), taken->sender.end(), name);
    std::copy(taken->message.begin(), taken->message.end(), static_cast<std::uint8_t*>(message));
    return {};
  });
}
