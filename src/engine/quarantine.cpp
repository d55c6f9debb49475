// SPDX-License-Identifier: Apache-2.0
#include "engine/quarantine.hpp"

#include <algorithm>
#include <atomic>
#include <iterator>
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

void Quarantine::keep(std::shared_ptr<void> engine, std::function<bool()> resolved) {
  const std::lock_guard lock(mutex_);
  residents_.push_back({std::move(engine), std::move(resolved)});
}

std::size_t Quarantine::size() {
  std::vector<Resident> done;  // destroyed after the lock
  const std::lock_guard lock(mutex_);
  const auto first_done =
      std::stable_partition(residents_.begin(), residents_.end(),
                            [](const Resident& resident) { return !resident.resolved(); });
  done.assign(std::make_move_iterator(first_done), std::make_move_iterator(residents_.end()));
  residents_.erase(first_done, residents_.end());
  return residents_.size();
}

}  // namespace orbite
