// SPDX-License-Identifier: Apache-2.0
// ClientHello, ServerHello, ClientProof, one after the other, as far as the input reaches.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/assert.hpp"
#include "fuzz/wire_input.hpp"
#include "wire/handshake.hpp"

namespace {

using namespace orbite::wire;
using orbite::fuzz::Input;
using orbite::fuzz::take;

void check_refusal(const orbite::Result<void>& result) {
  ORBITE_CHECK(result.error().code() == orbite::ErrorCode::kProtocolViolation ||
               result.error().code() == orbite::ErrorCode::kIncompatible);
  ORBITE_CHECK(!result.error().context().empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr Secret kSecret = {1, 2, 3};
  Input input(data, size);

  ClientHello client;
  if (!take(input, client)) {
    return 0;
  }
  if (const auto result = check_client_hello(client); !result) {
    check_refusal(result);
  } else {
    ORBITE_CHECK(client.magic == kClientHelloMagic && client.version == kWireVersion);
    ORBITE_CHECK(client.name_bytes <= kHelloNameBytesMax && client.lane_class <= 2);
  }

  ServerHello server;
  if (!take(input, server)) {
    return 0;
  }
  if (const auto result = check_server_hello(server); !result) {
    check_refusal(result);
  }
  // A mac is good exactly if it is the one that we would have made, for well-formed hellos or not.
  ServerHello signed_server = server;
  sign_server(kSecret, client, signed_server);
  ORBITE_CHECK(verify_server(kSecret, client, signed_server));
  ORBITE_CHECK(verify_server(kSecret, client, server) ==
               std::ranges::equal(server.mac, signed_server.mac));

  ClientProof proof;
  if (!take(input, proof)) {
    return 0;
  }
  if (const auto result = check_client_proof(proof); !result) {
    check_refusal(result);
  }
  ClientProof signed_proof = proof;
  sign_client(kSecret, client, server, signed_proof);
  ORBITE_CHECK(verify_client(kSecret, client, server, signed_proof));
  ORBITE_CHECK(verify_client(kSecret, client, server, proof) ==
               std::ranges::equal(proof.mac, signed_proof.mac));
  return 0;
}
