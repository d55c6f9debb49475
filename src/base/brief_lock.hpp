// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

namespace orbite::base {

/// Tells the processor that this thread waits for another one.
inline void pause_processor() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Locks a mutex that most of those who take it hold for a moment, and that many threads want at
/// once: it looks a few times, for some microseconds in all, before it sleeps. To sleep and be
/// woken costs many times what such a holder needs, and the others queue up meanwhile.
[[nodiscard]] inline std::unique_lock<std::mutex> lock_briefly(std::mutex& mutex) {
  constexpr int kLooks = 8;
  for (int look = 0; look < kLooks; ++look) {
    if (mutex.try_lock()) {
      return {mutex, std::adopt_lock};
    }
    for (int i = 0; i < 1 << look; ++i) {
      pause_processor();
    }
  }
  return std::unique_lock(mutex);
}

}  // namespace orbite::base
