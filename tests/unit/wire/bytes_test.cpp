// SPDX-License-Identifier: Apache-2.0
#include "wire/bytes.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "unit/wire/test_bytes.hpp"

namespace orbite::wire {
namespace {

TEST(WireWriter, PutsIntegersInLittleEndianOrder) {
  std::vector<std::uint8_t> out(15);
  Writer writer(out);
  writer.put(std::uint8_t{0x01});
  writer.put(std::uint16_t{0x0203});
  writer.put(std::uint32_t{0x04050607});
  writer.put(std::uint64_t{0x08090A0B0C0D0E0FULL});
  EXPECT_EQ(writer.position(), out.size());
  EXPECT_EQ(hex(out), "010302070605040f0e0d0c0b0a0908");
}

TEST(WireWriter, PutsArraysAndSpansAsTheyAre) {
  std::vector<std::uint8_t> out(4);
  Writer writer(out);
  writer.put(std::array<std::uint8_t, 2>{0xAA, 0xBB});
  writer.put(std::span<const std::uint8_t>{});
  writer.put(std::vector<std::uint8_t>{0xCC, 0xDD});
  EXPECT_EQ(hex(out), "aabbccdd");
}

TEST(WireWriterDeathTest, AbortsPastTheEnd) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::vector<std::uint8_t> out(3);
  EXPECT_DEATH(Writer(out).put(std::uint32_t{1}), "bytes.size\\(\\)");
}

TEST(WireReader, TakesWhatTheWriterPut) {
  std::vector<std::uint8_t> bytes(19);
  Writer writer(bytes);
  writer.put(std::uint8_t{7});
  writer.put(std::uint16_t{0xFFFE});
  writer.put(std::uint32_t{0x80000001});
  writer.put(std::uint64_t{0x8000000000000002ULL});
  writer.put(std::array<std::uint8_t, 3>{1, 2, 3});
  writer.put(std::uint8_t{9});

  Reader reader(bytes);
  EXPECT_EQ(reader.take<std::uint8_t>("a"), 7);
  EXPECT_EQ(reader.take<std::uint16_t>("b"), 0xFFFE);
  EXPECT_EQ(reader.take<std::uint32_t>("c"), 0x80000001U);
  EXPECT_EQ(reader.take<std::uint64_t>("d"), 0x8000000000000002ULL);
  EXPECT_EQ(reader.take_array<3>("e"), (std::array<std::uint8_t, 3>{1, 2, 3}));
  EXPECT_EQ(reader.left(), 1U);
  EXPECT_EQ(reader.take_bytes(1, "f")[0], 9);
  EXPECT_TRUE(reader.finish(ErrorCode::kBadMetadata, "thing"));
}

TEST(WireReader, NamesTheFirstFieldThatDoesNotFitAndStaysFailed) {
  const std::vector<std::uint8_t> bytes = {1, 2, 3};
  Reader reader(bytes);
  EXPECT_EQ(reader.take<std::uint16_t>("first"), 0x0201);
  EXPECT_EQ(reader.take<std::uint32_t>("second"), 0U);
  EXPECT_TRUE(reader.failed());
  EXPECT_EQ(reader.take<std::uint8_t>("third"), 0) << "one byte is left, but the reader has failed";
  EXPECT_EQ(reader.take_array<2>("fourth"), (std::array<std::uint8_t, 2>{}));

  const auto result = reader.finish(ErrorCode::kBadMetadata, "thing");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::kBadMetadata);
  EXPECT_EQ(result.error().context(), "thing: second needs 4 bytes at offset 2, 1 are left");
}

TEST(WireReader, RefusesACountThatWouldOverflow) {
  const std::vector<std::uint8_t> bytes = {1, 2, 3};
  Reader reader(bytes);
  EXPECT_EQ(reader.take<std::uint8_t>("first"), 1);
  EXPECT_TRUE(reader.take_bytes(~std::size_t{0}, "huge").empty());
  EXPECT_TRUE(reader.failed());
}

TEST(WireReader, RefusesBytesLeftOver) {
  const std::vector<std::uint8_t> bytes = {1, 2, 3};
  Reader reader(bytes);
  EXPECT_EQ(reader.take<std::uint8_t>("first"), 1);
  const auto result = reader.finish(ErrorCode::kProtocolViolation, "thing");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::kProtocolViolation);
  EXPECT_EQ(result.error().context(), "thing: 2 bytes after the last field, 0 are allowed");
}

TEST(WireReader, ReadsNothingFromNothing) {
  Reader reader({});
  EXPECT_TRUE(reader.take_bytes(0, "empty").empty());
  EXPECT_TRUE(reader.finish(ErrorCode::kBadMetadata, "thing"));
  EXPECT_EQ(reader.take<std::uint8_t>("byte"), 0);
  EXPECT_FALSE(reader.finish(ErrorCode::kBadMetadata, "thing"));
}

}  // namespace
}  // namespace orbite::wire
