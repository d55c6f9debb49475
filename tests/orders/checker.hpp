// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orders/state_tables.hpp"

namespace orbite::test {

/// The invariant that was broken ("S1" to "S10", "healing": something never ended), and how.
struct Violation {
  std::string_view invariant;
  std::string what;
};

/// What a user is told and what the world sees, held against each other. It knows nothing of the
/// engine: who feeds it says what happened to bytes, wire and native objects, and what the calls of
/// the API answered.
///
/// Bytes of a request are bits of a mask, so a request has at most 64.
class Checker {
 public:
  enum class Side : std::uint8_t { kNear, kFar };
  using Mask = std::uint64_t;

  struct Posted {
    std::uint32_t request = 0;
    Operation operation = Operation::kWrite;
    Mask all = 0;  ///< one bit for each byte
    bool notifies = false;
  };
  /// What of an execution is outstanding: slices of it may still touch memory of that side.
  struct Outstanding {
    bool near = false;
    bool far = false;
  };
  /// Asked of the world whenever it matters.
  explicit Checker(std::function<Outstanding(std::uint32_t execution)> outstanding)
      : outstanding_(std::move(outstanding)) {}

  /// The user was told that an execution has begun; its number.
  std::uint32_t posted(const Posted& execution);
  /// The user looks at the newest execution of a request.
  void shown(std::uint32_t execution, const Outcome& outcome);
  /// The user was told that a request is released.
  void released(std::uint32_t request);

  void deregistered(Side side);
  void shown(Side side, RegistrationState state);
  void unloaded() { unloaded_ = true; }
  void closed() { closed_ = true; }
  /// The far process has ended; its memory is another's now.
  void far_died() { far_dead_ = true; }

  // The world's.
  void entered(std::uint32_t execution, Mask bytes);
  void accessed(std::uint32_t execution, Mask bytes);
  void notified(std::uint32_t execution);
  void destroyed(Side side);

  /// free + held + quarantined = capacity: `held` as the world counts it.
  void pool(std::string_view name, std::uint64_t used, std::uint64_t held);
  /// Steps that one call of the API took, and may take.
  void bounded(std::string_view call, std::uint64_t steps, std::uint64_t steps_max);
  /// Everything was healed: nothing is under way any more.
  void ended();
  void memory(bool is_as_modelled);

  [[nodiscard]] bool active(std::uint32_t execution) const {
    return !executions_[execution].terminal();
  }
  [[nodiscard]] std::uint32_t destroyed_times(Side side) const {
    return registered_[static_cast<std::size_t>(side)].destroyed;
  }
  [[nodiscard]] const std::vector<Violation>& violations() const noexcept { return violations_; }
  /// Changes with whatever it has seen that matters for what it will say.
  [[nodiscard]] std::uint64_t digest(std::uint32_t execution) const;

 private:
  struct Execution {
    Posted facts;
    Outcome last;
    Phase phase = Phase::kQueued;
    Mask entered = 0;
    Mask landed = 0;
    std::uint32_t notifications = 0;
    Mask entered_late = 0;  ///< after the far side was deregistered: no loan can be had

    [[nodiscard]] bool terminal() const {
      return phase == Phase::kRetired || phase == Phase::kUnquiesced;
    }
  };
  struct Registered {
    RegistrationState state = RegistrationState::kLive;
    bool deregistered = false;
    std::uint32_t destroyed = 0;
  };

  void check_honest(const Execution& execution, const Outcome& outcome);
  void check_unused(Side side, std::string_view what);
  void broken(std::string_view invariant, std::string what);
  [[nodiscard]] Registered& at(Side side) { return registered_[static_cast<std::size_t>(side)]; }

  const std::function<Outstanding(std::uint32_t)> outstanding_;
  std::vector<Execution> executions_;
  std::vector<bool> request_released_;
  Registered registered_[2];
  bool unloaded_ = false;
  bool closed_ = false;
  bool far_dead_ = false;
  std::vector<Violation> violations_;
};

}  // namespace orbite::test
