// SPDX-License-Identifier: Apache-2.0
#include "sim/scheduler.hpp"

#include <algorithm>
#include <utility>

namespace orbite::sim {

void Scheduler::push(Event event) {
  queue_.push_back(std::move(event));
  std::push_heap(queue_.begin(), queue_.end(), later);
}

void Scheduler::at(base::Nanoseconds when_ns, Layer layer, std::function<void()> action) {
  push({std::max(when_ns, now_ns_), random_.next(), layer, std::move(action)});
}

bool Scheduler::run_next(base::Nanoseconds limit_ns) {
  while (!queue_.empty() && queue_.front().when_ns <= limit_ns) {
    std::pop_heap(queue_.begin(), queue_.end(), later);
    Event event = std::move(queue_.back());
    queue_.pop_back();
    if (holds_ > 0 && event.layer == Layer::kApplication) {
      held_.push_back(std::move(event));
      continue;
    }
    now_ns_ = std::max(now_ns_, event.when_ns);
    ++events_run_;
    if (before_event) {
      before_event();
    }
    event.action();
    return true;
  }
  now_ns_ = std::max(now_ns_, limit_ns);
  return false;
}

void Scheduler::run_until(base::Nanoseconds when_ns) {
  while (run_next(when_ns)) {
  }
}

Scheduler::Hold::~Hold() {
  if (--scheduler_.holds_ == 0) {
    for (Event& event : std::exchange(scheduler_.held_, {})) {
      event.when_ns = std::max(event.when_ns, scheduler_.now_ns_);
      scheduler_.push(std::move(event));
    }
  }
}

}  // namespace orbite::sim
