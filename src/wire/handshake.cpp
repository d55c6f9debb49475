// SPDX-License-Identifier: Apache-2.0
#include "wire/handshake.hpp"

#include <sodium.h>

#include <cstring>

#include "base/assert.hpp"
#include "wire/record.hpp"

namespace orbite::wire {
namespace {

using Mac = std::array<std::uint8_t, 32>;

static_assert(sizeof(Secret) >= crypto_generichash_KEYBYTES_MIN &&
              sizeof(Secret) <= crypto_generichash_KEYBYTES_MAX);
static_assert(sizeof(Mac) == crypto_generichash_BYTES);

/// Both are 16 bytes long, so no role is a prefix of the other followed by hello bytes.
constexpr char kServerRole[] = "orbite server v1";
constexpr char kClientRole[] = "orbite client v1";
static_assert(sizeof(kServerRole) == 17 && sizeof(kClientRole) == 17);

template <typename Struct>
void absorb(crypto_generichash_state& state, const Struct& record) {
  static_assert(std::has_unique_object_representations_v<Struct>, "padding would be hashed");
  ORBITE_CHECK(crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(&record),
                                         sizeof(record)) == 0);
}

/// sodium_init is not needed for any of this: it chooses faster code paths and seeds the random
/// generator, which we do not use.
Mac compute_mac(const char (&role)[17], const Secret& secret, const ClientHello& client,
                const ServerHello& server) noexcept {
  ServerHello unsigned_server = server;
  std::memset(unsigned_server.mac, 0, sizeof(unsigned_server.mac));

  crypto_generichash_state state;
  ORBITE_CHECK(crypto_generichash_init(&state, secret.data(), secret.size(), sizeof(Mac)) == 0);
  ORBITE_CHECK(crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(role),
                                         sizeof(role) - 1) == 0);
  absorb(state, client);
  absorb(state, unsigned_server);
  Mac mac;
  ORBITE_CHECK(crypto_generichash_final(&state, mac.data(), mac.size()) == 0);
  sodium_memzero(&state, sizeof(state));
  return mac;
}

Result<void> check_version(const char* what, std::uint32_t version) {
  if (version != kWireVersion) {
    return fail(ErrorCode::kIncompatible, "%s: wire version is %u, this side speaks %u", what,
                version, kWireVersion);
  }
  return {};
}

Result<void> check_zero(const char* what, std::uint64_t reserved) {
  if (reserved != 0) {
    return fail(ErrorCode::kProtocolViolation, "%s: reserved is %llu, allowed: 0", what,
                static_cast<unsigned long long>(reserved));
  }
  return {};
}

Result<void> check_hello(const char* what, const ClientHello& hello, LaneClass first,
                         LaneClass last) {
  ORBITE_TRY(check_magic(what, hello.magic, kClientHelloMagic));
  ORBITE_TRY(check_version(what, hello.version));
  const auto first_class = static_cast<std::uint8_t>(first);
  const auto last_class = static_cast<std::uint8_t>(last);
  if (hello.lane_class < first_class || hello.lane_class > last_class) {
    return fail(ErrorCode::kProtocolViolation, "%s: lane_class is %u, allowed: %u to %u", what,
                unsigned{hello.lane_class}, unsigned{first_class}, unsigned{last_class});
  }
  ORBITE_TRY(check_zero(what, hello.reserved));
  ORBITE_TRY(check_zero(what, hello.reserved2));
  if (hello.name_bytes > kHelloNameBytesMax) {
    return fail(ErrorCode::kProtocolViolation, "%s: name_bytes is %u, allowed: 0 to %zu", what,
                unsigned{hello.name_bytes}, kHelloNameBytesMax);
  }
  for (std::size_t i = hello.name_bytes; i < kHelloNameBytesMax; ++i) {
    if (hello.name[i] != 0) {
      return fail(ErrorCode::kProtocolViolation,
                  "%s: name byte %zu is %u, allowed after %u name bytes: 0", what, i,
                  unsigned{static_cast<unsigned char>(hello.name[i])}, unsigned{hello.name_bytes});
    }
  }
  return {};
}

}  // namespace

Result<void> check_client_hello(const ClientHello& hello) {
  return check_hello("client hello", hello, LaneClass::kLatency, LaneClass::kControl);
}

Result<void> check_link_hello(const ClientHello& hello) {
  return check_hello("link hello", hello, LaneClass::kLink, LaneClass::kLink);
}

Result<void> check_server_hello(const ServerHello& hello) {
  constexpr const char* kWhat = "server hello";
  ORBITE_TRY(check_magic(kWhat, hello.magic, kServerHelloMagic));
  ORBITE_TRY(check_version(kWhat, hello.version));
  if (!is_error_code(hello.status)) {
    return fail(ErrorCode::kProtocolViolation, "%s: status is %u, which is no error code", kWhat,
                unsigned{hello.status});
  }
  ORBITE_TRY(check_zero(kWhat, hello.reserved));
  return check_zero(kWhat, hello.reserved2);
}

Result<void> check_client_proof(const ClientProof& proof) {
  constexpr const char* kWhat = "client proof";
  ORBITE_TRY(check_magic(kWhat, proof.magic, kClientProofMagic));
  return check_zero(kWhat, proof.reserved);
}

void sign_server(const Secret& secret, const ClientHello& client, ServerHello& server) noexcept {
  const Mac mac = compute_mac(kServerRole, secret, client, server);
  std::memcpy(server.mac, mac.data(), mac.size());
}

bool verify_server(const Secret& secret, const ClientHello& client,
                   const ServerHello& server) noexcept {
  const Mac mac = compute_mac(kServerRole, secret, client, server);
  return sodium_memcmp(mac.data(), server.mac, mac.size()) == 0;
}

void sign_client(const Secret& secret, const ClientHello& client, const ServerHello& server,
                 ClientProof& proof) noexcept {
  const Mac mac = compute_mac(kClientRole, secret, client, server);
  std::memcpy(proof.mac, mac.data(), mac.size());
}

bool verify_client(const Secret& secret, const ClientHello& client, const ServerHello& server,
                   const ClientProof& proof) noexcept {
  const Mac mac = compute_mac(kClientRole, secret, client, server);
  return sodium_memcmp(mac.data(), proof.mac, mac.size()) == 0;
}

}  // namespace orbite::wire
