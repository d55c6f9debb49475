// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "nixl/direct/bridge_seam.hpp"

namespace orbite::test {

/// Counts how often the engine says that registrations made meanwhile can be touched by nothing.
class RetiredCounter {
 public:
  RetiredCounter()
      : registers_([this](orbite_nixl_engine_t engine, const orbite_nixl_memory_t* memory,
                          orbite_nixl_registration_t* registration, orbite_nixl_error_t* error) {
          orbite_nixl_memory_t leased = *memory;
          leased.context = &count_;
          leased.retired = [](void* context) {
            static_cast<std::atomic<int>*>(context)->fetch_add(1, std::memory_order_relaxed);
          };
          return RegisterSeam::real(engine, &leased, registration, error);
        }) {}
  // Relaxed: the count is all that is told.
  int count() const { return count_.load(std::memory_order_relaxed); }
  bool becomes(int expected) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (count() != expected && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    return count() == expected;
  }

 private:
  std::atomic<int> count_{0};
  RegisterSeam::Guard registers_;
};

}  // namespace orbite::test
