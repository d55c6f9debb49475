// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/result.hpp"

namespace orbite::wire {

static_assert(std::endian::native == std::endian::little,
              "the structs below are the bytes on the wire, which are little-endian");

/// Version of frames and handshake together. Both sides of a lane speak the same one.
inline constexpr std::uint32_t kWireVersion = 1;

inline constexpr std::uint32_t kRequestMagic = 0x5152544FU;   // "OTRQ"
inline constexpr std::uint32_t kResponseMagic = 0x5052544FU;  // "OTRP"

/// Initiator to target.
enum class FrameType : std::uint8_t {
  kWrite = 1,
  kRead = 2,
  kNotify = 3,
  kDescribe = 4,
  kDrain = 5,
  kPing = 6
};

/// Target to initiator: the request's number plus 64.
enum class ResponseType : std::uint8_t {
  kWriteAck = 65,
  kReadData = 66,
  kNotifyAck = 67,
  kDescription = 68,
  kDrained = 69,
  kPong = 70
};

/// What is known of the destination of a WRITE frame.
enum class FrameEffect : std::uint8_t { kNone = 0, kPrefix = 1, kComplete = 2, kUnknown = 3 };

/// A request is this header, then `table_count` RegistrationRef, then `extent_count` WireExtent,
/// then `payload_bytes` bytes (WRITE only), then `trailer_bytes` bytes: the envelope of a
/// notification (WRITE, optional; NOTIFY, always) or the 8-byte lane id (DRAIN).
struct RequestHeader {
  std::uint32_t magic = kRequestMagic;
  std::uint8_t type = 0;   // FrameType
  std::uint8_t flags = 0;  // none are defined: 0
  std::uint16_t table_count = 0;
  std::uint32_t extent_count = 0;
  std::uint32_t trailer_bytes = 0;
  std::uint64_t frame_id = 0;       // rises on a lane, from 1; repeated in the response
  std::uint64_t payload_bytes = 0;  // sum of the extents' lengths; in a READ they travel back
};

/// A registration of the target, as its range blob names it.
struct RegistrationRef {
  std::uint32_t index = 0;
  std::uint32_t generation = 0;  // never 0
  std::uint8_t key[16] = {};
};

struct WireExtent {
  std::uint64_t offset = 0;       // bytes from the registration's start
  std::uint32_t length = 0;       // bytes, never 0
  std::uint32_t table_index = 0;  // into the frame's RegistrationRef table
};

/// A response is this header, then `payload_bytes` bytes (kReadData and kDescription only, and only
/// with status 0).
struct ResponseHeader {
  std::uint32_t magic = kResponseMagic;
  std::uint8_t type = 0;     // ResponseType
  std::uint8_t effect = 0;   // FrameEffect, for kWriteAck; else 0
  std::uint16_t status = 0;  // ErrorCode
  std::uint32_t payload_bytes = 0;
  std::uint32_t reserved = 0;
  std::uint64_t frame_id = 0;
  std::uint64_t prefix_bytes = 0;  // for kWriteAck: leading bytes in place, in extent order; else 0
};

/// Payload of kDescription: one for each RegistrationRef asked for, in that order.
struct DescribedRange {
  std::uint32_t index = 0;
  std::uint32_t generation = 0;
  std::uint64_t address = 0;
  std::uint64_t length = 0;  // bytes; 0 if not live
  std::uint64_t device_id = 0;
  std::uint8_t live = 0;  // 1: can be borrowed; 0: fenced, gone or not what the reference says
  std::uint8_t kind = 0;
  std::uint8_t access = 0;
  std::uint8_t reserved[5] = {};
};

/// What this side takes from a peer. The fixed part of a frame fits in a buffer that is sized once.
struct FrameLimits {
  std::uint32_t extents_max = 1024;
  std::uint16_t table_max = 64;
  std::uint64_t payload_bytes_max = 4ULL << 20;
  std::uint32_t trailer_bytes_max = (1U << 20) + 1024;
};

/// Bytes of the lane id that a DRAIN carries as its trailer, a little-endian u64.
inline constexpr std::uint32_t kDrainTrailerBytes = 8;

/// Bytes between a request's header and its payload. At most about 64 GiB for any header, so the
/// caller checks the header first.
[[nodiscard]] constexpr std::uint64_t tables_bytes(const RequestHeader& header) noexcept {
  return header.table_count * std::uint64_t{sizeof(RegistrationRef)} +
         header.extent_count * std::uint64_t{sizeof(WireExtent)};
}

/// kProtocolViolation for another magic, an unknown type or flag, and for counts and sizes that the
/// type does not have or that are past `limits`. After success every count is safe to allocate.
[[nodiscard]] Result<void> check_request_header(const RequestHeader& header,
                                                const FrameLimits& limits);

/// For a header that passed check_request_header, and its tables. kProtocolViolation if a reference
/// has generation 0, an extent is empty, points outside the table or ends past 2^64 - 1, or the
/// lengths do not sum to `payload_bytes`. Says nothing about the registrations themselves.
[[nodiscard]] Result<void> check_extents(const RequestHeader& header,
                                         std::span<const RegistrationRef> table,
                                         std::span<const WireExtent> extents);

/// kProtocolViolation for another magic or type, a status that is no error code, an effect that
/// contradicts the status (a WRITE acknowledged as ok is complete) or the prefix, a payload that
/// the type does not have, and sizes past `limits`. Whether it answers a request that is waiting,
/// and with the right size, only the caller knows.
[[nodiscard]] Result<void> check_response_header(const ResponseHeader& header,
                                                 const FrameLimits& limits);

/// kProtocolViolation if `live` is not 0 or 1, a reserved byte is set, or a live range is empty,
/// ends past 2^64 - 1 or has generation 0. `kind` and `access` are the memory room's to judge.
[[nodiscard]] Result<void> check_described_range(const DescribedRange& range);

template <typename Struct>
inline constexpr bool kIsWireStruct =
    std::is_trivially_copyable_v<Struct> && std::is_standard_layout_v<Struct>;

static_assert(kIsWireStruct<RequestHeader> && sizeof(RequestHeader) == 32);
static_assert(offsetof(RequestHeader, type) == 4 && offsetof(RequestHeader, flags) == 5);
static_assert(offsetof(RequestHeader, table_count) == 6);
static_assert(offsetof(RequestHeader, extent_count) == 8);
static_assert(offsetof(RequestHeader, trailer_bytes) == 12);
static_assert(offsetof(RequestHeader, frame_id) == 16);
static_assert(offsetof(RequestHeader, payload_bytes) == 24);

static_assert(kIsWireStruct<RegistrationRef> && sizeof(RegistrationRef) == 24);
static_assert(offsetof(RegistrationRef, generation) == 4 && offsetof(RegistrationRef, key) == 8);

static_assert(kIsWireStruct<WireExtent> && sizeof(WireExtent) == 16);
static_assert(offsetof(WireExtent, length) == 8 && offsetof(WireExtent, table_index) == 12);

static_assert(kIsWireStruct<ResponseHeader> && sizeof(ResponseHeader) == 32);
static_assert(offsetof(ResponseHeader, type) == 4 && offsetof(ResponseHeader, effect) == 5);
static_assert(offsetof(ResponseHeader, status) == 6);
static_assert(offsetof(ResponseHeader, payload_bytes) == 8);
static_assert(offsetof(ResponseHeader, reserved) == 12);
static_assert(offsetof(ResponseHeader, frame_id) == 16);
static_assert(offsetof(ResponseHeader, prefix_bytes) == 24);

static_assert(kIsWireStruct<DescribedRange> && sizeof(DescribedRange) == 40);
static_assert(offsetof(DescribedRange, generation) == 4 && offsetof(DescribedRange, address) == 8);
static_assert(offsetof(DescribedRange, length) == 16 && offsetof(DescribedRange, device_id) == 24);
static_assert(offsetof(DescribedRange, live) == 32 && offsetof(DescribedRange, kind) == 33);
static_assert(offsetof(DescribedRange, access) == 34 && offsetof(DescribedRange, reserved) == 35);

}  // namespace orbite::wire
