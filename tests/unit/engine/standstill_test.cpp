// SPDX-License-Identifier: Apache-2.0
// Time in which we stood still ourselves is not the peer's silence: a stopped process, a machine
// whose image is taken, a laptop's lid.
#include <gtest/gtest.h>

#include <atomic>

#include "engine/access.hpp"
#include "engine/environment.hpp"
#include "engine_pair.hpp"
#include "remote_process.hpp"

namespace orbite {
namespace {

using test::eventually;
using test::Node;
using test::RemoteProcess;

constexpr std::size_t kLarge = std::size_t{64} << 20;
constexpr std::uint64_t kPatienceMs = 5'000;
constexpr base::Nanoseconds kStandstill = 10 * kPatienceMs * base::kMillisecond;

/// The system's clock, which jumps when told to.
class JumpingClock final : public base::Clock {
 public:
  explicit JumpingClock(const base::Clock& clock) : clock_(clock) {}
  [[nodiscard]] base::Nanoseconds now_ns() const noexcept override {
    return clock_.now_ns() + ahead_ns_.load(std::memory_order_seq_cst);
  }
  void jump(base::Nanoseconds span_ns) { ahead_ns_.fetch_add(span_ns, std::memory_order_seq_cst); }

 private:
  const base::Clock& clock_;
  std::atomic<base::Nanoseconds> ahead_ns_{0};
};

class Standstill : public ::testing::Test {
 protected:
  Standstill() {
    remote_.introduce_to(node_);
    warm_up(node_, remote_, kLarge);
  }
  static Result<std::unique_ptr<TransferEngine>> engine_with(const base::Clock& clock) {
    const EngineEnvironment system = system_environment();
    Config config = test::loopback_config();
    config.tcp.progress_timeout_ms = kPatienceMs;
    config.close.timeout_ms = 200;
    return EngineAccess::create({"a", config}, {system.network,
                                                clock,
                                                system.random,
                                                system.waiter,
                                                system.host_identity,
                                                system.default_route_addresses,
                                                {},
                                                true});
  }
  Handle post(Operation operation, std::size_t bytes, const PostOptions& options = {}) {
    const Handle request = remote_.prepare(node_, operation, bytes).value();
    EXPECT_TRUE(node_.engine->post(request, options).has_value());
    return request;
  }
  /// The worker looks at deadlines after it has looked at its lanes.
  void wait_for_a_look_of_the_worker() {
    const Handle request = post(Operation::kRead, 1, {{}, 1});
    EXPECT_TRUE(
        eventually([&] { return node_.engine->check(request)->logical == Logical::kFailed; }));
  }

  RemoteProcess remote_{kLarge};
  JumpingClock clock_{system_environment().clock};
  Node node_{engine_with(clock_), kLarge};
};

TEST_F(Standstill, IsNotThePeersSilence) {
  for (const Operation operation : {Operation::kWrite, Operation::kRead}) {
    remote_.stop();
    const Handle request = post(operation, kLarge);
    clock_.jump(kStandstill);
    wait_for_a_look_of_the_worker();
    EXPECT_EQ(node_.engine->check(request)->logical, Logical::kNone);
    remote_.go_on();
    EXPECT_EQ(test::wait_terminal(*node_.engine, request).logical, Logical::kSuccess);
  }
}

}  // namespace
}  // namespace orbite
