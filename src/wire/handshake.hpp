// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "wire/frame.hpp"

namespace orbite::wire {

/// Client to server: ClientHello. Server to client: ServerHello. Client to server: ClientProof.
/// Frames follow. The client is the initiator of the lane, the server its target.

inline constexpr std::uint32_t kClientHelloMagic = 0x4843544FU;  // "OTCH"
inline constexpr std::uint32_t kServerHelloMagic = 0x4853544FU;  // "OTSH"
inline constexpr std::uint32_t kClientProofMagic = 0x5043544FU;  // "OTCP"
inline constexpr std::size_t kHelloNameBytesMax = 256;

/// The secret of the server's engine, which its connection blob carries.
using Secret = std::array<std::uint8_t, 32>;

/// kLink is no lane: the link between two engines of one host (link.hpp), never over TCP.
enum class LaneClass : std::uint8_t { kLatency = 0, kBulk = 1, kControl = 2, kLink = 3 };

/// Every byte is defined: what is not used is 0.
struct ClientHello {
  std::uint32_t magic = kClientHelloMagic;
  std::uint32_t version = kWireVersion;
  base::SourceEpoch client_epoch;
  base::SourceEpoch expected_epoch;  // of the server, from its connection blob
  std::uint8_t nonce[32] = {};       // fresh for each connection
  std::uint64_t lane_id = 0;         // unique under client_epoch: what a later DRAIN names
  base::HostIdentity host;
  std::uint8_t lane_class = 0;  // LaneClass
  std::uint8_t reserved = 0;
  std::uint16_t name_bytes = 0;  // at most kHelloNameBytesMax
  std::uint32_t reserved2 = 0;
  char name[kHelloNameBytesMax] = {};  // of the client's agent: any bytes, then zeros
};

/// With a status other than 0 the server closes after it, and no ClientProof is due.
struct ServerHello {
  std::uint32_t magic = kServerHelloMagic;
  std::uint32_t version = kWireVersion;
  std::uint16_t status = 0;  // ErrorCode
  std::uint16_t reserved = 0;
  std::uint32_t reserved2 = 0;
  base::SourceEpoch server_epoch;
  std::uint8_t nonce[32] = {};
  std::uint8_t mac[32] = {};
};

struct ClientProof {
  std::uint32_t magic = kClientProofMagic;
  std::uint32_t reserved = 0;
  std::uint8_t mac[32] = {};
};

/// kProtocolViolation for another magic, lane class or name length, and for bytes that must be 0
/// and are not; kIncompatible for another version, before anything else of the record is read.
[[nodiscard]] Result<void> check_client_hello(const ClientHello& hello);
/// The same for a hello of class kLink, and for no other.
[[nodiscard]] Result<void> check_link_hello(const ClientHello& hello);
/// As above, and kProtocolViolation if the status is no error code. Whether the epoch is the
/// expected one is the caller's question.
[[nodiscard]] Result<void> check_server_hello(const ServerHello& hello);
[[nodiscard]] Result<void> check_client_proof(const ClientProof& proof);

/// Fills `server.mac`: keyed BLAKE2b over the role and both hellos. Everything else of `server`
/// must be final. The mac binds both nonces, both epochs, the lane and the status.
void sign_server(const Secret& secret, const ClientHello& client, ServerHello& server) noexcept;
/// In constant time.
[[nodiscard]] bool verify_server(const Secret& secret, const ClientHello& client,
                                 const ServerHello& server) noexcept;
/// Fills `proof.mac`: as above under the client's role, so neither mac can be played back as the
/// other.
void sign_client(const Secret& secret, const ClientHello& client, const ServerHello& server,
                 ClientProof& proof) noexcept;
/// In constant time.
[[nodiscard]] bool verify_client(const Secret& secret, const ClientHello& client,
                                 const ServerHello& server, const ClientProof& proof) noexcept;

static_assert(sizeof(base::SourceEpoch) == 16 && sizeof(base::HostIdentity) == 24);
static_assert(kIsWireStruct<ClientHello> && sizeof(ClientHello) == 368);
static_assert(std::has_unique_object_representations_v<ClientHello>);
static_assert(offsetof(ClientHello, version) == 4 && offsetof(ClientHello, client_epoch) == 8);
static_assert(offsetof(ClientHello, expected_epoch) == 24 && offsetof(ClientHello, nonce) == 40);
static_assert(offsetof(ClientHello, lane_id) == 72 && offsetof(ClientHello, host) == 80);
static_assert(offsetof(ClientHello, lane_class) == 104 && offsetof(ClientHello, reserved) == 105);
static_assert(offsetof(ClientHello, name_bytes) == 106 && offsetof(ClientHello, reserved2) == 108);
static_assert(offsetof(ClientHello, name) == 112);

static_assert(kIsWireStruct<ServerHello> && sizeof(ServerHello) == 96);
static_assert(std::has_unique_object_representations_v<ServerHello>);
static_assert(offsetof(ServerHello, version) == 4 && offsetof(ServerHello, status) == 8);
static_assert(offsetof(ServerHello, reserved) == 10 && offsetof(ServerHello, reserved2) == 12);
static_assert(offsetof(ServerHello, server_epoch) == 16 && offsetof(ServerHello, nonce) == 32);
static_assert(offsetof(ServerHello, mac) == 64);

static_assert(kIsWireStruct<ClientProof> && sizeof(ClientProof) == 40);
static_assert(std::has_unique_object_representations_v<ClientProof>);
static_assert(offsetof(ClientProof, reserved) == 4 && offsetof(ClientProof, mac) == 8);

}  // namespace orbite::wire
