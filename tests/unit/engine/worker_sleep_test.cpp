// SPDX-License-Identifier: Apache-2.0
// What the worker tells its SpinPolicy: seen in whether its next sleep begins with a look.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <vector>

#include "base/clock.hpp"
#include "engine/access.hpp"
#include "engine/spin.hpp"

namespace orbite {
namespace {

constexpr base::Nanoseconds kSleep = base::kSecond;
constexpr base::Nanoseconds kStep = 10 * base::kMicrosecond;
static_assert(SpinPolicy::kWindow % kStep == 0);

/// A poller that answers as the test says, in time that passes as the test says.
class ScriptedPoller final : public platform::Network {
 public:
  using Socket = platform::Socket;
  struct Answer {
    base::Nanoseconds takes_ns;
    bool event;
  };
  explicit ScriptedPoller(base::ManualClock& clock) : clock_(clock) {}

  std::size_t poller_wait(Socket, std::span<platform::PollEvent> events,
                          base::Nanoseconds timeout_ns) override {
    timeouts.push_back(timeout_ns);
    // More calls than answers end in time, and are seen in the timeouts.
    const Answer answer = answers.empty() ? Answer{kSleep, false} : answers.front();
    if (!answers.empty()) {
      answers.pop_front();
    }
    clock_.advance(answer.takes_ns);
    events[0] = {0, platform::kPollIn};
    return answer.event ? 1 : 0;
  }

  Result<Socket> listen(const platform::SocketAddress&) override { return no_sockets(); }
  Result<platform::SocketAddress> local_address(Socket) override { return no_sockets(); }
  Result<Socket> accept(Socket, platform::SocketAddress&) override { return no_sockets(); }
  Result<Socket> connect(const platform::SocketAddress&, const platform::SocketAddress*) override {
    return no_sockets();
  }
  platform::IoResult connect_result(Socket) override { return {}; }
  platform::IoResult send(Socket, std::span<const iovec>) override { return {}; }
  platform::IoResult receive(Socket, std::span<const iovec>) override { return {}; }
  void shutdown_send(Socket) override {}
  void close(Socket) override {}
  void configure(Socket, const SocketOptions&) override {}
  Result<Socket> make_poller() override { return 1; }
  Result<void> poller_add(Socket, Socket, std::uint32_t, std::uint64_t) override { return {}; }
  void poller_modify(Socket, Socket, std::uint32_t, std::uint64_t) override {}
  void poller_remove(Socket, Socket) override {}
  Result<Socket> make_wakeup() override { return 2; }
  void signal(Socket) override {}
  void clear(Socket) override {}

  std::deque<Answer> answers;
  std::vector<base::Nanoseconds> timeouts;

 private:
  static tl::unexpected<Error> no_sockets() { return fail(ErrorCode::kSystem, "no sockets"); }
  base::ManualClock& clock_;
};

class WorkerSleep : public ::testing::Test {
 protected:
  WorkerSleep() {
    EngineEnvironment system = system_environment();
    Config config;
    config.tcp.enabled = false;
    engine_ = EngineAccess::create({"a", config}, {poller_,
                                                   clock_,
                                                   system.random,
                                                   system.waiter,
                                                   system.host_identity,
                                                   system.default_route_addresses,
                                                   {},
                                                   false})
                  .value();
  }
  ~WorkerSleep() override { EXPECT_TRUE(EngineAccess::destroy_dead(std::move(engine_))); }

  /// The timeouts that the poller was given.
  std::vector<base::Nanoseconds> sleep(std::initializer_list<ScriptedPoller::Answer> answers,
                                       base::Nanoseconds sleep_ns = kSleep) {
    poller_.answers = answers;
    poller_.timeouts.clear();
    EngineAccess::sleep(*engine_, sleep_ns);
    EXPECT_TRUE(poller_.answers.empty()) << "fewer calls than answers";
    return poller_.timeouts;
  }
  void make_it_pay() { EXPECT_EQ(sleep({{SpinPolicy::kWindow, true}}), std::vector{kSleep}); }
  /// A look over the whole window, then a sleep that ends after `asleep_ns`.
  void look_in_vain(base::Nanoseconds asleep_ns, bool event) {
    std::vector<base::Nanoseconds> expected;
    poller_.answers.clear();
    poller_.timeouts.clear();
    for (base::Nanoseconds at_ns = 0; at_ns < SpinPolicy::kWindow; at_ns += kStep) {
      poller_.answers.push_back({kStep, false});
      expected.push_back(0);
    }
    poller_.answers.push_back({asleep_ns, event});
    expected.push_back(kSleep - SpinPolicy::kWindow);
    EngineAccess::sleep(*engine_, kSleep);
    EXPECT_EQ(poller_.timeouts, expected);
  }

  base::ManualClock clock_;
  ScriptedPoller poller_{clock_};
  std::unique_ptr<TransferEngine> engine_;
};

TEST_F(WorkerSleep, AShortOneThatAnEventEndsMakesTheNextOneLook) {
  EXPECT_EQ(sleep({{SpinPolicy::kWindow + 1, true}}), std::vector{kSleep});
  EXPECT_EQ(sleep({{SpinPolicy::kWindow, true}}), std::vector{kSleep});
  EXPECT_EQ(sleep({{kStep, false}, {kStep, true}}), (std::vector<base::Nanoseconds>{0, 0}));
}

TEST_F(WorkerSleep, AShortOneThatNoEventEndsDoesNot) {
  EXPECT_EQ(sleep({{kStep, false}}), std::vector{kSleep});
  EXPECT_EQ(sleep({{kSleep, false}}), std::vector{kSleep});
}

/// An event right after a look in vain came later than the window: a look that was as long again
/// would not have met it.
TEST_F(WorkerSleep, CountsFromTheBeginningOfTheLookBeforeIt) {
  make_it_pay();
  for (std::uint32_t i = 0; i < SpinPolicy::kMissesMax; ++i) {
    look_in_vain(1, true);
  }
  EXPECT_EQ(sleep({{SpinPolicy::kWindow + 1, true}}), std::vector{kSleep});
}

TEST_F(WorkerSleep, TellsWhetherALookFoundAnything) {
  make_it_pay();
  for (std::uint32_t round = 0; round < 3; ++round) {
    for (std::uint32_t i = 0; i + 1 < SpinPolicy::kMissesMax; ++i) {
      look_in_vain(kSleep, false);
    }
    EXPECT_EQ(sleep({{kStep, false}, {kStep, true}}), (std::vector<base::Nanoseconds>{0, 0}));
  }
  for (std::uint32_t i = 0; i < SpinPolicy::kMissesMax; ++i) {
    look_in_vain(kSleep, false);
  }
  EXPECT_EQ(sleep({{kSleep, false}}), std::vector{kSleep});
}

/// The longest time between two calls; a rest counts from the end of the look.
TEST_F(WorkerSleep, TellsThatALookWasInterrupted) {
  make_it_pay();
  EXPECT_EQ(sleep({{kStep, false}, {SpinPolicy::kTurnMin, true}}),
            (std::vector<base::Nanoseconds>{0, 0}));
  clock_.advance(SpinPolicy::kRestMin - 1);
  EXPECT_EQ(sleep({{SpinPolicy::kWindow + 1, true}}), std::vector{kSleep});
  EXPECT_EQ(sleep({{kStep, true}}), std::vector<base::Nanoseconds>{0});
}

TEST_F(WorkerSleep, TellsOfTheInterruptionOfALookInVainToo) {
  make_it_pay();
  EXPECT_EQ(sleep({{SpinPolicy::kTurnMin, false}, {1, false}}),
            (std::vector<base::Nanoseconds>{0, kSleep - SpinPolicy::kTurnMin}));
  EXPECT_EQ(sleep({{kStep, true}}), std::vector{kSleep});
}

TEST_F(WorkerSleep, LooksNoLongerThanItWouldSleep) {
  make_it_pay();
  EXPECT_EQ(sleep({{kStep, false}, {kStep, false}, {0, false}}, 2 * kStep),
            (std::vector<base::Nanoseconds>{0, 0, 0}));
}

}  // namespace
}  // namespace orbite
