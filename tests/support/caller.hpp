// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "memory/registry.hpp"
#include "peer/peer.hpp"
#include "support/flows.hpp"
#include "transfer/admission.hpp"
#include "transfer/batch.hpp"
#include "transfer/execution.hpp"
#include "transfer/transport.hpp"

namespace orbite::test {

/// A pair of ranges by their offsets in two buffers.
struct Block {
  std::size_t local = 0;
  std::size_t remote = 0;
  std::size_t length = 0;
};

/// Registered bytes, and what their retirement found in them.
class Buffer {
 public:
  Buffer(memory::Registry& registry, std::size_t size, std::uint8_t access = kAccessAll)
      : bytes(size), registry_(registry) {
    MemoryDescriptor memory;
    memory.address = address();
    memory.length = size;
    memory.access = access;
    memory.retired = [this] {
      at_retirement = bytes;
      retirements.fetch_add(1, std::memory_order_release);
    };
    handle = registry.add(memory).value();
    registration = registry.find(handle).value();
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    const auto state = deregister();
    EXPECT_TRUE(state.has_value() && *state == RegistrationState::kRetired)
        << "a buffer ends while something may touch it";
  }

  [[nodiscard]] std::uint64_t address(std::size_t offset = 0) const {
    return reinterpret_cast<std::uint64_t>(bytes.data()) + offset;
  }
  /// Values below 128: what is to be moved.
  void fill_as_source(std::uint64_t seed) { fill(seed, 0); }
  /// Values from 128 on: a byte that was moved here is seen as such.
  void fill_as_target(std::uint64_t seed) { fill(seed, 128); }

  [[nodiscard]] wire::RangeBlob blob(const base::SourceEpoch& epoch) const {
    wire::RangeBlob made;
    made.epoch = epoch;
    made.index = handle.index;
    made.generation = handle.generation;
    made.key = registration->key();
    made.address = address();
    made.length = bytes.size();
    made.access = registration->access();
    return made;
  }
  Result<RegistrationState> deregister() {
    if (before_deregister) {
      std::exchange(before_deregister, nullptr)();
    }
    return registry_.deregister(handle);
  }
  /// What its owner does first; may be empty.
  std::function<void()> before_deregister;

  std::vector<std::uint8_t> bytes;
  Handle handle;
  std::shared_ptr<memory::Registration> registration;
  std::vector<std::uint8_t> at_retirement;
  std::atomic<int> retirements{0};

 private:
  void fill(std::uint64_t seed, std::uint8_t high) {
    base::SeededRandom random(seed);
    random.fill(bytes);
    for (std::uint8_t& byte : bytes) {
      byte = static_cast<std::uint8_t>((byte & 127) | high);
    }
  }

  memory::Registry& registry_;
};

/// What stands between a user and a transport: planner, pools, imported ranges. It does what the
/// engine does from prepare to the end, and nothing more.
class Caller {
 public:
  explicit Caller(memory::Registry& registry) : registry_(registry) {}
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  Handle import(std::shared_ptr<peer::Peer> peer, const wire::RangeBlob& blob) {
    const auto bounds = base::ByteRange::make(blob.address, blob.length).value();
    return ranges.insert(std::make_shared<peer::RemoteRange>(std::move(peer), blob, bounds))
        .value();
  }
  Handle import_own(Handle registration) {
    auto own = registry_.find(registration).value();
    const auto bounds = own->range();
    return ranges.insert(std::make_shared<peer::RemoteRange>(std::move(own), bounds)).value();
  }

  struct Work {
    Operation operation = Operation::kWrite;
    std::vector<Block> blocks;
    policy::QosClass qos = policy::QosClass::kBulk;
  };
  /// `far` is the buffer that the range `far_range` stands for.
  std::shared_ptr<const transfer::Prepared> prepare(const transfer::Transport& transport,
                                                    std::shared_ptr<peer::Peer> peer,
                                                    const Buffer& near, const Buffer& far,
                                                    Handle far_range, const Work& work) {
    transfer::Batch batch(registry_, ranges, *peer);
    for (const Block& block : work.blocks) {
      const auto added =
          batch.add(work.operation, {near.address(block.local), block.length, near.handle},
                    {far.address(block.remote), block.length, far_range});
      EXPECT_TRUE(added.has_value()) << added.error().message();
    }
    EXPECT_TRUE(batch.seal().has_value());
    auto prepared = std::make_shared<transfer::Prepared>();
    prepared->operation = work.operation;
    prepared->peer = std::move(peer);
    prepared->bytes = batch.bytes();
    prepared->tasks = batch.tasks();
    prepared->route = {transport.kind(), work.qos, control.value_or(transport.kind())};
    batch.move_into(prepared->extents, prepared->locals, prepared->remotes);
    return prepared;
  }

  using Message = std::optional<std::vector<std::uint8_t>>;
  /// Not yet known to the planner. With nullptr: the notification alone.
  std::shared_ptr<transfer::Execution> execute(std::shared_ptr<const transfer::Prepared> prepared,
                                               std::shared_ptr<peer::Peer> peer,
                                               policy::Route route, Message notification = {}) {
    transfer::Execution::Options options;
    if (prepared != nullptr) {
      take_loans(*prepared, options.loans);
      options.bytes_charge = admission.bytes_in_flight.take(prepared->bytes).value();
    }
    if (notification.has_value()) {
      options.outbox_charge = admission.outbox_bytes.take(notification->size() + 1).value();
    }
    options.prepared = std::move(prepared);
    options.peer = std::move(peer);
    options.route = route;
    options.notification = std::move(notification);
    options.on_terminal = [this](transfer::Execution&) {
      terminals.fetch_add(1, std::memory_order_relaxed);
    };
    return std::make_shared<transfer::Execution>(std::move(options));
  }

  std::shared_ptr<transfer::Execution> launch(transfer::Transport& transport,
                                              const std::shared_ptr<const transfer::Prepared>& work,
                                              Message notification = {}) {
    auto execution = execute(work, work->peer, work->route, std::move(notification));
    start(transport, execution);
    return execution;
  }
  void start(transfer::Transport& transport, std::shared_ptr<transfer::Execution> execution) {
    transfer::Flow& flow = flow_of(*execution);
    planner.enqueue(flow, std::move(execution));
    planner.pump(transport, flow);
  }
  void stop(transfer::Transport& transport, transfer::Execution& execution, ErrorCode code) {
    transfer::Flow& flow = flow_of(execution);
    execution.stop(code);
    planner.forget(execution);
    transport.drop_unposted(flow, execution);
    if (const policy::TransportKind kind = execution.route().control; kind != transport.kind()) {
      planner.transport(kind)->drop_unposted(transfer::flow_of(execution.peer(), kind), execution);
    }
  }

  static transfer::Flow& flow_of(const transfer::Execution& execution) {
    return transfer::flow_of(execution.peer(), execution.route().transport);
  }
  /// Every pool is as it was before any work.
  [[nodiscard]] bool all_given_back() const {
    return planner.slices_out() == 0 && admission.bytes_in_flight.used() == 0 &&
           admission.outbox_bytes.used() == 0 && registry_.counts().loans == 0;
  }

  transfer::Admission admission{
      {"requests", "limits.requests_max", 1 << 20},
      {"descriptors", "limits.descriptors_max", 1 << 20},
      {"bytes_in_flight", "limits.bytes_in_flight_max", std::uint64_t{1} << 40},
      {"outbox_bytes", "notifications.outbox_bytes_max", 1 << 30}};
  peer::RangeTable ranges{"imported range", 1 << 20, "limits.ranges_max"};
  transfer::Planner planner;
  /// By what notifications go, where that is another transport.
  std::optional<policy::TransportKind> control;
  std::atomic<int> terminals{0};

 private:
  void take_loans(const transfer::Prepared& prepared, memory::RangeLoans& loans) {
    const bool writes = prepared.operation == Operation::kWrite;
    const auto out = memory::Direction::kRead;
    const auto in = memory::Direction::kWrite;
    for (const auto& local : prepared.locals) {
      loans.push_back(registry_.borrow(local, writes ? out : in, memory::Borrower::kLocal).value());
    }
    for (const auto& remote : prepared.remotes) {
      if (remote->own() != nullptr) {
        loans.push_back(
            registry_.borrow(remote->own(), writes ? in : out, memory::Borrower::kRemote).value());
      }
    }
  }

  memory::Registry& registry_;
};

}  // namespace orbite::test
