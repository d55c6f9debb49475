// SPDX-License-Identifier: Apache-2.0
#include "wire/frame.hpp"

#include <algorithm>
#include <limits>

#include "base/planted.hpp"

namespace orbite::wire {
namespace {

using Ull = unsigned long long;

/// What a request of one type carries, as inclusive bounds.
struct Shape {
  const char* name;
  std::uint32_t table_min;
  std::uint32_t table_max;
  std::uint32_t extents_min;
  std::uint32_t extents_max;
  std::uint64_t payload_min;
  std::uint64_t payload_max;
  std::uint32_t trailer_min;
  std::uint32_t trailer_max;
};

/// A Shape without a name is of no known type.
Shape shape_of(std::uint8_t type, const FrameLimits& limits) {
  const std::uint32_t tables = limits.table_max;
  const std::uint32_t extents = limits.extents_max;
  const std::uint64_t payload = limits.payload_bytes_max;
  // The payload of a READ comes back in a response, whose size field has 32 bits.
  const std::uint64_t read_payload =
      std::min<std::uint64_t>(payload, std::numeric_limits<std::uint32_t>::max());
  const std::uint32_t trailer = limits.trailer_bytes_max;
  switch (static_cast<FrameType>(type)) {
    case FrameType::kWrite:
      return {"WRITE", 1, tables, 1, extents, 1, payload, 0, trailer};
    case FrameType::kRead:
      return {"READ", 1, tables, 1, extents, 1, read_payload, 0, 0};
    case FrameType::kNotify:
      return {"NOTIFY", 0, 0, 0, 0, 0, 0, 1, trailer};
    case FrameType::kDescribe:
      return {"DESCRIBE", 1, tables, 0, 0, 0, 0, 0, 0};
    case FrameType::kDrain:
      return {"DRAIN", 0, 0, 0, 0, 0, 0, kDrainTrailerBytes, kDrainTrailerBytes};
    case FrameType::kPing:
      return {"PING", 0, 0, 0, 0, 0, 0, 0, 0};
  }
  return {};
}

Result<void> check_between(const char* type, const char* field, std::uint64_t value,
                           std::uint64_t minimum, std::uint64_t maximum) {
  if (value < minimum || value > maximum) {
    return fail(ErrorCode::kProtocolViolation, "%s frame: %s is %llu, allowed: %llu to %llu", type,
                field, Ull{value}, Ull{minimum}, Ull{maximum});
  }
  return {};
}

Result<void> check_effect(const ResponseHeader& header) {
  if (header.effect > static_cast<std::uint8_t>(FrameEffect::kUnknown)) {
    return fail(ErrorCode::kProtocolViolation, "response: effect is %u, allowed: 0 to 3",
                unsigned{header.effect});
  }
  if (header.type != static_cast<std::uint8_t>(ResponseType::kWriteAck)) {
    if (header.effect != 0 || header.prefix_bytes != 0) {
      return fail(ErrorCode::kProtocolViolation,
                  "response of type %u: effect is %u and prefix_bytes is %llu, allowed: 0 and 0",
                  unsigned{header.type}, unsigned{header.effect}, Ull{header.prefix_bytes});
    }
    return {};
  }
  const auto effect = static_cast<FrameEffect>(header.effect);
  if (header.status == 0 && effect != FrameEffect::kComplete) {
    return fail(ErrorCode::kProtocolViolation,
                "write ack: effect is %u with status 0, allowed: 2 (complete)",
                unsigned{header.effect});
  }
  if (effect == FrameEffect::kNone && header.prefix_bytes != 0) {
    return fail(ErrorCode::kProtocolViolation,
                "write ack: prefix_bytes is %llu with effect 0 (none), allowed: 0",
                Ull{header.prefix_bytes});
  }
  return {};
}

Result<void> check_response_payload(const ResponseHeader& header, const FrameLimits& limits) {
  const std::uint32_t bytes = header.payload_bytes;
  const auto type = static_cast<ResponseType>(header.type);
  const bool carries = type == ResponseType::kReadData || type == ResponseType::kDescription;
  if (!carries || header.status != 0) {
    if (bytes != 0) {
      return fail(ErrorCode::kProtocolViolation,
                  "response of type %u with status %u: payload_bytes is %u, allowed: 0",
                  unsigned{header.type}, unsigned{header.status}, bytes);
    }
    return {};
  }
  if (type == ResponseType::kReadData) {
    return check_between("read data", "payload_bytes", bytes, 1, limits.payload_bytes_max);
  }
  constexpr std::uint32_t kEach = sizeof(DescribedRange);
  ORBITE_TRY(check_between("description", "payload_bytes", bytes, kEach,
                           std::uint64_t{limits.table_max} * kEach));
  if (bytes % kEach != 0) {
    return fail(ErrorCode::kProtocolViolation,
                "description frame: payload_bytes is %u, allowed: multiples of %u", bytes, kEach);
  }
  return {};
}

}  // namespace

Result<void> check_request_header(const RequestHeader& header, const FrameLimits& limits) {
  if (header.magic != kRequestMagic) {
    return fail(ErrorCode::kProtocolViolation, "request: magic is 0x%08x, allowed: 0x%08x",
                header.magic, kRequestMagic);
  }
  const Shape shape = shape_of(header.type, limits);
  if (shape.name == nullptr) {
    return fail(ErrorCode::kProtocolViolation, "request: type is %u, allowed: 1 to 6",
                unsigned{header.type});
  }
  ORBITE_TRY(check_between(shape.name, "flags", header.flags, 0, 0));
  ORBITE_TRY(check_between(shape.name, "table_count", header.table_count, shape.table_min,
                           shape.table_max));
  ORBITE_TRY(check_between(shape.name, "extent_count", header.extent_count, shape.extents_min,
                           shape.extents_max));
  ORBITE_TRY(check_between(shape.name, "payload_bytes", header.payload_bytes, shape.payload_min,
                           shape.payload_max));
  return check_between(shape.name, "trailer_bytes", header.trailer_bytes, shape.trailer_min,
                       shape.trailer_max);
}

Result<void> check_extents(const RequestHeader& header, std::span<const RegistrationRef> table,
                           std::span<const WireExtent> extents) {
  if (table.size() != header.table_count || extents.size() != header.extent_count) {
    return fail(ErrorCode::kProtocolViolation,
                "request: %zu registrations and %zu extents, the header says %u and %u",
                table.size(), extents.size(), unsigned{header.table_count}, header.extent_count);
  }
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i].generation == 0) {
      return fail(ErrorCode::kProtocolViolation,
                  "registration %zu (index %u): generation is 0, allowed: 1 to 4294967295", i,
                  table[i].index);
    }
  }
  // A sum of 2^32 lengths below 2^32 fits in 64 bits.
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const WireExtent& extent = extents[i];
    if (extent.length == 0) {
      return fail(ErrorCode::kProtocolViolation, "extent %zu: length is 0, allowed: 1 or more", i);
    }
    if (extent.length > std::numeric_limits<std::uint64_t>::max() - extent.offset) {
      return fail(ErrorCode::kProtocolViolation, "extent %zu: offset %llu + length %u overflows", i,
                  Ull{extent.offset}, extent.length);
    }
    if (extent.table_index >= table.size()) {
      return fail(ErrorCode::kProtocolViolation,
                  "extent %zu: table_index is %u, allowed: below %zu", i, extent.table_index,
                  table.size());
    }
    sum += extent.length;
  }
  if (sum != header.payload_bytes && !base::planted(base::Bug::kUncheckedLengthSum)) {
    return fail(ErrorCode::kProtocolViolation,
                "request: payload_bytes is %llu, the extents' lengths sum to %llu",
                Ull{header.payload_bytes}, Ull{sum});
  }
  return {};
}

Result<void> check_response_header(const ResponseHeader& header, const FrameLimits& limits) {
  if (header.magic != kResponseMagic) {
    return fail(ErrorCode::kProtocolViolation, "response: magic is 0x%08x, allowed: 0x%08x",
                header.magic, kResponseMagic);
  }
  if (header.type < static_cast<std::uint8_t>(ResponseType::kWriteAck) ||
      header.type > static_cast<std::uint8_t>(ResponseType::kPong)) {
    return fail(ErrorCode::kProtocolViolation, "response: type is %u, allowed: 65 to 70",
                unsigned{header.type});
  }
  if (!is_error_code(header.status)) {
    return fail(ErrorCode::kProtocolViolation, "response: status is %u, which is no error code",
                unsigned{header.status});
  }
  if (header.reserved != 0) {
    return fail(ErrorCode::kProtocolViolation, "response: reserved is %u, allowed: 0",
                header.reserved);
  }
  if (header.prefix_bytes > limits.payload_bytes_max) {
    return fail(ErrorCode::kProtocolViolation, "response: prefix_bytes is %llu, allowed: 0 to %llu",
                Ull{header.prefix_bytes}, Ull{limits.payload_bytes_max});
  }
  ORBITE_TRY(check_effect(header));
  return check_response_payload(header, limits);
}

Result<void> check_described_range(const DescribedRange& range) {
  if (range.live > 1) {
    return fail(ErrorCode::kProtocolViolation, "described range %u: live is %u, allowed: 0 or 1",
                range.index, unsigned{range.live});
  }
  for (const std::uint8_t byte : range.reserved) {
    if (byte != 0) {
      return fail(ErrorCode::kProtocolViolation,
                  "described range %u: a reserved byte is %u, allowed: 0", range.index,
                  unsigned{byte});
    }
  }
  if (range.live == 0) {
    return {};
  }
  if (range.generation == 0) {
    return fail(ErrorCode::kProtocolViolation,
                "described range %u: generation is 0, allowed: 1 to 4294967295", range.index);
  }
  if (range.length == 0 ||
      range.length > std::numeric_limits<std::uint64_t>::max() - range.address) {
    return fail(ErrorCode::kProtocolViolation,
                "described range %u: length is %llu at address 0x%llx, allowed: 1 or more, and an "
                "end below 2^64",
                range.index, Ull{range.length}, Ull{range.address});
  }
  return {};
}

}  // namespace orbite::wire
