// SPDX-License-Identifier: Apache-2.0
#include "wire/metadata.hpp"

#include <xxhash.h>

#include <algorithm>
#include <limits>

#include "base/assert.hpp"
#include "wire/bytes.hpp"

namespace orbite::wire {
namespace {

using Ull = unsigned long long;

constexpr std::size_t kHeadBytes = 8;      // magic, version, size
constexpr std::size_t kChecksumBytes = 8;  // XXH3-64 of all before it
constexpr std::size_t kConnectionBodyBytes = 1 + 1 + 2 + 16 + 32 + 16 + 8 + 1;
constexpr std::size_t kRangeBodyBytes = 16 + 4 + 4 + 16 + 8 + 8 + 8 + 1 + 1 + 1;
constexpr std::uint8_t kFlagLoopback = 1;
constexpr std::uint8_t kFlagShared = 1;  // of a range

static_assert(kHeadBytes + kConnectionBodyBytes + kAddressesMax * 17 + kChecksumBytes <=
              kBlobBytesMax);
static_assert(kHeadBytes + kRangeBodyBytes + kChecksumBytes <= kBlobBytesMax);

/// Bytes of an address of that family, 0 for a family that is none.
std::size_t address_bytes(std::uint8_t family) { return family == 4 ? 4 : family == 6 ? 16 : 0; }

const char* profile_name(std::uint8_t profile) {
  return profile == static_cast<std::uint8_t>(Profile::kMemory) ? "memory"
         : profile == static_cast<std::uint8_t>(Profile::kFile) ? "file"
                                                                : "unknown";
}

void put_head(Writer& writer, std::uint32_t magic, std::size_t size) {
  writer.put(magic);
  writer.put(kMetadataVersion);
  writer.put(static_cast<std::uint16_t>(size));
}

void put_checksum(Writer& writer, const std::vector<std::uint8_t>& bytes) {
  ORBITE_CHECK(writer.position() + kChecksumBytes == bytes.size());
  const std::uint64_t checksum = XXH3_64bits(bytes.data(), writer.position());
  writer.put(checksum);
}

/// Checks magic, size and checksum, then the version, and returns the bytes between head and
/// checksum. The checksum goes first so that only an intact blob is called incompatible.
Result<std::span<const std::uint8_t>> open_blob(std::span<const std::uint8_t> bytes,
                                                std::uint32_t magic_allowed, const char* what) {
  if (bytes.size() < kHeadBytes + kChecksumBytes || bytes.size() > kBlobBytesMax) {
    return fail(ErrorCode::kBadMetadata, "%s: %zu bytes, allowed: %zu to %zu", what, bytes.size(),
                kHeadBytes + kChecksumBytes, kBlobBytesMax);
  }
  Reader head(bytes.first(kHeadBytes));
  const auto magic = head.take<std::uint32_t>("magic");
  const auto version = head.take<std::uint16_t>("version");
  const auto size = head.take<std::uint16_t>("size");
  if (magic != magic_allowed) {
    return fail(ErrorCode::kBadMetadata, "%s: magic is 0x%08x, allowed: 0x%08x", what, magic,
                magic_allowed);
  }
  if (size != bytes.size()) {
    return fail(ErrorCode::kBadMetadata, "%s: size field is %u, the blob has %zu bytes", what,
                unsigned{size}, bytes.size());
  }
  Reader tail(bytes.last(kChecksumBytes));
  const auto stated = tail.take<std::uint64_t>("checksum");
  const std::uint64_t computed = XXH3_64bits(bytes.data(), bytes.size() - kChecksumBytes);
  if (stated != computed) {
    return fail(ErrorCode::kBadMetadata, "%s: checksum is 0x%016llx, the content gives 0x%016llx",
                what, Ull{stated}, Ull{computed});
  }
  if (version != kMetadataVersion) {
    return fail(ErrorCode::kIncompatible, "%s: format version is %u, this side reads %u", what,
                unsigned{version}, unsigned{kMetadataVersion});
  }
  return bytes.subspan(kHeadBytes, bytes.size() - kHeadBytes - kChecksumBytes);
}

Result<void> take_addresses(Reader& reader, ConnectionBlob& blob) {
  const auto count = reader.take<std::uint8_t>("address count");
  if (count > kAddressesMax) {
    return fail(ErrorCode::kBadMetadata, "connection blob: %u addresses, allowed: 0 to %zu",
                unsigned{count}, kAddressesMax);
  }
  blob.addresses.reserve(count);
  for (unsigned i = 0; i < count; ++i) {
    Address address;
    address.family = reader.take<std::uint8_t>("address family");
    const std::size_t size = address_bytes(address.family);
    if (!reader.failed() && size == 0) {
      return fail(ErrorCode::kBadMetadata,
                  "connection blob: family of address %u is %u, allowed: 4 or 6", i,
                  unsigned{address.family});
    }
    const auto bytes = reader.take_bytes(size, "address");
    std::copy(bytes.begin(), bytes.end(), address.bytes.begin());
    blob.addresses.push_back(address);
  }
  return {};
}

}  // namespace

std::vector<std::uint8_t> encode(const ConnectionBlob& blob) {
  ORBITE_CHECK(blob.addresses.size() <= kAddressesMax);
  std::size_t size = kHeadBytes + kConnectionBodyBytes + kChecksumBytes;
  for (const Address& address : blob.addresses) {
    ORBITE_CHECK(address_bytes(address.family) != 0);
    size += 1 + address_bytes(address.family);
  }

  std::vector<std::uint8_t> bytes(size);
  Writer writer(bytes);
  put_head(writer, kConnectionMagic, size);
  writer.put(static_cast<std::uint8_t>(blob.profile));
  writer.put(blob.loopback_reachable ? kFlagLoopback : std::uint8_t{0});
  writer.put(blob.port);
  writer.put(blob.epoch.bytes);
  writer.put(blob.secret);
  writer.put(blob.host.boot_id);
  writer.put(blob.host.network_namespace);
  writer.put(static_cast<std::uint8_t>(blob.addresses.size()));
  for (const Address& address : blob.addresses) {
    writer.put(address.family);
    writer.put(std::span(address.bytes).first(address_bytes(address.family)));
  }
  put_checksum(writer, bytes);
  return bytes;
}

std::vector<std::uint8_t> encode(const RangeBlob& blob) {
  std::vector<std::uint8_t> bytes(kHeadBytes + kRangeBodyBytes + kChecksumBytes);
  Writer writer(bytes);
  put_head(writer, kRangeMagic, bytes.size());
  writer.put(blob.epoch.bytes);
  writer.put(blob.index);
  writer.put(blob.generation);
  writer.put(blob.key.bytes);
  writer.put(blob.address);
  writer.put(blob.length);
  writer.put(blob.device_id);
  writer.put(blob.kind);
  writer.put(blob.access);
  writer.put(blob.shared ? kFlagShared : std::uint8_t{0});
  put_checksum(writer, bytes);
  return bytes;
}

Result<ConnectionBlob> decode_connection(std::span<const std::uint8_t> bytes, Profile expected) {
  constexpr const char* kWhat = "connection blob";
  ORBITE_ASSIGN_OR_RETURN(const auto body, open_blob(bytes, kConnectionMagic, kWhat));
  Reader reader(body);
  // The profile comes first in the body, so that it can be told even where the rest would differ.
  const auto profile = reader.take<std::uint8_t>("profile");
  if (!reader.failed() && profile != static_cast<std::uint8_t>(expected)) {
    return fail(ErrorCode::kIncompatible, "%s: profile is %u (%s), this side is %u (%s)", kWhat,
                unsigned{profile}, profile_name(profile), static_cast<unsigned>(expected),
                profile_name(static_cast<std::uint8_t>(expected)));
  }
  ConnectionBlob blob;
  blob.profile = expected;
  const auto flags = reader.take<std::uint8_t>("flags");
  if (flags > kFlagLoopback) {
    return fail(ErrorCode::kBadMetadata, "%s: flags is %u, allowed: 0 or 1", kWhat,
                unsigned{flags});
  }
  blob.loopback_reachable = flags == kFlagLoopback;
  blob.port = reader.take<std::uint16_t>("port");
  blob.epoch.bytes = reader.take_array<16>("epoch");
  blob.secret = reader.take_array<32>("secret");
  blob.host.boot_id = reader.take_array<16>("boot id");
  blob.host.network_namespace = reader.take<std::uint64_t>("network namespace");
  ORBITE_TRY(take_addresses(reader, blob));
  ORBITE_TRY(reader.finish(ErrorCode::kBadMetadata, kWhat));
  if (blob.port == 0 && (blob.loopback_reachable || !blob.addresses.empty())) {
    return fail(ErrorCode::kBadMetadata,
                "%s: port is 0 with %zu addresses and loopback_reachable %u, allowed: 1 to 65535",
                kWhat, blob.addresses.size(), unsigned{flags});
  }
  return blob;
}

Result<RangeBlob> decode_range(std::span<const std::uint8_t> bytes) {
  constexpr const char* kWhat = "range blob";
  ORBITE_ASSIGN_OR_RETURN(const auto body, open_blob(bytes, kRangeMagic, kWhat));
  Reader reader(body);
  RangeBlob blob;
  blob.epoch.bytes = reader.take_array<16>("epoch");
  blob.index = reader.take<std::uint32_t>("index");
  blob.generation = reader.take<std::uint32_t>("generation");
  blob.key.bytes = reader.take_array<16>("key");
  blob.address = reader.take<std::uint64_t>("address");
  blob.length = reader.take<std::uint64_t>("length");
  blob.device_id = reader.take<std::uint64_t>("device id");
  blob.kind = reader.take<std::uint8_t>("kind");
  blob.access = reader.take<std::uint8_t>("access");
  const auto flags = reader.take<std::uint8_t>("flags");
  if (flags > kFlagShared) {
    return fail(ErrorCode::kBadMetadata, "%s: flags is %u, allowed: 0 or 1", kWhat,
                unsigned{flags});
  }
  blob.shared = flags == kFlagShared;
  ORBITE_TRY(reader.finish(ErrorCode::kBadMetadata, kWhat));
  if (blob.generation == 0) {
    return fail(ErrorCode::kBadMetadata, "%s: generation is 0, allowed: 1 to 4294967295", kWhat);
  }
  if (blob.length == 0 || blob.length > std::numeric_limits<std::uint64_t>::max() - blob.address) {
    return fail(ErrorCode::kBadMetadata,
                "%s: length is %llu at address 0x%llx, allowed: 1 or more, and an end below 2^64",
                kWhat, Ull{blob.length}, Ull{blob.address});
  }
  return blob;
}

}  // namespace orbite::wire
