// SPDX-License-Identifier: Apache-2.0
// Hunts in the initiator's side of TCP, against a target that speaks the wire format by hand, and
// in what stands above a transport.
#include <algorithm>
#include <cerrno>

#include "orbite/engine.hpp"
#include "planted/hunts.hpp"
#include "support/faulty_network.hpp"
#include "support/flows.hpp"
#include "support/raw_peer.hpp"
#include "support/tcp_node.hpp"
#include "transport/local/local_transport.hpp"
#include "wire/metadata.hpp"

namespace orbite::test {
namespace {

constexpr std::uint64_t kBytes = 16;
constexpr Checker::Mask kAll = (Checker::Mask{1} << kBytes) - 1;

/// A node that posts one WRITE to a listener that the hunt is.
class LaneHunt {
 public:
  LaneHunt()
      : near_node({.name = "near", .network = &network, .clock = &clock}),
        listener([this] { turn(); }),
        near(near_node.registry, kBytes),
        far(far_registry_, kBytes),
        checker([this](std::uint32_t) { return Checker::Outstanding{false, far_may_write}; }) {
    near_node.random.fill(epoch.bytes);
    near_node.random.fill(secret);
    peer = near_node.import("raw", near_node.make_blob(epoch, secret, listener.port()));
    const Handle range = near_node.caller.import(peer, far.blob(epoch));
    const auto prepared =
        near_node.caller.prepare(*near_node.transport, peer, near, far, range,
                                 {Operation::kWrite, {{0, 0, kBytes}}, policy::QosClass::kLatency});
    execution = near_node.caller.launch(*near_node.transport, prepared);
    checker.posted({0, Operation::kWrite, kAll, false});
  }
  ~LaneHunt() {
    near_node.caller.stop(*near_node.transport, *execution, ErrorCode::kCanceled);
    near_node.transport->confirm_fenced(test::only_flow(*peer));
    EXPECT_TRUE(step_until([this] { turn(); }, [this] { return execution->terminal(); }));
  }
  void turn() {
    clock.advance(20 * base::kMicrosecond);
    near_node.turn();
  }
  void turns(int count) {
    for (int i = 0; i < count; ++i) {
      turn();
    }
  }
  std::unique_ptr<RawConnection> accept() {
    auto lane = listener.accept();
    EXPECT_TRUE(lane != nullptr && lane->serve_handshake(epoch, secret));
    return lane;
  }
  /// The next frame; a WRITE has entered the wire.
  void take_frame(RawConnection& lane) {
    const auto request = lane.read_request();
    if (request.has_value() && request->type() == wire::FrameType::kWrite) {
      checker.entered(0, kAll);
      far_may_write = true;
    }
  }

  FaultyNetwork network;
  SharedClock clock;
  TcpNode near_node;
  RawListener listener;
  base::SourceEpoch epoch;
  wire::Secret secret{};

 private:
  base::SeededRandom far_random_{5};
  memory::Registry far_registry_{{.registrations_max = 1}, far_random_};

 public:
  Buffer near;
  Buffer far;
  bool far_may_write = false;
  Checker checker;
  std::shared_ptr<peer::Peer> peer;
  std::shared_ptr<transfer::Execution> execution;
};

}  // namespace

Findings silent_target() {
  LaneHunt hunt;
  const auto lane = hunt.accept();
  hunt.take_frame(*lane);
  // Step by step: time in which nobody looked would not be the target's silence.
  for (std::uint64_t ms = 0; ms <= Config{}.tcp.progress_timeout_ms; ms += 10) {
    hunt.clock.advance(10 * base::kMillisecond);
    hunt.turn();
  }
  hunt.turns(50);
  hunt.checker.shown(0, hunt.execution->outcome());
  return {hunt.checker.violations(), "the target has the frame and says nothing"};
}

Findings lost_connection() {
  LaneHunt hunt;
  const auto lane = hunt.accept();
  hunt.take_frame(*lane);
  hunt.network.before = [](const FaultyNetwork::Call& call) -> std::optional<platform::IoResult> {
    if (call.initiated && call.number == 0) {
      return platform::IoResult{platform::IoResult::Kind::kFailed, 0, ETIMEDOUT};
    }
    return std::nullopt;
  };
  hunt.clock.advance(base::kSecond);
  // It comes again: with a question about the lane that it lost, or with the frame once more.
  const auto second = hunt.accept();
  hunt.take_frame(*second);
  hunt.checker.shown(0, hunt.execution->outcome());
  return {hunt.checker.violations(), "the connection failed after the frame"};
}

Findings second_post() {
  // Nobody answers at that port: what is posted stays under way.
  RawListener listener;
  Config config;
  config.listen.address = "127.0.0.1";
  auto engine = TransferEngine::create({"near", config}).value();
  std::vector<std::uint8_t> bytes(kBytes);
  MemoryDescriptor memory;
  memory.address = reinterpret_cast<std::uint64_t>(bytes.data());
  memory.length = bytes.size();
  const Handle registration = engine->register_memory(memory).value();

  wire::ConnectionBlob connection;
  connection.epoch.bytes[0] = 1;
  connection.port = listener.port();
  connection.addresses.push_back({4, {127, 0, 0, 1}});
  wire::RangeBlob blob;
  blob.epoch = connection.epoch;
  blob.generation = 1;
  blob.address = memory.address;
  blob.length = memory.length;
  blob.access = kAccessAll;
  const Handle peer = engine->import_peer("raw", wire::encode(connection)).value();
  const Handle range =
      engine->import_range(peer, wire::encode(blob), blob.address, blob.length).value();
  const Descriptor local{memory.address, kBytes, registration};
  const Descriptor remote{blob.address, kBytes, range};
  const Handle request =
      engine->prepare({Operation::kWrite, peer, {&local, 1}, {&remote, 1}}).value();

  Checker checker([](std::uint32_t) { return Checker::Outstanding{true, false}; });
  for (int i = 0; i < 2; ++i) {
    if (const auto posted = engine->post(request, {})) {
      checker.shown(checker.posted({0, Operation::kWrite, kAll, false}), *posted);
    }
  }
  return {checker.violations(), "posted twice while nobody answers"};
}

Findings step_with_a_small_limit() {
  constexpr std::uint64_t kSlice = 4096;
  constexpr std::uint64_t kSlices = 16;
  base::SeededRandom random(1);
  memory::Registry registry({.registrations_max = 2}, random);
  Buffer near(registry, kSlice * kSlices);
  Buffer far(registry, kSlice * kSlices);
  Caller caller(registry);
  const base::ManualClock clock;
  transport::local::LocalTransport transport(
      caller.planner, clock, kSlice, [](std::span<const std::uint8_t>) { return Result<void>(); });
  caller.planner.set_transport(transport.kind(), &transport);
  auto peer = std::make_shared<peer::Peer>("self", wire::ConnectionBlob{}, true);
  test::set_flow(*peer, transport.open(*peer).value());
  near.fill_as_source(1);
  far.fill_as_target(2);
  const auto prepared =
      caller.prepare(transport, peer, near, far, caller.import_own(far.handle),
                     {Operation::kWrite, {{0, 0, kSlice * kSlices}}, policy::QosClass::kBulk});
  const auto execution = caller.launch(transport, prepared);

  Checker checker([](std::uint32_t) { return Checker::Outstanding{}; });
  const auto moved = [&far] {
    return static_cast<std::uint64_t>(std::count_if(far.bytes.begin(), far.bytes.end(),
                                                    [](std::uint8_t byte) { return byte < 128; }));
  };
  while (!execution->terminal()) {
    const std::uint64_t before = moved();
    transfer::WorkLimit limit{2 * kSlice, 4};
    transport.drive(Caller::flow_of(*execution), limit, transfer::Driver::kCaller);
    checker.bounded("check", (moved() - before) / kSlice, 2);
  }
  return {checker.violations(), "steps of at most two slices"};
}

}  // namespace orbite::test
