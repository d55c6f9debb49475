// SPDX-License-Identifier: Apache-2.0
// An engine whose port strangers and false friends talk to, beside a peer that wants its work done.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "base/random.hpp"
#include "orbite/engine.hpp"
#include "support/log_lines.hpp"
#include "support/raw_peer.hpp"

namespace orbite::test {
namespace {

using ConnectionPtr = std::unique_ptr<RawConnection>;
using Json = nlohmann::json;

constexpr std::size_t kBytes = 1 << 20;
constexpr std::size_t kMessageMax = 4096;
constexpr std::uint64_t kHandshakesMax = 8;

Config config() {
  Config made;
  made.listen.address = "127.0.0.1";
  made.tcp.handshake_timeout_ms = 300;
  made.tcp.progress_timeout_ms = 400;
  made.tcp.handshakes_max = kHandshakesMax;
  made.notifications.message_bytes_max = kMessageMax;
  made.notifications.inbox_bytes_max = 256 << 10;
  return made;
}

std::uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  statm >> total >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

template <typename Condition>
bool wait_for(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) {
      return false;
    }
    std::this_thread::yield();
  }
  return true;
}

class HostileInitiator : public ::testing::Test {
 protected:
  HostileInitiator() {
    const std::array<std::uint8_t, 3> accesses = {kAccessAll, kAccessLocal | kAccessRemoteRead,
                                                  kAccessLocal | kAccessRemoteWrite};
    for (std::size_t i = 0; i < 3; ++i) {
      memory_[i].assign(kBytes, static_cast<std::uint8_t>(i + 1));
      MemoryDescriptor descriptor;
      descriptor.address = reinterpret_cast<std::uint64_t>(memory_[i].data());
      descriptor.length = kBytes;
      descriptor.access = accesses[i];
      registrations_[i] = victim_->register_memory(descriptor).value();
      blobs_[i] = wire::decode_range(victim_->export_memory(registrations_[i]).value()).value();
    }
    connection_ =
        wire::decode_connection(victim_->connection_blob(), wire::Profile::kMemory).value();
    MemoryDescriptor descriptor;
    descriptor.address = reinterpret_cast<std::uint64_t>(friend_memory_.data());
    descriptor.length = kBytes;
    const Handle local = friend_->register_memory(descriptor).value();
    peer_ = friend_->import_peer("victim", victim_->connection_blob()).value();
    const Handle range =
        friend_
            ->import_range(peer_, victim_->export_memory(registrations_[0]).value(),
                           blobs_[0].address, kBytes)
            .value();
    const Descriptor from{descriptor.address, kBytes, local};
    const Descriptor to{blobs_[0].address, kBytes, range};
    write_ = friend_->prepare({Operation::kWrite, peer_, {&from, 1}, {&to, 1}}).value();
    befriend();
  }

  /// The friend's work goes through, on the lanes that it has had from the start.
  void befriend() {
    friend_memory_.assign(kBytes, ++fill_);
    ASSERT_TRUE(friend_->post(write_, {}).has_value());
    ASSERT_TRUE(wait_for([&] { return friend_->check(write_)->terminal(); }));
    ASSERT_EQ(friend_->query(write_)->logical, Logical::kSuccess);
    ASSERT_TRUE(memory_[0] == friend_memory_);
  }
  void TearDown() override {
    befriend();
    const Json counters = Json::parse(friend_->info_json())["counters"];
    EXPECT_EQ(counters["lanes_failed"], 0) << "the friend lost a lane";
    EXPECT_EQ(counters["executions_failed"], 0);
    EXPECT_TRUE(std::all_of(memory_[1].begin(), memory_[1].end(), [](auto b) { return b == 2; }));
    EXPECT_TRUE(victim_->receive_notification() == std::nullopt);
    // Whoever was hostile is gone, and holds nothing.
    EXPECT_TRUE(wait_for([&] { return served_lanes() == friends_lanes(); })) << served_lanes();
    EXPECT_EQ(Json::parse(victim_->info_json())["registrations"]["loans"], 0);
  }
  std::uint64_t served_lanes() { return Json::parse(victim_->info_json())["served_lanes"]; }
  std::uint64_t friends_lanes() { return Json::parse(friend_->info_json())["lane_sockets"]; }
  std::uint64_t counter(const char* name) {
    return Json::parse(victim_->info_json())["counters"][name];
  }

  ConnectionPtr connect() { return connect_raw(connection_.port); }
  ConnectionPtr admitted(RawConnection::Identity identity = {}) {
    ConnectionPtr lane = connect();
    EXPECT_TRUE(lane->handshake(connection_, identity));
    return lane;
  }
  /// `bytes` at `offset` of the victim's memory `which`.
  RawRequest request(wire::FrameType type, std::size_t which, std::uint64_t offset,
                     std::uint32_t bytes) {
    RawRequest made;
    made.header.type = static_cast<std::uint8_t>(type);
    made.header.frame_id = ++next_frame_;
    wire::RegistrationRef& entry = made.table.emplace_back();
    entry.index = blobs_.at(which).index;
    entry.generation = blobs_.at(which).generation;
    std::memcpy(entry.key, blobs_.at(which).key.bytes.data(), sizeof(entry.key));
    made.extents.push_back({offset, bytes, 0});
    if (type == wire::FrameType::kWrite) {
      made.payload.assign(bytes, 250);
    }
    return made.fit();
  }
  RawRequest notification(std::size_t message_bytes, const RawConnection::Identity& identity = {}) {
    RawRequest made;
    made.header.type = static_cast<std::uint8_t>(wire::FrameType::kNotify);
    made.header.frame_id = ++next_frame_;
    const std::vector<std::uint8_t> message(message_bytes, 1);
    made.trailer =
        wire::encode_envelope(wire::Envelope{identity.epoch, identity.name, message}).value();
    return made.fit();
  }
  /// What the victim answers, on a lane that lives on.
  ErrorCode ask(RawConnection& lane, const RawRequest& made) {
    EXPECT_TRUE(lane.send(made));
    const auto response = lane.read_response();
    if (!response) {
      ADD_FAILURE() << "the lane has ended";
      return ErrorCode::kInternal;
    }
    EXPECT_EQ(response->header.frame_id, made.header.frame_id);
    return response->status();
  }
  void expect_dropped(RawConnection& lane) {
    ++dropped_;
    EXPECT_TRUE(lane.read_to_end().has_value());
    EXPECT_TRUE(wait_for([&] { return counter("protocol_violations") == dropped_; }))
        << counter("protocol_violations") << " of " << dropped_;
  }

  std::unique_ptr<TransferEngine> victim_ = TransferEngine::create({"victim", config()}).value();
  std::unique_ptr<TransferEngine> friend_ = TransferEngine::create({"friend", config()}).value();
  std::array<std::vector<std::uint8_t>, 3> memory_;
  std::array<Handle, 3> registrations_;
  std::array<wire::RangeBlob, 3> blobs_;
  wire::ConnectionBlob connection_;
  std::vector<std::uint8_t> friend_memory_ = std::vector<std::uint8_t>(kBytes);
  Handle peer_;
  Handle write_;
  std::uint8_t fill_ = 0;
  std::uint64_t next_frame_ = 100;
  std::uint64_t dropped_ = 0;  ///< lanes that expect_dropped() has seen
};

// ---- Strangers

TEST_F(HostileInitiator, GarbageIsHungUpOn) {
  base::SeededRandom random(1);
  for (const std::size_t size : {sizeof(wire::ClientHello), std::size_t{5000}}) {
    const ConnectionPtr lane = connect();
    std::vector<std::uint8_t> garbage(size);
    random.fill(garbage);
    lane->write(garbage);
    EXPECT_EQ(lane->read_to_end(), 0U) << "a stranger learnt something";
  }
  EXPECT_TRUE(wait_for([&] { return counter("served_rejected") >= 2; }));
}

TEST_F(HostileInitiator, SilenceAndSlownessEndWithTheHandshakesTime) {
  const ConnectionPtr silent = connect();
  const ConnectionPtr half = connect();
  const ConnectionPtr slow = connect();
  const ConnectionPtr unproved = connect();
  ASSERT_TRUE(half->write(std::string(100, 'x').data(), 100));
  ASSERT_TRUE(unproved->send_hello(connection_, {}));
  wire::ServerHello answer;
  ASSERT_TRUE(unproved->read_struct(answer));
  ASSERT_EQ(answer.status, 0);
  const auto begin = std::chrono::steady_clock::now();
  wire::ClientHello hello;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&hello);
  for (std::size_t i = 0; i < sizeof(hello) && slow->write(bytes + i, 1); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  for (const ConnectionPtr* lane : {&silent, &half, &slow, &unproved}) {
    EXPECT_EQ((*lane)->read_to_end(), 0U);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST_F(HostileInitiator, AWrongProofOpensNothing) {
  wire::ConnectionBlob wrong = connection_;
  wrong.secret[0] ^= 1;
  const ConnectionPtr lane = connect();
  ASSERT_TRUE(lane->send_hello(connection_, {}));
  wire::ServerHello server;
  ASSERT_TRUE(lane->read_struct(server));
  wire::ClientProof proof;
  wire::sign_client(wrong.secret, lane->hello, server, proof);
  ASSERT_TRUE(lane->write_struct(proof));
  // Not even a frame that comes right behind it.
  lane->send(request(wire::FrameType::kWrite, 0, 0, 100));
  EXPECT_EQ(lane->read_to_end(), 0U);
  EXPECT_NE(memory_[0][0], 250);
}

TEST_F(HostileInitiator, ARecordedHandshakeIsWorthNothing) {
  const ConnectionPtr first = connect();
  ASSERT_TRUE(first->send_hello(connection_, {}));
  wire::ServerHello server;
  ASSERT_TRUE(first->read_struct(server));
  wire::ClientProof proof;
  wire::sign_client(connection_.secret, first->hello, server, proof);

  const ConnectionPtr replay = connect();
  ASSERT_TRUE(replay->write_struct(first->hello));
  ASSERT_TRUE(replay->read_struct(server));
  ASSERT_TRUE(replay->write_struct(proof));
  EXPECT_EQ(replay->read_to_end(), 0U);
}

TEST_F(HostileInitiator, AnotherEpochOrVersionIsToldSo) {
  wire::ConnectionBlob older = connection_;
  older.epoch.bytes[0] ^= 1;
  const ConnectionPtr stale = connect();
  ASSERT_TRUE(stale->send_hello(older, {}));
  EXPECT_EQ(stale->finish_handshake(older), ErrorCode::kPeerEpochChanged);
  EXPECT_EQ(stale->read_to_end(), 0U);

  const ConnectionPtr newer = connect();
  newer->hello = {};
  newer->hello.version = 2;
  ASSERT_TRUE(newer->write_struct(newer->hello));
  EXPECT_EQ(newer->finish_handshake(connection_), ErrorCode::kIncompatible);
  EXPECT_EQ(newer->read_to_end(), 0U);
}

TEST_F(HostileInitiator, ACrowdOfStrangersKeepsNobodyOut) {
  std::vector<ConnectionPtr> crowd;
  for (int i = 0; i < 100; ++i) {
    crowd.push_back(connect());
  }
  EXPECT_TRUE(wait_for([&] { return counter("served_accepted") >= 100; }));
  EXPECT_LE(served_lanes(), friends_lanes() + kHandshakesMax);
  const ConnectionPtr lane = admitted();
  EXPECT_EQ(ask(*lane, request(wire::FrameType::kRead, 0, 0, 100)), ErrorCode::kOk);
}

// ---- False friends: requests that are refused, on lanes that live on

TEST_F(HostileInitiator, EveryFrameIsCheckedAgainstTheRegistration) {
  const ConnectionPtr lane = admitted();
  const auto before = memory_;
  const auto ask_both = [&](const std::function<void(RawRequest&)>& spoil, ErrorCode expected) {
    for (const wire::FrameType type : {wire::FrameType::kWrite, wire::FrameType::kRead}) {
      RawRequest made = request(type, 0, 64, 1000);
      spoil(made);
      EXPECT_EQ(ask(*lane, made), expected);
    }
  };
  ask_both([](RawRequest& it) { it.table[0].key[15] ^= 1; }, ErrorCode::kNotAllowed);
  ask_both([](RawRequest& it) { ++it.table[0].generation; }, ErrorCode::kRegistrationChanged);
  ask_both([](RawRequest& it) { it.table[0].index = 500; }, ErrorCode::kRegistrationFenced);
  ask_both([](RawRequest& it) { it.table[0].index = UINT32_MAX; }, ErrorCode::kRegistrationFenced);
  ask_both([](RawRequest& it) { it.extents[0].offset = kBytes - 999; }, ErrorCode::kInvalidRange);
  ask_both([](RawRequest& it) { it.extents[0].offset = kBytes; }, ErrorCode::kInvalidRange);
  ask_both([](RawRequest& it) { it.extents[0].offset = UINT64_MAX - 1000; },
           ErrorCode::kInvalidRange);
  EXPECT_EQ(ask(*lane, request(wire::FrameType::kWrite, 1, 0, 1000)), ErrorCode::kNotAllowed);
  EXPECT_EQ(ask(*lane, request(wire::FrameType::kRead, 2, 0, 1000)), ErrorCode::kNotAllowed);
  // One bad entry of many is enough, and nothing of the good ones is written.
  RawRequest mixed = request(wire::FrameType::kWrite, 0, 0, 500);
  mixed.table.push_back(mixed.table[0]);
  mixed.table[1].key[0] ^= 1;
  mixed.extents.push_back({600, 500, 1});
  mixed.payload.assign(1000, 250);
  EXPECT_EQ(ask(*lane, mixed.fit()), ErrorCode::kNotAllowed);
  EXPECT_TRUE(before == memory_);
  EXPECT_GE(counter("served_frames_refused"), 17U);
  EXPECT_EQ(counter("protocol_violations"), 0U);

  EXPECT_EQ(ask(*lane, request(wire::FrameType::kWrite, 2, kBytes - 1, 1)), ErrorCode::kOk);
  EXPECT_EQ(memory_[2].back(), 250);
}

TEST_F(HostileInitiator, ADescriptionTellsNothingWithoutTheKey) {
  const ConnectionPtr lane = admitted();
  RawRequest made = request(wire::FrameType::kRead, 0, 0, 1);
  made.header.type = static_cast<std::uint8_t>(wire::FrameType::kDescribe);
  made.extents.clear();
  made.table.push_back(made.table[0]);
  made.table[1].key[0] ^= 1;
  ASSERT_TRUE(lane->send(made.fit()));
  const auto response = lane->read_response();
  ASSERT_TRUE(response.has_value());
  std::array<wire::DescribedRange, 2> described;
  ASSERT_EQ(response->payload.size(), sizeof(described));
  std::memcpy(described.data(), response->payload.data(), sizeof(described));
  EXPECT_EQ(described[0].live, 1);
  EXPECT_EQ(described[0].address, blobs_[0].address);
  EXPECT_EQ(described[1].live, 0);
  EXPECT_EQ(described[1].address, 0U);
}

TEST_F(HostileInitiator, AMessageThatIsTooLongIsRefusedAndTheLaneLives) {
  const ConnectionPtr lane = admitted();
  for (const std::size_t length : {kMessageMax + 1, kMessageMax * 3, kBytes}) {
    EXPECT_EQ(ask(*lane, notification(length)), ErrorCode::kInvalidArgument);
    // The same behind the bytes of a WRITE: these are in place.
    RawRequest write = request(wire::FrameType::kWrite, 2, 0, 100);
    write.trailer = notification(length).trailer;
    ASSERT_TRUE(lane->send(write.fit()));
    const auto response = lane->read_response();
    ASSERT_TRUE(response.has_value());
    EXPECT_EQ(response->status(), ErrorCode::kNotificationFailed);
    EXPECT_EQ(response->header.effect, static_cast<std::uint8_t>(wire::FrameEffect::kComplete));
    EXPECT_EQ(response->header.prefix_bytes, 100U);
  }
  EXPECT_EQ(ask(*lane, notification(kMessageMax)), ErrorCode::kOk);
  const auto received = victim_->receive_notification();
  ASSERT_TRUE(received.has_value());
  EXPECT_EQ(received->message.size(), kMessageMax);
}

TEST_F(HostileInitiator, ADrainEndsOnlyLanesOfItsOwnEpoch) {
  RawConnection::Identity mine;
  mine.lane_id = 1;  // the friend has a lane 1 as well, under its own epoch
  const ConnectionPtr lane = admitted(mine);
  const auto drain = [&](std::uint64_t lane_id) {
    RawRequest made;
    made.header.type = static_cast<std::uint8_t>(wire::FrameType::kDrain);
    made.header.frame_id = ++next_frame_;
    made.trailer.resize(sizeof(lane_id));
    std::memcpy(made.trailer.data(), &lane_id, sizeof(lane_id));
    return made.fit();
  };
  mine.lane_id = 2;
  const ConnectionPtr other = admitted(mine);
  const std::uint64_t lanes = served_lanes();
  EXPECT_EQ(ask(*lane, drain(2)), ErrorCode::kOk);
  EXPECT_EQ(other->read_to_end(), 0U);
  EXPECT_EQ(ask(*lane, drain(77)), ErrorCode::kOk);
  EXPECT_TRUE(wait_for([&] { return served_lanes() == lanes - 1; }));
  // A lane that was drained never comes back to life.
  const ConnectionPtr revenant = connect();
  mine.lane_id = 77;
  ASSERT_TRUE(revenant->send_hello(connection_, mine));
  EXPECT_EQ(revenant->finish_handshake(connection_), ErrorCode::kHandshakeRejected);
  // And one that drains itself is gone without an answer.
  ASSERT_TRUE(lane->send(drain(1)));
  EXPECT_TRUE(lane->read_to_end().has_value());
}

// ---- False friends: frames that no peer sends

struct Violation {
  const char* name;
  std::function<void(RawRequest&)> spoil;  ///< of a good WRITE; its counts are sent as they are
};
void PrintTo(const Violation& it, std::ostream* out) { *out << it.name; }

class Violator : public HostileInitiator, public ::testing::WithParamInterface<Violation> {};

TEST_P(Violator, LosesItsLaneAndWritesNothing) {
  const LogLines log;
  const auto before = memory_;
  const std::uint64_t resident = resident_bytes();
  const ConnectionPtr lane = admitted();
  RawRequest made = request(wire::FrameType::kWrite, 0, 0, 1000);
  GetParam().spoil(made);
  lane->send(made);
  ASSERT_EQ(lane->read_to_end(), 0U) << "it was answered";
  EXPECT_TRUE(wait_for([&] { return counter("protocol_violations") == 1; }));
  EXPECT_TRUE(before == memory_);
  EXPECT_LT(resident_bytes(), resident + (32 << 20));
  const std::string told = log.text();
  EXPECT_NE(told.find("connection from 'raw' at 127.0.0.1:"), std::string::npos) << told;
}

TEST_F(HostileInitiator, AFrameThatIsReplayedEndsItsLaneAndWritesNothing) {
  const LogLines log;
  const ConnectionPtr lane = admitted();
  const RawRequest first = request(wire::FrameType::kWrite, 2, 0, 1000);
  const RawRequest second = request(wire::FrameType::kWrite, 2, 5000, 1000);
  EXPECT_EQ(ask(*lane, first), ErrorCode::kOk);
  EXPECT_EQ(ask(*lane, second), ErrorCode::kOk);
  std::fill(memory_[2].begin(), memory_[2].end(), std::uint8_t{9});
  lane->send(first);
  EXPECT_EQ(lane->read_to_end(), 0U) << "it was answered";
  EXPECT_TRUE(wait_for([&] { return counter("protocol_violations") == 1; }));
  EXPECT_EQ(std::count(memory_[2].begin(), memory_[2].end(), 9),
            static_cast<std::ptrdiff_t>(kBytes));
  EXPECT_NE(log.text().find("frame_id 101 after 102"), std::string::npos) << log.text();
}

template <typename Field>
Violation with(const char* name, Field wire::RequestHeader::* field, Field value) {
  return {name, [field, value](RawRequest& it) { it.header.*field = value; }};
}

const Violation kViolations[] = {
    with("Magic", &wire::RequestHeader::magic, wire::kResponseMagic),
    with<std::uint8_t>("UnknownType", &wire::RequestHeader::type, 99),
    with<std::uint8_t>("TypeOfAResponse", &wire::RequestHeader::type, 65),
    with<std::uint8_t>("Flags", &wire::RequestHeader::flags, 1),
    with<std::uint16_t>("NoTable", &wire::RequestHeader::table_count, 0),
    with<std::uint16_t>("HugeTable", &wire::RequestHeader::table_count, UINT16_MAX),
    with<std::uint32_t>("NoExtents", &wire::RequestHeader::extent_count, 0),
    with<std::uint32_t>("HugeExtents", &wire::RequestHeader::extent_count, UINT32_MAX),
    with<std::uint64_t>("NoPayload", &wire::RequestHeader::payload_bytes, 0),
    with<std::uint64_t>("HugePayload", &wire::RequestHeader::payload_bytes, UINT64_MAX),
    with<std::uint64_t>("PayloadIsNotTheSum", &wire::RequestHeader::payload_bytes, 999),
    with<std::uint32_t>("HugeTrailer", &wire::RequestHeader::trailer_bytes, UINT32_MAX),
    with<std::uint32_t>("TrailerPastTheLongestMessage", &wire::RequestHeader::trailer_bytes,
                        wire::kEnvelopeMessageBytesMax + wire::kEnvelopeHeadBytes +
                            wire::kEnvelopeNameBytesMax + 1),
    with<std::uint64_t>("NoFrameId", &wire::RequestHeader::frame_id, 0),
    {"EmptyExtent",
     [](RawRequest& it) {
       it.extents.push_back({0, 0, 0});
       it.header.extent_count = 2;
     }},
    {"ExtentThatWraps", [](RawRequest& it) { it.extents[0].offset = UINT64_MAX - 10; }},
    {"ExtentOfNoEntry", [](RawRequest& it) { it.extents[0].table_index = 1; }},
    {"GenerationZero", [](RawRequest& it) { it.table[0].generation = 0; }},
    {"GarbageAsTrailer",
     [](RawRequest& it) {
       // Behind a payload that is refused, so that no byte of it is written.
       it.table[0].key[0] ^= 1;
       it.header.type = static_cast<std::uint8_t>(wire::FrameType::kNotify);
       it.table.clear();
       it.extents.clear();
       it.payload.clear();
       it.trailer.assign(100, 0xEE);
       it.fit();
     }},
    {"AnotherSenderEpoch",
     [](RawRequest& it) {
       it = {};
       it.header.frame_id = 500;
       it.header.type = static_cast<std::uint8_t>(wire::FrameType::kNotify);
       it.trailer = wire::encode_envelope(wire::Envelope{{{9, 9}}, "raw", {}}).value();
       it.fit();
     }},
    {"AnotherSenderName",
     [](RawRequest& it) {
       it = {};
       it.header.frame_id = 500;
       it.header.type = static_cast<std::uint8_t>(wire::FrameType::kNotify);
       it.trailer =
           wire::encode_envelope(wire::Envelope{RawConnection::Identity{}.epoch, "friend", {}})
               .value();
       it.fit();
     }},
};
INSTANTIATE_TEST_SUITE_P(Frames, Violator, ::testing::ValuesIn(kViolations),
                         [](const auto& it) { return std::string(it.param.name); });

// ---- Floods

/// Sends the same kind of frame until the victim takes no more of them; how many.
template <typename Make>
std::uint64_t flood(RawConnection& lane, std::uint64_t frames_max, Make make) {
  std::uint64_t sent = 0;
  while (sent < frames_max && lane.offer(make())) {
    ++sent;
  }
  return sent;
}

TEST_F(HostileInitiator, AFloodWhoseAnswersNobodyReadsIsStoppedAndBounded) {
  const std::uint64_t resident = resident_bytes();
  const ConnectionPtr lane = admitted();
  constexpr std::uint64_t kFrames = 10'000'000;
  const std::uint64_t sent = flood(*lane, kFrames, [&] {
    RawRequest ping;
    ping.header.type = static_cast<std::uint8_t>(wire::FrameType::kPing);
    ping.header.frame_id = ++next_frame_;
    return ping.fit();
  });
  EXPECT_LT(sent, kFrames) << "it takes in without end";
  EXPECT_LT(resident_bytes(), resident + (64 << 20));
  EXPECT_EQ(counter("protocol_violations"), 0U);
}

TEST_F(HostileInitiator, AFloodOfNotificationsFillsItsBudgetAndNoMore) {
  const std::uint64_t resident = resident_bytes();
  const ConnectionPtr lane = admitted();
  const std::uint64_t budget = config().notifications.inbox_bytes_max;
  const std::uint64_t enough = 2 * budget / kMessageMax;
  for (std::uint64_t i = 0; i < enough; ++i) {
    ASSERT_EQ(ask(*lane, notification(kMessageMax)), ErrorCode::kOk) << "nobody drains: the oldest "
                                                                        "go";
  }
  EXPECT_LT(resident_bytes(), resident + budget + (32 << 20));
  std::uint64_t kept = 0;
  while (const auto message = victim_->receive_notification()) {
    EXPECT_EQ(message->message.size(), kMessageMax);
    ++kept;
  }
  EXPECT_LE(kept * kMessageMax, budget);
  EXPECT_GT(kept, 0U);
}

// ---- Stalls

TEST_F(HostileInitiator, AStallInTheMiddleOfAFrameGivesTheMemoryBack) {
  RawRequest made = request(wire::FrameType::kWrite, 2, 0, 100'000);
  made.payload.resize(40'000);
  const ConnectionPtr lane = admitted();
  ASSERT_TRUE(lane->send(made));
  EXPECT_TRUE(
      wait_for([&] { return Json::parse(victim_->info_json())["registrations"]["loans"] == 1; }));
  EXPECT_EQ(victim_->deregister_memory(registrations_[2]).value(), RegistrationState::kFenced);
  EXPECT_TRUE(wait_for([&] {
    return victim_->registration_state(registrations_[2]).value() == RegistrationState::kRetired;
  }));
  const auto before = memory_[2];
  const std::vector<std::uint8_t> rest(60'000, 251);
  lane->write(rest);
  EXPECT_EQ(lane->read_to_end(), 0U);
  EXPECT_TRUE(before == memory_[2]) << "a byte landed after the registration had retired";
}

TEST_F(HostileInitiator, AReaderWhoDoesNotReadGivesTheMemoryBack) {
  const ConnectionPtr lane = admitted();
  // More than any socket buffer holds.
  for (int i = 0; i < 64; ++i) {
    RawRequest made = request(wire::FrameType::kRead, 1, 0, kBytes);
    if (!lane->send(made)) {
      break;
    }
  }
  EXPECT_TRUE(
      wait_for([&] { return Json::parse(victim_->info_json())["registrations"]["loans"] > 0; }));
  ASSERT_TRUE(victim_->deregister_memory(registrations_[1]).has_value());
  EXPECT_TRUE(wait_for([&] {
    return victim_->registration_state(registrations_[1]).value() == RegistrationState::kRetired;
  }));
}

TEST_F(HostileInitiator, AStallBetweenHeaderAndTablesEnds) {
  const ConnectionPtr lane = admitted();
  const RawRequest made = request(wire::FrameType::kRead, 0, 0, 100);
  ASSERT_TRUE(lane->write_struct(made.header));
  EXPECT_EQ(lane->read_to_end(), 0U);
}

}  // namespace
}  // namespace orbite::test
