// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <optional>
#include <string>
#include <thread>

#include "tools/orbite/bench/area.hpp"
#include "tools/orbite/bench/measure.hpp"
#include "tools/orbite/bench/report.hpp"
#include "tools/orbite/bench/session.hpp"
#include "tools/orbite/bench/sockets.hpp"
#include "tools/orbite/bench/target.hpp"

namespace orbite::tool::bench {
namespace {

constexpr base::Nanoseconds kWait = 20 * base::kSecond;
constexpr std::uint64_t kMemory = 1 << 20;

struct Ends {
  FileDescriptor first;
  FileDescriptor second;
};

Ends connected() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

/// A session in a thread of its own.
class Served {
 public:
  Served() : Served(connected()) {}
  ~Served() {
    channel.reset();
    thread_.join();
  }
  /// What the session ended with.
  Result<void> result() {
    channel.reset();
    thread_.join();
    thread_ = std::thread([] {});
    return result_;
  }

  std::optional<Channel> channel;

 private:
  explicit Served(Ends ends) {
    channel.emplace(std::move(ends.first));
    thread_ = std::thread([this, socket = std::move(ends.second)]() mutable {
      Session session(Channel(std::move(socket)), on_loopback({}), kMemory);
      result_ = session.run();
    });
  }

  Result<void> result_;
  std::thread thread_;
};

std::string answer_to(Served& served, Kind kind, const Body& body) {
  const Result<Body> answer = ask(*served.channel, kind, body, Kind::kDone);
  return answer ? "done" : std::string(answer.error().context());
}

TEST(BenchChannel, FramesOfAStrangerAreRefused) {
  Ends ends = connected();
  const std::string text = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_EQ(::send(ends.first.get(), text.data(), text.size(), 0),
            static_cast<ssize_t>(text.size()));
  Channel channel(std::move(ends.second));
  const Result<Message> message = channel.receive(kWait);
  ASSERT_FALSE(message);
  EXPECT_EQ(message.error().code(), ErrorCode::kProtocolViolation);
}

TEST(BenchChannel, LengthsAreBoundedBeforeAnythingIsStored) {
  Ends ends = connected();
  Channel sender(std::move(ends.first));
  Channel receiver(std::move(ends.second));
  ASSERT_TRUE(sender.send(1, Body(kMessageBytesMax)));
  EXPECT_EQ(receiver.receive(kWait)->body.size(), kMessageBytesMax);
  ASSERT_TRUE(sender.send(1, Body(kMessageBytesMax + 1)));
  const Result<Message> message = receiver.receive(kWait);
  ASSERT_FALSE(message);
  EXPECT_EQ(message.error().context(), "a message of 65537 bytes, allowed 0..65536");
}

TEST(BenchChannel, SilenceEndsAWaitAndSoDoesTheEndOfTheOtherSide) {
  Ends ends = connected();
  Channel receiver(std::move(ends.second));
  EXPECT_EQ(receiver.receive(base::kMillisecond).error().code(), ErrorCode::kDeadlineExceeded);
  {
    const FileDescriptor closed = std::move(ends.first);
  }
  EXPECT_EQ(receiver.receive(kWait).error().code(), ErrorCode::kPeerDisconnected);
}

TEST(BenchSession, AsksForMemoryFirst) {
  Served served;
  EXPECT_NE(answer_to(served, Kind::kFill, encode_number(1)).find("kind 5 before the first"),
            std::string::npos);
  EXPECT_EQ(served.result().error().code(), ErrorCode::kProtocolViolation);
}

TEST(BenchSession, GivesNoMoreMemoryThanIsAllowed) {
  for (const std::uint64_t bytes : {std::uint64_t{0}, kMemory + 1, UINT64_MAX}) {
    Served served;
    const auto target = RemoteTarget::open(*served.channel, bytes);
    ASSERT_FALSE(target);
    EXPECT_NE(target.error().context().find("allowed 1..1048576 (--memory)"), std::string::npos);
  }
}

TEST(BenchSession, ComparesNothingBeyondItsMemory) {
  Served served;
  const auto target = RemoteTarget::open(*served.channel, kMemory);
  ASSERT_TRUE(target) << target.error().message();
  Verify what;
  what.layout = *find_shape("4K");
  what.slots = static_cast<std::uint32_t>(kMemory / what.layout.extent());
  EXPECT_TRUE((*target)->verify(what));
  ++what.slots;
  const Result<Mismatch> refused = (*target)->verify(what);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().context().find("layouts to compare, allowed 0.."), std::string::npos);
}

TEST(BenchSession, KnowsItsQuestionsAndTheirBodies) {
  for (const auto& [kind, body] : {std::pair{Kind::kOpen, encode(Open{kProtocolVersion, 1})},
                                   {Kind::kDone, Body()},
                                   {Kind::kFill, Body(3)},
                                   {Kind::kEnd, Body(1)},
                                   {static_cast<Kind>(999), Body()}}) {
    Served served;
    ASSERT_TRUE(RemoteTarget::open(*served.channel, kMemory));
    EXPECT_NE(answer_to(served, kind, body), "done");
    EXPECT_FALSE(served.result());
  }
}

TEST(BenchSession, EndsWhenItIsAskedTo) {
  Served served;
  const auto target = RemoteTarget::open(*served.channel, kMemory);
  ASSERT_TRUE(target);
  ASSERT_TRUE((*target)->end());
  EXPECT_TRUE(served.result());
}

/// Memory of this process of which one byte changes behind the engine's back before it is compared.
class DamagedTarget final : public Target {
 public:
  DamagedTarget(Area area, std::uint64_t offset)
      : byte_(area.bytes().data() + offset), target_(std::move(area)) {}
  Result<Remote> introduce_to(Endpoint& endpoint) override {
    return target_.introduce_to(endpoint);
  }
  Result<void> fill(std::uint64_t key) override { return target_.fill(key); }
  Result<Mismatch> verify(const Verify& what) override {
    *byte_ ^= 1;
    return target_.verify(what);
  }
  Result<std::optional<std::uint64_t>> cpu_ns() override { return target_.cpu_ns(); }

 private:
  std::uint8_t* byte_;
  SelfTarget target_;
};

TEST(BenchMeasure, AWrongByteIsCountedAndPlaced) {
  Options options;
  options.layout.size = 4096;
  options.iterations = 3;
  options.operations = {Operation::kWrite};
  const std::uint64_t bytes = options.layout.extent();
  for (const std::uint64_t offset : {std::uint64_t{5}, kGuardBytes + 7}) {
    Area area = *Area::map(bytes);
    DamagedTarget target(*Area::map(bytes), offset);
    const Config config = on_loopback({});
    std::uint64_t ticks = 0;
    Bench bench{options, config, target, area, {}, [&] { ++ticks; }};
    const Result<OperationReport> report = measure(bench, Operation::kWrite);
    ASSERT_TRUE(report) << report.error().message();
    EXPECT_EQ(ticks, 3U);
    EXPECT_EQ(report->sum.transfers, 3U);
    ASSERT_TRUE(report->mismatch);
    EXPECT_EQ(report->mismatch->first_wrong, offset);
    EXPECT_EQ(report->mismatch->guards_wrong, offset < kGuardBytes ? 1U : 0U);
    EXPECT_EQ(report->mismatch->bytes_wrong, offset < kGuardBytes ? 0U : 1U);
    EXPECT_NE(mismatch_text(*report), "");
  }
}

}  // namespace
}  // namespace orbite::tool::bench
