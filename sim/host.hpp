// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/waiter.hpp"
#include "orbite/engine.hpp"
#include "sim/arena.hpp"
#include "sim/host_neighbors.hpp"
#include "sim/host_network.hpp"
#include "sim/model.hpp"
#include "sim/random.hpp"
#include "sim/scheduler.hpp"
#include "sim/shared_pages.hpp"

namespace orbite::sim {

/// A peer as an application has imported it.
struct PeerModel {
  Handle handle;
  Life life;
  bool retired = false;
};

/// A range of a peer as an application has imported it.
struct RangeModel {
  Handle handle;
  std::size_t peer = 0;  ///< into Host::peers
  RegistrationPtr registration;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool released = false;
};

/// The world's clock with what faults have added to it.
class HostClock final : public base::Clock {
 public:
  explicit HostClock(const Scheduler& scheduler) : scheduler_(scheduler) {}
  [[nodiscard]] base::Nanoseconds now_ns() const noexcept override {
    return scheduler_.now_ns() + ahead_ns_;
  }
  void jump(base::Nanoseconds step_ns) noexcept { ahead_ns_ += step_ns; }

 private:
  const Scheduler& scheduler_;
  base::Nanoseconds ahead_ns_ = 0;
};

/// A caller that waits inside the engine: the rest of the world goes on.
class HostWaiter final : public base::Waiter {
 public:
  HostWaiter(Scheduler& scheduler, HostClock& clock) : scheduler_(scheduler), clock_(clock) {}
  bool wait_for(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                base::Nanoseconds timeout_ns, const std::function<bool()>& ready) override;
  [[nodiscard]] bool waiting() const noexcept { return waits_ > 0; }
  /// The process is dead, and its code only runs to where it returns: from now on each wait is over
  /// at once, and the clock says so, until begin_life().
  void end_life() noexcept { dead_ = true; }
  void begin_life() noexcept {
    dead_ = false;
    clock_.jump(-std::exchange(skipped_ns_, 0));
  }

 private:
  Scheduler& scheduler_;
  HostClock& clock_;
  int waits_ = 0;
  bool dead_ = false;
  base::Nanoseconds skipped_ns_ = 0;
};

/// A process, its one engine, and what its application knows. Several may share a machine.
struct Host {
  enum class State : std::uint8_t { kDown, kUp, kClosing };

  Host(std::uint32_t host_index, std::uint32_t its_machine, Scheduler& scheduler,
       std::uint64_t seed)
      : index(host_index),
        machine(its_machine),
        clock(scheduler),
        waiter(scheduler, clock),
        engine_random(seed) {}

  const std::uint32_t index;
  const std::uint32_t machine;  ///< of the fabric
  std::uint32_t life_number = 0;
  State state = State::kDown;
  HostClock clock;
  HostWaiter waiter;
  Random engine_random;
  Arena arena;
  std::unique_ptr<HostNetwork> network;
  std::unique_ptr<HostNeighbors> neighbors;  ///< nullptr: its engine knows of none
  std::unique_ptr<TransferEngine> engine;    ///< after these: it goes first
  /// Killed inside a copy; what its code still does until it returns, nobody hears.
  bool struck = false;
  /// How long it has stood still inside copies, so far.
  base::Nanoseconds stopped_ns = 0;

  // The worker's thread.
  std::uint64_t wake_serial = 0;
  base::Nanoseconds wake_at_ns = 0;            ///< 0: none is scheduled
  base::Nanoseconds paused_until_ns = 0;       ///< the worker
  base::Nanoseconds application_until_ns = 0;  ///< the application is paused

  /// How often, of a thousand, an entry of its engine finds no memory.
  std::uint32_t no_memory_per_mille = 0;

  // What the application knows.
  bool forgetful = false;                    ///< it does not take its notifications
  std::vector<AllocationModel> allocations;  ///< of this life, or of the last one while it is down
  std::uint64_t allocations_made = 0;        ///< in that life
  std::vector<RegistrationPtr> registrations;
  std::vector<PeerModel> peers;
  std::vector<RangeModel> ranges;
  std::vector<RequestPtr> requests;

  // What the world knows of its memory.
  ClaimMap claims;
  ClaimMap ghosts;  ///< of its last life
  /// Of lives whose pages neighbours may still have, by their numbers.
  std::map<std::uint32_t, ClaimMap> past_claims;
  std::vector<Claim> graves;  ///< of requests that have ended, newest last

  [[nodiscard]] Life life() const noexcept { return {index, life_number}; }
  [[nodiscard]] bool up() const noexcept { return state == State::kUp; }
  [[nodiscard]] std::string name() const { return "host" + std::to_string(index); }
};

}  // namespace orbite::sim
