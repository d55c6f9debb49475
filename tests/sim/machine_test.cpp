// SPDX-License-Identifier: Apache-2.0
// Hosts that share a machine.
#include <gtest/gtest.h>

#include <cerrno>
#include <map>

#include "pair.hpp"
#include "quiet_world.hpp"
#include "sim/run.hpp"
#include "sim/world.hpp"
#include "support/log_lines.hpp"
#include "wire/metadata.hpp"

namespace orbite::test {
namespace {

using Kind = Pair::Kind;

platform::SocketAddress loopback() { return platform::SocketAddress::loopback(4, Pair::kPort); }

/// A process beside the server of a pair.
struct Beside : Pair {
  Beside() : Pair(1) {}
};

TEST(SimMachine, LoopbackReachesTheProcessBesideAndNoOther) {
  Beside pair;
  pair.open(loopback());
  EXPECT_TRUE(pair.client_address.is_loopback());
  (void)pair.send(0, pair.client, "near");
  pair.run();
  EXPECT_EQ(pair.receive(1, pair.server).text, "near");
  EXPECT_EQ(pair.fabric.counts().connections, 1U);
  EXPECT_EQ(pair.fabric.counts().loopback_connections, 1U);
  EXPECT_EQ(pair.fabric.counts().loopback_bytes, 4U);

  Pair apart;
  const auto refused = apart.connect(loopback());
  apart.run();
  EXPECT_EQ(apart.network(0).connect_result(refused).native_errno, ECONNREFUSED);
  apart.open();
  EXPECT_FALSE(apart.client_address.is_loopback());
  EXPECT_EQ(apart.fabric.counts().connections, 1U);
  EXPECT_EQ(apart.fabric.counts().loopback_connections, 0U);
}

TEST(SimMachine, ItsPortsAreSharedAndFreeWhenTheirHolderIsKilled) {
  Beside pair;
  const auto address = platform::SocketAddress::any(6, Pair::kPort);
  EXPECT_EQ(pair.network(0).listen(address).error().code(), ErrorCode::kAddressInUse);
  pair.network(1).kill();
  EXPECT_TRUE(pair.network(0).listen(address));
}

TEST(SimMachine, ACableIsNotInTheWayOfLoopback) {
  Beside pair;
  for (const auto& [from, to] : {std::pair<std::uint32_t, std::uint32_t>{0, 1}, {1, 0}, {1, 1}}) {
    pair.fabric.link(from, to).cut = true;
    pair.fabric.link(from, to).clogged = true;
    pair.fabric.link_changed(from, to);
  }
  for (const auto& address : {loopback(), sim::Fabric::address_of(1, Pair::kPort)}) {
    pair.open(address);
    (void)pair.send(0, pair.client, "still");
    pair.run();
    EXPECT_EQ(pair.receive(1, pair.server).text, "still");
  }
}

TEST(SimMachine, AKillLeavesTheProcessBeside) {
  Beside pair;
  pair.open(loopback());
  pair.network(1).kill();
  pair.run();
  EXPECT_EQ(pair.receive(0, pair.client).result.kind, Kind::kEnded);
  EXPECT_TRUE(pair.network(0).listen(platform::SocketAddress::any(6, Pair::kPort)));
}

/// What machines a world has, when hosts start on them.
class SimSharedMachine : public ::testing::Test {
 protected:
  static void start_all(sim::World& world) {
    for (const auto& host : world.hosts) {
      ASSERT_TRUE(world.start(*host));
    }
  }
  static wire::ConnectionBlob blob_of(const sim::Host& host) {
    return wire::decode_connection(host.engine->connection_blob(), wire::Profile::kMemory).value();
  }

  const LogLines log_;
};

TEST_F(SimSharedMachine, ItsHostsHaveOneIdentityAndPortsOfTheirOwn) {
  sim::World world(1, quiet_world(3, 1));
  start_all(world);
  EXPECT_EQ(blob_of(world.host(0)).host, blob_of(world.host(1)).host);
  EXPECT_EQ(blob_of(world.host(0)).port, sim::World::kPort);
  EXPECT_EQ(blob_of(world.host(1)).port, sim::World::kPort + 1);
  EXPECT_EQ(blob_of(world.host(2)).port, sim::World::kPort + 2);
  EXPECT_TRUE(blob_of(world.host(1)).loopback_reachable);
  // Who starts next takes the first port that is free, though a life of another host is known at
  // it.
  world.kill(world.host(0));
  world.kill(world.host(2));
  ASSERT_TRUE(world.start(world.host(2)));
  EXPECT_EQ(blob_of(world.host(2)).port, sim::World::kPort);

  sim::World apart(1, quiet_world(3, 3));
  start_all(apart);
  EXPECT_NE(blob_of(apart.host(0)).host, blob_of(apart.host(1)).host);
  EXPECT_EQ(blob_of(apart.host(1)).port, sim::World::kPort);
}

TEST_F(SimSharedMachine, LosesItsPowerWithAllItsHostsAndBootsAnew) {
  sim::World world(1, quiet_world(3, 1));
  start_all(world);
  const base::HostIdentity before = blob_of(world.host(0)).host;
  world.power_off(0);
  for (const auto& host : world.hosts) {
    EXPECT_EQ(host->state, sim::Host::State::kDown);
    EXPECT_EQ(host->engine, nullptr);
  }
  EXPECT_FALSE(world.fabric.machine(0).up);
  start_all(world);
  EXPECT_NE(blob_of(world.host(0)).host, before);
  EXPECT_EQ(blob_of(world.host(0)).host, blob_of(world.host(1)).host);
}

TEST_F(SimSharedMachine, LosesItsPowerAloneAndAKillTakesOneHost) {
  sim::World world(1, quiet_world(3, 2));
  start_all(world);
  const std::uint32_t shared = world.host(2).machine;
  const sim::Host& other = world.host(1 - shared);
  world.kill(world.host(2));
  EXPECT_TRUE(world.host(shared).up());
  EXPECT_TRUE(world.fabric.machine(shared).up);
  ASSERT_TRUE(world.start(world.host(2)));
  world.power_off(shared);
  EXPECT_FALSE(world.host(shared).up());
  EXPECT_FALSE(world.host(2).up());
  EXPECT_TRUE(other.up());
}

TEST_F(SimSharedMachine, CarriesAllItsWorkOverLoopback) {
  std::uint64_t succeeded = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const sim::Report together = sim::run(seed, quiet_world(0, 1));
    EXPECT_TRUE(together.violations.empty());
    EXPECT_GT(together.stats.loopback_connections, 0U) << "seed " << seed;
    EXPECT_GT(together.stats.loopback_bytes, 0U) << "seed " << seed;
    succeeded += together.stats.succeeded;
    const sim::Report apart = sim::run(seed, quiet_world(0, sim::kHostsMax));
    EXPECT_EQ(apart.stats.loopback_connections, 0U) << "seed " << seed;
    EXPECT_GT(apart.stats.connections, 0U) << "seed " << seed;
  }
  EXPECT_GT(succeeded, 100U);
}

/// Seeds as they are drawn: some of each kind, with either path in one world, under every fault.
TEST_F(SimSharedMachine, IsDrawnBySomeSeeds) {
  std::map<std::uint32_t, std::uint32_t> hosts_on_one;
  std::uint32_t apart = 0;
  std::uint32_t mixed = 0;
  std::uint64_t loopback_bytes = 0;
  constexpr std::uint64_t kSeeds = 120;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const sim::Stats stats = sim::run(seed, {}).stats;
    apart += stats.machines == stats.hosts ? 1 : 0;
    hosts_on_one[stats.hosts] += stats.machines == 1 ? 1 : 0;
    const bool has_both =
        stats.loopback_connections > 0 && stats.loopback_connections < stats.connections;
    mixed += stats.machines > 1 && has_both ? 1 : 0;
    loopback_bytes += stats.loopback_bytes;
  }
  EXPECT_GT(apart, kSeeds / 2);
  for (std::uint32_t hosts = sim::kHostsMin; hosts <= sim::kHostsMax; ++hosts) {
    EXPECT_GT(hosts_on_one[hosts], 0U) << hosts;
  }
  EXPECT_GT(mixed, 5U);
  EXPECT_GT(loopback_bytes, 100'000U);
}

}  // namespace
}  // namespace orbite::test
