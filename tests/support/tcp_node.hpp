// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "platform/network.hpp"
#include "platform/system.hpp"
#include "support/caller.hpp"
#include "support/flows.hpp"
#include "transport/tcp/tcp_transport.hpp"

namespace orbite::test {

/// Steps until the condition holds. False when the bound (of real time) runs out.
template <typename Step, typename Condition>
bool step_until(Step step, Condition condition,
                std::chrono::milliseconds bound = std::chrono::milliseconds(20'000)) {
  const auto deadline = std::chrono::steady_clock::now() + bound;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) {
      return false;
    }
    step();
  }
  return true;
}

/// The same stream as SeededRandom, from any thread.
class SharedRandom final : public base::RandomSource {
 public:
  explicit SharedRandom(std::uint64_t seed) : random_(seed) {}
  void fill(std::span<std::uint8_t> bytes) noexcept override {
    const std::lock_guard lock(mutex_);
    random_.fill(bytes);
  }

 private:
  std::mutex mutex_;
  base::SeededRandom random_;
};

/// As ManualClock, from any thread.
class SharedClock final : public base::Clock {
 public:
  [[nodiscard]] base::Nanoseconds now_ns() const noexcept override {
    return now_ns_.load(std::memory_order_relaxed);
  }
  void advance(base::Nanoseconds step_ns) noexcept {
    now_ns_.fetch_add(step_ns, std::memory_order_relaxed);
  }

 private:
  std::atomic<base::Nanoseconds> now_ns_{base::kSecond};
};

/// What an engine is to its TCP transport, without an engine: registry, planner, poller. The test
/// is its worker: turn() does what the engine's worker does in one round.
class TcpNode {
 public:
  struct Options {
    std::string name = "near";
    Config config = default_config();
    std::uint64_t seed = 1;
    platform::Network* network = nullptr;  ///< nullptr: one of its own
    base::Waiter* waiter = nullptr;        ///< nullptr: one of its own
    const base::Clock* clock = nullptr;    ///< nullptr: the system's
  };
  static Config default_config() {
    Config config;
    config.listen.address = "127.0.0.1";
    return config;
  }

  explicit TcpNode(Options options)
      : config(std::move(options.config)),
        network(options.network != nullptr ? *options.network : own_network_),
        clock(options.clock != nullptr ? *options.clock : own_clock_),
        random(options.seed) {
    random.fill(epoch.bytes);
    random.fill(secret);
    poller_ = network.make_poller().value();
    transport::tcp::Environment environment{network,
                                            clock,
                                            watched_clock_,
                                            random,
                                            options.waiter != nullptr ? *options.waiter : waiter_,
                                            registry,
                                            counters,
                                            config,
                                            options.name,
                                            epoch,
                                            secret,
                                            host_,
                                            poller_,
                                            {}};
    environment.deliver = [this](const wire::Envelope& envelope) -> Result<void> {
      if (refuse_notifications) {
        return fail(ErrorCode::kBudgetExhausted, "the inbox is full");
      }
      inbox.push_back(
          {std::string(envelope.sender_name), {envelope.message.begin(), envelope.message.end()}});
      if (on_deliver) {
        on_deliver();
      }
      return {};
    };
    transport =
        transport::tcp::TcpTransport::create(std::move(environment), caller.planner, [] {}).value();
    caller.planner.set_transport(policy::TransportKind::kTcp, transport.get());
  }
  TcpNode(const TcpNode&) = delete;
  TcpNode& operator=(const TcpNode&) = delete;
  ~TcpNode() {
    die();
    network.close(poller_);
  }

  /// Every socket is closed, as at the end of a process.
  void die() { transport.reset(); }

  /// One round, which sleeps at most `sleep_ns` when nothing happens.
  void turn(base::Nanoseconds sleep_ns = 0) {
    if (transport == nullptr) {
      return;
    }
    std::array<platform::PollEvent, 64> events;
    const std::size_t count = network.poller_wait(poller_, events, sleep_ns);
    for (std::size_t i = 0; i < count; ++i) {
      transport->on_event(events.at(i).token, events.at(i).events);
    }
    transport->on_tick(clock.now_ns());
  }

  [[nodiscard]] wire::ConnectionBlob blob() const {
    return make_blob(epoch, secret, transport->port());
  }
  /// Of somebody who is reached over loopback.
  [[nodiscard]] wire::ConnectionBlob make_blob(const base::SourceEpoch& of,
                                               const wire::Secret& proof,
                                               std::uint16_t port) const {
    wire::ConnectionBlob made;
    made.epoch = of;
    made.secret = proof;
    made.host = host_;
    made.loopback_reachable = true;
    made.port = port;
    return made;
  }
  std::shared_ptr<peer::Peer> import(const std::string& name, const wire::ConnectionBlob& blob) {
    auto peer = std::make_shared<peer::Peer>(name, blob, false);
    test::set_flow(*peer, transport->open(*peer).value());
    return peer;
  }

  struct Delivered {
    std::string sender;
    std::vector<std::uint8_t> message;
  };

  Config config;

 private:
  platform::SystemNetwork own_network_;
  platform::SystemClock own_clock_;
  base::ThreadWaiter waiter_;
  base::HostIdentity host_{};
  platform::Socket poller_ = platform::kNoSocket;

 public:
  platform::Network& network;
  const base::Clock& clock;
  base::WatchedClock watched_clock_{clock};
  SharedRandom random;
  base::SourceEpoch epoch;
  wire::Secret secret{};
  telemetry::Counters counters;
  memory::Registry registry{{.registrations_max = 1024}, random};
  Caller caller{registry};
  std::vector<Delivered> inbox;
  std::function<void()> on_deliver;
  bool refuse_notifications = false;
  std::unique_ptr<transport::tcp::TcpTransport> transport;
};

}  // namespace orbite::test
