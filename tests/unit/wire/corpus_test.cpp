// SPDX-License-Identifier: Apache-2.0
// The seeds of the wire fuzzers are written from the code and compared with the files, so that they
// follow the formats. ORBITE_UPDATE_CORPUS=1 writes the files anew.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "unit/wire/test_bytes.hpp"
#include "wire/envelope.hpp"
#include "wire/frame.hpp"
#include "wire/handshake.hpp"
#include "wire/link.hpp"
#include "wire/metadata.hpp"

namespace orbite::wire {
namespace {

struct Seed {
  std::string file;  // below tests/fuzz/corpus
  Bytes bytes;
};

std::filesystem::path corpus_directory() {
  return std::filesystem::path(__FILE__).parent_path().parent_path().parent_path() / "fuzz" /
         "corpus";
}

template <typename... Parts>
Bytes joined(std::uint8_t selector, const Parts&... parts) {
  Bytes all = {selector};
  const auto append = [&all](const Bytes& part) {
    all.insert(all.end(), part.begin(), part.end());
  };
  (append(parts), ...);
  return all;
}

Bytes notification() {
  Envelope envelope;
  envelope.sender_epoch.bytes = counting<16>(0x10);
  envelope.sender_name = "agent";
  const Bytes message = {'a', 0, 'b'};
  envelope.message = message;
  return *encode_envelope(envelope);
}

RequestHeader request(FrameType type) {
  RequestHeader header;
  header.type = static_cast<std::uint8_t>(type);
  header.frame_id = 1;
  return header;
}

void add_requests(std::vector<Seed>& seeds) {
  RegistrationRef ref;
  ref.generation = 1;
  const auto key = counting<16>(0x40);
  std::copy(key.begin(), key.end(), ref.key);
  const Bytes refs = bytes_of(ref);
  const Bytes first = bytes_of(WireExtent{0, 5, 0});
  const Bytes second = bytes_of(WireExtent{64, 3, 0});
  const Bytes trailer = notification();

  RequestHeader header = request(FrameType::kWrite);
  header.table_count = 1;
  header.extent_count = 2;
  header.payload_bytes = 8;
  header.trailer_bytes = static_cast<std::uint32_t>(trailer.size());
  seeds.push_back({"wire_frame/write",
                   joined(0, bytes_of(header), refs, first, second, Bytes(8, 0xAB), trailer)});
  header.type = static_cast<std::uint8_t>(FrameType::kRead);
  header.trailer_bytes = 0;
  seeds.push_back({"wire_frame/read", joined(0, bytes_of(header), refs, first, second)});
  header = request(FrameType::kNotify);
  header.trailer_bytes = static_cast<std::uint32_t>(trailer.size());
  seeds.push_back({"wire_frame/notify", joined(0, bytes_of(header), trailer)});
  header = request(FrameType::kDescribe);
  header.table_count = 2;
  seeds.push_back({"wire_frame/describe", joined(0, bytes_of(header), refs, refs)});
  header = request(FrameType::kDrain);
  header.trailer_bytes = kDrainTrailerBytes;
  seeds.push_back({"wire_frame/drain", joined(0, bytes_of(header), Bytes(8, 0x11))});
  seeds.push_back({"wire_frame/ping", joined(0, bytes_of(request(FrameType::kPing)))});
}

void add_responses(std::vector<Seed>& seeds) {
  ResponseHeader header;
  header.frame_id = 1;
  header.type = static_cast<std::uint8_t>(ResponseType::kWriteAck);
  header.effect = static_cast<std::uint8_t>(FrameEffect::kComplete);
  header.prefix_bytes = 8;
  seeds.push_back({"wire_frame/write_ack", joined(1, bytes_of(header))});
  header.effect = static_cast<std::uint8_t>(FrameEffect::kPrefix);
  header.status = static_cast<std::uint16_t>(ErrorCode::kRegistrationFenced);
  seeds.push_back({"wire_frame/write_ack_prefix", joined(1, bytes_of(header))});
  header = {};
  header.type = static_cast<std::uint8_t>(ResponseType::kReadData);
  header.payload_bytes = 8;
  seeds.push_back({"wire_frame/read_data", joined(1, bytes_of(header), Bytes(8, 0xCD))});
  DescribedRange live;
  live.generation = 1;
  live.address = 0x10000;
  live.length = 4096;
  live.live = 1;
  header.type = static_cast<std::uint8_t>(ResponseType::kDescription);
  header.payload_bytes = 2 * sizeof(DescribedRange);
  seeds.push_back({"wire_frame/description",
                   joined(1, bytes_of(header), bytes_of(live), bytes_of(DescribedRange{}))});
}

void add_handshakes(std::vector<Seed>& seeds) {
  const Secret secret = {1, 2, 3};
  ClientHello client;
  client.client_epoch.bytes = counting<16>(0x10);
  client.expected_epoch.bytes = counting<16>(0x20);
  client.lane_id = 5;
  client.lane_class = static_cast<std::uint8_t>(LaneClass::kControl);
  const std::string_view name = "agent";
  client.name_bytes = static_cast<std::uint16_t>(name.size());
  std::copy(name.begin(), name.end(), client.name);
  ServerHello server;
  server.server_epoch.bytes = client.expected_epoch.bytes;
  sign_server(secret, client, server);
  ClientProof proof;
  sign_client(secret, client, server, proof);
  Bytes all = bytes_of(client);
  seeds.push_back({"wire_handshake/client_hello", all});
  for (const Bytes& part : {bytes_of(server), bytes_of(proof)}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  seeds.push_back({"wire_handshake/complete", all});
}

void add_links(std::vector<Seed>& seeds) {
  LinkWelcome welcome;
  welcome.seats = 64;
  welcome.directory_words = 1024;
  welcome.probe_address = 0x7F0000001000;
  LinkFetch fetch;
  fetch.registration.index = 3;
  fetch.registration.generation = 1;
  LinkAllocation answer;
  answer.registration = fetch.registration;
  answer.allocation = 2;
  answer.offset = 4096;
  Bytes all;
  for (const Bytes& part : {bytes_of(welcome), bytes_of(fetch), bytes_of(answer)}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  seeds.push_back({"wire_link/complete", all});
}

void add_blobs(std::vector<Seed>& seeds) {
  ConnectionBlob connection;
  seeds.push_back({"wire_connection/unreachable", encode(connection)});
  connection.epoch.bytes = counting<16>(0x10);
  connection.secret = counting<32>(0x30);
  connection.host.boot_id = counting<16>(0x50);
  connection.host.network_namespace = 4026531840;
  connection.loopback_reachable = true;
  connection.port = 4791;
  Address address;
  address.family = 4;
  address.bytes = {192, 0, 2, 1};
  connection.addresses.push_back(address);
  address.family = 6;
  address.bytes = {0x20, 0x01, 0x0D, 0xB8};
  connection.addresses.push_back(address);
  seeds.push_back({"wire_connection/memory", encode(connection)});
  connection.addresses.resize(kAddressesMax, address);
  connection.profile = Profile::kFile;
  seeds.push_back({"wire_connection/file_eight_addresses", encode(connection)});

  RangeBlob range;
  range.epoch.bytes = counting<16>(0x10);
  range.generation = 1;
  range.key.bytes = counting<16>(0x40);
  range.address = 0x7F0000000000ULL;
  range.length = 4096;
  range.access = 7;
  seeds.push_back({"wire_range/range", encode(range)});

  seeds.push_back({"wire_envelope/message", notification()});
  seeds.push_back({"wire_envelope/empty", *encode_envelope(Envelope{})});
}

std::vector<Seed> seeds() {
  std::vector<Seed> all;
  add_requests(all);
  add_responses(all);
  add_handshakes(all);
  add_links(all);
  add_blobs(all);
  return all;
}

TEST(WireCorpus, SeedsAreWhatTheCodeWrites) {
  const bool update = std::getenv("ORBITE_UPDATE_CORPUS") != nullptr;
  for (const Seed& seed : seeds()) {
    const std::filesystem::path path = corpus_directory() / seed.file;
    if (update) {
      std::filesystem::create_directories(path.parent_path());
      std::ofstream out(path, std::ios::binary);
      std::copy(seed.bytes.begin(), seed.bytes.end(), std::ostreambuf_iterator<char>(out));
    }
    std::ifstream in(path, std::ios::binary);
    ASSERT_TRUE(in) << "cannot read " << path << "; ORBITE_UPDATE_CORPUS=1 writes it";
    const std::string read((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    EXPECT_EQ(hex(Bytes(read.begin(), read.end())), hex(seed.bytes))
        << path << "; ORBITE_UPDATE_CORPUS=1 writes it anew";
  }
}

}  // namespace
}  // namespace orbite::wire
