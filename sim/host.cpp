// SPDX-License-Identifier: Apache-2.0
#include "sim/host.hpp"

#include "sim/allocation_fault.hpp"

namespace orbite::sim {

bool HostWaiter::wait_for(std::unique_lock<std::mutex>& lock, std::condition_variable& /*changed*/,
                          base::Nanoseconds timeout_ns, const std::function<bool()>& ready) {
  const AllocationShelter shelter;
  if (dead_) {
    skipped_ns_ += timeout_ns;
    clock_.jump(timeout_ns);
    return ready();
  }
  const base::Nanoseconds deadline_ns = base::saturating_add(scheduler_.now_ns(), timeout_ns);
  const Scheduler::Hold hold(scheduler_);
  ++waits_;
  bool more = true;
  while (!ready() && more) {
    lock.unlock();
    more = scheduler_.run_next(deadline_ns);
    lock.lock();
  }
  --waits_;
  return ready();
}

}  // namespace orbite::sim
