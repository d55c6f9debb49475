// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/clock.hpp"
#include "sim/random.hpp"

namespace orbite::sim {

/// What an event belongs to.
enum class Layer : std::uint8_t { kNetwork, kWorker, kFault, kApplication };

/// The virtual time and everything that is to happen in it, in the order of (time, a seeded draw).
class Scheduler {
 public:
  explicit Scheduler(std::uint64_t seed) : random_(seed) {}

  [[nodiscard]] base::Nanoseconds now_ns() const noexcept { return now_ns_; }
  void at(base::Nanoseconds when_ns, Layer layer, std::function<void()> action);
  void after(base::Nanoseconds delay_ns, Layer layer, std::function<void()> action) {
    at(now_ns_ + delay_ns, layer, std::move(action));
  }

  /// The next event, if it is due until `limit_ns`. False: there is none, and it is that time now.
  bool run_next(base::Nanoseconds limit_ns);
  void run_until(base::Nanoseconds when_ns);

  /// While an application waits inside a call, no application does anything: their events are held
  /// back until it returns.
  class Hold {
   public:
    explicit Hold(Scheduler& scheduler) : scheduler_(scheduler) { ++scheduler_.holds_; }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    ~Hold();

   private:
    Scheduler& scheduler_;
  };

  /// Called before each event; may be empty.
  std::function<void()> before_event;

  [[nodiscard]] std::uint64_t events_run() const noexcept { return events_run_; }

 private:
  struct Event {
    base::Nanoseconds when_ns;
    std::uint64_t order;
    Layer layer;
    std::function<void()> action;
  };
  static bool later(const Event& a, const Event& b) noexcept {
    return a.when_ns != b.when_ns ? a.when_ns > b.when_ns : a.order > b.order;
  }
  void push(Event event);

  Random random_;
  base::Nanoseconds now_ns_ = base::kSecond;
  std::vector<Event> queue_;  ///< a heap, the earliest first
  std::vector<Event> held_;
  int holds_ = 0;
  std::uint64_t events_run_ = 0;
};

}  // namespace orbite::sim
