// SPDX-License-Identifier: Apache-2.0
#include "engine/active_executions.hpp"

#include "base/assert.hpp"
#include "transfer/transport.hpp"

namespace orbite {
namespace {

std::size_t& active_of(const transfer::Execution& execution) {
  return transfer::flows_of(execution.peer()).active;
}

}  // namespace

void ActiveExecutions::add(const std::shared_ptr<transfer::Execution>& execution) {
  const std::uint64_t number = next_number_;
  const auto added = by_number_.emplace_hint(by_number_.end(), number, execution);
  if (execution->deadline_ns() != 0) {
    try {
      deadlines_.emplace(execution->deadline_ns(), number);
    } catch (...) {
      by_number_.erase(added);
      throw;
    }
  }
  execution->set_number(number);
  ++next_number_;
  peers_ += active_of(*execution)++ == 0 ? 1 : 0;
}

std::shared_ptr<transfer::Execution> ActiveExecutions::remove(
    const transfer::Execution& execution) noexcept {
  const auto found = by_number_.find(execution.number());
  ORBITE_CHECK(found != by_number_.end());
  forget_deadline(execution);
  peers_ -= --active_of(execution) == 0 ? 1 : 0;
  std::shared_ptr<transfer::Execution> held = std::move(found->second);
  by_number_.erase(found);
  return held;
}

std::shared_ptr<transfer::Execution> ActiveExecutions::after(std::uint64_t number) const noexcept {
  const auto found = by_number_.upper_bound(number);
  return found == by_number_.end() ? nullptr : found->second;
}

std::shared_ptr<transfer::Execution> ActiveExecutions::due_after(
    const Deadline& last, base::Nanoseconds now_ns) const noexcept {
  const auto found = deadlines_.upper_bound(last);
  if (found == deadlines_.end() || found->first > now_ns) {
    return nullptr;
  }
  return by_number_.find(found->second)->second;
}

void ActiveExecutions::forget_deadline(const transfer::Execution& execution) noexcept {
  if (execution.deadline_ns() != 0) {
    deadlines_.erase({execution.deadline_ns(), execution.number()});
  }
}

}  // namespace orbite
