// SPDX-License-Identifier: Apache-2.0
// The first byte chooses: even, a request with its tables and trailer; odd, a response with its
// payload. The rest is what came from the peer.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/assert.hpp"
#include "fuzz/wire_input.hpp"
#include "wire/envelope.hpp"
#include "wire/frame.hpp"

namespace {

using namespace orbite::wire;
using orbite::fuzz::Input;
using orbite::fuzz::take;

constexpr FrameLimits kLimits{};

template <typename Struct>
bool take_table(Input& input, std::vector<Struct>& table, std::size_t count) {
  if (input.size() / sizeof(Struct) < count) {
    return false;
  }
  table.resize(count);
  for (Struct& entry : table) {
    ORBITE_CHECK(take(input, entry));
  }
  return true;
}

/// What the transport relies on once all checks have passed.
void check_promises(const RequestHeader& header, const std::vector<RegistrationRef>& table,
                    const std::vector<WireExtent>& extents) {
  std::uint64_t left = header.payload_bytes;
  for (const WireExtent& extent : extents) {
    ORBITE_CHECK(extent.length > 0 && extent.length <= left);
    ORBITE_CHECK(extent.table_index < table.size());
    ORBITE_CHECK(extent.offset + extent.length > extent.offset);
    left -= extent.length;
  }
  ORBITE_CHECK(left == 0);
}

void run_request(Input input) {
  RequestHeader header;
  if (!take(input, header)) {
    return;
  }
  if (const auto result = check_request_header(header, kLimits); !result) {
    ORBITE_CHECK(result.error().code() == orbite::ErrorCode::kProtocolViolation);
    ORBITE_CHECK(!result.error().context().empty());
    return;
  }
  ORBITE_CHECK(header.table_count <= kLimits.table_max);
  ORBITE_CHECK(header.extent_count <= kLimits.extents_max);
  ORBITE_CHECK(header.payload_bytes <= kLimits.payload_bytes_max);
  ORBITE_CHECK(header.trailer_bytes <= kLimits.trailer_bytes_max);
#ifdef ORBITE_FUZZ_CANARY
  // A crash behind a header that is well-formed and one frame id in 2^32, for fuzz_canary: fuzzing
  // that does not find it finds nothing.
  ORBITE_CHECK((header.frame_id & 0xFFFFFFFF) != 0x0B1DE42E);
#endif
  std::vector<RegistrationRef> table;
  std::vector<WireExtent> extents;
  if (!take_table(input, table, header.table_count) ||
      !take_table(input, extents, header.extent_count)) {
    return;
  }
  if (!check_extents(header, table, extents)) {
    return;
  }
  check_promises(header, table, extents);
  const auto type = static_cast<FrameType>(header.type);
  const std::uint64_t payload = type == FrameType::kWrite ? header.payload_bytes : 0;
  if (input.size() < payload || input.size() - payload < header.trailer_bytes) {
    return;
  }
  if (type != FrameType::kDrain) {
    (void)decode_envelope(input.subspan(payload, header.trailer_bytes), 4096);
  }
}

void run_response(Input input) {
  ResponseHeader header;
  if (!take(input, header)) {
    return;
  }
  if (const auto result = check_response_header(header, kLimits); !result) {
    ORBITE_CHECK(result.error().code() == orbite::ErrorCode::kProtocolViolation);
    ORBITE_CHECK(!result.error().context().empty());
    return;
  }
  ORBITE_CHECK(header.payload_bytes <= kLimits.payload_bytes_max);
  ORBITE_CHECK(header.prefix_bytes <= kLimits.payload_bytes_max);
  ORBITE_CHECK(orbite::is_error_code(header.status));
  if (static_cast<ResponseType>(header.type) != ResponseType::kDescription) {
    return;
  }
  ORBITE_CHECK(header.payload_bytes / sizeof(DescribedRange) <= kLimits.table_max);
  std::vector<DescribedRange> ranges;
  if (!take_table(input, ranges, header.payload_bytes / sizeof(DescribedRange))) {
    return;
  }
  for (const DescribedRange& range : ranges) {
    if (check_described_range(range) && range.live == 1) {
      ORBITE_CHECK(range.length > 0);
      ORBITE_CHECK(range.address + range.length > range.address);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const Input rest(data + 1, size - 1);
  if (data[0] % 2 == 0) {
    run_request(rest);
  } else {
    run_response(rest);
  }
  return 0;
}
