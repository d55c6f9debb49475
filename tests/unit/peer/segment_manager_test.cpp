// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "peer/peer.hpp"

namespace orbite::peer {
namespace {

wire::ConnectionBlob connection(std::uint8_t epoch, std::uint8_t secret = 1,
                                std::uint16_t port = 99) {
  wire::ConnectionBlob blob;
  blob.epoch.bytes[0] = epoch;
  blob.secret[0] = secret;
  blob.port = port;
  return blob;
}

std::shared_ptr<Peer> make(const std::string& name, std::uint8_t epoch) {
  return std::make_shared<Peer>(name, connection(epoch), false);
}

class SegmentManagerTest : public ::testing::Test {
 protected:
  /// As an import does it: a live peer of the same identity is used again.
  Handle import(const std::string& name, const wire::ConnectionBlob& blob) {
    std::shared_ptr<Peer> peer = manager_.find_live(name, blob);
    if (peer == nullptr) {
      peer = std::make_shared<Peer>(name, blob, false);
    }
    replaced_.reset();
    return manager_.add(std::move(peer), replaced_).value();
  }

  SegmentManager manager_{16};
  std::shared_ptr<Peer> replaced_;
};

TEST_F(SegmentManagerTest, SharesOnePeerAmongImportsOfTheSameBlob) {
  const Handle a = import("p", connection(1));
  const Handle b = import("p", connection(1));
  EXPECT_NE(a, b);
  EXPECT_EQ(replaced_, nullptr);
  const auto peer = manager_.find(a).value();
  EXPECT_EQ(peer, manager_.find(b).value());
  EXPECT_EQ(manager_.size(), 2U);

  ASSERT_EQ(manager_.remove(a).value(), peer);
  EXPECT_FALSE(peer->retired());
  EXPECT_TRUE(peer->check_live().has_value());
  EXPECT_EQ(manager_.find(a).error().code(), ErrorCode::kStaleHandle);
  ASSERT_EQ(manager_.remove(b).value(), peer);
  EXPECT_TRUE(peer->retired());
  EXPECT_EQ(peer->check_live().error().code(), ErrorCode::kPeerRetired);
  EXPECT_EQ(manager_.remove(b).error().code(), ErrorCode::kStaleHandle);
  EXPECT_EQ(manager_.find_live("p", connection(1)), nullptr);
}

TEST_F(SegmentManagerTest, RetiresAPeerWhoseNameComesWithAnotherIdentity) {
  const std::array<wire::ConnectionBlob, 4> identities = {connection(1), connection(2),
                                                          connection(2, 5), connection(2, 5, 7)};
  Handle last = import("p", identities[0]);
  for (std::size_t i = 1; i < identities.size(); ++i) {
    const auto old = manager_.find(last).value();
    const Handle next = import("p", identities.at(i));
    EXPECT_EQ(replaced_, old);
    EXPECT_TRUE(old->retired());
    EXPECT_FALSE(manager_.find(next).value()->retired());
    // The old handle still names the old peer, which nothing can be prepared for.
    EXPECT_EQ(manager_.find(last).value(), old);
    EXPECT_EQ(manager_.remove(last).value(), old);
    EXPECT_FALSE(manager_.find(next).value()->retired());
    last = next;
  }
}

TEST_F(SegmentManagerTest, ReplacesEveryHandleOfTheOldIdentityAtOnce) {
  const Handle a = import("p", connection(1));
  const Handle b = import("p", connection(1));
  const Handle c = import("p", connection(2));
  EXPECT_TRUE(manager_.find(a).value()->retired());
  EXPECT_TRUE(manager_.find(b).value()->retired());
  ASSERT_TRUE(manager_.remove(a).has_value());
  ASSERT_TRUE(manager_.remove(b).has_value());
  EXPECT_FALSE(manager_.find(c).value()->retired());
  const auto peer = manager_.find(c).value();
  ASSERT_TRUE(manager_.remove(c).has_value());
  EXPECT_TRUE(peer->retired());
}

TEST_F(SegmentManagerTest, ARetiredPeerThatComesBackIsAnotherPeer) {
  const Handle a = import("p", connection(1));
  const auto first = manager_.find(a).value();
  ASSERT_TRUE(manager_.remove(a).has_value());
  const Handle b = import("p", connection(1));
  EXPECT_NE(manager_.find(b).value(), first);
  EXPECT_TRUE(first->retired());
}

TEST_F(SegmentManagerTest, KeepsNamesApart) {
  const Handle a = import("a", connection(1));
  const Handle b = import("b", connection(1));
  EXPECT_NE(manager_.find(a).value(), manager_.find(b).value());
  ASSERT_TRUE(manager_.remove(a).has_value());
  EXPECT_FALSE(manager_.find(b).value()->retired());
}

TEST_F(SegmentManagerTest, KnowsAnOlderLifeOfASender) {
  EXPECT_TRUE(manager_.epoch_is_current("p", connection(1).epoch));
  const Handle old = import("p", connection(1));
  EXPECT_TRUE(manager_.epoch_is_current("p", connection(1).epoch));
  EXPECT_FALSE(manager_.epoch_is_current("p", connection(2).epoch));
  const Handle current = import("p", connection(2));
  EXPECT_FALSE(manager_.epoch_is_current("p", connection(1).epoch));
  EXPECT_TRUE(manager_.epoch_is_current("p", connection(2).epoch));
  ASSERT_TRUE(manager_.remove(old).has_value());
  ASSERT_TRUE(manager_.remove(current).has_value());
  EXPECT_TRUE(manager_.epoch_is_current("p", connection(1).epoch));
}

TEST_F(SegmentManagerTest, RefusesMoreHandlesThanItMayHold) {
  std::vector<Handle> handles;
  for (int i = 0; i < 16; ++i) {
    handles.push_back(import("p", connection(1)));
  }
  std::shared_ptr<Peer> replaced;
  const auto refused = manager_.add(make("q", 2), replaced);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kBudgetExhausted);
  // A refusal replaces nobody either.
  EXPECT_FALSE(manager_.add(make("p", 2), replaced).has_value());
  EXPECT_EQ(replaced, nullptr);
  EXPECT_FALSE(manager_.find(handles[0]).value()->retired());
  ASSERT_TRUE(manager_.remove(handles[0]).has_value());
  EXPECT_TRUE(manager_.add(make("q", 2), replaced).has_value());
}

TEST_F(SegmentManagerTest, RetiresAllOfThemAtItsEnd) {
  const Handle a = import("a", connection(1));
  const Handle b = import("b", connection(2));
  manager_.retire_all();
  EXPECT_TRUE(manager_.find(a).value()->retired());
  EXPECT_TRUE(manager_.find(b).value()->retired());
  EXPECT_EQ(manager_.all().size(), 2U);
}

RC_GTEST_PROP(SegmentManagerProperty, APeerLivesWhileItsNameHasAHandleOfIt,
              (const std::vector<std::array<std::uint8_t, 3>>& steps)) {
  SegmentManager manager(8);
  struct Held {
    Handle handle;
    std::shared_ptr<Peer> peer;
  };
  std::vector<Held> held;
  std::map<std::string, std::shared_ptr<Peer>> current;
  for (const auto& [what, name_choice, which] : steps) {
    const std::string name(1, static_cast<char>('a' + name_choice % 3));
    if (what % 3 != 0 || held.empty()) {
      const auto blob = connection(static_cast<std::uint8_t>(which % 3));
      std::shared_ptr<Peer> peer = manager.find_live(name, blob);
      const auto found = current.find(name);
      const bool is_live = found != current.end() && found->second->epoch() == blob.epoch;
      RC_ASSERT(peer == (is_live ? found->second : nullptr));
      if (peer == nullptr) {
        peer = std::make_shared<Peer>(name, blob, false);
      }
      std::shared_ptr<Peer> replaced;
      const auto handle = manager.add(peer, replaced);
      RC_ASSERT(handle.has_value() == (held.size() < 8));
      if (handle) {
        RC_ASSERT(replaced == (is_live || found == current.end() ? nullptr : found->second));
        held.push_back({*handle, peer});
        current[name] = peer;
      }
    } else {
      const std::size_t index = which % held.size();
      const Held gone = held[index];
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(index));
      RC_ASSERT(manager.remove(gone.handle).value() == gone.peer);
      const bool last = std::none_of(held.begin(), held.end(),
                                     [&](const Held& it) { return it.peer == gone.peer; });
      const auto found = current.find(gone.peer->name());
      if (last && found != current.end() && found->second == gone.peer) {
        current.erase(found);
      }
      RC_ASSERT(gone.peer->retired() || !last);
    }
    for (const Held& it : held) {
      RC_ASSERT(manager.find(it.handle).value() == it.peer);
      const auto found = current.find(it.peer->name());
      const bool is_current = found != current.end() && found->second == it.peer;
      RC_ASSERT(it.peer->retired() == !is_current);
    }
    RC_ASSERT(manager.size() == held.size());
  }
}

TEST(RemoteRange, TellsTheRightsOfWhatItStandsFor) {
  wire::RangeBlob blob;
  blob.access = kAccessLocal | kAccessRemoteRead;
  const auto bounds = base::ByteRange::make(0x1000, 64).value();
  RemoteRange of_peer(make("p", 1), blob, bounds);
  EXPECT_EQ(of_peer.access(), blob.access);
  EXPECT_EQ(of_peer.own(), nullptr);
  EXPECT_FALSE(of_peer.fenced());
  of_peer.fence();
  EXPECT_TRUE(of_peer.fenced());

  base::SeededRandom random(1);
  memory::Registry registry({.registrations_max = 1}, random);
  MemoryDescriptor memory;
  memory.address = 0x1000;
  memory.length = 64;
  memory.access = kAccessLocal | kAccessRemoteWrite;
  const RemoteRange own(registry.find(registry.add(memory).value()).value(), bounds);
  EXPECT_EQ(own.access(), memory.access);
  EXPECT_EQ(own.peer(), nullptr);
}

}  // namespace
}  // namespace orbite::peer
