// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "base/log.hpp"
#include "quiet_world.hpp"
#include "sim/world.hpp"
#include "wire/metadata.hpp"

namespace orbite::test {
namespace {

/// Two hosts that are each writing to the other when the cable is cut, for so long that both
/// kernels give their connections up. Nobody was reset, so only the peer's word is a proof.
class TwoWritersCutOff {
 public:
  TwoWritersCutOff() : world(7, quiet_world(2, 2)) {
    base::set_log_level(base::LogLevel::kOff);
    for (std::uint32_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(world.start(world.host(i)));
      memory_[i].resize(kBytes);
      MemoryDescriptor memory;
      memory.address = reinterpret_cast<std::uint64_t>(memory_[i].data());
      memory.length = kBytes;
      registrations_[i] = engine(i).register_memory(memory).value();
    }
    for (std::uint32_t i = 0; i < 2; ++i) {
      introduce(i, 1 - i);
    }
    write_both();
    cut(true);
    for (std::uint32_t i = 0; i < 2; ++i) {
      EXPECT_EQ(engine(i).post(requests_[i], {}).value().logical, Logical::kNone);
    }
    run(base::kSecond);
    for (const auto& connection : std::vector(world.fabric.connections())) {
      world.fabric.give_up(*connection, 0);
      world.fabric.give_up(*connection, 1);
    }
    run(base::kSecond);
  }
  ~TwoWritersCutOff() { base::set_log_level(base::LogLevel::kWarn); }

  TransferEngine& engine(std::uint32_t i) { return *world.host(i).engine; }
  void run(base::Nanoseconds time_ns) { world.scheduler.run_until(world.now_ns() + time_ns); }
  void cut(bool is_cut) {
    world.fabric.link(0, 1).cut = is_cut;
    world.fabric.link(1, 0).cut = is_cut;
    world.fabric.link_changed(0, 1);
  }
  base::SourceEpoch epoch(std::uint32_t i) {
    return wire::decode_connection(world.blobs[i].bytes, wire::Profile::kMemory).value().epoch;
  }
  Outcome outcome(std::uint32_t i) {
    const sim::World::Call call(world, world.host(i));
    return engine(i).check(requests_[i]).value();
  }
  CloseStatus close(std::uint32_t i) {
    const sim::World::Call call(world, world.host(i));
    return engine(i).close(0);
  }

  sim::World world;

 private:
  static constexpr std::uint64_t kBytes = 2'000;

  /// Every lane stands then, and none has been idle for long.
  void write_both() {
    for (std::uint32_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(engine(i).post(requests_[i], {}));
    }
    int left = 1'000;
    while (--left > 0 && (engine(0).check(requests_[0]).value().logical != Logical::kSuccess ||
                          engine(1).check(requests_[1]).value().logical != Logical::kSuccess)) {
      run(base::kMillisecond);
    }
    EXPECT_GT(left, 0);
  }
  void introduce(std::uint32_t i, std::uint32_t other) {
    const sim::World::Call call(world, world.host(i));
    const Handle peer =
        engine(i).import_peer(world.host(other).name(), engine(other).connection_blob()).value();
    const auto blob = engine(other).export_memory(registrations_[other]).value();
    const auto address = reinterpret_cast<std::uint64_t>(memory_[other].data());
    const Handle remote = engine(i).import_range(peer, blob, address, kBytes).value();
    EXPECT_TRUE(engine(i).connect_peer(peer, base::kSecond));
    const std::array from{
        Descriptor{reinterpret_cast<std::uint64_t>(memory_[i].data()), kBytes, registrations_[i]}};
    const std::array to{Descriptor{address, kBytes, remote}};
    requests_[i] =
        engine(i)
            .prepare({.operation = Operation::kWrite, .peer = peer, .local = from, .remote = to})
            .value();
  }

  std::array<std::vector<std::uint8_t>, 2> memory_;
  std::array<Handle, 2> registrations_;
  std::array<Handle, 2> requests_;
};

/// Each waits for the other's word. One of them gets it first and may be gone before the other has
/// asked; that one is told by an operator, who cannot say it of a process that lives.
TEST(SimClosing, TwoThatCloseDoNotWaitForEachOther) {
  TwoWritersCutOff two;
  for (std::uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(two.close(i).executions_unresolved, 1U);
  }
  two.run(base::kSecond);
  for (std::uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(two.close(i).phase, ClosePhase::kDrainingPosted);
  }
  two.cut(false);
  two.run(5 * base::kSecond);
  const std::array left{two.close(0).executions_unresolved, two.close(1).executions_unresolved};
  ASSERT_LE(left[0] + left[1], 1U);
  if (left[0] + left[1] == 1) {
    const std::uint32_t told = left[0] == 1 ? 0 : 1;
    EXPECT_TRUE(two.engine(told).confirm_epoch_fenced(two.epoch(1 - told).bytes));
    EXPECT_EQ(two.close(told).executions_unresolved, 0U);
  }
}

/// As long as it has work of its own that is unresolved: here nobody answers its own drains.
TEST(SimClosing, OneThatClosesAnswersTheDrainsOfOneThatDoesNot) {
  TwoWritersCutOff two;
  EXPECT_EQ(two.close(0).executions_unresolved, 1U);
  EXPECT_EQ(two.engine(1).unresolved_peers().size(), 1U);
  two.run(base::kSecond);
  // The one that closes gets no word of its own yet, or it would be gone.
  two.world.fabric.machine(1).ignores_connects = true;
  two.cut(false);
  two.run(5 * base::kSecond);
  EXPECT_EQ(two.close(0).executions_unresolved, 1U);
  EXPECT_TRUE(two.outcome(1).terminal());
  EXPECT_TRUE(two.engine(1).unresolved_peers().empty());
  two.world.fabric.machine(1).ignores_connects = false;
  two.run(5 * base::kSecond);
  EXPECT_EQ(two.close(0).executions_unresolved, 0U);
  EXPECT_EQ(two.close(1).executions_unresolved, 0U);
}

/// Whoever has been told that an engine is closed may take its port for the next one.
TEST(SimClosing, ItsPortIsFreeWhenItIsClosed) {
  TwoWritersCutOff two;
  two.close(0);
  two.run(base::kSecond);
  two.cut(false);
  int left = 1'000'000;
  while (--left > 0 && two.close(0).phase == ClosePhase::kDrainingPosted) {
    two.run(base::kMicrosecond);
  }
  // Registrations are not the matter here.
  ASSERT_EQ(two.close(0).executions_unresolved, 0U);
  while (--left > 0 && two.close(0).phase != ClosePhase::kClosed) {
    two.run(base::kMicrosecond);
  }
  ASSERT_EQ(two.close(0).phase, ClosePhase::kClosed);
  EXPECT_TRUE(
      two.world.host(0).network->listen(platform::SocketAddress::any(6, sim::World::kPort)));
}

}  // namespace
}  // namespace orbite::test
