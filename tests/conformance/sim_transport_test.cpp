// SPDX-License-Identifier: Apache-2.0
// The simulated transport itself, and the checks that stand on it: a checker that misses a planted
// fault is worth nothing.
#include "sim/sim_transport.hpp"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "support/flows.hpp"
#include "support/honesty.hpp"

namespace orbite::test {
namespace {

/// A caller, a far side and the transport between them.
class World {
 public:
  explicit World(const sim::Script& script) : transport(caller.planner, script, hooks()) {
    caller.planner.set_transport(transport.kind(), &transport);
    wire::ConnectionBlob connection;
    connection.epoch.bytes[0] = 5;
    peer = std::make_shared<peer::Peer>("far", connection, false);
    test::set_flow(*peer, transport.open(*peer).value());
    range = caller.import(peer, far.blob(connection.epoch));
  }

  std::shared_ptr<transfer::Execution> launch(const Stage& set, Caller::Message message = {}) {
    auto prepared = caller.prepare(transport, peer, near, far, range,
                                   {set.operation, set.blocks, policy::QosClass::kBulk});
    return caller.launch(transport, prepared, std::move(message));
  }
  transfer::Flow& flow() { return test::only_flow(*peer); }
  void step() {
    transfer::WorkLimit limit{1 << 14, 8};
    transport.drive(flow(), limit, transfer::Driver::kCaller);
    caller.planner.pump(transport, flow());
    near_registry.reap();
    far_registry.reap();
  }
  void step(int count) {
    for (int i = 0; i < count; ++i) {
      step();
    }
  }

  static constexpr std::size_t kBytes = 200'000;
  base::SeededRandom random{3};
  memory::Registry near_registry{{.registrations_max = 8}, random};
  memory::Registry far_registry{{.registrations_max = 8}, random};
  Buffer near{near_registry, kBytes};
  Buffer far{far_registry, kBytes};
  Caller caller{near_registry};
  std::vector<sim::Access> accesses;
  std::function<void(const sim::Access&)> on_access;
  int delivered = 0;
  sim::SimTransport transport;
  std::shared_ptr<peer::Peer> peer;
  Handle range;

 private:
  sim::SimTransport::World hooks() {
    return {.registry_of = [this](const base::SourceEpoch&) { return &far_registry; },
            .deliver = [this](const transfer::Execution&) -> Result<void> {
              ++delivered;
              return {};
            },
            .on_access =
                [this](const sim::Access& access) {
                  accesses.push_back(access);
                  if (on_access) {
                    on_access(access);
                  }
                }};
  }
};

sim::Script faulty(std::uint64_t seed) {
  sim::Script script;
  script.seed = seed;
  script.refused = 15;
  script.failed_none = 60;
  script.failed_prefix = 60;
  script.failed_unknown = 60;
  script.delay_max = 6;
  script.limits = {700, 6, 4};
  return script;
}

Stage stage(World& world, std::uint64_t seed, Operation operation = Operation::kWrite) {
  base::SeededRandom random(seed);
  return Stage(operation, draw_blocks(random, 80, 900), world.near, world.far, seed);
}

std::uint64_t trace_of(std::uint64_t seed) {
  World world(faulty(seed));
  const Stage set = stage(world, 1);
  const auto execution = world.launch(set);
  for (int i = 0; i < 5000 && !execution->terminal(); ++i) {
    world.step();
  }
  EXPECT_TRUE(execution->terminal());
  return world.transport.trace();
}

TEST(SimTransport, RunsTheSameForTheSameSeed) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    EXPECT_EQ(trace_of(seed), trace_of(seed));
    EXPECT_NE(trace_of(seed), trace_of(seed + 100));
  }
}

TEST(SimTransport, LosesASliceUntilItsPeerIsDeclaredFenced) {
  sim::Script script;
  script.lost = 1000;
  script.delay_max = 3;
  for (const Operation operation : {Operation::kWrite, Operation::kRead}) {
    World world(script);
    const Stage set = stage(world, 4, operation);
    const auto execution = world.launch(set);
    world.step(500);
    EXPECT_EQ(execution->outcome().logical, Logical::kFailed);
    EXPECT_EQ(execution->outcome().code, ErrorCode::kPeerSilent);
    EXPECT_FALSE(execution->terminal());
    EXPECT_GT(world.transport.unproved(world.flow()), 0U);
    EXPECT_EQ(world.transport.unproved(world.flow()), world.transport.outstanding());
    // The memory stays registered on both sides, and the charge stays taken.
    EXPECT_EQ(world.far.deregister().value(), RegistrationState::kFenced);
    EXPECT_EQ(world.near.deregister().value(), RegistrationState::kFenced);
    EXPECT_FALSE(world.caller.all_given_back());
    world.step(100);
    EXPECT_EQ(world.near.retirements.load() + world.far.retirements.load(), 0);

    world.transport.confirm_fenced(world.flow());
    EXPECT_TRUE(execution->terminal());
    world.step();
    EXPECT_EQ(world.near.retirements.load(), 1);
    EXPECT_EQ(world.far.retirements.load(), 1);
    set.expect_honest(execution->outcome());
    EXPECT_TRUE(world.caller.all_given_back());
  }
}

TEST(SimTransport, TouchesMemoryOnlyUnderLiveLoansAndBeforeTheEnd) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World world(faulty(seed));
    const Stage set = stage(world, seed, seed % 2 == 0 ? Operation::kRead : Operation::kWrite);
    std::shared_ptr<transfer::Execution> execution;
    std::map<std::uint64_t, std::uint64_t> moved;
    world.on_access = [&](const sim::Access& access) {
      EXPECT_EQ(access.execution, execution.get());
      EXPECT_FALSE(execution->terminal());
      EXPECT_GT(world.far_registry.counts().loans, 0U);
      EXPECT_GT(world.near_registry.counts().loans, 0U);
      for (std::uint64_t i = 0; i < access.length; ++i) {
        EXPECT_EQ(++moved[access.offset + i], 1U) << "a byte entered the wire twice";
      }
    };
    execution = world.caller.execute(
        world.caller.prepare(world.transport, world.peer, world.near, world.far, world.range,
                             {set.operation, set.blocks, policy::QosClass::kBulk}),
        world.peer, {world.transport.kind(), policy::QosClass::kBulk});
    world.caller.start(world.transport, execution);
    for (int i = 0; i < 5000 && !execution->terminal(); ++i) {
      world.step();
    }
    ASSERT_TRUE(execution->terminal());
    set.expect_honest(execution->outcome());
  }
}

TEST(SimTransport, FailsInEveryWayOfItsScript) {
  std::map<std::pair<ErrorCode, RemoteEffect>, int> seen;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    World world(faulty(seed));
    const Stage set = stage(world, seed);
    const auto execution = world.launch(set, std::vector<std::uint8_t>{1});
    if (seed % 5 == 0) {
      world.step(static_cast<int>(seed % 7));
      world.caller.stop(world.transport, *execution, ErrorCode::kCanceled);
    }
    for (int i = 0; i < 5000 && !execution->terminal(); ++i) {
      world.step();
    }
    ASSERT_TRUE(execution->terminal()) << seed;
    const Outcome outcome = execution->outcome();
    set.expect_honest(outcome);
    EXPECT_EQ(world.delivered, outcome.logical == Logical::kSuccess ? 1 : 0);
    EXPECT_TRUE(world.caller.all_given_back());
    ++seen[{outcome.code, outcome.effect}];
  }
  for (const auto code :
       {ErrorCode::kIoFailed, ErrorCode::kShortTransfer, ErrorCode::kPeerDisconnected,
        ErrorCode::kBudgetExhausted, ErrorCode::kCanceled}) {
    const bool happened = std::any_of(seen.begin(), seen.end(),
                                      [&](const auto& it) { return it.first.first == code; });
    EXPECT_TRUE(happened) << error_text(code);
  }
}

TEST(SimTransport, RefusesWhatTheFarRegistryRefuses) {
  World world({});
  const Stage set = stage(world, 1);
  ASSERT_EQ(world.far.deregister().value(), RegistrationState::kRetired);
  const auto execution = world.launch(set);
  world.step(200);
  ASSERT_TRUE(execution->terminal());
  EXPECT_EQ(execution->outcome().code, ErrorCode::kRegistrationFenced);
  EXPECT_EQ(execution->outcome().effect, RemoteEffect::kNone);
  set.expect_honest(execution->outcome());
}

TEST(SimTransport, DescribesWhatIsRegisteredAtTheFarSide) {
  World world({});
  const wire::RangeBlob blob = world.far.blob(world.peer->epoch());
  wire::RegistrationRef right{blob.index, blob.generation, {}};
  std::copy(blob.key.bytes.begin(), blob.key.bytes.end(), right.key);
  wire::RegistrationRef wrong = right;
  wrong.key[0] ^= 1;
  const std::vector<wire::RegistrationRef> asked = {right, wrong};
  const auto described = world.transport.describe(world.flow(), asked, 0).value();
  ASSERT_EQ(described.size(), 2U);
  EXPECT_EQ(described[0].live, 1);
  EXPECT_EQ(described[0].address, blob.address);
  EXPECT_EQ(described[0].length, blob.length);
  EXPECT_EQ(described[1].live, 0);
  world.transport.reset_peer(world.flow());
  EXPECT_EQ(world.transport.describe(world.flow(), asked, 0).error().code(),
            ErrorCode::kPeerUnreachable);
}

// ---- The checker

class HonestyTest : public ::testing::Test {
 protected:
  HonestyTest() {
    lie_.logical = Logical::kFailed;
    lie_.drain = Drain::kRetired;
    lie_.bytes_total = 30;
  }
  /// The first `count` bytes of the request are in place.
  void move(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const Block& block = set_.blocks[i / 10];
      world_.far.bytes[block.remote + i % 10] = world_.near.bytes[block.local + i % 10];
    }
  }

  World world_{{}};
  Stage set_{
      Operation::kWrite, {{0, 100, 10}, {50, 200, 10}, {90, 150, 10}}, world_.near, world_.far, 1};
  Outcome lie_;
};

TEST_F(HonestyTest, AcceptsWhatIsSo) {
  set_.expect_honest(lie_);
  move(13);
  lie_.effect = RemoteEffect::kPrefix;
  lie_.bytes_prefix = 13;
  set_.expect_honest(lie_);
  lie_.effect = RemoteEffect::kUnknown;
  lie_.bytes_prefix = 5;
  set_.expect_honest(lie_);
  move(30);
  lie_.effect = RemoteEffect::kComplete;
  set_.expect_honest(lie_);
}

TEST_F(HonestyTest, CatchesAByteWhereNoneIsSaid) {
  move(1);
  EXPECT_NONFATAL_FAILURE(set_.expect_honest(lie_), "count");
}

TEST_F(HonestyTest, CatchesAPrefixThatIsTooShortOrTooLong) {
  move(13);
  lie_.effect = RemoteEffect::kPrefix;
  lie_.bytes_prefix = 12;
  EXPECT_NONFATAL_FAILURE(set_.expect_honest(lie_), "prefix");
  lie_.effect = RemoteEffect::kUnknown;
  lie_.bytes_prefix = 14;
  EXPECT_NONFATAL_FAILURE(set_.expect_honest(lie_), "prefix");
}

TEST_F(HonestyTest, CatchesAMissingByteOfACompleteEffect) {
  move(29);
  lie_.effect = RemoteEffect::kComplete;
  EXPECT_NONFATAL_FAILURE(set_.expect_honest(lie_), "in_place.size()");
}

TEST_F(HonestyTest, CatchesAWrongByteAndATouchedGuard) {
  move(30);
  lie_.effect = RemoteEffect::kComplete;
  world_.far.bytes[205] ^= 1;
  EXPECT_NONFATAL_FAILURE(set_.expect_honest(lie_), "byte 15");
  world_.far.bytes[205] ^= 1;
  world_.far.bytes[160] ^= 1;
  EXPECT_NONFATAL_FAILURE(set_.expect_honest(lie_), "outside the request");
}

}  // namespace
}  // namespace orbite::test
