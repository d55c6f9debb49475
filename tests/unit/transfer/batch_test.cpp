// SPDX-License-Identifier: Apache-2.0
#include "transfer/batch.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <vector>

#include "base/random.hpp"

namespace orbite::transfer {
namespace {

constexpr std::uint64_t kHuge = std::uint64_t{1} << 62;

/// Registrations and imported ranges of addresses that nobody ever touches.
class World {
 public:
  World() {
    wire::ConnectionBlob connection;
    connection.epoch.bytes[0] = 7;
    peer = std::make_shared<peer::Peer>("far", connection, false);
    connection.epoch.bytes[0] = 8;
    other = std::make_shared<peer::Peer>("other", connection, false);
    self = std::make_shared<peer::Peer>("near", wire::ConnectionBlob{}, true);
  }

  Handle add_local(std::uint64_t address, std::uint64_t length, std::uint8_t access = kAccessAll) {
    MemoryDescriptor memory;
    memory.address = address;
    memory.length = length;
    memory.access = access;
    return registry.add(memory).value();
  }
  Handle add_remote(const std::shared_ptr<peer::Peer>& owner, std::uint64_t address,
                    std::uint64_t length, std::uint8_t access = kAccessAll) {
    wire::RangeBlob blob;
    blob.generation = 1;
    blob.address = address;
    blob.length = length;
    blob.access = access;
    return ranges
        .insert(std::make_shared<peer::RemoteRange>(owner, blob,
                                                    base::ByteRange::make(address, length).value()))
        .value();
  }
  Handle add_own(Handle registration) {
    auto own = registry.find(registration).value();
    const auto bounds = own->range();
    return ranges.insert(std::make_shared<peer::RemoteRange>(std::move(own), bounds)).value();
  }

  base::SeededRandom random{1};
  memory::Registry registry{{.registrations_max = 1024}, random};
  peer::RangeTable ranges{"imported range", 1024, "limits.ranges_max"};
  std::shared_ptr<peer::Peer> peer;
  std::shared_ptr<peer::Peer> other;
  std::shared_ptr<peer::Peer> self;
};

class BatchTest : public ::testing::Test {
 protected:
  Result<void> add(Descriptor a, Descriptor b, Operation operation = Operation::kWrite) {
    return batch.add(operation, a, b);
  }
  void expect_refused(Descriptor a, Descriptor b, ErrorCode code,
                      Operation operation = Operation::kWrite) {
    Batch fresh(world.registry, world.ranges, *world.peer);
    const auto added = fresh.add(operation, a, b);
    ASSERT_FALSE(added.has_value());
    EXPECT_EQ(added.error().code(), code) << added.error().message();
    EXPECT_FALSE(added.error().context().empty());
  }

  World world;
  Handle local = world.add_local(0x1000, 0x1000);
  Handle remote = world.add_remote(world.peer, 0x8000, 0x1000);
  Batch batch{world.registry, world.ranges, *world.peer};
};

TEST_F(BatchTest, MergesNeighboursOnBothSides) {
  ASSERT_TRUE(add({0x1000, 16, local}, {0x8100, 16, remote}).has_value());
  ASSERT_TRUE(add({0x1010, 32, local}, {0x8110, 32, remote}).has_value());
  ASSERT_TRUE(add({0x1030, 1, local}, {0x8130, 1, remote}).has_value());
  ASSERT_TRUE(batch.seal().has_value());
  ASSERT_EQ(batch.extents().size(), 1U);
  EXPECT_EQ(ExtentCursor(batch.extents()).take(), (Extent{0x1000, 0x8100, 49, 0, 0}));
  EXPECT_EQ(batch.bytes(), 49U);
  EXPECT_EQ(batch.tasks(), 3U);
}

TEST_F(BatchTest, KeepsApartWhatIsNoNeighbourOnOneSide) {
  const std::array<std::array<std::uint64_t, 2>, 4> starts = {
      {{0x1000, 0x8000}, {0x1010, 0x8020}, {0x1030, 0x8030}, {0x1020, 0x8040}}};
  for (const auto& [a, b] : starts) {
    ASSERT_TRUE(add({a, 16, local}, {b, 16, remote}).has_value());
  }
  ASSERT_TRUE(batch.seal().has_value());
  EXPECT_EQ(batch.extents().size(), 4U);
  EXPECT_EQ(batch.tasks(), 4U);
}

TEST_F(BatchTest, KeepsApartWhatLiesInDifferentRegistrations) {
  // Both sides touch, but the second pair is in another registration, here or there.
  const Handle next_local = world.add_local(0x2000, 0x1000);
  const Handle next_remote = world.add_remote(world.peer, 0x9000, 0x1000);
  const Handle twin_local = world.add_local(0x1000, 0x1000);
  ASSERT_TRUE(add({0x1ff0, 16, local}, {0x8000, 16, remote}).has_value());
  ASSERT_TRUE(add({0x2000, 16, next_local}, {0x8010, 16, remote}).has_value());
  ASSERT_TRUE(add({0x2010, 16, next_local}, {0x9000, 16, next_remote}).has_value());
  ASSERT_TRUE(add({0x1000, 16, local}, {0x8000, 16, remote}).has_value());
  ASSERT_TRUE(add({0x1010, 16, twin_local}, {0x8010, 16, remote}).has_value());
  ASSERT_TRUE(batch.seal().has_value());
  EXPECT_EQ(batch.extents().size(), 5U);
  ExtentList extents;
  std::vector<std::shared_ptr<memory::Registration>> locals;
  std::vector<std::shared_ptr<peer::RemoteRange>> remotes;
  batch.move_into(extents, locals, remotes);
  EXPECT_EQ(locals.size(), 3U);
  EXPECT_EQ(remotes.size(), 2U);
  Extent last{};
  for (ExtentCursor cursor(extents); !cursor.at_end();) {
    last = cursor.take();
  }
  EXPECT_EQ(locals[last.local_index]->handle(), twin_local);
}

TEST_F(BatchTest, TakesTheWholeOfARegistrationAndNotAByteMore) {
  ASSERT_TRUE(add({0x1000, 0x1000, local}, {0x8000, 0x1000, remote}).has_value());
  const ErrorCode outside = ErrorCode::kInvalidRange;
  expect_refused({0x1000, 0x1001, local}, {0x8000, 0x1001, remote}, outside);
  expect_refused({0x0fff, 2, local}, {0x8000, 2, remote}, outside);
  expect_refused({0x1fff, 2, local}, {0x8000, 2, remote}, outside);
  expect_refused({0x1000, 2, local}, {0x7fff, 2, remote}, outside);
  expect_refused({0x1000, 2, local}, {0x8fff, 2, remote}, outside);
  expect_refused({0x2000, 1, local}, {0x8000, 1, remote}, outside);
  expect_refused({0x1000, 1, local}, {0x9000, 1, remote}, outside);
}

TEST_F(BatchTest, RefusesNullEmptyAndOverflowingRanges) {
  const ErrorCode invalid = ErrorCode::kInvalidRange;
  expect_refused({0, 16, local}, {0x8000, 16, remote}, invalid);
  expect_refused({0x1000, 16, local}, {0, 16, remote}, invalid);
  expect_refused({0x1000, 0, local}, {0x8000, 0, remote}, invalid);
  expect_refused({UINT64_MAX - 3, 16, local}, {0x8000, 16, remote}, invalid);
  expect_refused({0x1000, 16, local}, {UINT64_MAX - 3, 16, remote}, invalid);
  expect_refused({0x1000, UINT64_MAX, local}, {0x8000, UINT64_MAX, remote}, invalid);
}

TEST_F(BatchTest, RefusesUnequalLengths) {
  expect_refused({0x1000, 16, local}, {0x8000, 15, remote}, ErrorCode::kLengthMismatch);
  expect_refused({0x1000, 16, local}, {0x8000, 0, remote}, ErrorCode::kLengthMismatch);
}

TEST_F(BatchTest, RefusesASumOfLengthsThatOverflows) {
  const Handle huge = world.add_local(0x1000, kHuge);
  const Handle far = world.add_remote(world.peer, 0x1000, kHuge);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(add({0x1000, kHuge, huge}, {0x1000, kHuge, far}).has_value());
  }
  ASSERT_TRUE(add({0x1000, kHuge - 1, huge}, {0x1000, kHuge - 1, far}).has_value());
  EXPECT_EQ(batch.bytes(), UINT64_MAX);
  const auto over = add({0x1000, 1, huge}, {0x1000, 1, far});
  ASSERT_FALSE(over.has_value());
  EXPECT_EQ(over.error().code(), ErrorCode::kInvalidRange);
}

TEST_F(BatchTest, RefusesUnknownAndRemovedOwners) {
  expect_refused({0x1000, 16, Handle{}}, {0x8000, 16, remote}, ErrorCode::kStaleHandle);
  expect_refused({0x1000, 16, Handle{77, 1}}, {0x8000, 16, remote}, ErrorCode::kStaleHandle);
  expect_refused({0x1000, 16, local}, {0x8000, 16, Handle{}}, ErrorCode::kStaleHandle);

  const Handle gone = world.add_local(0x3000, 0x1000);
  ASSERT_EQ(world.registry.deregister(gone).value(), RegistrationState::kRetired);
  expect_refused({0x3000, 16, gone}, {0x8000, 16, remote}, ErrorCode::kStaleHandle);

  const Handle fenced = world.add_local(0x4000, 0x1000);
  auto loan = world.registry
                  .borrow(world.registry.find(fenced).value(), memory::Direction::kRead,
                          memory::Borrower::kLocal)
                  .value();
  ASSERT_EQ(world.registry.deregister(fenced).value(), RegistrationState::kFenced);
  expect_refused({0x4000, 16, fenced}, {0x8000, 16, remote}, ErrorCode::kRegistrationFenced);
}

TEST_F(BatchTest, RefusesAReleasedRange) {
  const Handle released = world.add_remote(world.peer, 0xa000, 0x1000);
  world.ranges.find(released).value()->fence();
  expect_refused({0x1000, 16, local}, {0xa000, 16, released}, ErrorCode::kRegistrationFenced);
  ASSERT_TRUE(world.ranges.take(released).has_value());
  expect_refused({0x1000, 16, local}, {0xa000, 16, released}, ErrorCode::kStaleHandle);
}

TEST_F(BatchTest, RefusesARangeOfAnotherPeer) {
  const Handle foreign = world.add_remote(world.other, 0x8000, 0x1000);
  expect_refused({0x1000, 16, local}, {0x8000, 16, foreign}, ErrorCode::kInvalidArgument);
  const Handle own = world.add_own(local);
  expect_refused({0x1000, 16, local}, {0x1000, 16, own}, ErrorCode::kInvalidArgument);
  Batch to_self(world.registry, world.ranges, *world.self);
  const auto added = to_self.add(Operation::kWrite, {0x1000, 16, local}, {0x8000, 16, remote});
  ASSERT_FALSE(added.has_value());
  EXPECT_EQ(added.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(Batch(world.registry, world.ranges, *world.self)
                  .add(Operation::kWrite, {0x1000, 16, local}, {0x1000, 16, own})
                  .has_value());
}

TEST_F(BatchTest, ChecksTheAccessRightsOfTheOperation) {
  struct Case {
    std::uint8_t access;
    bool read;
    bool write;
  };
  const std::array<Case, 4> cases = {{{kAccessLocal, false, false},
                                      {kAccessLocal | kAccessRemoteRead, true, false},
                                      {kAccessLocal | kAccessRemoteWrite, false, true},
                                      {kAccessAll, true, true}}};
  for (const Case& it : cases) {
    const Handle range = world.add_remote(world.peer, 0x8000, 0x1000, it.access);
    const Handle registration = world.add_local(0x5000, 0x1000, it.access);
    const Handle own = world.add_own(registration);
    for (const Operation operation : {Operation::kRead, Operation::kWrite}) {
      const bool allowed = operation == Operation::kRead ? it.read : it.write;
      Batch to_peer(world.registry, world.ranges, *world.peer);
      Batch to_self(world.registry, world.ranges, *world.self);
      for (const auto& added : {to_peer.add(operation, {0x1000, 16, local}, {0x8000, 16, range}),
                                to_self.add(operation, {0x1000, 16, local}, {0x5000, 16, own})}) {
        ASSERT_EQ(added.has_value(), allowed) << int{it.access};
        if (!allowed) {
          EXPECT_EQ(added.error().code(), ErrorCode::kNotAllowed);
        }
      }
    }
    // The local side needs no right beyond being registered.
    EXPECT_TRUE(Batch(world.registry, world.ranges, *world.peer)
                    .add(Operation::kRead, {0x5000, 16, registration}, {0x8000, 16, remote})
                    .has_value());
  }
}

TEST_F(BatchTest, KnowsMoreOwnersThanAFrameHolds) {
  std::vector<Handle> locals;
  std::vector<Handle> remotes;
  for (std::uint64_t i = 0; i < 100; ++i) {
    locals.push_back(world.add_local(0x100000 + i * 0x1000, 0x1000));
    remotes.push_back(world.add_remote(world.peer, 0x900000 + i * 0x1000, 0x1000));
  }
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const std::uint64_t a = i * 7 % 100;
    const std::uint64_t b = i * 13 % 100;
    ASSERT_TRUE(add({0x100000 + a * 0x1000, 8, locals[a]}, {0x900000 + b * 0x1000, 8, remotes[b]})
                    .has_value());
  }
  ASSERT_TRUE(batch.seal().has_value());
  ExtentList extents;
  std::vector<std::shared_ptr<memory::Registration>> found_locals;
  std::vector<std::shared_ptr<peer::RemoteRange>> found_remotes;
  batch.move_into(extents, found_locals, found_remotes);
  EXPECT_EQ(found_locals.size(), 100U);
  EXPECT_EQ(found_remotes.size(), 100U);
  for (ExtentCursor cursor(extents); !cursor.at_end();) {
    const Extent extent = cursor.take();
    EXPECT_EQ(found_locals[extent.local_index]->range().address(), extent.local_address);
    EXPECT_EQ(found_remotes[extent.remote_index]->bounds().address(), extent.remote_address);
  }
}

TEST_F(BatchTest, NeedsATaskAndOneSeal) {
  const auto sealed = batch.seal();
  ASSERT_FALSE(sealed.has_value());
  EXPECT_EQ(sealed.error().code(), ErrorCode::kInvalidArgument);
  ASSERT_TRUE(add({0x1000, 16, local}, {0x8000, 16, remote}).has_value());
  ASSERT_TRUE(batch.seal().has_value());
  EXPECT_DEATH((void)add({0x1010, 16, local}, {0x8010, 16, remote}), "sealed_");
  EXPECT_DEATH((void)batch.seal(), "sealed_");
}

RC_GTEST_PROP(BatchProperty, ExtentsSayWhatTheTasksSaid,
              (const std::vector<std::array<std::uint8_t, 4>>& choices)) {
  World world;
  const std::array<Handle, 2> locals = {world.add_local(0x1000, 64), world.add_local(0x1000, 64)};
  const std::array<Handle, 2> remotes = {world.add_remote(world.peer, 0x8000, 64),
                                         world.add_remote(world.peer, 0x8000, 64)};
  struct Byte {
    std::uint64_t from;
    std::uint64_t to;
    Handle local;
    Handle remote;
    bool operator==(const Byte&) const = default;
  };
  std::vector<Byte> wanted;
  std::size_t extents_wanted = 0;
  Batch batch(world.registry, world.ranges, *world.peer);
  for (const auto& [a, b, length_choice, owner] : choices) {
    const std::uint64_t length = 1 + length_choice % 8;
    // Half of them continue where the last one ended.
    const bool follows = (owner & 4) != 0 && !wanted.empty();
    const std::uint64_t from = follows ? wanted.back().from + 1 : 0x1000 + a % 56;
    const std::uint64_t to = follows ? wanted.back().to + 1 : 0x8000 + b % 56;
    if (from + length > 0x1040 || to + length > 0x8040) {
      continue;
    }
    const Byte first{from, to, locals.at(owner & 1), remotes.at((owner >> 1) & 1)};
    const bool merges =
        !wanted.empty() && wanted.back() == Byte{from - 1, to - 1, first.local, first.remote};
    extents_wanted += merges ? 0 : 1;
    RC_ASSERT(batch.add(Operation::kWrite, {from, length, first.local}, {to, length, first.remote})
                  .has_value());
    for (std::uint64_t i = 0; i < length; ++i) {
      wanted.push_back({from + i, to + i, first.local, first.remote});
    }
  }
  RC_ASSERT(batch.seal().has_value() == !wanted.empty());
  RC_ASSERT(batch.bytes() == wanted.size());
  RC_ASSERT(batch.extents().size() == extents_wanted);
  ExtentList extents;
  std::vector<std::shared_ptr<memory::Registration>> found_locals;
  std::vector<std::shared_ptr<peer::RemoteRange>> found_remotes;
  batch.move_into(extents, found_locals, found_remotes);
  std::vector<Byte> said;
  for (ExtentCursor cursor(extents); !cursor.at_end();) {
    const Extent extent = cursor.take();
    const Handle local = found_locals.at(extent.local_index)->handle();
    const bool second =
        found_remotes.at(extent.remote_index) == world.ranges.find(remotes[1]).value();
    for (std::uint64_t i = 0; i < extent.length; ++i) {
      said.push_back(
          {extent.local_address + i, extent.remote_address + i, local, remotes.at(second ? 1 : 0)});
    }
  }
  RC_ASSERT(said == wanted);
}

}  // namespace
}  // namespace orbite::transfer
