// SPDX-License-Identifier: Apache-2.0
// Our lanes against a target that speaks the wire format by hand: it lies, it lingers, it hangs up.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <ostream>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/faulty_network.hpp"
#include "support/flows.hpp"
#include "support/honesty.hpp"
#include "support/raw_peer.hpp"
#include "support/tcp_node.hpp"

namespace orbite::test {
namespace {

using Call = FaultyNetwork::Call;
using ConnectionPtr = std::unique_ptr<RawConnection>;

constexpr std::size_t kBufferBytes = 600'000;

/// A node and, as its peer, a listener that the test is.
class RawTarget : public ::testing::Test {
 protected:
  using ExecutionPtr = std::shared_ptr<transfer::Execution>;

  RawTarget() {
    near_.random.fill(epoch_.bytes);
    near_.random.fill(secret_);
    peer_ = near_.import("raw", near_.make_blob(epoch_, secret_, listener_.port()));
    wire::RangeBlob blob;
    blob.epoch = epoch_;
    blob.index = 3;
    blob.generation = 9;
    blob.key.bytes[0] = 77;
    blob.address = far_buffer_.address();
    blob.length = far_buffer_.bytes.size();
    blob.access = kAccessAll;
    range_ = near_.caller.import(peer_, blob);
  }

  static Config config() {
    Config made = TcpNode::default_config();
    made.tcp.slice_bytes = 64 << 10;
    return made;
  }
  void turn() {
    clock_.advance(20 * base::kMicrosecond);
    near_.turn();
  }
  /// Longer than our patience, in which we look all the time: what nobody looked at is no silence.
  void hear_nothing() {
    for (int i = 0; i < 3'100; ++i) {
      clock_.advance(10 * base::kMillisecond);
      turn();
    }
  }
  void turns(int count) {
    for (int i = 0; i < count; ++i) {
      turn();
    }
  }
  template <typename Condition>
  bool until(Condition condition) {
    return step_until([&] { turn(); }, condition);
  }
  Stage stage(Operation operation, std::size_t count = 5, std::size_t length_max = 500) {
    base::SeededRandom random(8);
    return Stage(operation, draw_blocks(random, count, length_max), near_buffer_, far_buffer_, 8);
  }
  ExecutionPtr launch(const Stage& set, policy::QosClass qos = policy::QosClass::kLatency,
                      Caller::Message message = {}) {
    const auto prepared = near_.caller.prepare(*near_.transport, peer_, near_buffer_, far_buffer_,
                                               range_, {set.operation, set.blocks, qos});
    return near_.caller.launch(*near_.transport, prepared, std::move(message));
  }
  transfer::Flow& flow() { return test::only_flow(*peer_); }
  /// The next connection, its handshake done.
  ConnectionPtr accept_lane() {
    ConnectionPtr connection = listener_.accept();
    if (connection == nullptr || !connection->serve_handshake(epoch_, secret_)) {
      throw std::runtime_error("no lane was opened to us");
    }
    return connection;
  }
  /// What an honest target does with the payload of a WRITE.
  void land(const RawRequest& request) {
    std::size_t position = 0;
    for (const wire::WireExtent& extent : request.extents) {
      std::memcpy(far_buffer_.bytes.data() + extent.offset, request.payload.data() + position,
                  extent.length);
      position += extent.length;
    }
  }
  std::vector<std::uint8_t> payload_of(const RawRequest& request) {
    std::vector<std::uint8_t> bytes;
    for (const wire::WireExtent& extent : request.extents) {
      const auto from = far_buffer_.bytes.begin() + static_cast<std::ptrdiff_t>(extent.offset);
      bytes.insert(bytes.end(), from, from + extent.length);
    }
    return bytes;
  }
  void answer(RawConnection& lane, const RawRequest& request) {
    if (request.type() == wire::FrameType::kWrite) {
      land(request);
    }
    EXPECT_TRUE(lane.write_struct(RawConnection::success_of(request)));
    if (request.type() == wire::FrameType::kRead) {
      EXPECT_TRUE(lane.write(payload_of(request)));
    }
  }
  /// The control lane comes, asks for `lane_id` and is told so.
  ConnectionPtr answer_drain(std::uint64_t lane_id) {
    ConnectionPtr control = accept_lane();
    EXPECT_EQ(control->hello.lane_class, static_cast<std::uint8_t>(wire::LaneClass::kControl));
    const auto request = control->read_request();
    if (!request.has_value() || request->type() != wire::FrameType::kDrain) {
      throw std::runtime_error("no drain was asked for");
    }
    std::uint64_t asked = 0;
    std::memcpy(&asked, request->trailer.data(), sizeof(asked));
    EXPECT_EQ(asked, lane_id);
    EXPECT_TRUE(control->write_struct(RawConnection::success_of(*request)));
    return control;
  }

  SharedClock clock_;
  FaultyNetwork network_;
  TcpNode near_{
      {.name = "near", .config = config(), .seed = 1, .network = &network_, .clock = &clock_}};
  RawListener listener_{[this] { turn(); }};
  base::SourceEpoch epoch_;
  wire::Secret secret_{};
  base::SeededRandom far_random_{5};
  memory::Registry far_registry_{{.registrations_max = 4}, far_random_};
  Buffer near_buffer_{near_.registry, kBufferBytes};
  Buffer far_buffer_{far_registry_, kBufferBytes};
  std::shared_ptr<peer::Peer> peer_;
  Handle range_;
};

TEST_F(RawTarget, SeesTheFramesOfTheFormat) {
  const Stage write = stage(Operation::kWrite);
  const auto written = launch(write, policy::QosClass::kLatency, std::vector<std::uint8_t>{5, 6});
  const ConnectionPtr lane = accept_lane();
  EXPECT_EQ(std::string_view(lane->hello.name, lane->hello.name_bytes), "near");
  const auto request = lane->read_request();
  ASSERT_TRUE(request.has_value());
  ASSERT_EQ(request->type(), wire::FrameType::kWrite);
  EXPECT_EQ(request->table.size(), 1U);
  EXPECT_EQ(request->table[0].index, 3U);
  EXPECT_EQ(request->table[0].generation, 9U);
  EXPECT_EQ(request->table[0].key[0], 77);
  const auto envelope = wire::decode_envelope(request->trailer, 100);
  ASSERT_TRUE(envelope.has_value());
  EXPECT_EQ(envelope->sender_epoch, near_.epoch);
  EXPECT_EQ(envelope->sender_name, "near");
  EXPECT_EQ(envelope->message.size(), 2U);
  answer(*lane, *request);
  ASSERT_TRUE(until([&] { return written->terminal(); }));
  EXPECT_EQ(written->outcome().logical, Logical::kSuccess);
  write.expect_honest(written->outcome());

  const Stage read = stage(Operation::kRead);
  const auto got = launch(read);
  const auto asked = lane->read_request();
  ASSERT_TRUE(asked.has_value());
  EXPECT_EQ(asked->type(), wire::FrameType::kRead);
  answer(*lane, *asked);
  ASSERT_TRUE(until([&] { return got->terminal(); }));
  EXPECT_EQ(got->outcome().logical, Logical::kSuccess);
  read.expect_honest(got->outcome());
}

// ---- Answers that no target gives

struct Lie {
  const char* name;
  Operation operation;
  /// Spoils an answer; what is written after the header is in the second.
  std::function<void(const RawRequest&, wire::ResponseHeader&, std::vector<std::uint8_t>&)> tell;
};
void PrintTo(const Lie& lie, std::ostream* out) { *out << lie.name; }

class LyingTarget : public RawTarget, public ::testing::WithParamInterface<Lie> {};

TEST_P(LyingTarget, LosesItsLaneAndIsNotBelieved) {
  const Stage set = stage(GetParam().operation);
  const auto execution = launch(set);
  const ConnectionPtr lane = accept_lane();
  const auto request = lane->read_request();
  ASSERT_TRUE(request.has_value());
  wire::ResponseHeader response = RawConnection::success_of(*request);
  std::vector<std::uint8_t> payload;
  GetParam().tell(*request, response, payload);
  ASSERT_TRUE(lane->write_struct(response));
  lane->write(payload);
  ASSERT_TRUE(until([&] { return execution->outcome().logical != Logical::kNone; }));
  EXPECT_EQ(execution->outcome().logical, Logical::kFailed);
  EXPECT_EQ(execution->outcome().code, ErrorCode::kProtocolViolation);
  EXPECT_EQ(near_.counters.protocol_violations.value(), 1U);
  // Its lane is closed by us, which proves nothing about its memory.
  EXPECT_TRUE(lane->read_to_end().has_value());
  turns(100);
  ASSERT_FALSE(execution->terminal());
  const auto control = answer_drain(lane->hello.lane_id);
  ASSERT_TRUE(until([&] { return execution->terminal(); }));
  const Outcome outcome = execution->outcome();
  if (GetParam().operation == Operation::kWrite) {
    EXPECT_EQ(outcome.effect, RemoteEffect::kUnknown);
  }
  set.expect_honest(outcome);
  EXPECT_TRUE(near_.caller.all_given_back());
}

const Lie kLies[] = {
    {"AnotherFrameId", Operation::kWrite,
     [](const auto&, auto& header, auto&) { ++header.frame_id; }},
    {"AnotherMagic", Operation::kWrite, [](const auto&, auto& header, auto&) { ++header.magic; }},
    {"AcksMoreThanWasSent", Operation::kWrite,
     [](const auto& request, auto& header, auto&) {
       header.prefix_bytes = request.header.payload_bytes + 1;
     }},
    {"FailsAfterMoreThanWasSent", Operation::kWrite,
     [](const auto& request, auto& header, auto&) {
       header.status = static_cast<std::uint16_t>(ErrorCode::kIoFailed);
       header.effect = static_cast<std::uint8_t>(wire::FrameEffect::kPrefix);
       header.prefix_bytes = request.header.payload_bytes + 1;
     }},
    {"AcksLessThanWasSent", Operation::kWrite,
     [](const auto& request, auto& header, auto&) {
       header.prefix_bytes = request.header.payload_bytes - 1;
     }},
    {"CompleteWithoutAllBytes", Operation::kWrite,
     [](const auto& request, auto& header, auto&) {
       header.status = static_cast<std::uint16_t>(ErrorCode::kNotificationFailed);
       header.prefix_bytes = request.header.payload_bytes - 1;
     }},
    {"SuccessOfAnUnknownEffect", Operation::kWrite,
     [](const auto&, auto& header, auto&) {
       header.effect = static_cast<std::uint8_t>(wire::FrameEffect::kUnknown);
     }},
    {"StatusThatIsNoCode", Operation::kWrite,
     [](const auto&, auto& header, auto&) { header.status = 9999; }},
    {"ReservedBytes", Operation::kWrite,
     [](const auto&, auto& header, auto&) { header.reserved = 1; }},
    {"UnknownType", Operation::kWrite, [](const auto&, auto& header, auto&) { header.type = 200; }},
    {"ReadDataForAWrite", Operation::kWrite,
     [](const auto& request, auto& header, auto& payload) {
       header = {};
       header.type = static_cast<std::uint8_t>(wire::ResponseType::kReadData);
       header.frame_id = request.header.frame_id;
       header.payload_bytes = 16;
       payload.assign(16, 200);
     }},
    {"PayloadWithAnAck", Operation::kWrite,
     [](const auto&, auto& header, auto& payload) {
       header.payload_bytes = 16;
       payload.assign(16, 200);
     }},
    {"AckForARead", Operation::kRead,
     [](const auto& request, auto& header, auto&) {
       header = {};
       header.type = static_cast<std::uint8_t>(wire::ResponseType::kWriteAck);
       header.effect = static_cast<std::uint8_t>(wire::FrameEffect::kComplete);
       header.frame_id = request.header.frame_id;
       header.prefix_bytes = request.header.payload_bytes;
     }},
    {"MoreDataThanWasAsked", Operation::kRead,
     [](const auto& request, auto& header, auto& payload) {
       header.payload_bytes = static_cast<std::uint32_t>(request.header.payload_bytes) + 1;
       payload.assign(header.payload_bytes, 3);
     }},
    {"LessDataThanWasAsked", Operation::kRead,
     [](const auto&, auto& header, auto& payload) {
       --header.payload_bytes;
       payload.assign(header.payload_bytes, 3);
     }},
    {"FourGibibytes", Operation::kRead,
     [](const auto&, auto& header, auto&) { header.payload_bytes = UINT32_MAX; }},
    {"DataOfAFailedRead", Operation::kRead,
     [](const auto&, auto& header, auto& payload) {
       header.status = static_cast<std::uint16_t>(ErrorCode::kNotAllowed);
       payload.assign(header.payload_bytes, 3);
     }},
    {"PrefixOfARead", Operation::kRead,
     [](const auto&, auto& header, auto&) { header.prefix_bytes = 1; }},
    {"Garbage", Operation::kRead,
     [](const auto&, auto& header, auto&) {
       const std::vector<std::uint8_t> garbage(sizeof(header), 0xA5);
       std::copy(garbage.begin(), garbage.end(), reinterpret_cast<std::uint8_t*>(&header));
     }},
};
INSTANTIATE_TEST_SUITE_P(Lies, LyingTarget, ::testing::ValuesIn(kLies),
                         [](const auto& it) { return std::string(it.param.name); });

TEST_F(RawTarget, MayNotAnswerAFrameBeforeItHasAllOfIt) {
  const Stage set = stage(Operation::kWrite, 60);
  // The rest of the frame stays with us.
  network_.before = [](const Call& call) -> std::optional<platform::IoResult> {
    const bool blocks = call.kind == Call::Kind::kSend && call.number == 0 && call.sends > 2 &&
                        call.sent_bytes > 5000;
    return blocks ? std::optional(platform::IoResult{}) : std::nullopt;
  };
  network_.set_short_io(1000, 0, 1);
  const auto execution = launch(set);
  const ConnectionPtr lane = accept_lane();
  const auto head = lane->read_request(true);
  ASSERT_TRUE(head.has_value());
  turns(50);
  ASSERT_TRUE(lane->write_struct(RawConnection::success_of(*head)));
  ASSERT_TRUE(until([&] { return execution->outcome().logical != Logical::kNone; }));
  EXPECT_EQ(execution->outcome().code, ErrorCode::kProtocolViolation);
  network_.before = nullptr;
  const auto control = answer_drain(lane->hello.lane_id);
  ASSERT_TRUE(until([&] { return execution->terminal(); }));
  EXPECT_EQ(execution->outcome().effect, RemoteEffect::kUnknown);
}

TEST_F(RawTarget, MayNotSpeakWithoutBeingAsked) {
  const Stage set = stage(Operation::kRead);
  const auto execution = launch(set);
  const ConnectionPtr lane = accept_lane();
  const auto request = lane->read_request();
  ASSERT_TRUE(request.has_value());
  answer(*lane, *request);
  ASSERT_TRUE(until([&] { return execution->terminal(); }));
  near_buffer_.fill_as_target(1);
  const auto before = near_buffer_.bytes;
  answer(*lane, *request);
  EXPECT_TRUE(lane->read_to_end().has_value());
  EXPECT_TRUE(before == near_buffer_.bytes);
  EXPECT_EQ(near_.counters.protocol_violations.value(), 1U);
  EXPECT_EQ(near_.transport->unproved(flow()), 0U);
}

TEST_F(RawTarget, MayAnswerByteByByte) {
  const Stage set = stage(Operation::kRead);
  const auto execution = launch(set);
  const ConnectionPtr lane = accept_lane();
  const auto request = lane->read_request();
  ASSERT_TRUE(request.has_value());
  const wire::ResponseHeader response = RawConnection::success_of(*request);
  std::vector<std::uint8_t> bytes(sizeof(response));
  std::memcpy(bytes.data(), &response, sizeof(response));
  const auto payload = payload_of(*request);
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  for (const std::uint8_t& byte : bytes) {
    EXPECT_FALSE(execution->terminal());
    ASSERT_TRUE(lane->write(&byte, 1));
    turns(2);
  }
  ASSERT_TRUE(until([&] { return execution->terminal(); }));
  EXPECT_EQ(execution->outcome().logical, Logical::kSuccess);
  set.expect_honest(execution->outcome());
}

TEST_F(RawTarget, TellsAnExactPrefixOfWhatItWrote) {
  const Stage set = stage(Operation::kWrite);
  const auto execution = launch(set);
  const ConnectionPtr lane = accept_lane();
  const auto request = lane->read_request();
  ASSERT_TRUE(request.has_value());
  wire::ResponseHeader response = RawConnection::success_of(*request);
  response.status = static_cast<std::uint16_t>(ErrorCode::kIoFailed);
  response.effect = static_cast<std::uint8_t>(wire::FrameEffect::kPrefix);
  response.prefix_bytes = 7;
  // It writes these and no others.
  std::size_t left = 7;
  std::size_t position = 0;
  for (const wire::WireExtent& extent : request->extents) {
    const std::size_t step = std::min<std::size_t>(left, extent.length);
    std::memcpy(far_buffer_.bytes.data() + extent.offset, request->payload.data() + position, step);
    position += step;
    left -= step;
  }
  ASSERT_TRUE(lane->write_struct(response));
  ASSERT_TRUE(until([&] { return execution->terminal(); }));
  EXPECT_EQ(execution->outcome().code, ErrorCode::kIoFailed);
  EXPECT_EQ(execution->outcome().effect, RemoteEffect::kPrefix);
  EXPECT_EQ(execution->outcome().bytes_prefix, 7U);
  set.expect_honest(execution->outcome());
  // The lane is good: an error of one frame is not its own.
  const auto again = launch(stage(Operation::kRead));
  const auto next = lane->read_request();
  ASSERT_TRUE(next.has_value());
  answer(*lane, *next);
  EXPECT_TRUE(until([&] { return again->terminal(); }));
}

// ---- Ends of connections

TEST_F(RawTarget, KeepsItsExactPrefixOfAReadThatItLeaves) {
  for (const bool by_reset : {false, true}) {
    const Stage set = stage(Operation::kRead);
    const auto execution = launch(set);
    const ConnectionPtr lane = accept_lane();
    const auto request = lane->read_request();
    ASSERT_TRUE(request.has_value());
    ASSERT_TRUE(lane->write_struct(RawConnection::success_of(*request)));
    const auto payload = payload_of(*request);
    ASSERT_TRUE(lane->write(payload.data(), payload.size() / 2));
    // Ours before the end comes.
    ASSERT_TRUE(until([&] {
      const auto moved = set.moved();
      return static_cast<std::size_t>(std::count(moved.begin(), moved.end(), true)) ==
             payload.size() / 2;
    }));
    by_reset ? lane->reset() : lane->close();
    ConnectionPtr control;
    if (by_reset) {
      control = answer_drain(lane->hello.lane_id);
    }
    ASSERT_TRUE(until([&] { return execution->terminal(); }));
    EXPECT_EQ(execution->outcome().code, ErrorCode::kPeerDisconnected);
    EXPECT_EQ(execution->outcome().effect, RemoteEffect::kPrefix);
    EXPECT_EQ(execution->outcome().bytes_prefix, payload.size() / 2);
    set.expect_honest(execution->outcome());
  }
}

TEST_F(RawTarget, NeverSeesAByteOfAWriteTwice) {
  // Two bulk lanes and many slices; every other frame is answered by the end of its lane.
  const Stage set = stage(Operation::kWrite, 300, 1500);
  const auto execution = launch(set, policy::QosClass::kBulk);
  std::multiset<std::uint64_t> offsets;
  std::vector<ConnectionPtr> lanes;
  int frames = 0;
  const auto serve = [&] {
    if (auto arrived = listener_.accept(std::chrono::milliseconds(0))) {
      ASSERT_TRUE(arrived->serve_handshake(epoch_, secret_));
      lanes.push_back(std::move(arrived));
    }
    for (ConnectionPtr& lane : lanes) {
      if (!lane->has_bytes()) {
        continue;
      }
      const auto request = lane->read_request();
      ASSERT_TRUE(request.has_value());
      if (request->type() == wire::FrameType::kDrain) {
        ASSERT_TRUE(lane->write_struct(RawConnection::success_of(*request)));
        continue;
      }
      ASSERT_EQ(request->type(), wire::FrameType::kWrite);
      for (const wire::WireExtent& extent : request->extents) {
        for (std::uint32_t i = 0; i < extent.length; ++i) {
          offsets.insert(extent.offset + i);
        }
      }
      land(*request);
      if (++frames % 2 == 0) {
        lane->reset();
        lanes.erase(lanes.begin() + (&lane - lanes.data()));
        return;
      }
      ASSERT_TRUE(lane->write_struct(RawConnection::success_of(*request)));
    }
  };
  ASSERT_TRUE(step_until(
      [&] {
        turn();
        serve();
      },
      [&] { return execution->terminal() || HasFatalFailure(); }));
  for (int i = 0; i < 200; ++i) {
    clock_.advance(base::kMillisecond);
    turn();
    serve();
  }
  EXPECT_GT(frames, 1);
  for (const std::uint64_t offset : offsets) {
    ASSERT_EQ(offsets.count(offset), 1U) << "offset " << offset;
  }
  EXPECT_EQ(execution->outcome().logical, Logical::kFailed);
  EXPECT_EQ(execution->outcome().effect, RemoteEffect::kUnknown);
  set.expect_honest(execution->outcome());
}

TEST_F(RawTarget, IsBelievedInWhatItAcknowledgedBeforeItsEnd) {
  const Stage set = stage(Operation::kWrite);
  const auto first = launch(set);
  const ConnectionPtr lane = accept_lane();
  const auto request = lane->read_request();
  ASSERT_TRUE(request.has_value());
  // The lane has an answer and an end to read, and a frame to send: it finds the end by sending.
  answer(*lane, *request);
  lane->reset();
  const auto second = launch(set);
  ASSERT_TRUE(until([&] { return first->terminal() && second->terminal(); }));
  EXPECT_EQ(first->outcome().logical, Logical::kSuccess) << error_text(first->outcome().code);
  EXPECT_EQ(second->outcome().logical, Logical::kFailed);
  EXPECT_EQ(second->outcome().code, ErrorCode::kPeerDisconnected);
  EXPECT_EQ(second->outcome().effect, RemoteEffect::kNone);
}

TEST_F(RawTarget, IsAskedAgainWhenItDoesNotAnswerADrain) {
  const Stage set = stage(Operation::kWrite);
  const auto execution = launch(set);
  ConnectionPtr lane = accept_lane();
  const std::uint64_t lane_id = lane->hello.lane_id;
  ASSERT_TRUE(lane->read_request().has_value());
  wire::ResponseHeader garbage;
  garbage.magic = 0;
  ASSERT_TRUE(lane->write_struct(garbage));
  ASSERT_TRUE(until([&] { return execution->outcome().logical != Logical::kNone; }));

  {  // Refused: no promise was made.
    const ConnectionPtr control = accept_lane();
    const auto request = control->read_request();
    ASSERT_TRUE(request.has_value());
    wire::ResponseHeader refused = RawConnection::success_of(*request);
    refused.status = static_cast<std::uint16_t>(ErrorCode::kBudgetExhausted);
    ASSERT_TRUE(control->write_struct(refused));
    turns(50);
    EXPECT_FALSE(execution->terminal());
  }  // Its end proves nothing about the other lane.
  turns(50);
  EXPECT_FALSE(execution->terminal());
  {  // Silent: the question is put on another connection, after a while.
    clock_.advance(2 * base::kSecond);
    const ConnectionPtr control = accept_lane();
    ASSERT_TRUE(control->read_request().has_value());
    hear_nothing();
    turns(50);
    EXPECT_FALSE(execution->terminal());
    EXPECT_TRUE(control->read_to_end().has_value());
  }
  clock_.advance(2 * base::kSecond);
  const ConnectionPtr control = answer_drain(lane_id);
  ASSERT_TRUE(until([&] { return execution->terminal(); }));
  EXPECT_EQ(execution->outcome().effect, RemoteEffect::kUnknown);
}

// ---- Handshakes

struct FalseHello {
  const char* name;
  ErrorCode code;
  std::function<void(wire::ServerHello&, wire::Secret&)> spoil;
};
void PrintTo(const FalseHello& it, std::ostream* out) { *out << it.name; }

class FalseTarget : public RawTarget, public ::testing::WithParamInterface<FalseHello> {};

TEST_P(FalseTarget, GetsNothingOfUs) {
  const Stage set = stage(Operation::kWrite);
  const auto execution = launch(set, policy::QosClass::kLatency, std::vector<std::uint8_t>{1});
  const ConnectionPtr lane = listener_.accept();
  ASSERT_NE(lane, nullptr);
  ASSERT_TRUE(lane->read_struct(lane->hello));
  EXPECT_EQ(lane->hello.expected_epoch, epoch_);
  wire::ServerHello server;
  server.server_epoch = epoch_;
  wire::Secret secret = secret_;
  wire::ServerHello spoilt = server;
  GetParam().spoil(spoilt, secret);
  wire::sign_server(secret, lane->hello, spoilt);
  ASSERT_TRUE(lane->write_struct(spoilt));
  ASSERT_TRUE(until([&] { return execution->terminal(); }));
  EXPECT_EQ(execution->outcome().code, GetParam().code) << error_text(execution->outcome().code);
  EXPECT_EQ(execution->outcome().effect, RemoteEffect::kNone);
  EXPECT_EQ(lane->read_to_end(), 0U) << "bytes for somebody who is not the peer";
  EXPECT_TRUE(near_.caller.all_given_back());
}

const FalseHello kFalseHellos[] = {
    {"WrongSecret", ErrorCode::kHandshakeRejected,
     [](wire::ServerHello&, wire::Secret& secret) { secret[5] ^= 1; }},
    {"AnotherEpoch", ErrorCode::kHandshakeRejected,
     [](wire::ServerHello& hello, wire::Secret&) { hello.server_epoch.bytes[0] ^= 1; }},
    {"AnotherMagic", ErrorCode::kProtocolViolation,
     [](wire::ServerHello& hello, wire::Secret&) { ++hello.magic; }},
    {"AnotherVersion", ErrorCode::kIncompatible,
     [](wire::ServerHello& hello, wire::Secret&) { ++hello.version; }},
    {"NoSuchStatus", ErrorCode::kProtocolViolation,
     [](wire::ServerHello& hello, wire::Secret&) { hello.status = 9; }},
    {"EpochChanged", ErrorCode::kPeerEpochChanged,
     [](wire::ServerHello& hello, wire::Secret&) {
       hello.status = static_cast<std::uint16_t>(ErrorCode::kPeerEpochChanged);
     }},
    {"TableFull", ErrorCode::kBudgetExhausted,
     [](wire::ServerHello& hello, wire::Secret&) {
       hello.status = static_cast<std::uint16_t>(ErrorCode::kBudgetExhausted);
     }},
};
INSTANTIATE_TEST_SUITE_P(Hellos, FalseTarget, ::testing::ValuesIn(kFalseHellos),
                         [](const auto& it) { return std::string(it.param.name); });

TEST_F(RawTarget, ThatSpeaksAnotherProtocolGetsNothingOfUs) {
  const Stage set = stage(Operation::kWrite);
  const auto execution = launch(set);
  const ConnectionPtr lane = listener_.accept();
  ASSERT_NE(lane, nullptr);
  const std::string greeting(200, 'x');
  ASSERT_TRUE(lane->write(greeting.data(), greeting.size()));
  ASSERT_TRUE(until([&] { return execution->terminal(); }));
  EXPECT_EQ(execution->outcome().effect, RemoteEffect::kNone);
  const auto received = lane->read_to_end();
  ASSERT_TRUE(received.has_value());
  EXPECT_LE(*received, sizeof(wire::ClientHello));
}

}  // namespace
}  // namespace orbite::test
