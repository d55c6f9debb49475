// SPDX-License-Identifier: Apache-2.0
#include "sim/run.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "sim/nemesis.hpp"
#include "sim/workload.hpp"
#include "sim/world.hpp"

namespace orbite::sim {
namespace {

constexpr base::Nanoseconds kFaultyMax = 20 * base::kSecond;
constexpr base::Nanoseconds kHealStep = 5 * base::kMillisecond;
/// Every so long after the last fault an operator looks who is dead.
constexpr base::Nanoseconds kOperatorEvery = 2 * base::kSecond;
/// Everything has ended by then: the longest timers are the drain's retry, a second, and those of
/// the configuration, below half a second each.
constexpr base::Nanoseconds kHealMax = 20 * base::kSecond;
constexpr base::Nanoseconds kCloseMax = 10 * base::kSecond;

unsigned long long ull(std::uint64_t value) { return value; }

/// The end of a run, in which everything must come to rest.
class Healing {
 public:
  Healing(World& world, Workload& workload) : world_(world), workload_(workload) {}

  void run() {
    wait_for_executions();
    release_everything();
    wait_for_rest();
    workload_.check_notifications();
    close_everything();
  }

 private:
  template <typename Each>
  void each_up(Each each) {
    for (const auto& host : world_.hosts) {
      if (host->state == Host::State::kUp) {
        each(*host);
      }
    }
  }

  /// Looks at everything once; true when nothing is left to wait for.
  bool look() {
    bool ended = true;
    for (const auto& host : world_.hosts) {
      if (host->state == Host::State::kClosing) {
        ended = workload_.close(*host, 0) && ended;
        continue;
      }
      if (host->state != Host::State::kUp) {
        continue;
      }
      workload_.receive(*host);
      for (const RequestPtr& request : std::vector<RequestPtr>(host->requests)) {
        if (!request->abandoned && request->execution != nullptr &&
            !request->execution->told_terminal) {
          workload_.check(*host, request);
          ended = ended && request->execution->told_terminal;
        }
      }
    }
    return ended;
  }

  void fence_the_dead() {
    world_.trace.note(world_.now_ns(), "an operator names the dead");
    for (const auto& host : world_.hosts) {
      for (std::size_t i = 0; host->engine != nullptr && i < world_.blobs.size(); ++i) {
        const Life life = world_.blobs[i].life;
        if (!world_.alive(life)) {
          workload_.confirm_fenced(*host, life);
        }
      }
    }
  }

  void wait_for_executions() {
    const base::Nanoseconds begin_ns = world_.now_ns();
    base::Nanoseconds operator_ns = begin_ns + kOperatorEvery;
    while (!look()) {
      if (world_.now_ns() > begin_ns + kHealMax) {
        report_unended();
        return;
      }
      if (world_.now_ns() > operator_ns) {
        operator_ns += kOperatorEvery;
        fence_the_dead();
      }
      world_.scheduler.run_until(world_.now_ns() + kHealStep);
    }
    fence_the_dead();
  }

  void report_unended() {
    for (const auto& host : world_.hosts) {
      if (host->engine == nullptr) {
        continue;
      }
      for (const RequestPtr& request : host->requests) {
        if (!request->abandoned && request->execution != nullptr &&
            !request->execution->told_terminal) {
          world_.checkers.violation("healing", host->index, request->execution->id,
                                    "still not terminal %llu s after the last fault, with life %u "
                                    "of host%u, which %s",
                                    ull(kHealMax / base::kSecond), request->peer.number,
                                    request->peer.host,
                                    world_.alive(request->peer) ? "lives" : "is dead");
        }
      }
      if (host->state == Host::State::kClosing) {
        world_.checkers.violation("healing", host->index, 0, "still closing");
      }
    }
  }

  void release_everything() {
    each_up([&](Host& host) {
      for (const RequestPtr& request : std::vector<RequestPtr>(host.requests)) {
        if (!request->abandoned) {
          workload_.release(host, request);
        }
      }
      for (const RegistrationPtr& registration : std::vector<RegistrationPtr>(host.registrations)) {
        if (!registration->deregistered) {
          workload_.deregister(host, registration);
        }
      }
    });
  }

  [[nodiscard]] static bool at_rest(Host& host) {
    return std::all_of(host.registrations.begin(), host.registrations.end(),
                       [](const RegistrationPtr& registration) { return registration->retired(); });
  }

  /// Also what nobody is told of any more: abandoned requests, notifications on their own.
  void wait_for_rest() {
    const base::Nanoseconds begin_ns = world_.now_ns();
    bool rests = false;
    while (!rests && world_.now_ns() < begin_ns + kHealMax) {
      world_.scheduler.run_until(world_.now_ns() + kHealStep);
      rests = true;
      each_up([&](Host& host) { rests = rests && at_rest(host) && world_.pools_empty(host); });
    }
    each_up([&](Host& host) {
      workload_.receive(host);
      world_.checkers.pools_at_rest(host);
    });
  }

  void close_everything() {
    world_.stop_restarts = true;
    for (const auto& host : world_.hosts) {
      if (host->engine == nullptr) {
        continue;
      }
      for (const RegistrationPtr& registration : host->registrations) {
        registration->deregistered = true;
      }
      host->state = Host::State::kClosing;
      if (!workload_.close(*host, kCloseMax)) {
        world_.checkers.violation("healing", host->index, 0, "does not close");
      }
    }
  }

  World& world_;
  Workload& workload_;
};

}  // namespace

Report run(std::uint64_t seed, const Options& options) {
  Report report;
  {
    World world(seed, options);
    Workload workload(world);
    Nemesis nemesis(world);
    for (const auto& host : world.hosts) {
      // Of those that find no memory, soon one will.
      while (!world.start(*host)) {
      }
    }
    const base::Nanoseconds begin_ns = world.now_ns();
    workload.begin();
    nemesis.begin();
    while (!workload.done() && world.scheduler.run_next(begin_ns + kFaultyMax)) {
    }
    nemesis.end();
    Healing(world, workload).run();
    report.trace = world.trace.hash();
    world.stats.events = world.scheduler.events_run();
    world.stats.virtual_ns = world.now_ns() - begin_ns;
    world.stats.hosts = world.hosts_count;
    world.stats.machines = world.fabric.machines();
    world.stats.connections = world.fabric.counts().connections;
    world.stats.loopback_connections = world.fabric.counts().loopback_connections;
    world.stats.loopback_bytes = world.fabric.counts().loopback_bytes;
    const Neighborhood::Counts& neighbors = world.neighborhood.counts;
    world.stats.local_messages = neighbors.messages;
    world.stats.copies = neighbors.copies;
    world.stats.bytes_copied = neighbors.bytes_copied;
    world.stats.mapped_copies = neighbors.mapped_copies;
    world.stats.mapped_bytes = neighbors.mapped_bytes;
    world.stats.killed_inside_mapped = neighbors.killed_inside_mapped;
    world.stats.stopped_inside_mapped = neighbors.stopped_inside_mapped;
    world.stats.pages_lost = neighbors.pages_lost;
    world.stats.pages_shortened = neighbors.pages_shortened;
    world.stats.killed_inside_copies = neighbors.killed_inside;
    world.stats.stopped_inside_copies = neighbors.stopped_inside;
    report.violations = std::move(world.checkers.violations());
    report.log = std::move(world.trace.log());
    report.stats = world.stats;
  }
  return report;
}

}  // namespace orbite::sim
