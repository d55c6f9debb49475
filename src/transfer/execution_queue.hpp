// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "base/assert.hpp"

namespace orbite::transfer {

class Execution;

/// Executions that wait, first come first served. It owns those in it, each by the place that the
/// execution has for it: neither entering nor leaving takes memory, so neither can fail.
class ExecutionQueue {
 public:
  /// Stays where it is while it is queued.
  class Place {
   public:
    Place() = default;
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

   private:
    friend class ExecutionQueue;
    std::shared_ptr<Execution> execution_;  ///< while it is queued
    Place* previous_ = nullptr;
    Place* next_ = nullptr;
  };

  ExecutionQueue() = default;
  ExecutionQueue(const ExecutionQueue&) = delete;
  ExecutionQueue& operator=(const ExecutionQueue&) = delete;

  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  /// Not of an empty one.
  [[nodiscard]] Execution& front() const noexcept { return *first_->execution_; }

  /// `place` is in no queue.
  void push_back(Place& place, std::shared_ptr<Execution> execution) noexcept {
    ORBITE_CHECK(place.execution_ == nullptr && execution != nullptr);
    place.execution_ = std::move(execution);
    place.previous_ = last_;
    place.next_ = nullptr;
    (last_ != nullptr ? last_->next_ : first_) = &place;
    last_ = &place;
  }
  /// `place` is in this one. Returns what was owned: the execution, and `place` with it, may end
  /// with that.
  [[nodiscard]] std::shared_ptr<Execution> remove(Place& place) noexcept {
    ORBITE_CHECK(place.execution_ != nullptr);
    (place.previous_ != nullptr ? place.previous_->next_ : first_) = place.next_;
    (place.next_ != nullptr ? place.next_->previous_ : last_) = place.previous_;
    return std::move(place.execution_);
  }

 private:
  Place* first_ = nullptr;
  Place* last_ = nullptr;
};

}  // namespace orbite::transfer
