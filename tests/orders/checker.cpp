// SPDX-License-Identifier: Apache-2.0
#include "orders/checker.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace orbite::test {
namespace {

std::string name_of(std::uint32_t execution) { return "execution " + std::to_string(execution); }
std::string name_of(Checker::Side side) {
  return side == Checker::Side::kNear ? "the near registration" : "the far registration";
}

/// Leading bytes that are there.
std::uint64_t prefix_of(Checker::Mask mask) {
  return static_cast<std::uint64_t>(std::countr_one(mask));
}
std::uint64_t count_of(Checker::Mask mask) {
  return static_cast<std::uint64_t>(std::popcount(mask));
}

}  // namespace

void Checker::broken(std::string_view invariant, std::string what) {
  violations_.push_back({invariant, std::move(what)});
}

// ---- What the user is told

std::uint32_t Checker::posted(const Posted& facts) {
  const auto number = static_cast<std::uint32_t>(executions_.size());
  for (const Execution& other : executions_) {
    if (other.facts.request == facts.request && !other.terminal()) {
      broken("S8", "a request was posted while its last execution is under way");
    } else if (other.facts.request == facts.request && other.last.logical != Logical::kSuccess) {
      broken("S4", "a request was posted again after an execution that did not succeed");
    }
  }
  if (facts.request < request_released_.size() && request_released_[facts.request]) {
    broken("S8", "a released request was posted");
  }
  if (at(Side::kNear).deregistered) {
    broken("S1", "posted on a registration that was deregistered");
  }
  if (closed_) {
    broken("S8", "posted on a closed engine");
  }
  if (unloaded_) {
    broken("S7", "posted to a peer that was unloaded");
  }
  executions_.emplace_back().facts = facts;
  return number;
}

void Checker::shown(std::uint32_t number, const Outcome& outcome) {
  Execution& execution = executions_[number];
  if (execution.terminal()) {
    const Outcome& last = execution.last;
    if (outcome.logical != last.logical || outcome.drain != last.drain ||
        outcome.effect != last.effect || outcome.code != last.code ||
        outcome.bytes_prefix != last.bytes_prefix) {
      broken("S8", name_of(number) + ": its outcome changed after the end");
    }
    return;
  }
  Phase phase = execution.entered == 0 ? Phase::kQueued : Phase::kRunning;
  if (outcome.drain == Drain::kUnquiesced) {
    phase = Phase::kUnquiesced;
  } else if (outcome.drain == Drain::kRetired) {
    phase = outcome.logical == Logical::kNone ? Phase::kPrepared : Phase::kRetired;
  } else if (outcome.drain == Drain::kIdle) {
    phase = Phase::kPrepared;
  } else if (outcome.logical != Logical::kNone) {
    phase = Phase::kDraining;
  }
  if (!leads(kExecutionSteps, execution.phase, phase)) {
    broken("S8", name_of(number) + ": no such transition");
  }
  const Outcome last = std::exchange(execution.last, outcome);
  execution.phase = phase;
  if (last.logical != Logical::kNone &&
      (last.logical != outcome.logical || last.code != outcome.code)) {
    broken("S8", name_of(number) + ": its logical outcome was set twice");
  }
  if (phase == Phase::kRetired) {
    check_honest(execution, outcome);
    if (const Outstanding still = outstanding_(number); still.near || still.far) {
      broken("S2", name_of(number) + ": terminal while its slices are outstanding");
    }
  }
}

void Checker::check_honest(const Execution& execution, const Outcome& outcome) {
  const EndingRow* const row = find_ending(outcome.logical, execution.entered != 0);
  if (row == nullptr || !row->allows(outcome.effect) ||
      row->allows_code_ok != (outcome.code == ErrorCode::kOk)) {
    broken("S8", "an ending that is not in the table");
  }
  const std::uint64_t prefix = prefix_of(execution.landed);
  const std::uint64_t count = count_of(execution.landed);
  bool honest = outcome.bytes_prefix <= prefix;
  switch (outcome.effect) {
    case RemoteEffect::kNone:
      honest = honest && count == 0;
      break;
    case RemoteEffect::kPrefix:
      honest = honest && outcome.bytes_prefix == prefix && count == prefix;
      break;
    case RemoteEffect::kComplete:
      honest = honest && execution.landed == execution.facts.all;
      break;
    case RemoteEffect::kUnknown:
      break;
  }
  if (!honest) {
    broken("S1", "the outcome says " + std::to_string(outcome.bytes_prefix) +
                     " leading bytes, the memory " + std::to_string(prefix) + " and " +
                     std::to_string(count) + " in all");
  }
  if (outcome.logical == Logical::kSuccess && execution.facts.notifies &&
      execution.notifications != 1) {
    broken("S5", "a success with " + std::to_string(execution.notifications) + " notifications");
  }
}

void Checker::released(std::uint32_t request) {
  request_released_.resize(std::max<std::size_t>(request_released_.size(), request + 1U));
  request_released_[request] = true;
  for (std::uint32_t i = 0; i < executions_.size(); ++i) {
    const Outstanding still = outstanding_(i);
    if (executions_[i].facts.request == request && (still.near || still.far)) {
      broken("S3", "a request was released while its slices are outstanding");
    }
  }
}

void Checker::deregistered(Side side) { at(side).deregistered = true; }

void Checker::shown(Side side, RegistrationState state) {
  Registered& registered = at(side);
  if (!leads(kRegistrationSteps, registered.state, state)) {
    broken("S8", name_of(side) + ": no such transition");
  }
  if (registered.deregistered && state == RegistrationState::kLive) {
    broken("S8", name_of(side) + " is live after it was deregistered");
  }
  registered.state = state;
  if (state == RegistrationState::kRetired) {
    check_unused(side, "called retired");
  }
}

// ---- What the world sees

void Checker::entered(std::uint32_t number, Mask bytes) {
  Execution& execution = executions_[number];
  if (execution.facts.operation == Operation::kWrite && (execution.entered & bytes) != 0) {
    broken("S4", name_of(number) + ": bytes of a WRITE entered the wire twice");
  }
  if (execution.phase == Phase::kDraining) {
    broken("S4", name_of(number) + ": sent on after its outcome was known");
  }
  if (execution.terminal()) {
    broken("S2", name_of(number) + ": entered the wire after its end");
  }
  execution.entered_late |= at(Side::kFar).deregistered ? bytes : 0;
  execution.entered |= bytes;
}

void Checker::accessed(std::uint32_t number, Mask bytes) {
  Execution& execution = executions_[number];
  if (execution.terminal()) {
    broken("S2", name_of(number) + ": an access after its terminal status");
  }
  if ((bytes & ~execution.entered) != 0) {
    broken("S1", name_of(number) + ": an access that did not come over the wire");
  }
  if ((execution.entered_late & bytes) != 0) {
    broken("S1", name_of(number) + ": an access to a registration that was fenced before");
  }
  if (far_dead_) {
    broken("S7", name_of(number) + ": an access to the memory of a later life");
  }
  for (const Side side : {Side::kNear, Side::kFar}) {
    if (at(side).destroyed > 0) {
      broken("S1", name_of(number) + ": an access after the native end of " + name_of(side));
    }
  }
  execution.landed |= bytes;
}

void Checker::notified(std::uint32_t number) {
  Execution& execution = executions_[number];
  ++execution.notifications;
  if (execution.notifications > 1) {
    broken("S5", name_of(number) + ": notified twice");
  }
  if (execution.landed != execution.facts.all) {
    broken("S5", name_of(number) + ": notified before its bytes");
  }
  if (execution.terminal()) {
    broken("S5", name_of(number) + ": notified after its end");
  }
}

void Checker::destroyed(Side side) {
  if (++at(side).destroyed > 1) {
    broken("S10", name_of(side) + " was destroyed twice");
  }
  check_unused(side, "destroyed");
}

void Checker::check_unused(Side side, std::string_view what) {
  for (std::uint32_t i = 0; i < executions_.size(); ++i) {
    const Outstanding still = outstanding_(i);
    if (side == Side::kNear ? still.near : still.far) {
      broken("S3", name_of(side) + " was " + std::string(what) + " under " + name_of(i));
    }
  }
}

void Checker::pool(std::string_view name, std::uint64_t used, std::uint64_t held) {
  if (used != held) {
    broken("S6", std::string(name) + ": " + std::to_string(used) + " in use, " +
                     std::to_string(held) + " held");
  }
}

void Checker::bounded(std::string_view call, std::uint64_t steps, std::uint64_t steps_max) {
  if (steps > steps_max) {
    broken("S9", std::string(call) + " took " + std::to_string(steps) + " steps, allowed " +
                     std::to_string(steps_max));
  }
}

void Checker::memory(bool is_as_modelled) {
  if (!is_as_modelled) {
    broken("S1", "memory differs from its model");
  }
}

void Checker::ended() {
  for (std::uint32_t i = 0; i < executions_.size(); ++i) {
    if (!executions_[i].terminal()) {
      broken("healing", name_of(i) + " never ended");
    }
  }
  for (const Side side : {Side::kNear, Side::kFar}) {
    const bool died = side == Side::kFar && far_dead_;
    if (at(side).deregistered && at(side).destroyed != 1 && !died) {
      broken("S10",
             name_of(side) + " was destroyed " + std::to_string(at(side).destroyed) + " times");
    }
  }
}

std::uint64_t Checker::digest(std::uint32_t number) const {
  const Execution& execution = executions_[number];
  std::uint64_t digest = 0;
  for (const std::uint64_t value :
       {static_cast<std::uint64_t>(execution.phase), execution.entered, execution.landed,
        std::uint64_t{execution.notifications}, execution.entered_late,
        static_cast<std::uint64_t>(execution.last.logical),
        static_cast<std::uint64_t>(execution.last.effect),
        static_cast<std::uint64_t>(execution.last.code), execution.last.bytes_prefix}) {
    digest = (digest ^ value) * 0x9E3779B97F4A7C15ULL;
    digest ^= digest >> 29;
  }
  return digest;
}

}  // namespace orbite::test
