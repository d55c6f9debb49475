// SPDX-License-Identifier: Apache-2.0
#include "wire/handshake.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "unit/wire/test_bytes.hpp"

namespace orbite::wire {
namespace {

constexpr std::string_view kName = "agent-a";

ClientHello client_hello() {
  ClientHello hello;
  hello.client_epoch.bytes = counting<16>(0x10);
  hello.expected_epoch.bytes = counting<16>(0x20);
  const auto nonce = counting<32>(0x30);
  std::copy(nonce.begin(), nonce.end(), hello.nonce);
  hello.lane_id = 0x0102030405060708ULL;
  hello.host.boot_id = counting<16>(0x50);
  hello.host.network_namespace = 0x1112131415161718ULL;
  hello.lane_class = static_cast<std::uint8_t>(LaneClass::kBulk);
  hello.name_bytes = static_cast<std::uint16_t>(kName.size());
  std::copy(kName.begin(), kName.end(), hello.name);
  return hello;
}

ServerHello server_hello() {
  ServerHello hello;
  hello.server_epoch.bytes = counting<16>(0x20);
  const auto nonce = counting<32>(0x60);
  std::copy(nonce.begin(), nonce.end(), hello.nonce);
  return hello;
}

const Secret kSecret = counting<32>(0xA0);

// ---- The bytes ----

TEST(WireHandshakeBytes, ClientHelloIsPinned) {
  EXPECT_EQ(hex(bytes_of(client_hello())),
            "4f544348"                                                          // magic
            "01000000"                                                          // version
            "101112131415161718191a1b1c1d1e1f"                                  // client_epoch
            "202122232425262728292a2b2c2d2e2f"                                  // expected_epoch
            "303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f"  // nonce
            "0807060504030201"                                                  // lane_id
            "505152535455565758595a5b5c5d5e5f"                                  // boot id
            "1817161514131211"                                                  // net namespace
            "01"                                                                // lane_class
            "00"                                                                // reserved
            "0700"                                                              // name_bytes
            "00000000"                                                          // reserved2
            "6167656e742d61" +                                                  // name
                std::string(2 * (256 - 7), '0'));
}

// The macs were computed with another implementation of BLAKE2b (Python's hashlib).
TEST(WireHandshakeBytes, ServerHelloAndItsMacArePinned) {
  ServerHello server = server_hello();
  sign_server(kSecret, client_hello(), server);
  EXPECT_EQ(hex(bytes_of(server)),
            "4f545348"                                                          // magic
            "01000000"                                                          // version
            "0000"                                                              // status
            "0000"                                                              // reserved
            "00000000"                                                          // reserved2
            "202122232425262728292a2b2c2d2e2f"                                  // server_epoch
            "606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f"  // nonce
            "1d376db4a7f901996c759d53ade4caaeaaad1dfa111a4b17bdd3993006b9b2ed");
}

TEST(WireHandshakeBytes, ClientProofIsPinned) {
  ServerHello server = server_hello();
  sign_server(kSecret, client_hello(), server);
  ClientProof proof;
  sign_client(kSecret, client_hello(), server, proof);
  EXPECT_EQ(hex(bytes_of(proof)),
            "4f544350"  // magic
            "00000000"  // reserved
            "868f52495874e6299a883306dbc89deb7887547ea1edeec0991419fc59af9051");
}

TEST(WireHandshakeBytes, NumbersArePinned) {
  EXPECT_EQ(static_cast<int>(LaneClass::kLatency), 0);
  EXPECT_EQ(static_cast<int>(LaneClass::kBulk), 1);
  EXPECT_EQ(static_cast<int>(LaneClass::kControl), 2);
}

// ---- Checks ----

TEST(WireClientHello, GoodHellosAreAccepted) {
  EXPECT_TRUE(check_client_hello(client_hello()));
  ClientHello nameless;
  EXPECT_TRUE(check_client_hello(nameless));
  ClientHello longest;
  longest.name_bytes = kHelloNameBytesMax;
  std::fill(std::begin(longest.name), std::end(longest.name), '\xFF');
  EXPECT_TRUE(check_client_hello(longest));
  ClientHello with_nul = client_hello();
  with_nul.name[3] = '\0';
  EXPECT_TRUE(check_client_hello(with_nul));
}

TEST(WireClientHello, OneBadFieldIsRefusedAndNamed) {
  const struct {
    const char* part;
    void (*damage)(ClientHello&);
  } cases[] = {
      {"magic", [](ClientHello& h) { h.magic = kServerHelloMagic; }},
      {"lane_class is 3", [](ClientHello& h) { h.lane_class = 3; }},
      {"reserved is 1", [](ClientHello& h) { h.reserved = 1; }},
      {"reserved is 2147483648", [](ClientHello& h) { h.reserved2 = 0x80000000U; }},
      {"name_bytes is 257", [](ClientHello& h) { h.name_bytes = 257; }},
      {"name_bytes is 65535", [](ClientHello& h) { h.name_bytes = 65535; }},
      {"name byte 7 is 120", [](ClientHello& h) { h.name[7] = 'x'; }},
      {"name byte 255 is 255", [](ClientHello& h) { h.name[255] = '\xFF'; }},
      {"name byte 6 is 97", [](ClientHello& h) { h.name_bytes = 6; }},
  };
  for (const auto& one : cases) {
    ClientHello hello = client_hello();
    one.damage(hello);
    EXPECT_TRUE(refused_with(check_client_hello(hello), ErrorCode::kProtocolViolation, one.part));
  }
}

TEST(WireServerHello, OneBadFieldIsRefusedAndNamed) {
  EXPECT_TRUE(check_server_hello(server_hello()));
  ServerHello rejecting = server_hello();
  rejecting.status = static_cast<std::uint16_t>(ErrorCode::kPeerEpochChanged);
  EXPECT_TRUE(check_server_hello(rejecting));
  const struct {
    const char* part;
    void (*damage)(ServerHello&);
  } cases[] = {
      {"magic", [](ServerHello& h) { h.magic = kClientHelloMagic; }},
      {"status is 99", [](ServerHello& h) { h.status = 99; }},
      {"reserved is 256", [](ServerHello& h) { h.reserved = 256; }},
      {"reserved is 1", [](ServerHello& h) { h.reserved2 = 1; }},
  };
  for (const auto& one : cases) {
    ServerHello hello = server_hello();
    one.damage(hello);
    EXPECT_TRUE(refused_with(check_server_hello(hello), ErrorCode::kProtocolViolation, one.part));
  }
}

TEST(WireClientProof, OneBadFieldIsRefusedAndNamed) {
  ClientProof proof;
  EXPECT_TRUE(check_client_proof(proof));
  proof.reserved = 7;
  EXPECT_TRUE(
      refused_with(check_client_proof(proof), ErrorCode::kProtocolViolation, "reserved is 7"));
  proof = {};
  proof.magic = 0;
  EXPECT_TRUE(refused_with(check_client_proof(proof), ErrorCode::kProtocolViolation, "magic"));
}

TEST(WireHello, AnotherVersionIsIncompatibleWhateverElseItSays) {
  for (const std::uint32_t version : {0U, 2U, 0x01000000U, 0xFFFFFFFFU}) {
    ClientHello client = client_hello();
    client.version = version;
    client.lane_class = 200;
    client.name_bytes = 65535;
    EXPECT_TRUE(refused_with(check_client_hello(client), ErrorCode::kIncompatible,
                             "wire version is " + std::to_string(version)));
    ServerHello server = server_hello();
    server.version = version;
    server.status = 1;
    EXPECT_TRUE(
        refused_with(check_server_hello(server), ErrorCode::kIncompatible, "this side speaks 1"));
  }
}

// ---- Proofs ----

struct Signed {
  ClientHello client = client_hello();
  ServerHello server = server_hello();
  ClientProof proof;

  Signed() {
    sign_server(kSecret, client, server);
    sign_client(kSecret, client, server, proof);
  }
  [[nodiscard]] bool server_ok() const { return verify_server(kSecret, client, server); }
  [[nodiscard]] bool client_ok() const { return verify_client(kSecret, client, server, proof); }
};

TEST(WireProof, BothSidesVerify) {
  const Signed all;
  EXPECT_TRUE(all.server_ok());
  EXPECT_TRUE(all.client_ok());
}

TEST(WireProof, TheTwoRolesDiffer) {
  Signed all;
  EXPECT_NE(std::memcmp(all.server.mac, all.proof.mac, sizeof(all.proof.mac)), 0);
  std::copy(std::begin(all.server.mac), std::end(all.server.mac), all.proof.mac);
  EXPECT_FALSE(all.client_ok()) << "the server's own mac was played back to it";
}

TEST(WireProof, EveryBitOfTheSecretCounts) {
  const Signed all;
  for (std::size_t bit = 0; bit < 8 * kSecret.size(); ++bit) {
    Secret other = kSecret;
    other[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
    EXPECT_FALSE(verify_server(other, all.client, all.server));
    EXPECT_FALSE(verify_client(other, all.client, all.server, all.proof));
  }
}

TEST(WireProof, EveryByteOfTheClientHelloCounts) {
  const Signed all;
  const Bytes good = bytes_of(all.client);
  for (std::size_t i = 0; i < good.size(); ++i) {
    Bytes bytes = good;
    bytes[i] ^= 0x40;
    Signed altered = all;
    altered.client = from_bytes<ClientHello>(bytes);
    EXPECT_FALSE(altered.server_ok()) << "byte " << i;
    EXPECT_FALSE(altered.client_ok()) << "byte " << i;
  }
}

TEST(WireProof, EveryByteOfTheServerHelloCounts) {
  const Signed all;
  const Bytes good = bytes_of(all.server);
  for (std::size_t i = 0; i < good.size(); ++i) {
    Bytes bytes = good;
    bytes[i] ^= 0x01;
    Signed altered = all;
    altered.server = from_bytes<ServerHello>(bytes);
    EXPECT_FALSE(altered.server_ok()) << "byte " << i;
    const bool in_mac = i >= offsetof(ServerHello, mac);
    EXPECT_EQ(altered.client_ok(), in_mac) << "byte " << i;
  }
}

TEST(WireProof, EveryByteOfTheProofCounts) {
  const Signed all;
  for (std::size_t i = 0; i < sizeof(all.proof.mac); ++i) {
    Signed altered = all;
    altered.proof.mac[i] ^= 0x80;
    EXPECT_FALSE(altered.client_ok()) << "byte " << i;
  }
}

RC_GTEST_PROP(WireProof, HoldsForAnySecretAndNonces, ()) {
  const auto fill = [](auto& bytes) {
    const auto random =
        *rc::gen::container<Bytes>(sizeof(bytes), rc::gen::arbitrary<std::uint8_t>());
    std::memcpy(&bytes, random.data(), sizeof(bytes));
  };
  Secret secret{};
  ClientHello client;
  ServerHello server;
  fill(secret);
  fill(client.nonce);
  fill(server.nonce);
  sign_server(secret, client, server);
  ClientProof proof;
  sign_client(secret, client, server, proof);
  RC_ASSERT(verify_server(secret, client, server));
  RC_ASSERT(verify_client(secret, client, server, proof));

  // A recorded exchange is worth nothing against a fresh nonce.
  ServerHello fresh = server;
  fresh.nonce[0] ^= 1;
  RC_ASSERT(!verify_client(secret, client, fresh, proof));
  ClientHello fresh_client = client;
  fresh_client.nonce[31] ^= 1;
  RC_ASSERT(!verify_server(secret, fresh_client, server));
}

}  // namespace
}  // namespace orbite::wire
