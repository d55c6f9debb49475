// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "wire/handshake.hpp"

namespace orbite::wire {

/// Version of both blobs. A later one keeps the first 8 bytes (magic, version, size) and the last 8
/// (checksum), so that this version can still tell a newer blob from a damaged one.
inline constexpr std::uint16_t kMetadataVersion = 2;

inline constexpr std::uint32_t kConnectionMagic = 0x4243544FU;  // "OTCB"
inline constexpr std::uint32_t kRangeMagic = 0x4252544FU;       // "OTRB"

inline constexpr std::size_t kBlobBytesMax = 512;
inline constexpr std::size_t kAddressesMax = 8;

/// Which backend wrote the blob.
enum class Profile : std::uint8_t { kMemory = 1, kFile = 2 };

/// Network byte order. IPv4 is in the first four bytes, the others are 0.
struct Address {
  std::uint8_t family = 0;  // 4 or 6
  std::array<std::uint8_t, 16> bytes{};
  friend bool operator==(const Address&, const Address&) = default;
};

/// Where an engine listens and what proves that one may connect. Holds the secret: never logged.
struct ConnectionBlob {
  Profile profile = Profile::kMemory;
  base::SourceEpoch epoch;
  Secret secret{};
  base::HostIdentity host;
  bool loopback_reachable = false;  // who shares `host` connects to loopback on `port`
  std::uint16_t port = 0;           // 0 only if not reachable at all: no addresses, no loopback
  std::vector<Address> addresses;   // at most kAddressesMax, best first
  friend bool operator==(const ConnectionBlob&, const ConnectionBlob&) = default;
};

/// One registration for peers.
struct RangeBlob {
  base::SourceEpoch epoch;
  std::uint32_t index = 0;
  std::uint32_t generation = 0;  // never 0
  base::RegistrationKey key;
  std::uint64_t address = 0;
  std::uint64_t length = 0;  // bytes, never 0; address + length does not overflow
  std::uint64_t device_id = 0;
  std::uint8_t kind = 0;  // the memory room's to judge, as is `access`
  std::uint8_t access = 0;
  bool shared = false;  // in an allocation that engines of the same host can map: LinkFetch
  friend bool operator==(const RangeBlob&, const RangeBlob&) = default;
};

/// At most kBlobBytesMax bytes; equal values give equal bytes. The blob must be valid: an encoder
/// aborts on more than kAddressesMax addresses or a family other than 4 and 6.
[[nodiscard]] std::vector<std::uint8_t> encode(const ConnectionBlob& blob);
[[nodiscard]] std::vector<std::uint8_t> encode(const RangeBlob& blob);

/// kBadMetadata for anything truncated, altered, longer than it says or against the rules above.
/// kIncompatible for an intact blob of another format version or of another profile.
[[nodiscard]] Result<ConnectionBlob> decode_connection(std::span<const std::uint8_t> bytes,
                                                       Profile expected);
[[nodiscard]] Result<RangeBlob> decode_range(std::span<const std::uint8_t> bytes);

}  // namespace orbite::wire
