// SPDX-License-Identifier: Apache-2.0
// A caller who copies also copies what others have posted.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "engine/access.hpp"
#include "engine/environment.hpp"
#include "support/faulty_network.hpp"
#include "unit/engine/engine_pair.hpp"

namespace orbite {
namespace {

using test::eventually;
using test::Node;

constexpr std::size_t kSlice = std::size_t{64} << 10;
/// A post copies eight slices at most: of one with ten, two wait for whoever comes next.
constexpr std::size_t kLonger = 10 * kSlice;

/// Who waits is the engine's worker meanwhile.
class WorkingWaiter final : public base::Waiter {
 public:
  TransferEngine* engine = nullptr;

  bool wait_for(std::unique_lock<std::mutex>& lock, std::condition_variable& /*changed*/,
                base::Nanoseconds /*timeout_ns*/, const std::function<bool()>& ready) override {
    return eventually([&] {
      if (ready()) {
        return true;
      }
      lock.unlock();
      EngineAccess::work(*engine);
      lock.lock();
      return false;
    });
  }
};

class CopyWake : public ::testing::Test {
 protected:
  CopyWake() {
    waiter_.engine = near_.engine.get();
    near_.know("b", far_);
    EXPECT_TRUE(near_.engine->connect_peer(near_.peer, 0).has_value());
    // Until it has nothing to look after: what it still watches needs no wake.
    EXPECT_TRUE(
        eventually([&] { return EngineAccess::work(*near_.engine) > 100 * base::kMillisecond; }));
  }
  ~CopyWake() override { EXPECT_TRUE(EngineAccess::destroy_dead(std::move(near_.engine))); }
  static Config config() {
    Config config;
    config.listen.address = "127.0.0.1";
    config.tcp.slice_bytes = kSlice;
    config.tcp.small_bytes = 0;
    return config;
  }
  Result<std::unique_ptr<TransferEngine>> without_worker() {
    EngineEnvironment system = system_environment();
    return EngineAccess::create({"a", config()}, {network_,
                                                  system.clock,
                                                  system.random,
                                                  waiter_,
                                                  system.host_identity,
                                                  system.default_route_addresses,
                                                  {},
                                                  false,
                                                  system.neighbors});
  }

  test::FaultyNetwork network_;
  WorkingWaiter waiter_;
  Node far_{"b", kLonger, config()};
  Node near_{without_worker(), kLonger};
};

/// Its own work is done when it returns, and nobody else may come for long: the notification of
/// those whose bytes it ended is the worker's to send.
TEST_F(CopyWake, WhoEndsTheBytesOfOthersWakesTheWorkerForTheirNotification) {
  const std::vector<std::uint8_t> message{1, 2, 3};
  const Handle longer = test::prepare(near_, far_, Operation::kWrite, {{0, 0, kLonger}}).value();
  PostOptions options;
  options.notification = message;
  const auto posted = near_.engine->post(longer, options);
  ASSERT_TRUE(posted.has_value());
  ASSERT_STREQ(posted->route, "cma");
  ASSERT_FALSE(posted->terminal());

  const Handle shorter = test::prepare(near_, far_, Operation::kWrite, {{0, 0, 4096}}).value();
  const std::uint64_t signals = network_.signals.load(std::memory_order_relaxed);
  const auto done = near_.engine->post(shorter, {});
  ASSERT_TRUE(done.has_value() && done->terminal());
  EXPECT_FALSE(near_.engine->query(longer)->terminal());
  EXPECT_GT(network_.signals.load(std::memory_order_relaxed), signals);

  std::optional<Notification> received;
  ASSERT_TRUE(eventually([&] {
    EngineAccess::work(*near_.engine);
    if (auto one = far_.engine->receive_notification()) {
      received = std::move(one);
    }
    return received.has_value() && near_.engine->query(longer)->terminal();
  }));
  EXPECT_EQ(received->message, message);
}

}  // namespace
}  // namespace orbite
