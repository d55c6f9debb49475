// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/assert.hpp"
#include "base/log.hpp"
#include "base/random.hpp"
#include "base/waiter.hpp"
#include "memory/registry.hpp"
#include "notify/mailbox.hpp"
#include "support/memory_network.hpp"
#include "transfer/transport.hpp"
#include "transport/tcp/tcp_transport.hpp"

namespace orbite::fuzz {

/// The bytes of one run, taken from the front. Zeros after the end.
class Input {
 public:
  explicit Input(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  [[nodiscard]] bool empty() const noexcept { return bytes_.empty(); }
  template <typename T>
  T take() {
    T value{};
    const std::size_t bytes = std::min(sizeof(T), bytes_.size());
    // Not memcpy, which takes no null pointer, not even for no bytes.
    std::copy_n(bytes_.data(), bytes, reinterpret_cast<std::uint8_t*>(&value));
    bytes_ = bytes_.subspan(bytes);
    return value;
  }
  std::uint8_t byte() { return take<std::uint8_t>(); }
  std::span<const std::uint8_t> bytes(std::size_t count) {
    const auto taken = bytes_.first(std::min(count, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

/// A registered range between two guards.
class Region {
 public:
  Region(memory::Registry& registry, std::size_t size, std::uint8_t access)
      : bytes_(size + 2 * kGuard, kGuardByte) {
    std::fill_n(bytes_.begin() + kGuard, size, kContent);
    MemoryDescriptor memory;
    memory.address = address();
    memory.length = size;
    memory.access = access;
    handle = registry.add(memory).value();
    registration = registry.find(handle).value();
  }
  [[nodiscard]] std::uint64_t address() const {
    return reinterpret_cast<std::uint64_t>(bytes_.data() + kGuard);
  }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_.size() - 2 * kGuard; }
  [[nodiscard]] std::uint8_t at(std::size_t offset) const { return bytes_.at(kGuard + offset); }
  void check_guards() const {
    for (std::size_t i = 0; i < kGuard; ++i) {
      ORBITE_CHECK(bytes_[i] == kGuardByte && bytes_[bytes_.size() - 1 - i] == kGuardByte);
    }
  }
  /// Nobody may have written here.
  void check_untouched() const {
    check_guards();
    for (std::size_t i = 0; i < size(); ++i) {
      ORBITE_CHECK(at(i) == kContent);
    }
  }

  Handle handle;
  std::shared_ptr<memory::Registration> registration;

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr std::uint8_t kGuardByte = 0xA5;
  static constexpr std::uint8_t kContent = 0x11;
  std::vector<std::uint8_t> bytes_;
};

/// The TCP transport of an engine, with nothing of the operating system below it.
class TcpWorld {
 public:
  static constexpr std::uint64_t kMessageBytesMax = 10'000;

  TcpWorld() {
    base::set_log_level(base::LogLevel::kOff);
    random.fill(epoch.bytes);
    random.fill(secret);
    transport::tcp::Environment environment{
        network, clock,  watched_clock, random, waiter, registry, counters,
        config,  "near", epoch,         secret, {},     0,        {}};
    environment.deliver = [this](const wire::Envelope& envelope) {
      return mailbox.deliver(envelope.sender_name, envelope.message);
    };
    transport =
        transport::tcp::TcpTransport::create(std::move(environment), planner, [] {}).value();
    planner.set_transport(policy::TransportKind::kTcp, transport.get());
  }

  /// What the worker does in one round.
  void turn() {
    std::array<platform::PollEvent, 64> events;
    const std::size_t count = network.poller_wait(0, events, 0);
    for (std::size_t i = 0; i < count; ++i) {
      transport->on_event(events.at(i).token, events.at(i).events);
    }
    transport->on_tick(clock.now_ns());
  }
  void turns(int count) {
    for (int i = 0; i < count; ++i) {
      turn();
    }
  }

  static Config small_config() {
    Config made;
    made.tcp.served_lanes_max = 8;
    made.tcp.handshakes_max = 4;
    made.tcp.progress_timeout_ms = 1'000;
    made.tcp.lane_bytes_in_flight_max = 1 << 20;
    made.tcp.slice_bytes = 64 << 10;
    made.notifications.message_bytes_max = kMessageBytesMax;
    made.notifications.inbox_bytes_max = 64 << 10;
    return made;
  }

  Config config = small_config();
  test::MemoryNetwork network;
  base::ManualClock clock;
  base::WatchedClock watched_clock{clock};
  base::ThreadWaiter waiter;
  base::SeededRandom random{7};
  base::SourceEpoch epoch;
  wire::Secret secret{};
  telemetry::Counters counters;
  memory::Registry registry{{.registrations_max = 16}, random};
  notify::Mailbox mailbox{
      {config.notifications.message_bytes_max, config.notifications.inbox_bytes_max}, counters};
  transfer::Planner planner;
  std::unique_ptr<transport::tcp::TcpTransport> transport;
};

template <typename Struct>
std::span<const std::uint8_t> bytes_of(const Struct& value) {
  return {reinterpret_cast<const std::uint8_t*>(&value), sizeof(value)};
}

}  // namespace orbite::fuzz
