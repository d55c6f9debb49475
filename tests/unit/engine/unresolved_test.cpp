// SPDX-License-Identifier: Apache-2.0
// What an engine says of work whose proof of retirement it has not got, and the operator's word.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "engine_pair.hpp"
#include "remote_process.hpp"
#include "wire/metadata.hpp"

namespace orbite {
namespace {

using test::eventually;
using test::Node;
using test::RemoteProcess;

constexpr std::size_t kLarge = std::size_t{64} << 20;

class Unresolved : public ::testing::Test {
 protected:
  Unresolved() {
    remote_.introduce_to(node_);
    warm_up(node_, remote_, kLarge);
  }
  static Config config() {
    Config made = test::loopback_config();
    made.tcp.progress_timeout_ms = 100;
    made.close.timeout_ms = 200;
    return made;
  }
  /// WRITEs to the stopped peer whose outcome is known and whose end is not.
  std::vector<Handle> write_into_silence(std::size_t count) {
    remote_.stop();
    std::vector<Handle> requests;
    for (std::size_t i = 0; i < count; ++i) {
      requests.push_back(remote_.prepare(node_, Operation::kWrite, kLarge).value());
      EXPECT_TRUE(node_.engine->post(requests.back(), {}).has_value());
    }
    EXPECT_TRUE(eventually(
        [&] { return node_.engine->check(requests.front())->logical != Logical::kNone; }));
    return requests;
  }

  RemoteProcess remote_{kLarge};
  Node node_{"a", kLarge, config()};
};

TEST_F(Unresolved, IsNothingWhileAllGoesWell) {
  EXPECT_TRUE(node_.engine->unresolved_peers().empty());
  remote_.stop();
  const Handle request = remote_.prepare(node_, Operation::kRead, kLarge).value();
  ASSERT_TRUE(node_.engine->post(request, {}).has_value());
  EXPECT_TRUE(node_.engine->unresolved_peers().empty()) << "in progress is not unresolved";
  remote_.go_on();
  EXPECT_EQ(test::wait_terminal(*node_.engine, request).logical, Logical::kSuccess);
}

TEST_F(Unresolved, NamesThePeerTheReasonAndHowMuch) {
  const std::vector<Handle> requests = write_into_silence(1);
  const std::vector<UnresolvedPeer> unresolved = node_.engine->unresolved_peers();
  ASSERT_EQ(unresolved.size(), 1U);
  const UnresolvedPeer& peer = unresolved.front();
  EXPECT_EQ(peer.name, "remote");
  EXPECT_FALSE(peer.retired);
  EXPECT_EQ(peer.requests, 1U);
  EXPECT_EQ(peer.bytes, kLarge);
  EXPECT_GT(peer.pieces, 0U);
  EXPECT_EQ(peer.code, ErrorCode::kPeerSilent);
  EXPECT_EQ(peer.address.substr(0, 10), "127.0.0.1:");
  EXPECT_TRUE(eventually([&] {
    return node_.engine->unresolved_peers().front().duration_ns > peer.duration_ns;
  })) << "it grows";
  const auto info = nlohmann::json::parse(node_.engine->info_json());
  ASSERT_EQ(info["unresolved"].size(), 1U);
  EXPECT_EQ(info["unresolved"][0]["name"], "remote");
  EXPECT_EQ(info["unresolved"][0]["requests"], 1);
  EXPECT_NE(info["unresolved"][0]["reason"].get<std::string>().find("silent"), std::string::npos);
  remote_.go_on();
  EXPECT_TRUE(test::wait_terminal(*node_.engine, requests.front()).terminal());
  EXPECT_TRUE(node_.engine->unresolved_peers().empty());
}

TEST_F(Unresolved, OfARetiredPeerIsStillNamedAndEndsWithTheWordOnItsEpoch) {
  const std::vector<Handle> requests = write_into_silence(2);
  ASSERT_TRUE(node_.engine->retire_peer(node_.peer).has_value());
  EXPECT_EQ(node_.engine->confirm_peer_fenced(node_.peer).error().code(), ErrorCode::kStaleHandle);
  ASSERT_TRUE(eventually(
      [&] { return node_.engine->check(requests.back())->logical == Logical::kFailed; }));
  const std::vector<UnresolvedPeer> unresolved = node_.engine->unresolved_peers();
  ASSERT_EQ(unresolved.size(), 1U);
  EXPECT_TRUE(unresolved.front().retired);
  std::array<std::uint8_t, 16> other = unresolved.front().epoch;
  other[0] = static_cast<std::uint8_t>(other[0] ^ 1U);
  EXPECT_EQ(node_.engine->confirm_epoch_fenced(other).error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(node_.engine->unresolved_peers().size(), 1U);
  ASSERT_TRUE(node_.engine->confirm_epoch_fenced(unresolved.front().epoch).has_value());
  for (const Handle request : requests) {
    EXPECT_TRUE(test::wait_terminal(*node_.engine, request).terminal());
  }
  EXPECT_TRUE(node_.engine->unresolved_peers().empty());
}

/// A peer as it is known under another name and another blob of the same life.
class UnresolvedTwice : public Unresolved {
 protected:
  static constexpr std::size_t kSmall = 4096;  // one piece each

  UnresolvedTwice() {
    auto blob = wire::decode_connection(remote_.connection(), wire::Profile::kMemory).value();
    blob.addresses.push_back({4, {192, 0, 2, 1}});
    again_ = node_.engine->import_peer("again", wire::encode(blob)).value();
    range_ = node_.engine->import_range(again_, remote_.range(), remote_.address(), kLarge).value();
    EXPECT_TRUE(node_.engine->connect_peer(again_, 20'000'000'000).has_value());
  }
  Handle write(Handle peer, Handle range, std::size_t at) {
    const Descriptor from{node_.address(at), kSmall, node_.registration};
    const Descriptor to{remote_.address() + at, kSmall, range};
    const Handle request =
        node_.engine->prepare({Operation::kWrite, peer, {&from, 1}, {&to, 1}}).value();
    EXPECT_TRUE(node_.engine->post(request, {}).has_value());
    return request;
  }
  UnresolvedPeer only() {
    const std::vector<UnresolvedPeer> unresolved = node_.engine->unresolved_peers();
    EXPECT_EQ(unresolved.size(), 1U);
    return unresolved.empty() ? UnresolvedPeer{} : unresolved.front();
  }

  Handle again_;
  Handle range_;
};

TEST_F(UnresolvedTwice, IsOneEntryThatCountsEachPieceOnce) {
  remote_.stop();
  const std::vector<Handle> requests = {write(node_.peer, node_.range, 0),
                                        write(node_.peer, node_.range, kSmall),
                                        write(again_, range_, 2 * kSmall)};
  ASSERT_TRUE(eventually([&] {
    const std::vector<UnresolvedPeer> unresolved = node_.engine->unresolved_peers();
    return !unresolved.empty() && unresolved.front().requests == 3 &&
           unresolved.front().pieces >= 3;
  }));
  EXPECT_EQ(only().pieces, 3U);
  EXPECT_EQ(only().bytes, 3 * kSmall);
  EXPECT_EQ(only().code, ErrorCode::kPeerSilent);

  // Its life is known as long as one of the names stands for it, whichever was used.
  ASSERT_TRUE(node_.engine->retire_peer(again_).has_value());
  EXPECT_FALSE(only().retired);
  const Handle anew = node_.engine->import_peer("again", remote_.connection()).value();
  ASSERT_TRUE(node_.engine->retire_peer(node_.peer).has_value());
  EXPECT_FALSE(only().retired);
  ASSERT_TRUE(node_.engine->retire_peer(anew).has_value());
  EXPECT_TRUE(only().retired);
  EXPECT_EQ(only().requests, 3U);

  ASSERT_TRUE(node_.engine->confirm_epoch_fenced(only().epoch).has_value());
  for (const Handle request : requests) {
    EXPECT_TRUE(test::wait_terminal(*node_.engine, request).terminal());
  }
  EXPECT_TRUE(node_.engine->unresolved_peers().empty());
}

TEST_F(UnresolvedTwice, TellsOfTheTroubleThatLastsLongest) {
  remote_.stop();
  const Handle first = write(node_.peer, node_.range, 0);
  ASSERT_TRUE(eventually([&] { return !node_.engine->unresolved_peers().empty(); }));
  ASSERT_TRUE(eventually([&] { return only().pieces == 1; }));
  const std::uint64_t lasted_ns = only().duration_ns;
  const Handle second = write(again_, range_, kSmall);
  ASSERT_TRUE(eventually([&] { return only().pieces == 2; }));
  EXPECT_GT(only().duration_ns, lasted_ns);
  remote_.go_on();
  EXPECT_TRUE(test::wait_terminal(*node_.engine, first).terminal());
  EXPECT_TRUE(test::wait_terminal(*node_.engine, second).terminal());
}

TEST_F(Unresolved, CanceledWorkOnItsWayIsNamedWithoutAConnectionInTrouble) {
  const Handle request = remote_.prepare(node_, Operation::kWrite, kLarge).value();
  remote_.stop();
  ASSERT_TRUE(node_.engine->post(request, {}).has_value());
  ASSERT_TRUE(node_.engine->cancel(request).has_value());
  const std::vector<UnresolvedPeer> unresolved = node_.engine->unresolved_peers();
  ASSERT_EQ(unresolved.size(), 1U);
  EXPECT_EQ(unresolved.front().code, ErrorCode::kCanceled);
  EXPECT_EQ(unresolved.front().pieces, 0U);
  EXPECT_EQ(unresolved.front().address, "");
  remote_.go_on();
  EXPECT_TRUE(test::wait_terminal(*node_.engine, request).terminal());
}

/// Notifications to a stopped peer, more of them than its lane takes.
class FencedMeanwhile : public ::testing::Test {
 protected:
  FencedMeanwhile() {
    remote_.introduce_to(node_);
    warm_up(node_, remote_, kLarge);
    remote_.stop();
    for (int i = 0; i < 300; ++i) {
      EXPECT_TRUE(node_.engine->send_notification(node_.peer, {}).has_value());
    }
  }
  ~FencedMeanwhile() override { base::set_log_sink(nullptr); }

  RemoteProcess remote_{kLarge};
  Node node_{"a", kLarge, test::loopback_config()};
};

TEST_F(FencedMeanwhile, WorkThatAnotherThreadPostsIsFencedToo) {
  const std::array<std::uint8_t, 16> epoch =
      wire::decode_connection(remote_.connection(), wire::Profile::kMemory).value().epoch.bytes;
  Handle request;
  bool posted = false;
  // The first notification that our call drops is logged: another thread posts before the next one
  // is. What the engine's worker drops meanwhile is logged under locks that a post may need.
  base::set_log_sink(
      [&, caller = std::this_thread::get_id()](base::LogLevel /*level*/, std::string_view line) {
        if (std::this_thread::get_id() != caller ||
            line.find("not delivered") == std::string_view::npos || std::exchange(posted, true)) {
          return;
        }
        std::thread([&] {
          remote_.introduce_to(node_);
          request = remote_.prepare(node_, Operation::kWrite, kLarge).value();
          EXPECT_TRUE(node_.engine->post(request, {}).has_value());
        }).join();
      });
  ASSERT_TRUE(node_.engine->confirm_epoch_fenced(epoch).has_value());
  base::set_log_sink(nullptr);
  ASSERT_TRUE(request.generation != 0);
  const Outcome outcome = test::wait_terminal(*node_.engine, request);
  EXPECT_EQ(outcome.code, ErrorCode::kPeerDisconnected) << error_text(outcome.code);
}

}  // namespace
}  // namespace orbite
