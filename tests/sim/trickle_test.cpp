// SPDX-License-Identifier: Apache-2.0
// A peer that sends a frame byte by byte while our engine closes: it makes progress, so nothing but
// the end of the close's time ends it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "engine/access.hpp"
#include "engine/quarantine.hpp"
#include "quiet_world.hpp"
#include "sim/world.hpp"
#include "support/log_lines.hpp"
#include "wire/frame.hpp"
#include "wire/handshake.hpp"
#include "wire/metadata.hpp"

namespace orbite::test {
namespace {

/// A process of a world that speaks the wire format by hand.
class Trickler {
 public:
  static constexpr base::Nanoseconds kPeriod = 20 * base::kMillisecond;

  Trickler(sim::World& world, std::uint32_t machine)
      : world_(world), network_(world.fabric, machine, quiet()) {}

  void connect(const wire::ConnectionBlob& blob, std::uint32_t machine) {
    socket_ = network_.connect(sim::Fabric::address_of(machine, blob.port), nullptr).value();
    run();
    wire::ClientHello hello{};
    hello.client_epoch = base::SourceEpoch{{1, 2, 3}};
    hello.expected_epoch = blob.epoch;
    hello.lane_id = 1;
    hello.lane_class = static_cast<std::uint8_t>(wire::LaneClass::kBulk);
    hello.name_bytes = 3;
    std::memcpy(hello.name, "raw", 3);
    send(&hello, sizeof(hello));
    run();
    wire::ServerHello server;
    const iovec part{&server, sizeof(server)};
    ASSERT_EQ(network_.receive(socket_, {&part, 1}).bytes, sizeof(server));
    ASSERT_TRUE(wire::verify_server(blob.secret, hello, server));
    wire::ClientProof proof;
    wire::sign_client(blob.secret, hello, server, proof);
    send(&proof, sizeof(proof));
    run();
  }
  /// All of a WRITE but its payload, which comes a byte each period from then on.
  void begin_write(const wire::RangeBlob& range) {
    wire::RequestHeader header;
    header.type = static_cast<std::uint8_t>(wire::FrameType::kWrite);
    header.frame_id = 1;
    header.table_count = 1;
    header.extent_count = 1;
    header.payload_bytes = range.length;
    wire::RegistrationRef entry;
    entry.index = range.index;
    entry.generation = range.generation;
    std::memcpy(entry.key, range.key.bytes.data(), sizeof(entry.key));
    const wire::WireExtent extent{0, static_cast<std::uint32_t>(range.length), 0};
    send(&header, sizeof(header));
    send(&entry, sizeof(entry));
    send(&extent, sizeof(extent));
    trickle();
  }
  [[nodiscard]] bool cut_off() const { return cut_off_; }

 private:
  static sim::HostNetwork::Observer quiet() {
    return {[](std::uint64_t, std::uint64_t) {}, [](std::uint64_t, std::uint64_t) {}, [] {},
            [](const char* what, platform::Socket) { ADD_FAILURE() << what; }};
  }
  void run() { world_.scheduler.run_until(world_.now_ns() + base::kMillisecond); }
  void send(const void* data, std::size_t bytes) {
    const iovec part{const_cast<void*>(data), bytes};
    ASSERT_EQ(network_.send(socket_, {&part, 1}).bytes, bytes);
  }
  void trickle() {
    const std::uint8_t byte = 42;
    const iovec part{const_cast<std::uint8_t*>(&byte), 1};
    if (network_.send(socket_, {&part, 1}).kind == platform::IoResult::Kind::kFailed) {
      cut_off_ = true;
      return;
    }
    world_.scheduler.after(kPeriod, sim::Layer::kNetwork, [this] { trickle(); });
  }

  sim::World& world_;
  sim::HostNetwork network_;
  platform::Socket socket_ = platform::kNoSocket;
  bool cut_off_ = false;
};

class SimTrickle : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kBytes = 4096;
  /// Of the world's engines.
  static constexpr base::Nanoseconds kCloseTime = 100 * base::kMillisecond;

  SimTrickle() {
    EXPECT_TRUE(world_.start(host_));
    MemoryDescriptor memory;
    memory.address = reinterpret_cast<std::uint64_t>(memory_.data());
    memory.length = kBytes;
    memory.retired = [this] { ++retired_; };
    const Handle registration = host_.engine->register_memory(memory).value();
    const auto range =
        wire::decode_range(host_.engine->export_memory(registration).value()).value();
    trickler_.connect(
        wire::decode_connection(host_.engine->connection_blob(), wire::Profile::kMemory).value(),
        host_.machine);
    trickler_.begin_write(range);
    world_.scheduler.run_until(world_.now_ns() + base::kSecond);
    EXPECT_GT(landed(), 40U);
  }
  CloseStatus close(base::Nanoseconds timeout_ns) {
    const sim::World::Call call(world_, host_);
    return host_.engine->close(timeout_ns);
  }
  /// The world gives no turns to an engine that its host has let go of.
  void destroy_engine() {
    TransferEngine* const engine = host_.engine.get();
    bool over = false;
    std::function<void()> turn = [&] {
      if (!over) {
        EngineAccess::work(*engine);
        world_.scheduler.after(base::kMillisecond, sim::Layer::kWorker, turn);
      }
    };
    turn();
    host_.engine = nullptr;
    over = true;
    world_.scheduler.run_until(world_.now_ns() + base::kMillisecond);
  }
  [[nodiscard]] std::ptrdiff_t landed() const {
    return std::count(memory_.begin(), memory_.end(), 42);
  }

  const LogLines log_;
  sim::World world_{3, quiet_world(2, 2)};
  sim::Host& host_ = world_.host(0);
  Trickler trickler_{world_, world_.host(1).machine};
  std::vector<std::uint8_t> memory_ = std::vector<std::uint8_t>(kBytes);
  int retired_ = 0;
};

TEST_F(SimTrickle, HoldsNoCloseBeyondItsTimeAndIsNotCutOffByIt) {
  for (const base::Nanoseconds time_ns : {base::kSecond, base::Nanoseconds{0}, base::kSecond}) {
    const base::Nanoseconds begin_ns = world_.now_ns();
    const std::ptrdiff_t before = landed();
    const CloseStatus status = close(time_ns);
    EXPECT_EQ(world_.now_ns() - begin_ns, time_ns);
    EXPECT_EQ(status.phase, ClosePhase::kDrainingServed);
    EXPECT_EQ(status.registrations_unresolved, 1U);
    EXPECT_EQ(landed() > before, time_ns > 0);
  }
  EXPECT_FALSE(trickler_.cut_off());
  EXPECT_EQ(retired_, 0);
}

TEST_F(SimTrickle, EndsWithTheDestructor) {
  EXPECT_EQ(close(base::kSecond).phase, ClosePhase::kDrainingServed);
  const base::Nanoseconds begin_ns = world_.now_ns();
  const std::size_t quarantined = Quarantine::of_process().size();
  destroy_engine();
  EXPECT_LT(world_.now_ns() - begin_ns, kCloseTime + 50 * base::kMillisecond);
  EXPECT_GE(world_.now_ns() - begin_ns, kCloseTime) << "it has the close's own time";
  EXPECT_EQ(Quarantine::of_process().size(), quarantined);
  EXPECT_EQ(retired_, 1);
  EXPECT_EQ(host_.network->open_sockets(), 0U);
  const std::ptrdiff_t in_the_end = landed();
  world_.scheduler.run_until(world_.now_ns() + base::kSecond);
  EXPECT_TRUE(trickler_.cut_off());
  EXPECT_EQ(landed(), in_the_end);
}

}  // namespace
}  // namespace orbite::test
