// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/result.hpp"
#include "wire/frame.hpp"
#include "wire/handshake.hpp"

namespace orbite::wire {

/// What passes between two engines of one host, each record a message of its own: ClientHello (of
/// class kLink), ServerHello, ClientProof, then LinkWelcome with two files, then any number of
/// LinkFetch and their answers. The client is the borrower of the server's memory.

inline constexpr std::uint32_t kLinkWelcomeMagic = 0x574C544FU;     // "OTLW"
inline constexpr std::uint32_t kLinkFetchMagic = 0x464C544FU;       // "OTLF"
inline constexpr std::uint32_t kLinkAllocationMagic = 0x414C544FU;  // "OTLA"
inline constexpr std::uint32_t kLinkSeatsMax = 64;
inline constexpr std::uint64_t kLinkDirectoryWordsMax = std::uint64_t{1} << 24;

/// Comes with two files: the directory, and the seats.
struct LinkWelcome {
  std::uint32_t magic = kLinkWelcomeMagic;
  std::uint32_t seats = 0;            // 1 to kLinkSeatsMax
  std::uint64_t directory_words = 0;  // 1 to kLinkDirectoryWordsMax
  std::uint64_t probe_address = 0;    // where `probe` stands in the owner's memory; not 0
  std::uint8_t probe[16] = {};
};

/// Asks for the shared allocation that a registration lies in.
struct LinkFetch {
  std::uint32_t magic = kLinkFetchMagic;
  std::uint32_t reserved = 0;
  RegistrationRef registration;
};

/// The answer; comes with one file if `status` is 0. One with another status and a registration of
/// generation 0, which nobody can have asked for, says that nothing is answered any more.
struct LinkAllocation {
  std::uint32_t magic = kLinkAllocationMagic;
  std::uint16_t status = 0;  // ErrorCode
  std::uint16_t reserved = 0;
  RegistrationRef registration;  // as it was asked for
  std::uint64_t allocation = 0;  // the same number for the same file under one epoch
  std::uint64_t offset = 0;      // of the registration in the file
};

/// kProtocolViolation for another magic, a number outside its range, a status that is no error
/// code, and for bytes that must be 0 and are not.
[[nodiscard]] Result<void> check_link_welcome(const LinkWelcome& welcome);
[[nodiscard]] Result<void> check_link_fetch(const LinkFetch& fetch);
[[nodiscard]] Result<void> check_link_allocation(const LinkAllocation& allocation);

static_assert(kIsWireStruct<LinkWelcome> && sizeof(LinkWelcome) == 40);
static_assert(std::has_unique_object_representations_v<LinkWelcome>);
static_assert(offsetof(LinkWelcome, seats) == 4 && offsetof(LinkWelcome, directory_words) == 8);
static_assert(offsetof(LinkWelcome, probe_address) == 16 && offsetof(LinkWelcome, probe) == 24);

static_assert(kIsWireStruct<LinkFetch> && sizeof(LinkFetch) == 32);
static_assert(std::has_unique_object_representations_v<LinkFetch>);
static_assert(offsetof(LinkFetch, registration) == 8);

static_assert(kIsWireStruct<LinkAllocation> && sizeof(LinkAllocation) == 48);
static_assert(std::has_unique_object_representations_v<LinkAllocation>);
static_assert(offsetof(LinkAllocation, status) == 4 && offsetof(LinkAllocation, reserved) == 6);
static_assert(offsetof(LinkAllocation, registration) == 8);
static_assert(offsetof(LinkAllocation, allocation) == 32);
static_assert(offsetof(LinkAllocation, offset) == 40);

}  // namespace orbite::wire
