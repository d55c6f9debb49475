// SPDX-License-Identifier: Apache-2.0
#include "wire/envelope.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "unit/wire/test_bytes.hpp"

namespace orbite::wire {
namespace {

constexpr std::size_t kMessageBytesMax = 1000;

std::span<const std::uint8_t> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

Envelope envelope(std::string_view name, std::string_view message) {
  Envelope value;
  value.sender_epoch.bytes = counting<16>(0x10);
  value.sender_name = name;
  value.message = as_bytes(message);
  return value;
}

Bytes encoded(std::string_view name, std::string_view message) {
  auto bytes = encode_envelope(envelope(name, message));
  EXPECT_TRUE(bytes);
  return bytes ? *bytes : Bytes{};
}

bool equal(const Envelope& a, const Envelope& b) {
  return a.sender_epoch == b.sender_epoch && a.sender_name == b.sender_name &&
         std::equal(a.message.begin(), a.message.end(), b.message.begin(), b.message.end());
}

TEST(WireEnvelopeBytes, ArePinned) {
  using namespace std::string_view_literals;
  EXPECT_EQ(hex(encoded("agent", "a\0b"sv)),
            "0100"                              // version
            "0500"                              // name length
            "03000000"                          // message length
            "101112131415161718191a1b1c1d1e1f"  // sender epoch
            "6167656e74"                        // name
            "610062"                            // message
  );
}

TEST(WireEnvelope, EmptyNameAndEmptyMessageAreAllowed) {
  for (const auto& [name, message] :
       {std::pair<std::string, std::string>{"", ""}, {"agent", ""}, {"", "message"}}) {
    const Bytes bytes = encoded(name, message);
    EXPECT_EQ(bytes.size(), envelope_bytes(name, as_bytes(message)));
    const auto decoded = decode_envelope(bytes, kMessageBytesMax);
    ASSERT_TRUE(decoded) << decoded.error().message();
    EXPECT_TRUE(equal(*decoded, envelope(name, message)));
  }
}

RC_GTEST_PROP(WireEnvelope, RoundTripsAndViewsItsInput, ()) {
  const auto name = *rc::gen::resize(kEnvelopeNameBytesMax, rc::gen::arbitrary<std::string>());
  RC_PRE(name.size() <= kEnvelopeNameBytesMax);
  const auto message = *rc::gen::resize(kMessageBytesMax, rc::gen::arbitrary<std::string>());
  RC_PRE(message.size() <= kMessageBytesMax);
  const Envelope value = envelope(name, message);
  const auto bytes = encode_envelope(value);
  RC_ASSERT(bytes.has_value());
  const auto decoded = decode_envelope(*bytes, kMessageBytesMax);
  RC_ASSERT(decoded.has_value());
  RC_ASSERT(equal(*decoded, value));
  RC_ASSERT(decoded->message.data() == bytes->data() + bytes->size() - message.size());
}

TEST(WireEnvelope, FillsOnlyItsPartOfALargerBuffer) {
  Bytes out(100, 0xEE);
  const auto written = encode_envelope(envelope("ab", "cd"), out);
  ASSERT_TRUE(written);
  EXPECT_EQ(*written, kEnvelopeHeadBytes + 4);
  EXPECT_EQ(Bytes(out.begin(), out.begin() + 28), encoded("ab", "cd"));
  EXPECT_EQ(Bytes(out.begin() + 28, out.end()), Bytes(72, 0xEE));
}

TEST(WireEnvelope, WritesNothingIntoABufferThatIsTooSmall) {
  Bytes out(kEnvelopeHeadBytes + 3, 0xEE);
  EXPECT_TRUE(refused_with(encode_envelope(envelope("ab", "cd"), out), ErrorCode::kBufferTooSmall,
                           "28 bytes into 27"));
  EXPECT_EQ(out, Bytes(out.size(), 0xEE));
}

TEST(WireEnvelope, DoesNotEncodeWhatNobodyDecodes) {
  const std::string name(kEnvelopeNameBytesMax + 1, 'n');
  EXPECT_TRUE(refused_with(encode_envelope(envelope(name, "")), ErrorCode::kInvalidArgument,
                           "name of 257 bytes, allowed: 0 to 256"));
  const std::string message(kEnvelopeMessageBytesMax + 1, 'm');
  EXPECT_TRUE(refused_with(encode_envelope(envelope("", message)), ErrorCode::kInvalidArgument,
                           "message of 16777217 bytes"));
  const std::string longest(kEnvelopeMessageBytesMax, 'm');
  EXPECT_TRUE(encode_envelope(envelope("", longest)));
}

TEST(WireEnvelope, EveryTruncationAndExtensionIsRefused) {
  const Bytes good = encoded("agent", "message");
  for (std::size_t size = 0; size < good.size(); ++size) {
    const Bytes cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_TRUE(refused_with(decode_envelope(cut, kMessageBytesMax), ErrorCode::kProtocolViolation,
                             "notification:"))
        << "first " << size << " bytes";
  }
  Bytes longer = good;
  longer.push_back(0);
  EXPECT_TRUE(refused_with(decode_envelope(longer, kMessageBytesMax), ErrorCode::kProtocolViolation,
                           "1 bytes after the last field"));
}

TEST(WireEnvelope, EveryOtherVersionIsIncompatible) {
  const Bytes good = encoded("agent", "message");
  for (unsigned version = 0; version < 65536; ++version) {
    Bytes bytes = good;
    bytes[0] = static_cast<std::uint8_t>(version);
    bytes[1] = static_cast<std::uint8_t>(version >> 8);
    const auto decoded = decode_envelope(bytes, kMessageBytesMax);
    if (version == kEnvelopeVersion) {
      EXPECT_TRUE(decoded);
    } else {
      ASSERT_TRUE(
          refused_with(decoded, ErrorCode::kIncompatible, "version is " + std::to_string(version)));
    }
  }
}

TEST(WireEnvelope, LengthsThatDoNotSumAreRefused) {
  const Bytes good = encoded("agent", "message");
  for (const std::size_t position : {2, 3, 4, 5, 6, 7}) {
    for (unsigned change = 1; change < 256; ++change) {
      Bytes bytes = good;
      bytes[position] ^= static_cast<std::uint8_t>(change);
      EXPECT_TRUE(
          refused_with(decode_envelope(bytes, kMessageBytesMax), ErrorCode::kProtocolViolation));
    }
  }
}

TEST(WireEnvelope, LongerThanThisSideTakesIsNoViolation) {
  const Bytes bytes = encoded("agent", "message");
  EXPECT_TRUE(decode_envelope(bytes, 7, 5));
  EXPECT_TRUE(refused_with(decode_envelope(bytes, 6, 5), ErrorCode::kInvalidArgument,
                           "message of 7 bytes, allowed: 0 to 6"));
  EXPECT_TRUE(refused_with(decode_envelope(bytes, 7, 4), ErrorCode::kInvalidArgument,
                           "name of 5 bytes, allowed: 0 to 4"));
}

}  // namespace
}  // namespace orbite::wire
