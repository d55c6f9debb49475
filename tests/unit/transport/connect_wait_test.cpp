// SPDX-License-Identifier: Apache-2.0
// What ends the wait of somebody who connects a peer. Peer, clock and waiting are the test's.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "support/caller.hpp"
#include "support/flows.hpp"
#include "support/memory_network.hpp"
#include "support/tcp_node.hpp"

namespace orbite::test {
namespace {

using platform::Socket;

constexpr std::uint64_t kBytes = 16;

/// Does the next of some steps whenever what is waited for is not there.
class ScriptedWaiter final : public base::Waiter {
 public:
  bool wait_for(std::unique_lock<std::mutex>& lock, std::condition_variable& /*changed*/,
                base::Nanoseconds /*timeout_ns*/, const std::function<bool()>& ready) override {
    while (!ready() && next_ < steps.size()) {
      lock.unlock();
      steps[next_++]();
      lock.lock();
    }
    return ready();
  }
  [[nodiscard]] bool done() const { return next_ == steps.size(); }

  std::vector<std::function<void()>> steps;

 private:
  std::size_t next_ = 0;
};

class ConnectWait : public ::testing::Test {
 protected:
  ConnectWait() {
    near_.random.fill(epoch_.bytes);
    near_.random.fill(secret_);
    peer_ = near_.import("far", near_.make_blob(epoch_, secret_, 77));
  }
  ~ConnectWait() override {
    near_.transport->confirm_fenced(flow());
    near_.turn();
  }

  [[nodiscard]] transfer::Flow& flow() { return test::only_flow(*peer_); }
  Result<void> connect() { return near_.transport->connect(flow(), base::kSecond); }

  /// Takes every connection that is being made.
  void take_connections() {
    near_.turn();
    while (!network_.asking().empty()) {
      const Socket socket = network_.answer();
      near_.turn();
      wire::ClientHello hello;
      const std::vector<std::uint8_t> sent = network_.take_sent(socket);
      ASSERT_GE(sent.size(), sizeof(hello));
      std::memcpy(&hello, sent.data(), sizeof(hello));
      taken_.emplace_back(socket, hello);
    }
  }
  /// Proves itself on those of that class. Returns the last of them.
  Socket prove(wire::LaneClass lane_class) {
    Socket last = platform::kNoSocket;
    for (const auto& [socket, hello] : taken_) {
      if (hello.lane_class == static_cast<std::uint8_t>(lane_class)) {
        wire::ServerHello server;
        server.server_epoch = epoch_;
        wire::sign_server(secret_, hello, server);
        network_.give(socket, {reinterpret_cast<const std::uint8_t*>(&server), sizeof(server)});
        near_.turn();
        last = socket;
      }
    }
    EXPECT_NE(last, platform::kNoSocket);
    return last;
  }

  MemoryNetwork network_;
  SharedClock clock_;
  ScriptedWaiter waiter_;
  TcpNode near_{{.name = "near", .network = &network_, .waiter = &waiter_, .clock = &clock_}};
  base::SourceEpoch epoch_;
  wire::Secret secret_{};
  base::SeededRandom far_random_{5};
  memory::Registry far_registry_{{.registrations_max = 1}, far_random_};
  Buffer near_buffer_{near_.registry, kBytes};
  Buffer far_{far_registry_, kBytes};
  std::shared_ptr<peer::Peer> peer_;
  std::vector<std::pair<Socket, wire::ClientHello>> taken_;
};

TEST_F(ConnectWait, IsForTheLatencyLaneAndNotForAnotherThatIsFaster) {
  const Handle range = near_.caller.import(peer_, far_.blob(epoch_));
  const auto prepared =
      near_.caller.prepare(*near_.transport, peer_, near_buffer_, far_, range,
                           {Operation::kWrite, {{0, 0, kBytes}}, policy::QosClass::kBulk});
  const auto execution = near_.caller.launch(*near_.transport, prepared);
  waiter_.steps = {[&] { take_connections(); }, [&] { prove(wire::LaneClass::kBulk); },
                   [&] { prove(wire::LaneClass::kLatency); }};
  const auto connected = connect();
  EXPECT_TRUE(connected) << connected.error().message();
  EXPECT_TRUE(waiter_.done());
}

TEST_F(ConnectWait, HasBeenConnectedWhateverEndsTheLaneThen) {
  waiter_.steps = {[&] { take_connections(); },
                   [&] {
                     network_.reset(prove(wire::LaneClass::kLatency));
                     clock_.advance(base::kSecond);
                     near_.turn();
                   }};
  const auto connected = connect();
  EXPECT_TRUE(connected) << connected.error().message();
}

TEST_F(ConnectWait, EndsWithTheReasonWhenNobodyAnswers) {
  waiter_.steps = {[&] {
    near_.turn();
    while (!network_.asking().empty()) {
      network_.reset(network_.answer());
      near_.turn();
    }
  }};
  const auto connected = connect();
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().code(), ErrorCode::kPeerUnreachable);
  EXPECT_NE(connected.error().native_errno(), 0);
}

}  // namespace
}  // namespace orbite::test
