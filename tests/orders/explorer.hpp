// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "orders/checker.hpp"
#include "orders/scenario.hpp"

namespace orbite::test {

/// Whether the orders that lead to equal worlds go on as one.
enum class Merging : std::uint8_t { kOff, kOn };

/// What came of all orders of a scenario.
struct Exploration {
  std::uint64_t orders = 0;  ///< complete ones, those that went on as one counted each
  std::uint64_t worlds = 0;  ///< that were played from the start
  std::uint64_t states = 0;  ///< that differ; 0 without merging
  std::set<std::uint64_t> endings;
  /// The first violations, and the order that led to them.
  std::vector<Violation> violations;
  std::string order;

  [[nodiscard]] std::string text() const;
  [[nodiscard]] bool saw_broken(std::string_view invariants) const;
};

/// Plays every order of what can happen, each from the start, until a violation.
Exploration explore(const Scenario& scenario, Merging merging);

}  // namespace orbite::test
