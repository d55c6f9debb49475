// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/assert.hpp"
#include "wire/envelope.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace orbite::wire;
  constexpr std::size_t kMessageBytesMax = 4096;
  const std::span input(data, size);
  const auto decoded = decode_envelope(input, kMessageBytesMax);
  if (!decoded) {
    ORBITE_CHECK(decoded.error().code() == orbite::ErrorCode::kProtocolViolation ||
                 decoded.error().code() == orbite::ErrorCode::kIncompatible ||
                 decoded.error().code() == orbite::ErrorCode::kInvalidArgument);
    ORBITE_CHECK(!decoded.error().context().empty());
    return 0;
  }
  ORBITE_CHECK(decoded->sender_name.size() <= kEnvelopeNameBytesMax);
  ORBITE_CHECK(decoded->message.size() <= kMessageBytesMax);
  ORBITE_CHECK(envelope_bytes(decoded->sender_name, decoded->message) == size);
  // One value has one encoding: whatever is accepted is what we would have written.
  const auto encoded = encode_envelope(*decoded);
  ORBITE_CHECK(encoded.has_value());
  ORBITE_CHECK(std::ranges::equal(*encoded, input));
  return 0;
}
