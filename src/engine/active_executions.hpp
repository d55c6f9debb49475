// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/clock.hpp"
#include "transfer/execution.hpp"

namespace orbite {

/// Executions posted and not terminal, by their numbers, with the deadlines that have not come:
/// what close waits for, and what keeps an abandoned one alive. Under the engine's mutex of them.
///
/// Only add() allocates: whatever is in here can be found, stopped and removed without memory. The
/// nodes of the last one removed serve the next one: one transfer after the other allocates none.
class ActiveExecutions {
 public:
  /// When an execution is to be stopped, and its number.
  using Deadline = std::pair<base::Nanoseconds, std::uint64_t>;

  /// Gives it its number. Throws std::bad_alloc with nothing changed.
  void add(const std::shared_ptr<transfer::Execution>& execution);
  /// Returns what was held, to be let go of outside the mutex.
  std::shared_ptr<transfer::Execution> remove(const transfer::Execution& execution) noexcept;

  [[nodiscard]] std::size_t size() const noexcept { return by_number_.size(); }
  [[nodiscard]] bool empty() const noexcept { return by_number_.empty(); }
  /// Peers that have some.
  [[nodiscard]] std::size_t peers() const noexcept { return peers_; }

  /// The first whose number is above `number`, or nullptr.
  [[nodiscard]] std::shared_ptr<transfer::Execution> after(std::uint64_t number) const noexcept;
  /// The first whose deadline comes after `last` and not after `now_ns`, or nullptr.
  [[nodiscard]] std::shared_ptr<transfer::Execution> due_after(
      const Deadline& last, base::Nanoseconds now_ns) const noexcept;
  /// Its deadline has come: it is stopped by it once.
  void forget_deadline(const transfer::Execution& execution) noexcept;
  /// UINT64_MAX: none.
  [[nodiscard]] base::Nanoseconds next_deadline_ns() const noexcept {
    return deadlines_.empty() ? UINT64_MAX : deadlines_.begin()->first;
  }

 private:
  using ByNumber = std::map<std::uint64_t, std::shared_ptr<transfer::Execution>>;
  using Deadlines = std::set<Deadline>;

  ByNumber by_number_;
  Deadlines deadlines_;
  ByNumber::node_type spare_;  ///< empty, or without an execution
  Deadlines::node_type spare_deadline_;
  std::size_t peers_ = 0;
  std::uint64_t next_number_ = 1;
};

}  // namespace orbite
