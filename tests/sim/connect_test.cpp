// SPDX-License-Identifier: Apache-2.0
// How long connect_peer() takes.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "quiet_world.hpp"
#include "sim/world.hpp"
#include "support/log_lines.hpp"

namespace orbite::test {
namespace {

/// Host 0 knows host 1, and what host 1 has registered.
class Connecting {
 public:
  explicit Connecting(const sim::Options& options) : world(3, options) {
    for (const auto& host : world.hosts) {
      EXPECT_TRUE(world.start(*host));
    }
    world.neighborhood.kernel(0) = {};
    peer_ = near().import_peer("host1", far().connection_blob()).value();
  }
  TransferEngine& near() { return *world.host(0).engine; }
  TransferEngine& far() { return *world.host(1).engine; }

  void know_a_range() {
    MemoryDescriptor memory;
    memory.address = reinterpret_cast<std::uint64_t>(memory_.data());
    memory.length = memory_.size();
    const Handle registration = far().register_memory(memory).value();
    const auto blob = far().export_memory(registration).value();
    EXPECT_TRUE(near().import_range(peer_, blob, memory.address, memory.length));
  }
  /// Whether it succeeded, and how long it took.
  struct Attempt {
    bool connected;
    base::Nanoseconds took_ns;
  };
  Attempt connect(base::Nanoseconds timeout_ns) {
    const base::Nanoseconds begin_ns = world.now_ns();
    const sim::World::Call call(world, world.host(0));
    const bool connected = near().connect_peer(peer_, timeout_ns).has_value();
    return {connected, world.now_ns() - begin_ns};
  }
  [[nodiscard]] std::string info() { return near().info_json(); }

 private:
  const LogLines log_;

 public:
  sim::World world;

 private:
  std::vector<std::uint8_t> memory_ = std::vector<std::uint8_t>(1'000);
  Handle peer_;
};

/// Two hosts so far from each other that every question takes a while.
sim::Options apart() { return quiet_world(2, 2); }
constexpr base::Nanoseconds kWay = 4 * base::kMillisecond;

void set_way(sim::World& world) {
  for (std::uint32_t i = 0; i < 2; ++i) {
    sim::Link& link = world.fabric.link(i, 1 - i);
    link.latency_min_ns = kWay;
    link.latency_max_ns = kWay;
  }
}

TEST(SimConnect, HasOneTimeForTheConnectionAndForTheQuestionsOverIt) {
  Connecting without_questions(apart());
  set_way(without_questions.world);
  const auto connected = without_questions.connect(base::kSecond);
  ASSERT_TRUE(connected.connected);

  Connecting in_time(apart());
  set_way(in_time.world);
  in_time.know_a_range();
  EXPECT_TRUE(in_time.connect(connected.took_ns + 3 * kWay).connected);

  Connecting too_late(apart());
  set_way(too_late.world);
  too_late.know_a_range();
  const base::Nanoseconds timeout_ns = connected.took_ns + kWay;
  const auto attempt = too_late.connect(timeout_ns);
  EXPECT_FALSE(attempt.connected);
  EXPECT_LE(attempt.took_ns, timeout_ns);
}

/// Two engines of one machine, whose link is silent, as TCP is not.
class SimConnectBesideASilentLink : public ::testing::Test {
 protected:
  SimConnectBesideASilentLink() {
    both_.world.neighborhood.kernel(0).latency_max_ns = 1'000 * base::kSecond;
    both_.know_a_range();
  }
  static sim::Options together() {
    sim::Options options = quiet_world(2, 1);
    options.neighbors = sim::NeighborsUse::kAll;
    return options;
  }
  /// Above the link's own time, whatever was drawn.
  static constexpr base::Nanoseconds kLong = base::kSecond;
  static constexpr base::Nanoseconds kShort = 10 * base::kMillisecond;
  Connecting both_{together()};
};

TEST_F(SimConnectBesideASilentLink, HasOneTimeForThatToo) {
  const auto attempt = both_.connect(kShort);
  EXPECT_TRUE(attempt.connected) << "there is TCP";
  EXPECT_EQ(attempt.took_ns, kShort);
}

TEST_F(SimConnectBesideASilentLink, WaitsForItOnce) {
  const auto first = both_.connect(kLong);
  EXPECT_TRUE(first.connected);
  EXPECT_GT(first.took_ns, kShort);
  EXPECT_LT(first.took_ns, kLong);
  const std::string info = both_.info();
  ASSERT_NE(info.find(R"("reason": "peer silent")"), std::string::npos) << info;
  const auto second = both_.connect(kLong);
  EXPECT_TRUE(second.connected);
  EXPECT_LT(second.took_ns, kShort);
}

}  // namespace
}  // namespace orbite::test
