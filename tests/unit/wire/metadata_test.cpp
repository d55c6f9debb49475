// SPDX-License-Identifier: Apache-2.0
#include "wire/metadata.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "unit/wire/test_bytes.hpp"

namespace orbite::wire {
namespace {

constexpr std::uint64_t kU64Max = std::numeric_limits<std::uint64_t>::max();

Address ipv4(std::uint8_t last) {
  Address address;
  address.family = 4;
  address.bytes = {192, 0, 2, last};
  return address;
}

Address ipv6(std::uint8_t last) {
  Address address;
  address.family = 6;
  address.bytes = {0x20, 0x01, 0x0D, 0xB8};
  address.bytes[15] = last;
  return address;
}

ConnectionBlob connection() {
  ConnectionBlob blob;
  blob.profile = Profile::kMemory;
  blob.epoch.bytes = counting<16>(0x10);
  blob.secret = counting<32>(0x30);
  blob.host.boot_id = counting<16>(0x50);
  blob.host.network_namespace = 0x0102030405060708ULL;
  blob.loopback_reachable = true;
  blob.port = 0x1234;
  blob.addresses = {ipv4(7), ipv6(9)};
  return blob;
}

RangeBlob range() {
  RangeBlob blob;
  blob.epoch.bytes = counting<16>(0x10);
  blob.index = 0x01020304;
  blob.generation = 0x05060708;
  blob.key.bytes = counting<16>(0x60);
  blob.address = 0x1112131415161718ULL;
  blob.length = 0x2122232425262728ULL;
  blob.device_id = 0x3132333435363738ULL;
  blob.kind = 2;
  blob.access = 7;
  blob.shared = true;
  return blob;
}

/// Makes size and checksum right again, so that what lies behind them is reached.
Bytes resealed(Bytes bytes) {
  const auto size = static_cast<std::uint16_t>(bytes.size());
  std::memcpy(bytes.data() + 6, &size, sizeof(size));
  const std::uint64_t checksum = XXH3_64bits(bytes.data(), bytes.size() - 8);
  std::memcpy(bytes.data() + bytes.size() - 8, &checksum, sizeof(checksum));
  return bytes;
}

Bytes with_byte(Bytes bytes, std::size_t position, std::uint8_t value) {
  bytes.at(position) = value;
  return resealed(std::move(bytes));
}

/// Cuts `count` bytes from before the checksum, or adds zeros there.
Bytes with_body_changed(Bytes bytes, std::ptrdiff_t count) {
  if (count < 0) {
    bytes.erase(bytes.end() - 8 + count, bytes.end() - 8);
  } else {
    bytes.insert(bytes.end() - 8, static_cast<std::size_t>(count), 0);
  }
  return resealed(std::move(bytes));
}

Result<ConnectionBlob> as_connection(std::span<const std::uint8_t> bytes) {
  return decode_connection(bytes, Profile::kMemory);
}

/// True unless `decode` takes `bytes`; the copy is exactly as long, for AddressSanitizer.
bool refused_as_bad(const std::function<Result<void>(std::span<const std::uint8_t>)>& decode,
                    const Bytes& bytes) {
  const Bytes exact(bytes.begin(), bytes.end());
  const auto result = decode(exact);
  return !result && result.error().code() == ErrorCode::kBadMetadata &&
         !result.error().context().empty();
}

struct Codec {
  const char* name;
  Bytes good;
  std::function<Result<void>(std::span<const std::uint8_t>)> decode;
};

std::vector<Codec> codecs() {
  const auto decode_as_connection = [](std::span<const std::uint8_t> bytes) -> Result<void> {
    ORBITE_TRY(as_connection(bytes));
    return {};
  };
  const auto decode_as_range = [](std::span<const std::uint8_t> bytes) -> Result<void> {
    ORBITE_TRY(decode_range(bytes));
    return {};
  };
  ConnectionBlob bare;
  return {{"connection", encode(connection()), decode_as_connection},
          {"bare connection", encode(bare), decode_as_connection},
          {"range", encode(range()), decode_as_range}};
}

// ---- The bytes ----

TEST(WireMetadataBytes, ConnectionIsPinned) {
  EXPECT_EQ(hex(encode(connection())),
            "4f544342"                                                          // magic
            "0200"                                                              // version
            "7300"                                                              // size
            "01"                                                                // profile
            "01"                                                                // flags
            "3412"                                                              // port
            "101112131415161718191a1b1c1d1e1f"                                  // epoch
            "303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f"  // secret
            "505152535455565758595a5b5c5d5e5f"                                  // boot id
            "0807060504030201"                                                  // net namespace
            "02"                                                                // address count
            "04c0000207"                                                        // IPv4
            "0620010db8000000000000000000000009"                                // IPv6
            "42b7b7e0082b4348");
}

TEST(WireMetadataBytes, RangeIsPinned) {
  EXPECT_EQ(hex(encode(range())),
            "4f545242"                          // magic
            "0200"                              // version
            "5300"                              // size
            "101112131415161718191a1b1c1d1e1f"  // epoch
            "04030201"                          // index
            "08070605"                          // generation
            "606162636465666768696a6b6c6d6e6f"  // key
            "1817161514131211"                  // address
            "2827262524232221"                  // length
            "3837363534333231"                  // device id
            "02"                                // kind
            "07"                                // access
            "01"                                // flags
            "2e1a331ffa764b88");
}

TEST(WireMetadataBytes, TheLongestBlobIsBounded) {
  ConnectionBlob blob = connection();
  blob.addresses.assign(kAddressesMax, ipv6(1));
  EXPECT_LE(encode(blob).size(), kBlobBytesMax);
  EXPECT_TRUE(as_connection(encode(blob)));
}

// ---- Round trips ----

rc::Gen<Address> any_address() {
  return rc::gen::map(
      rc::gen::pair(rc::gen::arbitrary<bool>(),
                    rc::gen::container<Bytes>(16, rc::gen::arbitrary<std::uint8_t>())),
      [](const std::pair<bool, Bytes>& parts) {
        Address address;
        address.family = parts.first ? 4 : 6;
        std::copy_n(parts.second.begin(), parts.first ? 4 : 16, address.bytes.begin());
        return address;
      });
}

template <std::size_t N>
void randomize(std::array<std::uint8_t, N>& bytes) {
  const auto random = *rc::gen::container<Bytes>(N, rc::gen::arbitrary<std::uint8_t>());
  std::copy(random.begin(), random.end(), bytes.begin());
}

ConnectionBlob any_connection() {
  ConnectionBlob blob;
  blob.profile = *rc::gen::element(Profile::kMemory, Profile::kFile);
  randomize(blob.epoch.bytes);
  randomize(blob.secret);
  randomize(blob.host.boot_id);
  blob.host.network_namespace = *rc::gen::arbitrary<std::uint64_t>();
  blob.port = *rc::gen::arbitrary<std::uint16_t>();
  if (blob.port != 0) {
    blob.loopback_reachable = *rc::gen::arbitrary<bool>();
    const auto count = *rc::gen::inRange<std::size_t>(0, kAddressesMax + 1);
    blob.addresses = *rc::gen::container<std::vector<Address>>(count, any_address());
  }
  return blob;
}

RangeBlob any_range() {
  RangeBlob blob;
  randomize(blob.epoch.bytes);
  randomize(blob.key.bytes);
  blob.index = *rc::gen::arbitrary<std::uint32_t>();
  blob.generation = *rc::gen::nonZero<std::uint32_t>();
  blob.length = *rc::gen::nonZero<std::uint64_t>();
  blob.address = *rc::gen::arbitrary<std::uint64_t>();
  blob.address = std::min(blob.address, kU64Max - blob.length);
  blob.device_id = *rc::gen::arbitrary<std::uint64_t>();
  blob.kind = *rc::gen::arbitrary<std::uint8_t>();
  blob.access = *rc::gen::arbitrary<std::uint8_t>();
  blob.shared = *rc::gen::arbitrary<bool>();
  return blob;
}

RC_GTEST_PROP(WireMetadata, ConnectionsRoundTrip, ()) {
  const ConnectionBlob blob = any_connection();
  const Bytes bytes = encode(blob);
  const auto decoded = decode_connection(bytes, blob.profile);
  RC_ASSERT(decoded.has_value());
  RC_ASSERT(*decoded == blob);
  RC_ASSERT(encode(*decoded) == bytes);
}

RC_GTEST_PROP(WireMetadata, RangesRoundTrip, ()) {
  const RangeBlob blob = any_range();
  const Bytes bytes = encode(blob);
  const auto decoded = decode_range(bytes);
  RC_ASSERT(decoded.has_value());
  RC_ASSERT(*decoded == blob);
  RC_ASSERT(encode(*decoded) == bytes);
}

RC_GTEST_PROP(WireMetadata, RandomBytesAreRefused, ()) {
  const auto bytes = *rc::gen::arbitrary<Bytes>();
  RC_ASSERT(!as_connection(bytes));
  RC_ASSERT(!decode_range(bytes));
}

// ---- Damage ----

TEST(WireMetadata, EveryValueOfEveryByteIsRefused) {
  for (const Codec& codec : codecs()) {
    SCOPED_TRACE(codec.name);
    ASSERT_TRUE(codec.decode(codec.good));
    for (std::size_t i = 0; i < codec.good.size(); ++i) {
      for (unsigned change = 1; change < 256; ++change) {
        Bytes bytes = codec.good;
        bytes[i] ^= static_cast<std::uint8_t>(change);
        ASSERT_TRUE(refused_as_bad(codec.decode, bytes)) << "byte " << i << " xor " << change;
      }
    }
  }
}

TEST(WireMetadata, EveryTruncationAndExtensionIsRefused) {
  for (const Codec& codec : codecs()) {
    SCOPED_TRACE(codec.name);
    for (std::size_t size = 0; size < codec.good.size(); ++size) {
      const Bytes cut(codec.good.begin(), codec.good.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_TRUE(refused_as_bad(codec.decode, cut)) << "first " << size << " bytes";
      const Bytes rest(codec.good.end() - static_cast<std::ptrdiff_t>(size), codec.good.end());
      EXPECT_TRUE(refused_as_bad(codec.decode, rest)) << "last " << size << " bytes";
    }
    for (const std::size_t more : {1, 8, 600, 70000}) {
      Bytes longer = codec.good;
      longer.resize(codec.good.size() + more);
      EXPECT_TRUE(refused_as_bad(codec.decode, longer)) << more << " bytes more";
    }
  }
}

TEST(WireMetadata, ABodyOfAnotherLengthIsRefusedThoughTheChecksumIsRight) {
  for (const Codec& codec : codecs()) {
    SCOPED_TRACE(codec.name);
    const auto body = static_cast<std::ptrdiff_t>(codec.good.size()) - 16;
    for (std::ptrdiff_t cut = 1; cut <= body; ++cut) {
      const Bytes bytes = with_body_changed(codec.good, -cut);
      ASSERT_TRUE(refused_as_bad(codec.decode, bytes)) << cut << " bytes less";
    }
    EXPECT_TRUE(refused_as_bad(codec.decode, with_body_changed(codec.good, 1)));
    EXPECT_TRUE(refused_as_bad(codec.decode, with_body_changed(codec.good, 300)));
  }
}

TEST(WireMetadata, OneKindOfBlobIsNotTheOther) {
  EXPECT_TRUE(refused_with(as_connection(encode(range())), ErrorCode::kBadMetadata,
                           "connection blob: magic"));
  EXPECT_TRUE(refused_with(decode_range(encode(connection())), ErrorCode::kBadMetadata,
                           "range blob: magic"));
}

TEST(WireMetadata, MessagesNameTheFieldTheValueAndWhatIsAllowed) {
  const Bytes good = encode(connection());
  EXPECT_TRUE(
      refused_with(as_connection({}), ErrorCode::kBadMetadata, "0 bytes, allowed: 16 to 512"));
  EXPECT_TRUE(refused_with(as_connection(std::span(good).first(100)), ErrorCode::kBadMetadata,
                           "size field is 115, the blob has 100 bytes"));
  Bytes flipped = good;
  flipped[40] ^= 1;
  EXPECT_TRUE(refused_with(as_connection(flipped), ErrorCode::kBadMetadata, "checksum is 0x"));
  EXPECT_TRUE(refused_with(as_connection(with_body_changed(good, -20)), ErrorCode::kBadMetadata,
                           "address needs 4 bytes at offset 78, 1 are left"));
  EXPECT_TRUE(refused_with(as_connection(with_body_changed(good, 2)), ErrorCode::kBadMetadata,
                           "2 bytes after the last field"));
}

// ---- Versions and profiles ----

TEST(WireMetadata, AnotherFormatVersionIsIncompatibleIfIntact) {
  for (const Codec& codec : codecs()) {
    SCOPED_TRACE(codec.name);
    EXPECT_TRUE(refused_with(codec.decode(with_byte(codec.good, 4, 3)), ErrorCode::kIncompatible,
                             "format version is 3, this side reads 2"));
    EXPECT_TRUE(refused_with(codec.decode(with_byte(codec.good, 4, 0)), ErrorCode::kIncompatible,
                             "format version is 0, this side reads 2"));
    EXPECT_TRUE(refused_with(codec.decode(with_byte(codec.good, 5, 1)), ErrorCode::kIncompatible,
                             "format version is 258"));
    // Whatever a later version puts between head and checksum.
    Bytes later = codec.good;
    later[4] = 3;
    EXPECT_TRUE(refused_with(codec.decode(with_body_changed(later, 100)), ErrorCode::kIncompatible,
                             "format version is 3"));
    later.resize(16);
    EXPECT_TRUE(refused_with(codec.decode(resealed(later)), ErrorCode::kIncompatible,
                             "format version is 3"));
  }
}

TEST(WireMetadata, AnotherProfileIsIncompatibleInBothDirections) {
  ConnectionBlob file = connection();
  file.profile = Profile::kFile;
  EXPECT_TRUE(decode_connection(encode(file), Profile::kFile));
  EXPECT_TRUE(refused_with(as_connection(encode(file)), ErrorCode::kIncompatible,
                           "profile is 2 (file), this side is 1 (memory)"));
  EXPECT_TRUE(refused_with(decode_connection(encode(connection()), Profile::kFile),
                           ErrorCode::kIncompatible,
                           "profile is 1 (memory), this side is 2 (file)"));
  EXPECT_TRUE(refused_with(as_connection(with_byte(encode(file), 8, 99)), ErrorCode::kIncompatible,
                           "profile is 99 (unknown), this side is 1 (memory)"));
}

// ---- Values ----

TEST(WireConnection, BadValuesAreRefusedThoughTheChecksumIsRight) {
  const Bytes good = encode(connection());
  const auto refused = [](const Bytes& bytes, const char* part) {
    return refused_with(as_connection(bytes), ErrorCode::kBadMetadata, part);
  };
  for (unsigned flags = 2; flags < 256; ++flags) {
    EXPECT_TRUE(refused(with_byte(good, 9, static_cast<std::uint8_t>(flags)), "flags is"));
  }
  EXPECT_TRUE(refused(with_byte(good, 84, 9), "9 addresses, allowed: 0 to 8"));
  EXPECT_TRUE(refused(with_byte(good, 84, 255), "255 addresses"));
  EXPECT_TRUE(refused(with_byte(good, 84, 3), "address family needs 1 bytes"));
  EXPECT_TRUE(refused(with_byte(good, 84, 1), "17 bytes after the last field"));
  EXPECT_TRUE(refused(with_byte(good, 85, 5), "family of address 0 is 5, allowed: 4 or 6"));
  EXPECT_TRUE(refused(with_byte(good, 90, 0), "family of address 1 is 0, allowed: 4 or 6"));
}

TEST(WireConnection, PortZeroMeansNotReachable) {
  ConnectionBlob blob;
  EXPECT_TRUE(as_connection(encode(blob)));
  blob.loopback_reachable = true;
  EXPECT_TRUE(refused_with(as_connection(encode(blob)), ErrorCode::kBadMetadata, "port is 0"));
  blob.loopback_reachable = false;
  blob.addresses = {ipv4(1)};
  EXPECT_TRUE(refused_with(as_connection(encode(blob)), ErrorCode::kBadMetadata, "port is 0"));
  blob.port = 1;
  EXPECT_TRUE(as_connection(encode(blob)));
}

TEST(WireConnectionDeathTest, AnInvalidBlobIsNotEncoded) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ConnectionBlob many = connection();
  many.addresses.assign(kAddressesMax + 1, ipv4(1));
  EXPECT_DEATH((void)encode(many), "kAddressesMax");
  ConnectionBlob odd = connection();
  odd.addresses[1].family = 5;
  EXPECT_DEATH((void)encode(odd), "address_bytes");
}

TEST(WireRange, BadValuesAreRefusedThoughTheChecksumIsRight) {
  RangeBlob blob = range();
  blob.generation = 0;
  EXPECT_TRUE(refused_with(decode_range(encode(blob)), ErrorCode::kBadMetadata, "generation is 0"));
  blob = range();
  blob.length = 0;
  EXPECT_TRUE(refused_with(decode_range(encode(blob)), ErrorCode::kBadMetadata, "length is 0"));
  blob = range();
  blob.address = kU64Max - blob.length;
  EXPECT_TRUE(decode_range(encode(blob)));
  ++blob.address;
  EXPECT_TRUE(
      refused_with(decode_range(encode(blob)), ErrorCode::kBadMetadata, "an end below 2^64"));
}

}  // namespace
}  // namespace orbite::wire
