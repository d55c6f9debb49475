// SPDX-License-Identifier: Apache-2.0
#include "engine/quarantine.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

#include "platform/system.hpp"

namespace orbite {

Quarantine& Quarantine::of_process() {
  // Release and acquire: whoever finds an object sees it whole. Never deleted: a lock of the
  // parent's may be held for ever by a thread that does not exist here.
  static std::atomic<Quarantine*> current{nullptr};
  Quarantine* found = current.load(std::memory_order_acquire);
  const std::uint32_t generation = platform::process_generation();
  while (found == nullptr || found->process_generation_ != generation) {
    std::unique_ptr<Quarantine> fresh(new Quarantine(generation));
    if (current.compare_exchange_strong(found, fresh.get(), std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
      found = fresh.release();
    }
  }
  return *found;
}

void Quarantine::enter(Place place) noexcept {
  reap();
  const std::lock_guard lock(mutex_);
  residents_.splice(residents_.end(), place);
}

void Quarantine::reap() noexcept {
  Place done;  // destroyed after the lock
  const std::lock_guard lock(mutex_);
  for (auto it = residents_.begin(); it != residents_.end();) {
    const auto resident = it++;
    if (resident->resolved(resident->engine.get())) {
      done.splice(done.end(), residents_, resident);
    }
  }
}

std::size_t Quarantine::size() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(std::count_if(
      residents_.begin(), residents_.end(),
      [](const Resident& resident) { return !resident.resolved(resident.engine.get()); }));
}

}  // namespace orbite
