// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "engine_pair.hpp"

namespace orbite {
namespace {

using test::Block;
using test::Node;

std::vector<Block> scattered(std::size_t count, std::size_t length, std::size_t gap) {
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < count; ++i) {
    // The remote side is in reverse order, so that neighbours here are none there.
    blocks.push_back({i * (length + gap), (count - 1 - i) * (length + gap), length});
  }
  return blocks;
}

void expect_moved(const Node& from, const Node& to, const std::vector<Block>& blocks, bool reversed,
                  const std::vector<std::uint8_t>& before) {
  std::vector<std::uint8_t> model = before;
  for (const Block& block : blocks) {
    const std::size_t source = reversed ? block.remote : block.local;
    const std::size_t target = reversed ? block.local : block.remote;
    std::memcpy(model.data() + target, from.buffer.data() + source, block.length);
  }
  EXPECT_TRUE(model == to.buffer) << "bytes or guards differ";
}

struct Shape {
  const char* name;
  std::size_t count;
  std::size_t length;
};

class EngineTransfer : public ::testing::TestWithParam<Shape> {};

TEST_P(EngineTransfer, WritesAndReadsOverTcp) {
  const Shape& shape = GetParam();
  const std::vector<Block> blocks = scattered(shape.count, shape.length, 128);
  const std::size_t bytes = shape.count * (shape.length + 128);
  Node a("a", bytes);
  Node b("b", bytes);
  a.know("b", b);
  for (const Operation operation : {Operation::kWrite, Operation::kRead}) {
    a.fill(1);
    b.fill(100);
    const bool reading = operation == Operation::kRead;
    const std::vector<std::uint8_t> before = reading ? a.buffer : b.buffer;
    const Handle request = test::prepare(a, b, operation, blocks).value();
    ASSERT_TRUE(a.engine->post(request, {}).has_value());
    const Outcome outcome = test::wait_terminal(*a.engine, request);
    EXPECT_EQ(outcome.logical, Logical::kSuccess) << error_text(outcome.code);
    EXPECT_EQ(outcome.effect, RemoteEffect::kComplete);
    EXPECT_EQ(outcome.bytes_prefix, shape.count * shape.length);
    EXPECT_STREQ(outcome.route, "tcp");
    reading ? expect_moved(b, a, blocks, true, before) : expect_moved(a, b, blocks, false, before);
    EXPECT_TRUE(a.engine->release(request).has_value());
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, EngineTransfer,
                         ::testing::Values(Shape{"OneByte", 1, 1}, Shape{"OneSmall", 1, 4096},
                                           Shape{"OneLarge", 1, (16 << 20) + 13},
                                           Shape{"ManySmall", 4096, 4096},
                                           Shape{"ManyTiny", 20000, 17},
                                           Shape{"ManyLarge", 40, 300'000}),
                         [](const auto& shape) { return std::string(shape.param.name); });

TEST(EngineTransferSelf, CopiesWithinTheEngine) {
  Node a("a", 8 << 20);
  a.fill(3);
  a.peer = a.engine->self_peer().value();
  a.range = a.engine->local_range(a.registration).value();
  const std::vector<Block> blocks = {{0, 4 << 20, 3 << 20}, {3 << 20, 7 << 20, 1000}};
  const std::vector<std::uint8_t> before = a.buffer;
  const Handle request = test::prepare(a, a, Operation::kWrite, blocks).value();
  ASSERT_TRUE(a.engine->post(request, {}).has_value());
  const Outcome outcome = test::wait_terminal(*a.engine, request);
  EXPECT_EQ(outcome.logical, Logical::kSuccess);
  EXPECT_STREQ(outcome.route, "local");
  std::vector<std::uint8_t> model = before;
  std::memcpy(model.data() + (4 << 20), before.data(), 3 << 20);
  std::memcpy(model.data() + (7 << 20), before.data() + (3 << 20), 1000);
  EXPECT_TRUE(model == a.buffer);
}

TEST(EngineTransferPassive, TargetNeedsNoCallFromItsApplication) {
  // The caller does not poll either: query() makes no progress, so the workers do all of it.
  Node a("a", 32 << 20);
  Node b("b", 32 << 20);
  a.know("b", b);
  a.fill(9);
  const Handle request = test::prepare(a, b, Operation::kWrite, {{0, 0, 32 << 20}}).value();
  ASSERT_TRUE(a.engine->post(request, {}).has_value());
  ASSERT_TRUE(test::eventually([&] { return a.engine->query(request)->terminal(); }));
  EXPECT_EQ(a.engine->query(request)->logical, Logical::kSuccess);
  EXPECT_TRUE(a.buffer == b.buffer);
}

TEST(EngineNotification, ArrivesAfterTheBytesOfEachOperation) {
  Node a("a", 4 << 20);
  Node b("b", 4 << 20);
  a.know("b", b);
  const std::vector<std::uint8_t> message = {'x', 0, 'y', 255};
  for (const Operation operation : {Operation::kWrite, Operation::kRead}) {
    for (const std::size_t length : {std::size_t{100}, std::size_t{4} << 20}) {
      a.fill(static_cast<std::uint8_t>(length));
      const Handle request = test::prepare(a, b, operation, {{0, 0, length}}).value();
      ASSERT_TRUE(a.engine->post(request, {std::span(message), 0}).has_value());
      EXPECT_EQ(test::wait_terminal(*a.engine, request).logical, Logical::kSuccess);
      const auto received = b.engine->receive_notification();
      ASSERT_TRUE(received.has_value());
      EXPECT_EQ(received->sender, "a");
      EXPECT_EQ(received->message, message);
      EXPECT_FALSE(b.engine->receive_notification().has_value());
    }
  }
}

TEST(EngineNotification, StandsAloneAndGoesToOneself) {
  Node a("a", 4096);
  Node b("b", 4096);
  a.know("b", b);
  ASSERT_TRUE(a.engine->send_notification(a.peer, {}).has_value());
  std::optional<Notification> received;
  ASSERT_TRUE(test::eventually([&] {
    received = b.engine->receive_notification();
    return received.has_value();
  }));
  EXPECT_TRUE(received->message.empty());
  const std::vector<std::uint8_t> message = {1, 2, 3};
  ASSERT_TRUE(a.engine->send_notification(a.engine->self_peer().value(), message).has_value());
  received = a.engine->receive_notification();
  ASSERT_TRUE(received.has_value());
  EXPECT_EQ(received->message, message);
}

TEST(EngineRepost, ReusesThePreparedRequestAndItsLanes) {
  Node a("a", 1 << 20);
  Node b("b", 1 << 20);
  a.know("b", b);
  const Handle request = test::prepare(a, b, Operation::kWrite, {{0, 0, 1 << 20}}).value();
  for (int i = 0; i < 200; ++i) {
    a.fill(static_cast<std::uint8_t>(i));
    ASSERT_TRUE(a.engine->post(request, {}).has_value());
    ASSERT_EQ(test::wait_terminal(*a.engine, request).logical, Logical::kSuccess);
    ASSERT_TRUE(a.buffer == b.buffer);
  }
  EXPECT_NE(a.engine->info_json().find("\"lane_sockets\": "), std::string::npos);
}

TEST(EngineConnect, TellsWhetherThePeerCanBeReached) {
  Node a("a", 4096);
  {
    Node b("b", 4096);
    a.know("b", b);
    const auto connected = a.engine->connect_peer(a.peer, 0);
    EXPECT_TRUE(connected.has_value()) << connected.error().message();
  }
  ASSERT_TRUE(test::eventually([&] {
    const auto again = a.engine->connect_peer(a.peer, 0);
    return !again && again.error().code() == ErrorCode::kPeerUnreachable;
  }));
}

TEST(EngineConnect, LearnsWhichRangesThePeerHasNoMore) {
  Node a("a", 4096);
  Node b("b", 4096);
  a.know("b", b);
  ASSERT_TRUE(a.engine->connect_peer(a.peer, 0).has_value());
  const Handle request = test::prepare(a, b, Operation::kWrite, {{0, 0, 4096}}).value();
  ASSERT_TRUE(b.engine->deregister_memory(b.registration).has_value());
  ASSERT_TRUE(a.engine->connect_peer(a.peer, 0).has_value());
  EXPECT_EQ(a.engine->post(request, {}).error().code(), ErrorCode::kRegistrationFenced);
  EXPECT_EQ(test::prepare(a, b, Operation::kWrite, {{0, 0, 1}}).error().code(),
            ErrorCode::kRegistrationFenced);
}

TEST(EnginePeerDeath, FailsWhatIsPostedAfterwards) {
  Node a("a", 4096);
  auto b = std::make_unique<Node>("b", 4096);
  a.know("b", *b);
  const Handle request = test::prepare(a, *b, Operation::kRead, {{0, 0, 4096}}).value();
  ASSERT_TRUE(a.engine->post(request, {}).has_value());
  ASSERT_EQ(test::wait_terminal(*a.engine, request).logical, Logical::kSuccess);
  b.reset();
  ASSERT_TRUE(a.engine->post(request, {}).has_value());
  const Outcome outcome = test::wait_terminal(*a.engine, request);
  EXPECT_EQ(outcome.logical, Logical::kFailed);
  EXPECT_EQ(outcome.effect, RemoteEffect::kNone);
  EXPECT_TRUE(outcome.code == ErrorCode::kPeerUnreachable ||
              outcome.code == ErrorCode::kPeerDisconnected)
      << error_text(outcome.code);
  const auto again = a.engine->post(request, {});
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code(), ErrorCode::kNotRepostable);
}

TEST(EngineDeregistration, StopsThePeerAtOnce) {
  Node a("a", 4096);
  Node b("b", 4096);
  a.know("b", b);
  const Handle request = test::prepare(a, b, Operation::kWrite, {{0, 0, 4096}}).value();
  EXPECT_EQ(b.engine->deregister_memory(b.registration).value(), RegistrationState::kRetired);
  ASSERT_TRUE(a.engine->post(request, {}).has_value());
  const Outcome outcome = test::wait_terminal(*a.engine, request);
  EXPECT_EQ(outcome.logical, Logical::kFailed);
  EXPECT_EQ(outcome.code, ErrorCode::kRegistrationFenced);
  EXPECT_EQ(outcome.effect, RemoteEffect::kNone);
  EXPECT_EQ(outcome.bytes_prefix, 0u);
}

}  // namespace
}  // namespace orbite
