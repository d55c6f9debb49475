// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orbite/engine.hpp"

namespace orbite::testing {

/// What the engine of fake_engine.cpp is told to do and what it was asked. One for the process;
/// fields other than the atomic ones are for one thread at a time.
struct FakeEngine {
  /// Runs first in every call, with its name; may throw or block.
  std::function<void(std::string_view call)> on_call;
  /// Every call that can fail answers this.
  std::optional<Error> failure;

  Handle handle{.index = 7, .generation = 9};
  RegistrationState registration_state = RegistrationState::kFenced;
  CloseStatus close_status;
  Outcome outcome;
  std::vector<std::uint8_t> blob = {1, 2, 3, 4, 5};
  std::vector<Notification> inbox;
  std::vector<UnresolvedPeer> unresolved;
  std::string info = "{\"version\":\"0\"}";
  std::string routes = "tcp:12,local:3";
  /// Two routes, two budgets.
  Telemetry telemetry{.engine = "fake",
                      .counters = {},
                      .gauges = {},
                      .routes = std::vector<RouteTelemetry>(2),
                      .budgets = std::vector<BudgetTelemetry>(2)};

  std::atomic<int> calls{0};
  std::atomic<int> alive{0};
  std::string name;
  Config config;
  MemoryDescriptor memory;
  Handle handle_seen;
  Handle peer_seen;
  std::string text_seen;
  std::vector<std::uint8_t> bytes_seen;
  std::uint64_t address_seen = 0;
  std::uint64_t number_seen = 0;
  Operation operation_seen = Operation::kRead;
  std::vector<Descriptor> local_seen;
  std::vector<Descriptor> remote_seen;
  std::optional<std::vector<std::uint8_t>> notification_seen;
};

FakeEngine& fake_engine();
/// Everything as at the start but the engines alive.
void reset_fake_engine();

}  // namespace orbite::testing
