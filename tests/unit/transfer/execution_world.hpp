// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "memory/registry.hpp"
#include "support/flows.hpp"
#include "transfer/admission.hpp"
#include "transfer/execution.hpp"
#include "unit/transfer/fake_transport.hpp"

namespace orbite::transfer::testing {

/// One peer, one fake transport and the pools; executions whose bytes nobody touches.
class World {
 public:
  World() {
    flow = transport.open(*peer).value();
    test::set_flow(*peer, flow);
  }

  struct Work {
    std::vector<std::uint64_t> extents;       ///< lengths
    std::vector<std::uint32_t> remotes = {};  ///< of each extent; all 0 when empty
    Operation operation = Operation::kWrite;
    bool notifies = false;
    policy::QosClass qos = policy::QosClass::kBulk;
  };

  /// No two are neighbours.
  static std::vector<Extent> extents_of(const Work& work) {
    std::vector<Extent> extents;
    std::uint64_t address = 0x10000;
    for (std::size_t i = 0; i < work.extents.size(); ++i) {
      const std::uint64_t length = work.extents[i];
      const std::uint32_t remote = work.remotes.empty() ? 0 : work.remotes[i];
      extents.push_back({address, address + 0x1000000, length, 0, remote});
      address += length + 1;
    }
    return extents;
  }

  std::shared_ptr<Execution> make(const Work& work) { return make_of(extents_of(work), work); }
  /// Of these, in the place of the work's own.
  std::shared_ptr<Execution> make_of(const std::vector<Extent>& extents, const Work& work) {
    auto prepared = std::make_shared<Prepared>();
    prepared->operation = work.operation;
    prepared->peer = peer;
    ExtentListWriter writer;
    for (const Extent& extent : extents) {
      writer.add(extent);
    }
    prepared->extents = writer.finish();
    prepared->bytes = prepared->extents.bytes();
    prepared->tasks = extents.size();
    return launch(std::move(prepared), work);
  }

  std::shared_ptr<Execution> make_notification() {
    Work work;
    work.notifies = true;
    return launch(nullptr, work);
  }

  /// Loans and charges held by executions that are not terminal.
  [[nodiscard]] std::uint64_t held() const {
    return registry.counts().loans + admission.bytes_in_flight.used() +
           admission.outbox_bytes.used();
  }

  Planner planner;
  FakeTransport transport{planner};
  base::SeededRandom random{1};
  memory::Registry registry{{.registrations_max = 8}, random};
  Handle registration = registry.add({.address = 0x1000, .length = 0x1000, .retired = {}}).value();
  std::shared_ptr<peer::Peer> peer =
      std::make_shared<peer::Peer>("far", wire::ConnectionBlob{}, false);
  std::shared_ptr<Flow> flow;
  Admission admission{{"requests", "key", 100},
                      {"descriptors", "key", 100},
                      {"bytes_in_flight", "key", std::uint64_t{1} << 60},
                      {"outbox_bytes", "key", 1'000'000}};
  /// What the executions' on_terminal saw.
  struct Ending {
    const Execution* execution;
    Outcome outcome;
    std::uint64_t held;
    bool published;
  };
  std::vector<Ending> endings;

 private:
  std::shared_ptr<Execution> launch(std::shared_ptr<const Prepared> prepared, const Work& work) {
    Execution::Options options;
    options.prepared = std::move(prepared);
    options.peer = peer;
    options.route = {transport.kind(), work.qos};
    options.bytes_charge = admission.bytes_in_flight.take(100).value();
    options.loans.push_back(registry
                                .borrow(registry.find(registration).value(),
                                        memory::Direction::kRead, memory::Borrower::kLocal)
                                .value());
    if (work.notifies) {
      options.notification = std::vector<std::uint8_t>{1, 2, 3};
      options.outbox_charge = admission.outbox_bytes.take(10).value();
    }
    options.on_terminal = [this](Execution& done) {
      const sim::AllocationShelter shelter;
      endings.push_back({&done, done.outcome(), held(), done.terminal()});
    };
    return std::make_shared<Execution>(std::move(options));
  }
};

}  // namespace orbite::transfer::testing
