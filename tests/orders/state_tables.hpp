// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "orbite/memory.hpp"
#include "orbite/transfer.hpp"

namespace orbite::test {

/// The states of an execution, as documented. Queued and running look alike to a user; the world
/// tells them apart: something of the execution has entered the wire, or not.
enum class Phase : std::uint8_t { kPrepared, kQueued, kRunning, kDraining, kRetired, kUnquiesced };

inline constexpr std::array<std::pair<Phase, Phase>, 6> kExecutionSteps{{
    {Phase::kPrepared, Phase::kQueued},
    {Phase::kQueued, Phase::kRunning},
    {Phase::kQueued, Phase::kRetired},  // canceled or refused before anything was sent
    {Phase::kRunning, Phase::kDraining},
    {Phase::kDraining, Phase::kRetired},
    {Phase::kDraining, Phase::kUnquiesced},
}};

inline constexpr std::array<std::pair<RegistrationState, RegistrationState>, 4> kRegistrationSteps{{
    {RegistrationState::kLive, RegistrationState::kFenced},
    {RegistrationState::kLive, RegistrationState::kUnquiesced},
    {RegistrationState::kFenced, RegistrationState::kRetired},
    {RegistrationState::kFenced, RegistrationState::kUnquiesced},
}};

/// Whether steps of the table lead from one state to another. Several may happen between two looks.
template <typename State, std::size_t N>
[[nodiscard]] constexpr bool leads(const std::array<std::pair<State, State>, N>& steps, State from,
                                   State to) {
  return from == to || std::any_of(steps.begin(), steps.end(), [&](const auto& step) {
           return step.first == from && leads(steps, step.second, to);
         });
}

/// What an outcome that is known may say, as documented: one row for each ending.
struct EndingRow {
  Logical logical;
  bool has_entered_wire;
  bool allows_code_ok;
  bool allows_none;
  bool allows_prefix;
  bool allows_complete;
  bool allows_unknown;

  [[nodiscard]] constexpr bool allows(RemoteEffect effect) const {
    switch (effect) {
      case RemoteEffect::kNone:
        return allows_none;
      case RemoteEffect::kPrefix:
        return allows_prefix;
      case RemoteEffect::kComplete:
        return allows_complete;
      case RemoteEffect::kUnknown:
        return allows_unknown;
    }
    return false;
  }
};

inline constexpr std::array<EndingRow, 5> kEndings{{
    // logical            sent   ok     none   prefix complete unknown
    {Logical::kSuccess, true, true, false, false, true, false},
    {Logical::kCanceled, false, false, true, false, false, false},
    {Logical::kCanceled, true, false, true, true, true, true},
    {Logical::kFailed, false, false, true, false, false, false},
    {Logical::kFailed, true, false, true, true, true, true},
}};

/// nullptr: there is no such ending.
[[nodiscard]] constexpr const EndingRow* find_ending(Logical logical, bool has_entered_wire) {
  for (const EndingRow& row : kEndings) {
    if (row.logical == logical && row.has_entered_wire == has_entered_wire) {
      return &row;
    }
  }
  return nullptr;
}

}  // namespace orbite::test
