// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tools/orbite/bench/messages.hpp"

namespace orbite::tool::bench {
namespace {

Verify some_verify() {
  Verify message;
  message.layout = *find_shape("kv");
  message.layout.adjacent_percent = 50;
  message.slots = 3;
  message.block_key = 4;
  message.guard_key = 5;
  return message;
}

Stream some_stream() {
  Stream message;
  message.target_sends = true;
  message.streams = 2;
  message.buffer_bytes = 1 << 20;
  message.duration_ns = 5;
  return message;
}

const Opened kOpened{7, {1, 2, 3}, {4, 5}};

TEST(BenchMessages, ComeOutAsTheyWentIn) {
  EXPECT_EQ(decode_open(encode(Open{kProtocolVersion, 99}))->bytes, 99U);
  const Result<Opened> opened = decode_opened(encode(kOpened));
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->address, 7U);
  EXPECT_EQ(opened->connection, kOpened.connection);
  EXPECT_EQ(opened->range, kOpened.range);
  const Result<Verify> verify = decode_verify(encode(some_verify()));
  ASSERT_TRUE(verify);
  EXPECT_EQ(verify->layout, some_verify().layout);
  EXPECT_EQ(verify->slots, 3U);
  EXPECT_EQ(verify->block_key, 4U);
  EXPECT_EQ(verify->guard_key, 5U);
  const Result<Mismatch> mismatch = decode_mismatch(encode(Mismatch{1, 2, 3}));
  ASSERT_TRUE(mismatch);
  EXPECT_EQ(mismatch->bytes_wrong, 1U);
  EXPECT_EQ(mismatch->guards_wrong, 2U);
  EXPECT_EQ(mismatch->first_wrong, 3U);
  const Result<Stream> stream = decode_stream(encode(some_stream()));
  ASSERT_TRUE(stream);
  EXPECT_TRUE(stream->target_sends);
  EXPECT_EQ(stream->streams, 2U);
  EXPECT_EQ(stream->buffer_bytes, 1U << 20);
  EXPECT_EQ(stream->duration_ns, 5U);
  const Result<StreamReady> ready = decode_stream_ready(encode(StreamReady{8, 9}));
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->port, 8);
  EXPECT_EQ(ready->token, 9U);
  EXPECT_EQ(decode_number(encode_number(77)).value(), 77U);
}

TEST(BenchMessages, EveryOtherLengthIsRefused) {
  struct Case {
    Body body;
    std::function<bool(const Body&)> accepted;
  };
  const std::vector<Case> cases = {
      {encode(Open{}), [](const Body& body) { return decode_open(body).has_value(); }},
      {encode(kOpened), [](const Body& body) { return decode_opened(body).has_value(); }},
      {encode(some_verify()), [](const Body& body) { return decode_verify(body).has_value(); }},
      {encode(Mismatch{}), [](const Body& body) { return decode_mismatch(body).has_value(); }},
      {encode(some_stream()), [](const Body& body) { return decode_stream(body).has_value(); }},
      {encode(StreamReady{8, 9}),
       [](const Body& body) { return decode_stream_ready(body).has_value(); }},
      {encode_number(1), [](const Body& body) { return decode_number(body).has_value(); }},
      {{}, [](const Body& body) { return decode_nothing(body).has_value(); }},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Body body = cases[i].body;
    EXPECT_TRUE(cases[i].accepted(body)) << i;
    body.push_back(0);
    EXPECT_FALSE(cases[i].accepted(body)) << i;
    for (std::size_t bytes = 0; bytes < cases[i].body.size(); ++bytes) {
      body.resize(bytes);
      EXPECT_FALSE(cases[i].accepted(body)) << i << ' ' << bytes;
      body = cases[i].body;
    }
  }
}

TEST(BenchMessages, ValuesOutOfRangeAreRefused) {
  EXPECT_EQ(decode_open(encode(Open{kProtocolVersion + 1, 1})).error().code(),
            ErrorCode::kIncompatible);
  EXPECT_FALSE(decode_opened(encode(Opened{1, {}, {1}})));
  EXPECT_FALSE(decode_opened(encode(Opened{1, {1}, {}})));
  EXPECT_FALSE(decode_opened(encode(Opened{1, {1}, std::vector<std::uint8_t>(kBlobBytesMax + 1)})));
  EXPECT_FALSE(decode_stream_ready(encode(StreamReady{0, 1})));
  Verify verify = some_verify();
  verify.layout.size = UINT64_MAX;
  EXPECT_FALSE(decode_verify(encode(verify)));
  const auto refused = [](auto change) {
    Stream stream = some_stream();
    change(stream);
    return !decode_stream(encode(stream)).has_value();
  };
  EXPECT_TRUE(refused([](Stream& stream) { stream.streams = 0; }));
  EXPECT_TRUE(refused([](Stream& stream) { stream.streams = kStreamsMax + 1; }));
  EXPECT_TRUE(refused([](Stream& stream) { stream.buffer_bytes = 0; }));
  EXPECT_TRUE(refused([](Stream& stream) { stream.buffer_bytes = kStreamBytesMax + 1; }));
  EXPECT_TRUE(refused([](Stream& stream) { stream.duration_ns = 0; }));
  EXPECT_TRUE(refused([](Stream& stream) { stream.duration_ns = kStreamNsMax + 1; }));
}

TEST(BenchMessages, ReasonsAreCutAndCannotSteerATerminal) {
  EXPECT_EQ(decode_reason(encode_reason("no \x1b[2Jmemory\n")), "no ?[2Jmemory?");
  EXPECT_EQ(encode_reason(std::string(10'000, 'a')).size(), kReasonBytesMax);
  EXPECT_EQ(decode_reason(Body(10'000, 'a')).size(), kReasonBytesMax);
}

}  // namespace
}  // namespace orbite::tool::bench
