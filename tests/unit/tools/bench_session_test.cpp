// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tools/orbite/bench/area.hpp"
#include "tools/orbite/bench/limits.hpp"
#include "tools/orbite/bench/measure.hpp"
#include "tools/orbite/bench/report.hpp"
#include "tools/orbite/bench/routes.hpp"
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
  explicit Served(bool lends = false) : Served(connected(), lends) {}
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
  Served(Ends ends, bool lends) {
    channel.emplace(std::move(ends.first));
    thread_ = std::thread([this, lends, socket = std::move(ends.second)]() mutable {
      Session session(Channel(std::move(socket)),
                      {.config = on_loopback({}), .memory_max = kMemory, .lends = lends});
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

TEST(BenchSession, LendsMemoryOnlyToWhoStartedIt) {
  Served stranger;
  ASSERT_TRUE(RemoteTarget::open(*stranger.channel, kMemory));
  const Result<Body> refused = ask(*stranger.channel, Kind::kLend, {}, Kind::kLent);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().context().find("lends no memory"), std::string::npos);

  Served served(true);
  ASSERT_TRUE(RemoteTarget::open(*served.channel, kMemory));
  const Result<Body> first = ask(*served.channel, Kind::kLend, {}, Kind::kLent);
  ASSERT_TRUE(first);
  EXPECT_EQ(ask(*served.channel, Kind::kLend, {}, Kind::kLent).value(), *first);
  EXPECT_EQ(answer_to(served, Kind::kLend, Body(1)).find("done"), std::string::npos);
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

Options small(Transport transport) {
  Options options;
  options.layout.size = 4096;
  options.iterations = 1;
  options.operations = {Operation::kWrite};
  options.transport = transport;
  return options;
}

TEST(BenchMeasure, AnotherRouteThanTheOneAskedForIsAnErrorWithItsReason) {
  for (const auto& [transport, told] :
       {std::pair{Transport::kCma,
                  "--transport cma: a transfer went by local: cma.enabled is false"},
        {Transport::kShm, "--transport shm: a transfer went by local: the peer is on another host"},
        {Transport::kTcp, "--transport tcp: a transfer went by local: its memory was out of"}}) {
    const Options options = small(transport);
    Area area = *Area::map(options.layout.extent());
    SelfTarget target(*Area::map(options.layout.extent()));
    Config config = on_loopback({});
    config.cma.enabled = false;
    Bench bench{options, config, target, area, {}, [] {}};
    const Result<OperationReport> report = measure(bench, Operation::kWrite);
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().code(), ErrorCode::kTransportUnavailable);
    EXPECT_NE(report.error().context().find(told), std::string::npos) << report.error().context();
  }
}

TEST(BenchMeasure, TheLimitIsMadeForTheRouteOfTheFirstTransfer) {
  const Options options = small(Transport::kAuto);
  Area area = *Area::map(options.layout.extent());
  SelfTarget target(*Area::map(options.layout.extent()));
  const Config config = on_loopback({});
  std::vector<std::string> routes;
  Bench bench{options,
              config,
              target,
              area,
              [&](std::string_view route) {
                routes.emplace_back(route);
                return MemoryCopy::create(area, options);
              },
              [] {}};
  for (const Operation operation : {Operation::kWrite, Operation::kRead}) {
    const Result<OperationReport> report = measure(bench, operation);
    ASSERT_TRUE(report) << report.error().message();
    ASSERT_EQ(report->limits.size(), 1U);
    EXPECT_EQ(report->limits[0].name, "memcpy of the same blocks");
    EXPECT_EQ(report->limits[0].ratios.size(), 1U);
    EXPECT_EQ(routes_text(report->sum.routes), "local");
  }
  EXPECT_EQ(routes, std::vector<std::string>{"local"});
}

TEST(BenchRoutes, ReasonsAreThoseOfTheEngine) {
  const auto info = [](const std::string& cma, const std::string& neighbor) {
    return R"({"transports": [{"name": "cma", "reason": ")" + cma +
           R"("}], "peers": [{"neighbor": )" + neighbor + "}]}";
  };
  EXPECT_EQ(why_not(info("cma.enabled is false", "null"), Transport::kCma), "cma.enabled is false");
  EXPECT_EQ(why_not(info("", "null"), Transport::kCma),
            "the peer is on another host, or in another network namespace");
  EXPECT_EQ(why_not(info("", R"({"reason": "refused"})"), Transport::kShm), "refused");
  const std::string forbidden = R"({"reason": "", "ordinary_memory_reason": "forbidden"})";
  EXPECT_EQ(why_not(info("", forbidden), Transport::kCma), "forbidden");
  EXPECT_NE(why_not(info("", forbidden), Transport::kShm), "forbidden");
  const std::string unmapped = R"({"reason": "", "shared_memory_reason": "unmapped"})";
  EXPECT_EQ(why_not(info("", unmapped), Transport::kShm), "unmapped");
  EXPECT_EQ(why_not(R"({"transports": [], "peers": []})", Transport::kTcp),
            "its memory was out of reach; ORBITE_LOG=info may say why");
  EXPECT_EQ(routes_text({"cma", "tcp"}), "cma+tcp");
}

TEST(BenchLimits, AProcessIsCopiedToAndFrom) {
  Options options = small(Transport::kCma);
  options.layout.blocks = 1500;  // more than a call takes
  options.layout.size = 100;
  const std::uint64_t bytes = options.layout.extent();
  ASSERT_LE(bytes, kMemory);
  Served served(true);
  ASSERT_TRUE(RemoteTarget::open(*served.channel, bytes));
  Area area = *Area::map(bytes);
  fill(area.bytes(), 1);
  // The session is a thread of this process.
  const auto limit = ProcessCopyLoop::create(*served.channel, ::getpid(), area, options);
  ASSERT_TRUE(limit) << limit.error().message();
  const auto lent = decode_number(ask(*served.channel, Kind::kLend, {}, Kind::kLent).value());
  const auto* const there = reinterpret_cast<const std::uint8_t*>(*lent);  // NOLINT
  std::vector<std::uint8_t> before(there, there + bytes);
  EXPECT_GT((*limit)->measure(Operation::kWrite, 1).value(), 0);
  std::uint64_t last = 0;
  for (const std::uint64_t offset : block_offsets(options.layout)) {
    std::copy_n(area.bytes().data() + offset, options.layout.size, before.data() + offset);
    last = offset;
  }
  EXPECT_NE(last, 0U);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), there));
  EXPECT_GT((*limit)->measure(Operation::kRead, 1).value(), 0);
  options.layout.size = (std::uint64_t{1} << 30) + 1;
  EXPECT_EQ(ProcessCopyLoop::create(*served.channel, ::getpid(), area, options).value(), nullptr);
}

TEST(BenchLimits, AProcessThatIsGoneIsAnError) {
  const Options options = small(Transport::kCma);
  Served served(true);
  ASSERT_TRUE(RemoteTarget::open(*served.channel, options.layout.extent()));
  Area area = *Area::map(options.layout.extent());
  const auto limit = ProcessCopyLoop::create(*served.channel, -1, area, options);
  ASSERT_TRUE(limit);
  const Result<double> measured = (*limit)->measure(Operation::kWrite, 1);
  ASSERT_FALSE(measured);
  EXPECT_EQ(measured.error().native_errno(), ESRCH);
}

TEST(BenchArea, SharedPagesAreRegisteredAsSuchAndOutliveTheirArea) {
  const auto endpoint = Endpoint::create("bench-shared", on_loopback({}));
  ASSERT_TRUE(endpoint) << endpoint.error().message();
  MemoryDescriptor memory;
  {
    Area area = *Area::map(4097, Pages::kShared);
    EXPECT_EQ(area.bytes().size(), 4097U);
    Area moved = std::move(area);
    memory.address = moved.address();
    memory.length = moved.bytes().size();
    ASSERT_TRUE(endpoint->engine().register_memory(memory));
  }
  // The registration holds the pages.
  *reinterpret_cast<std::uint8_t*>(memory.address) = 1;  // NOLINT
}

}  // namespace
}  // namespace orbite::tool::bench
