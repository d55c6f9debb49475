// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/brief_lock.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"

namespace orbite::base {

/// Shared objects behind generation-checked handles. Thread-safe; a handle that was taken out is
/// kStaleHandle for ever, since a slot whose generation would wrap is withdrawn instead of reused.
template <typename T>
class SlotMap {
 public:
  /// `what` names the objects in messages; `slots_max` bounds how many live at once, and is set by
  /// `key` of the configuration.
  SlotMap(const char* what, std::uint64_t slots_max, const char* key)
      : what_(what), key_(key), slots_max_(slots_max) {}

  Result<Handle> insert(std::shared_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    std::uint32_t index = 0;
    if (!free_.empty()) {
      index = free_.back();
      free_.pop_back();
    } else if (slots_.size() < slots_max_ && slots_.size() < UINT32_MAX) {
      index = static_cast<std::uint32_t>(slots_.size());
      if (free_.capacity() <= slots_.size()) {
        free_.reserve(2 * slots_.size() + 1);  // so that take() never allocates
      }
      slots_.emplace_back();
    } else {
      ++refused_;
      return fail(ErrorCode::kBudgetExhausted, "%s: all %llu are in use (%s)", what_,
                  static_cast<unsigned long long>(slots_max_), key_);
    }
    Slot& slot = slots_[index];
    slot.object = std::move(object);
    ++live_;
    return Handle{index, slot.generation};
  }

  [[nodiscard]] Result<std::shared_ptr<T>> find(Handle handle) const {
    const auto lock = lock_briefly(mutex_);
    if (handle.index >= slots_.size() || slots_[handle.index].generation != handle.generation ||
        slots_[handle.index].object == nullptr) {
      return stale(handle);
    }
    return slots_[handle.index].object;
  }

  /// Ends the handle; the object lives on while others hold it.
  Result<std::shared_ptr<T>> take(Handle handle) {
    const auto lock = lock_briefly(mutex_);
    if (handle.index >= slots_.size() || slots_[handle.index].generation != handle.generation ||
        slots_[handle.index].object == nullptr) {
      return stale(handle);
    }
    Slot& slot = slots_[handle.index];
    std::shared_ptr<T> object = std::exchange(slot.object, nullptr);
    --live_;
    if (slot.generation != UINT32_MAX) {
      ++slot.generation;
      free_.push_back(handle.index);
    }
    return object;
  }

  [[nodiscard]] std::vector<std::shared_ptr<T>> all() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<T>> objects;
    objects.reserve(live_);
    for (const Slot& slot : slots_) {
      if (slot.object != nullptr) {
        objects.push_back(slot.object);
      }
    }
    return objects;
  }

  [[nodiscard]] std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return live_;
  }
  [[nodiscard]] std::uint64_t max() const noexcept { return slots_max_; }
  /// How often insert() failed.
  [[nodiscard]] std::uint64_t refused() const {
    const std::lock_guard lock(mutex_);
    return refused_;
  }

 private:
  struct Slot {
    std::shared_ptr<T> object;
    std::uint32_t generation = 1;
  };

  tl::unexpected<Error> stale(Handle handle) const {
    return fail(ErrorCode::kStaleHandle, "%s %u of generation %u", what_, handle.index,
                handle.generation);
  }

  mutable std::mutex mutex_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  const char* what_;
  const char* key_;
  std::uint64_t slots_max_;
  std::size_t live_ = 0;
  std::uint64_t refused_ = 0;
};

}  // namespace orbite::base
