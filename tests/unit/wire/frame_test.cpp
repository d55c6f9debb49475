// SPDX-License-Identifier: Apache-2.0
#include "wire/frame.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "unit/wire/test_bytes.hpp"

namespace orbite::wire {
namespace {

constexpr std::uint64_t kU64Max = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint32_t kU32Max = std::numeric_limits<std::uint32_t>::max();
constexpr FrameLimits kLimits{};

RequestHeader request(FrameType type, std::uint16_t table_count, std::uint32_t extent_count,
                      std::uint64_t payload_bytes, std::uint32_t trailer_bytes) {
  RequestHeader header;
  header.type = static_cast<std::uint8_t>(type);
  header.table_count = table_count;
  header.extent_count = extent_count;
  header.trailer_bytes = trailer_bytes;
  header.frame_id = 77;
  header.payload_bytes = payload_bytes;
  return header;
}

ResponseHeader response(ResponseType type, std::uint16_t status = 0) {
  ResponseHeader header;
  header.type = static_cast<std::uint8_t>(type);
  header.status = status;
  if (type == ResponseType::kWriteAck && status == 0) {
    header.effect = static_cast<std::uint8_t>(FrameEffect::kComplete);
    header.prefix_bytes = 4096;
  }
  if (status == 0 && type == ResponseType::kReadData) {
    header.payload_bytes = 4096;
  }
  if (status == 0 && type == ResponseType::kDescription) {
    header.payload_bytes = 2 * sizeof(DescribedRange);
  }
  return header;
}

constexpr auto kFencedStatus = static_cast<std::uint16_t>(ErrorCode::kRegistrationFenced);

RegistrationRef reference(std::uint32_t index) {
  RegistrationRef ref;
  ref.index = index;
  ref.generation = 3;
  return ref;
}

// ---- The bytes ----

TEST(WireFrameBytes, RequestHeaderIsPinned) {
  RequestHeader header =
      request(FrameType::kWrite, 0x0203, 0x04050607, 0x1020304050607080ULL, 0x08090A0B);
  header.flags = 0x5F;
  header.frame_id = 0x1122334455667788ULL;
  EXPECT_EQ(hex(bytes_of(header)),
            "4f545251"          // magic
            "01"                // type
            "5f"                // flags
            "0302"              // table_count
            "07060504"          // extent_count
            "0b0a0908"          // trailer_bytes
            "8877665544332211"  // frame_id
            "8070605040302010"  // payload_bytes
  );
}

TEST(WireFrameBytes, TablesArePinned) {
  RegistrationRef ref;
  ref.index = 0x01020304;
  ref.generation = 0x05060708;
  const auto key = counting<16>(0x20);
  std::copy(key.begin(), key.end(), ref.key);
  EXPECT_EQ(hex(bytes_of(ref)), "0403020108070605202122232425262728292a2b2c2d2e2f");

  const WireExtent extent{0x0102030405060708ULL, 0x11121314, 0x21222324};
  EXPECT_EQ(hex(bytes_of(extent)), "08070605040302011413121124232221");
}

TEST(WireFrameBytes, ResponseHeaderIsPinned) {
  ResponseHeader header;
  header.type = static_cast<std::uint8_t>(ResponseType::kWriteAck);
  header.effect = static_cast<std::uint8_t>(FrameEffect::kPrefix);
  header.status = 0x0190;
  header.payload_bytes = 0x01020304;
  header.frame_id = 0x1122334455667788ULL;
  header.prefix_bytes = 0x1020304050607080ULL;
  EXPECT_EQ(hex(bytes_of(header)),
            "4f545250"          // magic
            "41"                // type
            "01"                // effect
            "9001"              // status
            "04030201"          // payload_bytes
            "00000000"          // reserved
            "8877665544332211"  // frame_id
            "8070605040302010"  // prefix_bytes
  );
}

TEST(WireFrameBytes, DescribedRangeIsPinned) {
  DescribedRange range;
  range.index = 0x01020304;
  range.generation = 0x05060708;
  range.address = 0x1112131415161718ULL;
  range.length = 0x2122232425262728ULL;
  range.device_id = 0x3132333435363738ULL;
  range.live = 1;
  range.kind = 2;
  range.access = 7;
  EXPECT_EQ(hex(bytes_of(range)),
            "0403020108070605"
            "1817161514131211"
            "2827262524232221"
            "3837363534333231"
            "0102070000000000");
}

TEST(WireFrameBytes, NumbersArePinned) {
  EXPECT_EQ(kWireVersion, 1U);
  const std::uint8_t requests[] = {1, 2, 3, 4, 5, 6};
  const FrameType types[] = {FrameType::kWrite,    FrameType::kRead,  FrameType::kNotify,
                             FrameType::kDescribe, FrameType::kDrain, FrameType::kPing};
  const ResponseType answers[] = {ResponseType::kWriteAck,  ResponseType::kReadData,
                                  ResponseType::kNotifyAck, ResponseType::kDescription,
                                  ResponseType::kDrained,   ResponseType::kPong};
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(static_cast<std::uint8_t>(types[i]), requests[i]);
    EXPECT_EQ(static_cast<std::uint8_t>(answers[i]), requests[i] + 64);
  }
}

TEST(WireFrameBytes, TablesBytesCountsBothTables) {
  EXPECT_EQ(tables_bytes(request(FrameType::kWrite, 2, 3, 1, 0)), 2U * 24 + 3U * 16);
  EXPECT_EQ(tables_bytes(request(FrameType::kWrite, 0xFFFF, kU32Max, 1, 0)),
            0xFFFFULL * 24 + 0xFFFFFFFFULL * 16);
}

// ---- Request headers ----

struct RequestCase {
  const char* what;
  RequestHeader header;
  const char* field;  // at fault, nullptr if the header is good
};

std::vector<RequestCase> request_cases() {
  const std::uint16_t tables = kLimits.table_max;
  const std::uint32_t extents = kLimits.extents_max;
  const std::uint64_t payload = kLimits.payload_bytes_max;
  const std::uint32_t trailer = kLimits.trailer_bytes_max;
  using enum FrameType;
  return {
      {"smallest write", request(kWrite, 1, 1, 1, 0), nullptr},
      {"largest write", request(kWrite, tables, extents, payload, trailer), nullptr},
      {"write without table", request(kWrite, 0, 1, 1, 0), "table_count"},
      {"write, table too long", request(kWrite, tables + 1, 1, 1, 0), "table_count"},
      {"write without extents", request(kWrite, 1, 0, 1, 0), "extent_count"},
      {"write, too many extents", request(kWrite, 1, extents + 1, 1, 0), "extent_count"},
      {"write, most extents", request(kWrite, 1, kU32Max, 1, 0), "extent_count"},
      {"write without payload", request(kWrite, 1, 1, 0, 0), "payload_bytes"},
      {"write, payload too big", request(kWrite, 1, 1, payload + 1, 0), "payload_bytes"},
      {"write, most payload", request(kWrite, 1, 1, kU64Max, 0), "payload_bytes"},
      {"write, trailer too big", request(kWrite, 1, 1, 1, trailer + 1), "trailer_bytes"},
      {"smallest read", request(kRead, 1, 1, 1, 0), nullptr},
      {"largest read", request(kRead, tables, extents, payload, 0), nullptr},
      {"read with a trailer", request(kRead, 1, 1, 1, 1), "trailer_bytes"},
      {"read without table", request(kRead, 0, 1, 1, 0), "table_count"},
      {"read without extents", request(kRead, 1, 0, 1, 0), "extent_count"},
      {"read of nothing", request(kRead, 1, 1, 0, 0), "payload_bytes"},
      {"read, too much", request(kRead, 1, 1, payload + 1, 0), "payload_bytes"},
      {"smallest notify", request(kNotify, 0, 0, 0, 1), nullptr},
      {"largest notify", request(kNotify, 0, 0, 0, trailer), nullptr},
      {"notify of nothing", request(kNotify, 0, 0, 0, 0), "trailer_bytes"},
      {"notify, too long", request(kNotify, 0, 0, 0, trailer + 1), "trailer_bytes"},
      {"notify with a table", request(kNotify, 1, 0, 0, 1), "table_count"},
      {"notify with extents", request(kNotify, 0, 1, 0, 1), "extent_count"},
      {"notify with payload", request(kNotify, 0, 0, 1, 1), "payload_bytes"},
      {"describe one", request(kDescribe, 1, 0, 0, 0), nullptr},
      {"describe most", request(kDescribe, tables, 0, 0, 0), nullptr},
      {"describe nothing", request(kDescribe, 0, 0, 0, 0), "table_count"},
      {"describe too many", request(kDescribe, tables + 1, 0, 0, 0), "table_count"},
      {"describe with extents", request(kDescribe, 1, 1, 0, 0), "extent_count"},
      {"describe with payload", request(kDescribe, 1, 0, 1, 0), "payload_bytes"},
      {"describe with a trailer", request(kDescribe, 1, 0, 0, 1), "trailer_bytes"},
      {"drain", request(kDrain, 0, 0, 0, 8), nullptr},
      {"drain, short lane id", request(kDrain, 0, 0, 0, 7), "trailer_bytes"},
      {"drain, long lane id", request(kDrain, 0, 0, 0, 9), "trailer_bytes"},
      {"drain with a table", request(kDrain, 1, 0, 0, 8), "table_count"},
      {"drain with extents", request(kDrain, 0, 1, 0, 8), "extent_count"},
      {"drain with payload", request(kDrain, 0, 0, 1, 8), "payload_bytes"},
      {"ping", request(kPing, 0, 0, 0, 0), nullptr},
      {"ping with a table", request(kPing, 1, 0, 0, 0), "table_count"},
      {"ping with extents", request(kPing, 0, 1, 0, 0), "extent_count"},
      {"ping with payload", request(kPing, 0, 0, 1, 0), "payload_bytes"},
      {"ping with a trailer", request(kPing, 0, 0, 0, 1), "trailer_bytes"},
  };
}

TEST(WireRequestHeader, EachTypeCarriesWhatItsShapeSays) {
  for (const RequestCase& one : request_cases()) {
    SCOPED_TRACE(one.what);
    const auto result = check_request_header(one.header, kLimits);
    if (one.field == nullptr) {
      EXPECT_TRUE(result) << result.error().message();
    } else {
      EXPECT_TRUE(refused_with(result, ErrorCode::kProtocolViolation, one.field));
    }
  }
}

TEST(WireRequestHeader, KnowsOneMagicSixTypesAndNoFlags) {
  const RequestHeader good = request(FrameType::kPing, 0, 0, 0, 0);
  for (unsigned bit = 0; bit < 32; ++bit) {
    RequestHeader header = good;
    header.magic ^= 1U << bit;
    EXPECT_TRUE(refused_with(check_request_header(header, kLimits), ErrorCode::kProtocolViolation,
                             "magic"));
  }
  RequestHeader answered = good;
  answered.magic = kResponseMagic;
  EXPECT_FALSE(check_request_header(answered, kLimits));
  for (unsigned type = 0; type < 256; ++type) {
    if (type < 1 || type > 6) {
      RequestHeader header = good;
      header.type = static_cast<std::uint8_t>(type);
      EXPECT_TRUE(refused_with(check_request_header(header, kLimits), ErrorCode::kProtocolViolation,
                               "type is " + std::to_string(type)));
    }
  }
  for (unsigned flags = 1; flags < 256; ++flags) {
    RequestHeader header = good;
    header.flags = static_cast<std::uint8_t>(flags);
    EXPECT_TRUE(refused_with(check_request_header(header, kLimits), ErrorCode::kProtocolViolation,
                             "flags is " + std::to_string(flags)));
  }
}

TEST(WireRequestHeader, ReadNeverAsksForMoreThanAResponseCanSay) {
  FrameLimits wide;
  wide.payload_bytes_max = kU64Max;
  EXPECT_TRUE(check_request_header(request(FrameType::kRead, 1, 1, kU32Max, 0), wide));
  EXPECT_TRUE(refused_with(
      check_request_header(request(FrameType::kRead, 1, 1, std::uint64_t{kU32Max} + 1, 0), wide),
      ErrorCode::kProtocolViolation, "payload_bytes"));
  EXPECT_TRUE(check_request_header(request(FrameType::kWrite, 1, 1, kU64Max, 0), wide));
}

RC_GTEST_PROP(WireRequestHeader, NothingPastTheLimitsIsAccepted, ()) {
  FrameLimits limits;
  limits.extents_max = *rc::gen::inRange<std::uint32_t>(1, 5000);
  limits.table_max = *rc::gen::inRange<std::uint16_t>(1, 500);
  limits.payload_bytes_max = *rc::gen::inRange<std::uint64_t>(1, 1 << 24);
  limits.trailer_bytes_max = *rc::gen::inRange<std::uint32_t>(1, 1 << 21);
  const auto near = [](std::uint64_t limit) {
    return rc::gen::oneOf(rc::gen::just(std::uint64_t{0}), rc::gen::just(std::uint64_t{8}),
                          rc::gen::inRange<std::uint64_t>(limit > 2 ? limit - 2 : 0, limit + 3),
                          rc::gen::arbitrary<std::uint64_t>());
  };
  RequestHeader header;
  header.type = *rc::gen::inRange<std::uint8_t>(0, 8);
  header.table_count = static_cast<std::uint16_t>(*near(limits.table_max));
  header.extent_count = static_cast<std::uint32_t>(*near(limits.extents_max));
  header.trailer_bytes = static_cast<std::uint32_t>(*near(limits.trailer_bytes_max));
  header.payload_bytes = *near(limits.payload_bytes_max);
  if (check_request_header(header, limits)) {
    RC_ASSERT(header.type >= 1 && header.type <= 6);
    RC_ASSERT(header.table_count <= limits.table_max);
    RC_ASSERT(header.extent_count <= limits.extents_max);
    RC_ASSERT(header.payload_bytes <= limits.payload_bytes_max);
    RC_ASSERT(header.trailer_bytes <= std::max(limits.trailer_bytes_max, kDrainTrailerBytes));
  }
}

// ---- Extents ----

struct Body {
  RequestHeader header;
  std::vector<RegistrationRef> table;
  std::vector<WireExtent> extents;

  Result<void> check() const { return check_extents(header, table, extents); }
};

Body small_body() {
  Body body;
  body.header = request(FrameType::kWrite, 2, 3, 1000, 0);
  body.table = {reference(0), reference(9)};
  body.extents = {{0, 100, 0}, {4096, 500, 1}, {kU64Max - 400, 400, 1}};
  return body;
}

TEST(WireExtents, GoodTablesAreAccepted) {
  const auto result = small_body().check();
  EXPECT_TRUE(result) << result.error().message();
}

TEST(WireExtents, OneBadFieldIsRefusedAndNamed) {
  const struct {
    const char* part;
    std::function<void(Body&)> damage;
  } cases[] = {
      {"extent 1: length is 0", [](Body& b) { b.extents[1].length = 0; }},
      {"extent 2: table_index is 2", [](Body& b) { b.extents[2].table_index = 2; }},
      {"extent 0: table_index is 4294967295", [](Body& b) { b.extents[0].table_index = kU32Max; }},
      {"overflows", [](Body& b) { b.extents[2].offset = kU64Max - 399; }},
      {"overflows", [](Body& b) { b.extents[0].offset = kU64Max; }},
      {"sum to 999", [](Body& b) { b.extents[0].length = 99; }},
      {"sum to 1001", [](Body& b) { b.extents[0].length = 101; }},
      {"payload_bytes is 999", [](Body& b) { b.header.payload_bytes = 999; }},
      {"registration 0 (index 0): generation is 0", [](Body& b) { b.table[0].generation = 0; }},
      {"registration 1 (index 9): generation is 0", [](Body& b) { b.table[1].generation = 0; }},
      {"the header says 3 and 3", [](Body& b) { b.header.table_count = 3; }},
      {"the header says 2 and 2", [](Body& b) { b.header.extent_count = 2; }},
      {"2 extents", [](Body& b) { b.extents.pop_back(); }},
      {"1 registrations", [](Body& b) { b.table.pop_back(); }},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.part);
    Body body = small_body();
    one.damage(body);
    EXPECT_TRUE(refused_with(body.check(), ErrorCode::kProtocolViolation, one.part));
  }
}

TEST(WireExtents, ASumPast32BitsIsNotWrapped) {
  Body body;
  body.table = {reference(0)};
  body.extents = {{0, kU32Max, 0}, {0, kU32Max, 0}, {0, 3, 0}};
  const std::uint64_t sum = 2 * std::uint64_t{kU32Max} + 3;
  body.header = request(FrameType::kWrite, 1, 3, sum, 0);
  EXPECT_TRUE(body.check());
  body.header.payload_bytes = static_cast<std::uint32_t>(sum);
  EXPECT_TRUE(refused_with(body.check(), ErrorCode::kProtocolViolation, "payload_bytes"));
}

TEST(WireExtents, TypesWithoutExtentsPass) {
  Body describe;
  describe.header = request(FrameType::kDescribe, 2, 0, 0, 0);
  describe.table = {reference(1), reference(2)};
  EXPECT_TRUE(describe.check());
  describe.table[1].generation = 0;
  EXPECT_FALSE(describe.check());

  Body ping;
  ping.header = request(FrameType::kPing, 0, 0, 0, 0);
  EXPECT_TRUE(ping.check());
}

RC_GTEST_PROP(WireExtents, RandomTablesRoundTripAndAreAccepted, ()) {
  Body body;
  const auto table_count = *rc::gen::inRange<std::size_t>(1, 8);
  for (std::size_t i = 0; i < table_count; ++i) {
    RegistrationRef ref = reference(*rc::gen::arbitrary<std::uint32_t>());
    ref.generation = *rc::gen::inRange<std::uint32_t>(1, kU32Max);
    const auto key = *rc::gen::container<Bytes>(16, rc::gen::arbitrary<std::uint8_t>());
    std::copy(key.begin(), key.end(), ref.key);
    body.table.push_back(ref);
  }
  const auto extent_count = *rc::gen::inRange<std::size_t>(1, 40);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < extent_count; ++i) {
    WireExtent extent;
    extent.length = *rc::gen::inRange<std::uint32_t>(1, kU32Max);
    extent.offset = *rc::gen::inRange<std::uint64_t>(0, kU64Max - kU32Max);
    extent.table_index =
        *rc::gen::inRange<std::uint32_t>(0, static_cast<std::uint32_t>(table_count));
    sum += extent.length;
    body.extents.push_back(extent);
  }
  body.header = request(FrameType::kWrite, static_cast<std::uint16_t>(table_count),
                        static_cast<std::uint32_t>(extent_count), sum, 0);
  RC_ASSERT(body.check());

  for (WireExtent& extent : body.extents) {
    const auto again = from_bytes<WireExtent>(bytes_of(extent));
    RC_ASSERT(again.offset == extent.offset && again.length == extent.length &&
              again.table_index == extent.table_index);
  }
  const auto victim = *rc::gen::inRange<std::size_t>(0, extent_count);
  body.extents[victim].table_index = static_cast<std::uint32_t>(table_count);
  RC_ASSERT(!body.check());
}

// ---- Response headers ----

const ResponseType kResponseTypes[] = {ResponseType::kWriteAck,  ResponseType::kReadData,
                                       ResponseType::kNotifyAck, ResponseType::kDescription,
                                       ResponseType::kDrained,   ResponseType::kPong};

TEST(WireResponseHeader, EachTypeIsAcceptedAsSuccessAndAsFailure) {
  for (const ResponseType type : kResponseTypes) {
    for (const std::uint16_t status : {std::uint16_t{0}, kFencedStatus}) {
      const auto result = check_response_header(response(type, status), kLimits);
      EXPECT_TRUE(result) << result.error().message();
    }
  }
}

TEST(WireResponseHeader, KnowsOneMagicSixTypesAndListedStatuses) {
  for (unsigned bit = 0; bit < 32; ++bit) {
    ResponseHeader header = response(ResponseType::kPong);
    header.magic ^= 1U << bit;
    EXPECT_TRUE(refused_with(check_response_header(header, kLimits), ErrorCode::kProtocolViolation,
                             "magic"));
  }
  for (unsigned type = 0; type < 256; ++type) {
    if (type < 65 || type > 70) {
      ResponseHeader header = response(ResponseType::kPong);
      header.type = static_cast<std::uint8_t>(type);
      EXPECT_TRUE(refused_with(check_response_header(header, kLimits),
                               ErrorCode::kProtocolViolation, "type is " + std::to_string(type)));
    }
  }
  for (unsigned status = 0; status < 65536; ++status) {
    ResponseHeader header = response(ResponseType::kPong);
    header.status = static_cast<std::uint16_t>(status);
    EXPECT_EQ(check_response_header(header, kLimits).has_value(), is_error_code(header.status));
  }
}

TEST(WireResponseHeader, EffectAndPrefixBelongToWriteAcks) {
  for (const ResponseType type : kResponseTypes) {
    for (unsigned effect = 0; effect < 256; ++effect) {
      ResponseHeader header = response(type, kFencedStatus);
      header.effect = static_cast<std::uint8_t>(effect);
      const bool allowed = type == ResponseType::kWriteAck ? effect <= 3 : effect == 0;
      EXPECT_EQ(check_response_header(header, kLimits).has_value(), allowed)
          << "type " << int{header.type} << " effect " << effect;
    }
    if (type != ResponseType::kWriteAck) {
      ResponseHeader header = response(type);
      header.prefix_bytes = 1;
      EXPECT_TRUE(refused_with(check_response_header(header, kLimits),
                               ErrorCode::kProtocolViolation, "prefix_bytes"));
    }
  }
}

TEST(WireResponseHeader, AnAckContradictsNeitherItsStatusNorItsPrefix) {
  for (const FrameEffect effect :
       {FrameEffect::kNone, FrameEffect::kPrefix, FrameEffect::kUnknown}) {
    ResponseHeader header = response(ResponseType::kWriteAck);
    header.effect = static_cast<std::uint8_t>(effect);
    header.prefix_bytes = 0;
    EXPECT_TRUE(refused_with(check_response_header(header, kLimits), ErrorCode::kProtocolViolation,
                             "with status 0"));
  }
  ResponseHeader nothing = response(ResponseType::kWriteAck, kFencedStatus);
  nothing.prefix_bytes = 1;
  EXPECT_TRUE(refused_with(check_response_header(nothing, kLimits), ErrorCode::kProtocolViolation,
                           "effect 0"));
  // The bytes are there, the notification is not.
  ResponseHeader undelivered =
      response(ResponseType::kWriteAck, static_cast<std::uint16_t>(ErrorCode::kNotificationFailed));
  undelivered.effect = static_cast<std::uint8_t>(FrameEffect::kComplete);
  undelivered.prefix_bytes = kLimits.payload_bytes_max;
  EXPECT_TRUE(check_response_header(undelivered, kLimits));
  undelivered.prefix_bytes = kLimits.payload_bytes_max + 1;
  EXPECT_TRUE(refused_with(check_response_header(undelivered, kLimits),
                           ErrorCode::kProtocolViolation, "prefix_bytes"));
}

TEST(WireResponseHeader, PayloadOnlyWhereTheTypeHasOneAndOnlyWithSuccess) {
  for (const ResponseType type : kResponseTypes) {
    ResponseHeader failed = response(type, kFencedStatus);
    failed.payload_bytes = sizeof(DescribedRange);
    EXPECT_TRUE(refused_with(check_response_header(failed, kLimits), ErrorCode::kProtocolViolation,
                             "payload_bytes"));
    ResponseHeader empty = response(type);
    empty.payload_bytes = 0;
    const bool carries = type == ResponseType::kReadData || type == ResponseType::kDescription;
    EXPECT_EQ(check_response_header(empty, kLimits).has_value(), !carries);
    ResponseHeader full = response(type);
    full.payload_bytes = sizeof(DescribedRange);
    EXPECT_EQ(check_response_header(full, kLimits).has_value(), carries);
  }
}

TEST(WireResponseHeader, PayloadStaysWithinTheLimits) {
  ResponseHeader data = response(ResponseType::kReadData);
  data.payload_bytes = static_cast<std::uint32_t>(kLimits.payload_bytes_max);
  EXPECT_TRUE(check_response_header(data, kLimits));
  ++data.payload_bytes;
  EXPECT_FALSE(check_response_header(data, kLimits));

  ResponseHeader description = response(ResponseType::kDescription);
  description.payload_bytes = kLimits.table_max * std::uint32_t{sizeof(DescribedRange)};
  EXPECT_TRUE(check_response_header(description, kLimits));
  description.payload_bytes += sizeof(DescribedRange);
  EXPECT_TRUE(refused_with(check_response_header(description, kLimits),
                           ErrorCode::kProtocolViolation, "payload_bytes"));
  description.payload_bytes = sizeof(DescribedRange) + 1;
  EXPECT_TRUE(refused_with(check_response_header(description, kLimits),
                           ErrorCode::kProtocolViolation, "multiples of 40"));
}

TEST(WireResponseHeader, ReservedIsZero) {
  ResponseHeader header = response(ResponseType::kPong);
  header.reserved = 0x80000000U;
  EXPECT_TRUE(refused_with(check_response_header(header, kLimits), ErrorCode::kProtocolViolation,
                           "reserved"));
}

// ---- Described ranges ----

DescribedRange live_range() {
  DescribedRange range;
  range.index = 4;
  range.generation = 1;
  range.address = kU64Max - 100;
  range.length = 100;
  range.live = 1;
  return range;
}

TEST(WireDescribedRange, LiveRangesAreWhole) {
  EXPECT_TRUE(check_described_range(live_range()));
  const struct {
    const char* part;
    void (*damage)(DescribedRange&);
  } cases[] = {
      {"live is 2", [](DescribedRange& r) { r.live = 2; }},
      {"generation is 0", [](DescribedRange& r) { r.generation = 0; }},
      {"length is 0", [](DescribedRange& r) { r.length = 0; }},
      {"length is 101", [](DescribedRange& r) { r.length = 101; }},
      {"reserved byte is 1", [](DescribedRange& r) { r.reserved[0] = 1; }},
      {"reserved byte is 255", [](DescribedRange& r) { r.reserved[4] = 255; }},
  };
  for (const auto& one : cases) {
    DescribedRange range = live_range();
    one.damage(range);
    EXPECT_TRUE(
        refused_with(check_described_range(range), ErrorCode::kProtocolViolation, one.part));
  }
}

TEST(WireDescribedRange, ARangeThatIsGoneNeedsNoAddress) {
  DescribedRange range;
  range.index = 4;
  range.generation = 9;
  EXPECT_TRUE(check_described_range(range));
}

}  // namespace
}  // namespace orbite::wire
