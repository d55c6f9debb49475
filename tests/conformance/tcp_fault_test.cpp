// SPDX-License-Identifier: Apache-2.0
// TCP lanes over a network that fails by script. The clock is the test's.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "support/faulty_network.hpp"
#include "support/flows.hpp"
#include "support/honesty.hpp"
#include "support/raw_peer.hpp"
#include "support/tcp_node.hpp"

namespace orbite::test {
namespace {

using Call = FaultyNetwork::Call;
using platform::IoResult;

constexpr std::size_t kBufferBytes = 400'000;
/// What an initiator sends before its first frame: ClientHello and ClientProof.
constexpr std::uint64_t kHandshakeSent = sizeof(wire::ClientHello) + sizeof(wire::ClientProof);
const std::vector<std::uint8_t> kMessage = {'m', 0, 255};

IoResult failed(int native_errno) {
  return {.kind = IoResult::Kind::kFailed, .bytes = 0, .native_errno = native_errno};
}

/// A node whose network is scripted, and an honest one. Nobody drives but the two workers.
class TcpFault : public ::testing::Test {
 protected:
  using ExecutionPtr = std::shared_ptr<transfer::Execution>;

  TcpFault() {
    network_.before = [this](const Call& call) -> std::optional<IoResult> {
      if (call.initiated && call.number == 0) {
        lane_sent_ = call.sent_bytes;
        if (call.kind == Call::Kind::kSend && call.sent_bytes >= send_no_more_than_) {
          return IoResult{};
        }
        const bool hits = call.kind == Call::Kind::kSend ? fail_sends_ : fail_receives_;
        if (hits && error_ != 0) {
          return failed(error_);
        }
      }
      return std::nullopt;
    };
    peer_ = near_.import("far", far_.blob());
    range_ = near_.caller.import(peer_, far_buffer_.blob(far_.epoch));
  }

  static Config config() {
    Config made = TcpNode::default_config();
    made.tcp.slice_bytes = 64 << 10;
    return made;
  }

  void near_turn() {
    clock_.advance(20 * base::kMicrosecond);
    near_.turn();
  }
  /// Longer than our patience, in which we look all the time: what nobody looked at is no silence.
  void hear_nothing() {
    for (int i = 0; i < 3'100; ++i) {
      clock_.advance(10 * base::kMillisecond);
      near_turn();
    }
  }
  void far_turn() {
    far_clock_.advance(20 * base::kMicrosecond);
    far_.turn();
  }
  void turn() {
    near_turn();
    far_turn();
  }
  void near_turns(int count) {
    for (int i = 0; i < count; ++i) {
      near_turn();
    }
  }
  template <typename Condition>
  bool until(Condition condition) {
    return step_until([&] { turn(); }, condition);
  }
  template <typename Condition>
  bool near_until(Condition condition) {
    return step_until([&] { near_turn(); }, condition);
  }

  Stage stage(Operation operation, std::size_t count = 20, std::size_t length_max = 2000,
              std::uint64_t seed = 5) {
    base::SeededRandom random(seed);
    return Stage(operation, draw_blocks(random, count, length_max), near_buffer_, far_buffer_,
                 seed);
  }
  ExecutionPtr launch(const Stage& set, policy::QosClass qos = policy::QosClass::kLatency,
                      Caller::Message message = {}) {
    const auto prepared = near_.caller.prepare(*near_.transport, peer_, near_buffer_, far_buffer_,
                                               range_, {set.operation, set.blocks, qos});
    return near_.caller.launch(*near_.transport, prepared, std::move(message));
  }
  transfer::Flow& flow() { return test::only_flow(*peer_); }
  /// The latency lane is up and idle: connection 0.
  void connect() {
    const Stage set = stage(Operation::kRead, 1, 10);
    const auto execution = launch(set);
    ASSERT_TRUE(until([&] { return execution->terminal(); }));
    ASSERT_EQ(execution->outcome().logical, Logical::kSuccess);
    sent_before_ = lane_sent_;
  }
  /// Everything of the request is with the kernel; the far side has not looked.
  void send_all() {
    ASSERT_TRUE(near_until([&] { return lane_sent_ > sent_before_; }));
    near_turns(20);
  }
  /// A new request goes through, whatever happened before.
  void expect_works_again() {
    error_ = 0;
    clock_.advance(base::kSecond);
    for (const Operation operation : {Operation::kWrite, Operation::kRead}) {
      const Stage set = stage(operation);
      const auto execution = launch(set, policy::QosClass::kLatency, kMessage);
      ASSERT_TRUE(until([&] { return execution->terminal(); }));
      EXPECT_EQ(execution->outcome().logical, Logical::kSuccess)
          << error_text(execution->outcome().code);
      set.expect_honest(execution->outcome());
    }
    EXPECT_TRUE(near_.caller.all_given_back());
  }

  // The script of connection 0.
  int error_ = 0;
  bool fail_sends_ = true;
  bool fail_receives_ = true;
  std::uint64_t send_no_more_than_ = UINT64_MAX;
  std::uint64_t lane_sent_ = 0;
  std::uint64_t sent_before_ = 0;

  SharedClock clock_;
  SharedClock far_clock_;
  FaultyNetwork network_;
  TcpNode near_{
      {.name = "near", .config = config(), .seed = 1, .network = &network_, .clock = &clock_}};
  TcpNode far_{{.name = "far", .config = config(), .seed = 2, .clock = &far_clock_}};
  Buffer near_buffer_{near_.registry, kBufferBytes};
  Buffer far_buffer_{far_.registry, kBufferBytes};
  std::shared_ptr<peer::Peer> peer_;
  Handle range_;
};

// ---- Classes

TEST_F(TcpFault, WhoWaitsForSmallWorkMovesNoBulk) {
  connect();
  const Stage first = stage(Operation::kWrite);
  const auto warm_up = launch(first, policy::QosClass::kBulk);
  ASSERT_TRUE(until([&] { return warm_up->terminal(); }));
  std::uint64_t bulk_calls = 0;
  network_.before = [&](const Call& call) -> std::optional<IoResult> {
    bulk_calls += call.initiated && call.number != 0 ? 1 : 0;
    return std::nullopt;
  };
  for (const Operation operation : {Operation::kWrite, Operation::kRead}) {
    const Stage large = stage(operation, 20, 2000, 6);
    const auto bulk = launch(large, policy::QosClass::kBulk);
    const Stage little = stage(Operation::kRead, 1, 10);
    const auto small = launch(little);
    bulk_calls = 0;
    ASSERT_TRUE(step_until(
        [&] {
          transfer::WorkLimit limit{std::uint64_t{1} << 20, 16};
          near_.transport->drive(flow(), limit, transfer::Driver::kLatencyCaller);
          far_turn();
        },
        [&] { return small->terminal(); }));
    EXPECT_EQ(bulk_calls, 0U);
    EXPECT_EQ(bulk->outcome().logical, Logical::kNone);
    // Nobody polls for it: the worker moves it.
    ASSERT_TRUE(until([&] { return bulk->terminal(); }));
    EXPECT_EQ(bulk->outcome().logical, Logical::kSuccess);
  }
}

/// And the other way round: a caller who waits for bulk moves both.
TEST_F(TcpFault, WhoWaitsForBulkMovesSmallWorkToo) {
  connect();
  const Stage large = stage(Operation::kWrite, 20, 2000, 6);
  const auto bulk = launch(large, policy::QosClass::kBulk);
  const Stage little = stage(Operation::kRead, 1, 10);
  const auto small = launch(little);
  ASSERT_TRUE(step_until(
      [&] {
        transfer::WorkLimit limit{std::uint64_t{1} << 20, 16};
        near_.transport->drive(flow(), limit, transfer::Driver::kCaller);
        far_turn();
      },
      [&] { return small->terminal(); }));
  ASSERT_TRUE(until([&] { return bulk->terminal(); }));
  EXPECT_EQ(bulk->outcome().logical, Logical::kSuccess);
}

// ---- Short calls

struct ShortIo {
  std::size_t bytes_max;
  std::uint32_t would_block;
};
void PrintTo(const ShortIo& it, std::ostream* out) { *out << it.bytes_max; }

class TcpShortIo : public TcpFault, public ::testing::WithParamInterface<ShortIo> {};

TEST_P(TcpShortIo, MovesTheRightBytesAndMessages) {
  network_.set_short_io(GetParam().bytes_max, GetParam().would_block, 9);
  int requests = 0;
  for (const policy::QosClass qos : {policy::QosClass::kLatency, policy::QosClass::kBulk}) {
    for (const Operation operation : {Operation::kWrite, Operation::kRead}) {
      const Stage set = stage(operation, 40, 60, static_cast<std::uint64_t>(++requests));
      const auto execution = launch(set, qos, kMessage);
      ASSERT_TRUE(until([&] { return execution->terminal(); }));
      EXPECT_EQ(execution->outcome().logical, Logical::kSuccess)
          << error_text(execution->outcome().code);
      set.expect_honest(execution->outcome());
      ASSERT_EQ(far_.inbox.size(), static_cast<std::size_t>(requests));
      EXPECT_EQ(far_.inbox.back().message, kMessage);
    }
  }
  EXPECT_EQ(far_.counters.protocol_violations.value(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Sizes, TcpShortIo,
                         ::testing::Values(ShortIo{1, 0}, ShortIo{7, 500}, ShortIo{100, 900},
                                           ShortIo{0, 950}),
                         [](const auto& it) {
                           return "Bytes" + std::to_string(it.param.bytes_max) + "Blocked" +
                                  std::to_string(it.param.would_block);
                         });

// ---- Errors that prove nothing

struct LocalError {
  const char* name;
  int native_errno;
  bool on_send;
  Operation operation;
};
void PrintTo(const LocalError& it, std::ostream* out) { *out << it.name; }

class TcpLocalError : public TcpFault, public ::testing::WithParamInterface<LocalError> {
 protected:
  /// The lane is lost by the error while a frame is under way.
  ExecutionPtr lose(const Stage& set) {
    const LocalError& it = GetParam();
    const auto execution = launch(set);
    if (it.on_send) {
      // Into the payload, whatever the tables are.
      send_no_more_than_ = sent_before_ + 1000;
      network_.set_short_io(64, 0, 3);
    }
    send_all();
    fail_sends_ = it.on_send;
    fail_receives_ = !it.on_send;
    send_no_more_than_ = UINT64_MAX;
    error_ = it.native_errno;
    EXPECT_TRUE(near_until([&] { return execution->outcome().logical != Logical::kNone; }));
    network_.set_short_io(0, 0, 3);
    return execution;
  }
};

TEST_P(TcpLocalError, LeavesTheRequestInProgressUntilADrainIsAnswered) {
  connect();
  const Stage set = stage(GetParam().operation);
  const auto execution = lose(set);
  EXPECT_EQ(execution->outcome().logical, Logical::kFailed);
  EXPECT_EQ(execution->outcome().code, ErrorCode::kPeerDisconnected);
  EXPECT_EQ(execution->outcome().native_errno, GetParam().native_errno);
  // No answer, no end; and the memory stays lent.
  ASSERT_TRUE(near_until([&] { return network_.connects() >= 2; }));
  for (int i = 0; i < 300; ++i) {
    clock_.advance(10 * base::kMillisecond);
    near_turn();
    ASSERT_FALSE(execution->terminal());
  }
  EXPECT_GT(near_.transport->unproved(flow()), 0U);
  EXPECT_EQ(near_.registry.counts().loans, 1U);

  ASSERT_TRUE(until([&] { return execution->terminal(); }));
  const Outcome outcome = execution->outcome();
  if (GetParam().operation == Operation::kWrite) {
    EXPECT_EQ(outcome.effect, RemoteEffect::kUnknown);
  }
  set.expect_honest(outcome);
  EXPECT_EQ(near_.counters.lanes_drained.value(), 1U);
  EXPECT_EQ(near_.transport->unproved(flow()), 0U);
  // What the far side had in its socket buffers never lands now.
  far_buffer_.fill_as_target(1);
  near_buffer_.fill_as_target(2);
  const auto far_bytes = far_buffer_.bytes;
  const auto near_bytes = near_buffer_.bytes;
  for (int i = 0; i < 100; ++i) {
    turn();
  }
  EXPECT_TRUE(far_bytes == far_buffer_.bytes && near_bytes == near_buffer_.bytes);
  expect_works_again();
}

TEST_P(TcpLocalError, EndsByAnOperatorsWordWhenNobodyAnswers) {
  connect();
  const Stage set = stage(GetParam().operation);
  const auto execution = lose(set);
  far_.die();
  for (int i = 0; i < 300; ++i) {
    clock_.advance(100 * base::kMillisecond);
    near_turn();
    ASSERT_FALSE(execution->terminal()) << "a refused connection proves nothing";
  }
  near_.transport->confirm_fenced(flow());
  ASSERT_TRUE(execution->terminal());
  set.expect_honest(execution->outcome());
  EXPECT_EQ(near_.transport->unproved(flow()), 0U);
  EXPECT_TRUE(near_.caller.all_given_back());
}

INSTANTIATE_TEST_SUITE_P(
    Errors, TcpLocalError,
    ::testing::Values(LocalError{"TimedOutOnReceiveOfWrite", ETIMEDOUT, false, Operation::kWrite},
                      LocalError{"TimedOutOnReceiveOfRead", ETIMEDOUT, false, Operation::kRead},
                      LocalError{"TimedOutOnSend", ETIMEDOUT, true, Operation::kWrite},
                      LocalError{"NoRouteOnReceive", EHOSTUNREACH, false, Operation::kWrite},
                      LocalError{"NetworkDownOnSend", ENETDOWN, true, Operation::kWrite},
                      LocalError{"OutOfMemoryOnReceive", ENOMEM, false, Operation::kRead}),
    [](const auto& it) { return std::string(it.param.name); });

TEST_F(TcpFault, KnowsThatNothingMovedWhenNoPayloadWasSent) {
  connect();
  const Stage set = stage(Operation::kWrite);
  const auto execution = launch(set);
  send_no_more_than_ = sent_before_ + 20;
  network_.set_short_io(10, 0, 3);
  send_all();
  send_no_more_than_ = UINT64_MAX;
  error_ = ETIMEDOUT;
  ASSERT_TRUE(near_until([&] { return execution->outcome().logical != Logical::kNone; }));
  network_.set_short_io(0, 0, 3);
  ASSERT_TRUE(until([&] { return execution->terminal(); }));
  EXPECT_EQ(execution->outcome().effect, RemoteEffect::kNone);
  set.expect_honest(execution->outcome());
}

// ---- Resets

class TcpReset : public TcpFault, public ::testing::WithParamInterface<int> {};

TEST_P(TcpReset, IsProofOnceNobodyListensThereAnyMore) {
  connect();
  const Stage set = stage(Operation::kWrite);
  const auto execution = launch(set);
  send_all();
  error_ = GetParam();
  ASSERT_TRUE(near_until([&] { return execution->outcome().logical != Logical::kNone; }));
  near_turns(100);
  // What had arrived before the reset can still be read at the far side.
  ASSERT_FALSE(execution->terminal());
  far_.die();
  ASSERT_TRUE(near_until([&] {
    clock_.advance(base::kMillisecond);
    return execution->terminal();
  }));
  EXPECT_EQ(execution->outcome().code, ErrorCode::kPeerDisconnected);
  EXPECT_EQ(execution->outcome().native_errno, GetParam());
  EXPECT_EQ(execution->outcome().effect, RemoteEffect::kUnknown);
  set.expect_honest(execution->outcome());
  EXPECT_TRUE(near_.caller.all_given_back());
}

TEST_P(TcpReset, RepeatsNothing) {
  connect();
  const Stage set = stage(Operation::kWrite);
  const auto execution = launch(set);
  send_all();
  error_ = GetParam();
  ASSERT_TRUE(near_until([&] { return execution->outcome().logical != Logical::kNone; }));
  error_ = 0;
  const std::uint64_t frames = far_.counters.served_frames.value();
  for (int i = 0; i < 500; ++i) {
    clock_.advance(10 * base::kMillisecond);
    turn();
  }
  ASSERT_TRUE(execution->terminal());
  // The frame that was out, perhaps, and one drain.
  EXPECT_LE(far_.counters.served_frames.value(), frames + 2);
  EXPECT_EQ(execution->outcome().effect, RemoteEffect::kUnknown);
  set.expect_honest(execution->outcome());
  expect_works_again();
}

INSTANTIATE_TEST_SUITE_P(Errors, TcpReset, ::testing::Values(ECONNRESET, EPIPE),
                         [](const auto& it) {
                           return it.param == EPIPE ? std::string("BrokenPipe")
                                                    : std::string("Reset");
                         });

// ---- Silence

TEST_F(TcpFault, ASilentPeerFailsTheRequestAndKeepsItsMemory) {
  connect();
  for (const Operation operation : {Operation::kWrite, Operation::kRead}) {
    const Stage set = stage(operation);
    sent_before_ = lane_sent_;
    const auto execution = launch(set, policy::QosClass::kLatency, kMessage);
    send_all();
    EXPECT_EQ(execution->outcome().logical, Logical::kNone);
    hear_nothing();
    ASSERT_TRUE(near_until([&] { return execution->outcome().logical != Logical::kNone; }));
    EXPECT_EQ(execution->outcome().code, ErrorCode::kPeerSilent);
    near_turns(50);
    ASSERT_FALSE(execution->terminal());
    EXPECT_EQ(near_.transport->unproved(flow()), 1U);
    ASSERT_TRUE(until([&] { return execution->terminal(); }));
    set.expect_honest(execution->outcome());
    ASSERT_TRUE(until([&] { return near_.transport->unproved(flow()) == 0; }));
    expect_works_again();
  }
}

TEST_F(TcpFault, DoesNotSayNoneOfAWriteThatIsStillBeingSent) {
  connect();
  const Stage set = stage(Operation::kWrite);
  const auto execution = launch(set);
  send_no_more_than_ = sent_before_ + 20;
  network_.set_short_io(10, 0, 3);
  send_all();
  hear_nothing();
  ASSERT_TRUE(near_until([&] { return execution->outcome().logical != Logical::kNone; }));
  // The socket takes more, and only then the peer wakes up.
  send_no_more_than_ = UINT64_MAX;
  network_.set_short_io(0, 0, 3);
  near_turns(50);
  ASSERT_TRUE(until([&] { return execution->terminal(); }));
  set.expect_honest(execution->outcome());
}

TEST_F(TcpFault, AnAnswerAfterTheSilenceMakesTheLaneGoodAgain) {
  connect();
  network_.before_connect = [](std::uint32_t) {
    return std::optional(Error(ErrorCode::kPeerUnreachable, ECONNREFUSED));
  };
  const Stage set = stage(Operation::kRead);
  const auto execution = launch(set);
  send_all();
  hear_nothing();
  ASSERT_TRUE(near_until([&] { return execution->outcome().logical != Logical::kNone; }));
  ASSERT_TRUE(until([&] { return execution->terminal(); }));
  EXPECT_EQ(execution->outcome().code, ErrorCode::kPeerSilent);
  set.expect_honest(execution->outcome());
  // No other connection could be made: the same lane serves on.
  expect_works_again();
}

TEST_F(TcpFault, ADescriptionAfterTheSilenceMakesTheLaneGoodAgain) {
  connect();
  network_.before_connect = [](std::uint32_t) {
    return std::optional(Error(ErrorCode::kPeerUnreachable, ECONNREFUSED));
  };
  const std::vector<wire::RegistrationRef> asked(
      1, {far_buffer_.handle.index, far_buffer_.handle.generation, {}});
  std::atomic<bool> answered{false};
  ErrorCode code = ErrorCode::kOk;
  std::thread asking([&] {
    const auto described = near_.transport->describe(flow(), asked, 15 * base::kSecond);
    code = described ? ErrorCode::kOk : described.error().code();
    answered.store(true, std::memory_order_release);
  });
  send_all();
  hear_nothing();
  const bool ended = near_until([&] { return answered.load(std::memory_order_acquire); });
  asking.join();
  ASSERT_TRUE(ended);
  EXPECT_EQ(code, ErrorCode::kPeerSilent);
  for (int i = 0; i < 100; ++i) {
    turn();
  }
  expect_works_again();
}

// ---- Connecting

TEST_F(TcpFault, ARefusedConnectionFailsWithoutEffect) {
  far_.die();
  const Stage set = stage(Operation::kWrite);
  for (const policy::QosClass qos : {policy::QosClass::kLatency, policy::QosClass::kBulk}) {
    const auto execution = launch(set, qos, kMessage);
    ASSERT_TRUE(near_until([&] { return execution->terminal(); }));
    EXPECT_EQ(execution->outcome().code, ErrorCode::kPeerUnreachable);
    EXPECT_EQ(execution->outcome().native_errno, ECONNREFUSED);
    EXPECT_EQ(execution->outcome().effect, RemoteEffect::kNone);
    set.expect_honest(execution->outcome());
  }
  EXPECT_EQ(network_.open_sockets(), 0U);
}

TEST_F(TcpFault, FailsWhenTheSystemGivesNoSocketAndTriesAgainLater) {
  bool exhausted = true;
  network_.before_connect = [&](std::uint32_t) {
    return exhausted ? std::optional(Error(ErrorCode::kSystem, EMFILE)) : std::nullopt;
  };
  const Stage set = stage(Operation::kWrite);
  const auto execution = launch(set);
  ASSERT_TRUE(near_until([&] { return execution->terminal(); }));
  EXPECT_EQ(execution->outcome().logical, Logical::kFailed);
  EXPECT_EQ(execution->outcome().native_errno, EMFILE);
  EXPECT_EQ(execution->outcome().effect, RemoteEffect::kNone);
  exhausted = false;
  expect_works_again();
}

TEST_F(TcpFault, RestsItsListenerWhileTheSystemHasNoSocketToGive) {
  bool exhausted = true;
  int asked = 0;
  network_.before_accept = [&]() -> std::optional<Error> {
    ++asked;
    return exhausted ? std::optional(Error(ErrorCode::kSystem, EMFILE)) : std::nullopt;
  };
  // The other way round: the far side writes to us.
  const auto to_us = far_.import("near", near_.blob());
  const Handle range = far_.caller.import(to_us, near_buffer_.blob(near_.epoch));
  base::SeededRandom random(6);
  const Stage set(Operation::kWrite, draw_blocks(random, 10, 500), far_buffer_, near_buffer_, 6);
  const auto prepared =
      far_.caller.prepare(*far_.transport, to_us, far_buffer_, near_buffer_, range,
                          {set.operation, set.blocks, policy::QosClass::kLatency});
  const auto execution = far_.caller.launch(*far_.transport, prepared);
  for (int i = 0; i < 500; ++i) {
    turn();
  }
  EXPECT_GT(asked, 0);
  EXPECT_LT(asked, 10) << "it spins";
  EXPECT_FALSE(execution->terminal());
  exhausted = false;
  ASSERT_TRUE(until([&] {
    clock_.advance(base::kMillisecond);
    return execution->terminal();
  }));
  EXPECT_EQ(execution->outcome().logical, Logical::kSuccess);
  set.expect_honest(execution->outcome());
  EXPECT_TRUE(far_.caller.all_given_back());
}

TEST_F(TcpFault, TriesTheNextAddressWhenOneIsRefused) {
  network_.before_connect = [](std::uint32_t number) {
    return number == 0 ? std::optional(Error(ErrorCode::kPeerUnreachable, ENETUNREACH))
                       : std::nullopt;
  };
  // Not of our host: its addresses count, the first of which is refused.
  wire::ConnectionBlob blob = far_.blob();
  blob.loopback_reachable = false;
  blob.addresses = {{4, {127, 0, 0, 1}}, {4, {127, 0, 0, 1}}};
  peer_ = near_.import("far", blob);
  range_ = near_.caller.import(peer_, far_buffer_.blob(far_.epoch));
  expect_works_again();
  EXPECT_EQ(network_.connects(), 2U);
}

// The peer stands still with our bytes in its socket, and its kernel has dropped the connection. An
// address that was never its own has no listener, which tells nothing of the peer.
TEST_F(TcpFault, OneAddressWithoutAListenerIsNoProof) {
  connect();
  const Stage set = stage(Operation::kWrite);
  const auto execution = launch(set);
  send_all();
  fail_receives_ = true;
  error_ = ECONNRESET;
  bool one_is_silent = true;
  std::uint32_t tries = 0;
  network_.before_connect = [&](std::uint32_t) {
    const bool silent = one_is_silent && tries++ % 2 == 0;
    return std::optional(Error(ErrorCode::kPeerUnreachable, silent ? ETIMEDOUT : ECONNREFUSED));
  };
  ASSERT_TRUE(near_until([&] { return execution->outcome().logical != Logical::kNone; }));
  for (int i = 0; i < 20; ++i) {
    clock_.advance(base::kSecond);
    near_turns(20);
  }
  EXPECT_GE(tries, 4U);
  EXPECT_FALSE(execution->terminal());
  one_is_silent = false;
  for (int i = 0; i < 20 && !execution->terminal(); ++i) {
    clock_.advance(base::kSecond);
    near_turns(20);
  }
  EXPECT_TRUE(execution->terminal());
}

TEST_F(TcpFault, GivesUpAHandshakeThatIsNotAnswered) {
  const Stage set = stage(Operation::kWrite);
  const auto execution = launch(set);
  near_turns(200);
  EXPECT_FALSE(execution->terminal());
  // Each of the two loopback addresses has its own time.
  for (int i = 0; i < 30 && !execution->terminal(); ++i) {
    clock_.advance(base::kSecond);
    near_turns(3);
  }
  ASSERT_TRUE(execution->terminal());
  EXPECT_EQ(execution->outcome().effect, RemoteEffect::kNone);
  for (int i = 0; i < 100; ++i) {
    turn();
  }
  EXPECT_EQ(far_.counters.served_frames.value(), 0U);
  set.expect_honest(execution->outcome());
}

TEST_F(TcpFault, ClosesTheConnectionsOfEveryBlobOfAnEpoch) {
  connect();
  // The same epoch with another port: one of the two is false, and we cannot know which.
  wire::ConnectionBlob other = far_.blob();
  other.port = static_cast<std::uint16_t>(other.port ^ 1);
  const auto impostor = near_.import("far", other);
  EXPECT_NE(&test::only_flow(*impostor), &flow());
  EXPECT_EQ(&test::only_flow(*near_.import("far", far_.blob())), &flow());
  EXPECT_EQ(network_.open_sockets(), 1U);
  EXPECT_EQ(near_.transport->lane_sockets(), 1U);
  near_.die();
  EXPECT_EQ(network_.open_sockets(), 0U);
}

// ---- Corruption

TEST_F(TcpFault, NoCorruptedByteOfAResponseIsTakenForSuccess) {
  for (std::size_t position = 0; position < sizeof(wire::ResponseHeader); ++position) {
    for (const Operation operation : {Operation::kWrite, Operation::kRead}) {
      for (const std::uint8_t flip : {std::uint8_t{1}, std::uint8_t{0x80}}) {
        SCOPED_TRACE("byte " + std::to_string(position));
        const Stage set = stage(operation, 3, 100);
        const std::uint32_t connects = network_.connects();
        bool done = false;
        // The lane may be up or not: the response is what comes after the ServerHello.
        network_.after_receive = [&](const Call& call, std::size_t moved) {
          const std::uint64_t begin = call.received_bytes;
          const std::uint64_t skip = begin == 0 ? sizeof(wire::ServerHello) : 0;
          if (done || !call.initiated || moved <= skip) {
            return;
          }
          done = corrupt(call.buffers, skip + position, moved, flip);
        };
        const auto execution = launch(set);
        ASSERT_TRUE(until([&] {
          clock_.advance(base::kMillisecond);
          return execution->terminal();
        }));
        network_.after_receive = nullptr;
        ASSERT_TRUE(done);
        EXPECT_EQ(execution->outcome().logical, Logical::kFailed);
        set.expect_honest(execution->outcome());
        EXPECT_LE(network_.connects(), connects + 4);
        EXPECT_TRUE(near_.caller.all_given_back());
      }
    }
  }
  expect_works_again();
}

TEST_F(TcpFault, NoCorruptedServerHelloIsBelieved) {
  for (std::size_t position = 0; position < sizeof(wire::ServerHello); ++position) {
    SCOPED_TRACE("byte " + std::to_string(position));
    network_.after_receive = [&](const Call& call, std::size_t moved) {
      if (call.initiated && call.received_bytes == 0) {
        corrupt(call.buffers, position, moved, 0x10);
      }
    };
    const Stage set = stage(Operation::kWrite, 3, 100);
    const auto execution = launch(set);
    ASSERT_TRUE(until([&] {
      clock_.advance(base::kMillisecond);
      return execution->terminal();
    }));
    EXPECT_EQ(execution->outcome().logical, Logical::kFailed);
    EXPECT_EQ(execution->outcome().effect, RemoteEffect::kNone);
    set.expect_honest(execution->outcome());
    clock_.advance(base::kSecond);
  }
  EXPECT_EQ(far_.counters.served_frames.value(), 0U);
  network_.after_receive = nullptr;
  expect_works_again();
}

}  // namespace
}  // namespace orbite::test
