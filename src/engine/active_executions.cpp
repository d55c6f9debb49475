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
  if (execution->deadline_ns() != 0) {
    const Deadline deadline{execution->deadline_ns(), number};
    if (spare_deadline_.empty()) {
      deadlines_.insert(deadline);
    } else {
      spare_deadline_.value() = deadline;
      deadlines_.insert(std::move(spare_deadline_));
    }
  }
  if (spare_.empty()) {
    try {
      by_number_.emplace_hint(by_number_.end(), number, execution);
    } catch (...) {
      deadlines_.erase({execution->deadline_ns(), number});
      throw;
    }
  } else {
    spare_.key() = number;
    spare_.mapped() = execution;
    by_number_.insert(by_number_.end(), std::move(spare_));
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
  spare_ = by_number_.extract(found);
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
    if (const auto found = deadlines_.find({execution.deadline_ns(), execution.number()});
        found != deadlines_.end()) {
      spare_deadline_ = deadlines_.extract(found);
    }
  }
}

}  // namespace orbite
