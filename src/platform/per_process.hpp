// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "platform/system.hpp"

namespace orbite::platform {

/// One T for each process. A child made by fork() makes one of its own and never looks at its
/// parent's, whose locks may be held by threads that the child does not have. For static storage:
/// what it made is never destroyed, since threads may use it while the process ends.
template <typename T>
class PerProcess {
 public:
  constexpr PerProcess() = default;
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;

  /// Null: this process has made none. Safe from any thread.
  [[nodiscard]] T* look() const noexcept {
    // Acquire: pairs with the release in get(), so the T is seen as it was made.
    Entry* const entry = newest_.load(std::memory_order_acquire);
    return entry != nullptr && entry->generation == process_generation() ? &entry->value : nullptr;
  }

  /// Makes it when there is none. Throws what making it throws. Safe from any thread.
  T& get() {
    if (T* const made = look(); made != nullptr) {
      return *made;
    }
    auto fresh = std::make_unique<Entry>();
    fresh->generation = process_generation();
    // Acquire, here and in the exchange: as in look().
    Entry* before = newest_.load(std::memory_order_acquire);
    do {
      if (before != nullptr && before->generation == fresh->generation) {
        return before->value;
      }
      fresh->before = before;
      // Release: pairs with the acquires of who finds it.
    } while (!newest_.compare_exchange_weak(before, fresh.get(), std::memory_order_release,
                                            std::memory_order_acquire));
    return fresh.release()->value;
  }

 private:
  struct Entry {
    T value;
    Entry* before = nullptr;  ///< of the parent; only kept reachable
    std::uint32_t generation = 0;
  };

  std::atomic<Entry*> newest_{nullptr};
};

}  // namespace orbite::platform
