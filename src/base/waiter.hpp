// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

#include "base/clock.hpp"

namespace orbite::base {

/// How a thread waits for another one. Given to everything outside src/platform like time, so that
/// a simulated world of one thread can do the others' work meanwhile.
class Waiter {
 public:
  Waiter() = default;
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;
  virtual ~Waiter() = default;

  /// With `lock` held: at most `timeout_ns` until `ready`, which is asked under the lock and again
  /// after each notification of `changed`. Returns what it answered last.
  virtual bool wait_for(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                        Nanoseconds timeout_ns, const std::function<bool()>& ready) = 0;
};

/// Sleeps on the condition variable.
class ThreadWaiter final : public Waiter {
 public:
  bool wait_for(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                Nanoseconds timeout_ns, const std::function<bool()>& ready) override {
    return changed.wait_for(lock, clamp_wait(timeout_ns), ready);
  }
};

}  // namespace orbite::base
