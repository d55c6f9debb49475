// SPDX-License-Identifier: Apache-2.0
#include "sim/nemesis.hpp"

#include <algorithm>
#include <utility>

namespace orbite::sim {
namespace {

constexpr base::Nanoseconds kFaultMax = 600 * base::kMillisecond;
constexpr base::Nanoseconds kJumpMax = 2 * base::kSecond;
constexpr base::Nanoseconds kRestartMax = 300 * base::kMillisecond;
constexpr base::Nanoseconds kSlowLatencyMax = 30 * base::kMillisecond;
/// A process is caught in one of its next copies.
constexpr std::uint32_t kCopiesBeforeMax = 30;

}  // namespace

void Nemesis::begin() {
  if (world_.options.faults == 0) {
    return;
  }
  if ((world_.options.faults & bit(Fault::kShort)) != 0 && random_.chance(500)) {
    world_.fabric.limits.call_bytes_max = static_cast<std::uint32_t>(random_.size(8192));
    world_.fabric.limits.send_buffer_bytes =
        static_cast<std::uint32_t>(random_.between(2048, 16'384));
    world_.fabric.limits.receive_buffer_bytes =
        static_cast<std::uint32_t>(random_.between(1024, 16'384));
  }
  // Of a run of usual length: a shorter one is then the beginning of it.
  const base::Nanoseconds run_ns = world_.pace_ns * Options{}.ops / world_.hosts.size();
  pause_ns_ = run_ns / random_.between(2, 30);
  world_.on_struck_down = [this](Host& host) { struck_down(host); };
  next_fault();
}

void Nemesis::later(std::function<void()> undo) {
  world_.scheduler.after(random_.span(kFaultMax), Layer::kFault, [this, undone = std::move(undo)] {
    if (!over_) {
      undone();
    }
  });
}

void Nemesis::next_fault() {
  world_.scheduler.after(random_.below(2 * pause_ns_), Layer::kFault, [this] {
    if (over_) {
      return;
    }
    const auto fault =
        static_cast<Fault>(random_.below(world_.has_neighbors() ? kFaults : kFaultsAlone));
    const bool deadly = fault == Fault::kKill || fault == Fault::kPowerLoss;
    if ((world_.options.faults & bit(fault)) != 0 && (!deadly || random_.chance(400))) {
      ++world_.stats.faults;
      strike(fault);
    }
    next_fault();
  });
}

void Nemesis::strike(Fault fault) {
  switch (fault) {
    case Fault::kDelay:
    case Fault::kShort:
    case Fault::kClog:
    case Fault::kCut:
    case Fault::kCutOneWay:
      strike_link(fault);
      return;
    case Fault::kReset:
    case Fault::kGiveUp:
      strike_connection(fault);
      return;
    case Fault::kAcceptFails:
    case Fault::kNoConnect:
    case Fault::kPause:
    case Fault::kClockJump:
    case Fault::kKill:
    case Fault::kPowerLoss:
    case Fault::kPortTaken:
    case Fault::kNoMemory:
    case Fault::kLateMessage:
    case Fault::kNoPages:
    case Fault::kNoCopies:
    case Fault::kStopInCopy:
    case Fault::kKillInCopy:
      strike_host(fault);
      return;
  }
}

void Nemesis::restore_link(std::uint32_t a, std::uint32_t b) {
  world_.fabric.link(a, b) = Link{};
  world_.fabric.link(b, a) = Link{};
  world_.fabric.link_changed(a, b);
}

void Nemesis::strike_link(Fault fault) {
  const std::uint32_t machines = world_.fabric.machines();
  if (machines == 1) {
    return;
  }
  const auto a = static_cast<std::uint32_t>(random_.below(machines));
  const auto b = static_cast<std::uint32_t>((a + 1 + random_.below(machines - 1)) % machines);
  world_.trace.note(world_.now_ns(), "fault: %s, machine%u to machine%u",
                    std::string(fault_name(fault)).c_str(), a, b);
  Link& there = world_.fabric.link(a, b);
  Link& back = world_.fabric.link(b, a);
  switch (fault) {
    case Fault::kDelay:
      there.latency_max_ns = there.latency_min_ns + random_.span(kSlowLatencyMax);
      back.latency_max_ns = back.latency_min_ns + random_.span(kSlowLatencyMax);
      break;
    case Fault::kShort:
      there.segment_bytes_max = static_cast<std::uint32_t>(random_.size(2000));
      break;
    case Fault::kClog:
      there.clogged = true;
      break;
    case Fault::kCut:
      back.cut = true;
      there.cut = true;
      break;
    default:
      there.cut = true;
      break;
  }
  world_.fabric.link_changed(a, b);
  later([this, a, b] { restore_link(a, b); });
}

void Nemesis::strike_connection(Fault fault) {
  const auto& connections = world_.fabric.connections();
  if (connections.empty()) {
    return;
  }
  const Fabric::ConnectionPtr connection = connections[random_.below(connections.size())];
  auto which = static_cast<std::uint32_t>(random_.below(3));
  if (connection->ends[0].machine == connection->ends[1].machine) {
    // Nobody stands between the ends; an administrator may end both. What one kernel sends itself
    // arrives, so it never gives up.
    if (fault == Fault::kGiveUp) {
      return;
    }
    which = 2;
  }
  world_.trace.note(world_.now_ns(), "fault: %s of a connection of machine%u to machine%u, end %u",
                    std::string(fault_name(fault)).c_str(), connection->ends[0].machine,
                    connection->ends[1].machine, which);
  if (fault == Fault::kReset) {
    world_.fabric.reset(*connection, which);
  } else {
    world_.fabric.give_up(*connection, which % 2);
  }
}

void Nemesis::restart_later(Host& host) {
  world_.scheduler.after(random_.span(kRestartMax), Layer::kFault, [this, &host] {
    if (!over_ && host.state == Host::State::kDown) {
      ++world_.stats.restarts;
      world_.start(host);
    }
  });
}

/// A caller that stands inside an engine does not survive it.
bool Nemesis::may_die(const std::vector<Host*>& hosts) const {
  return std::none_of(hosts.begin(), hosts.end(),
                      [this](const Host* host) { return world_.inside(*host); });
}

void Nemesis::struck_down(Host& host) {
  if (!over_ && random_.chance(850)) {
    restart_later(host);
  }
}

void Nemesis::end_hosts(Fault fault, Host& host) {
  std::vector<Host*> dying{&host};
  if (fault == Fault::kPowerLoss) {
    dying = world_.hosts_on(host.machine);
  }
  if (!may_die(dying)) {
    return;
  }
  if (fault == Fault::kKill) {
    world_.kill(host);
  } else {
    world_.power_off(host.machine);
  }
  for (Host* const dead : dying) {
    if (random_.chance(850)) {
      restart_later(*dead);
    }
  }
}

void Nemesis::strike_host(Fault fault) {
  Host& host = world_.host(static_cast<std::uint32_t>(random_.below(world_.hosts.size())));
  if (host.engine == nullptr) {
    return;
  }
  Machine& machine = world_.fabric.machine(host.machine);
  world_.trace.note(world_.now_ns(), "fault: %s of host%u", std::string(fault_name(fault)).c_str(),
                    host.index);
  switch (fault) {
    case Fault::kAcceptFails:
      machine.accept_failures = static_cast<std::uint32_t>(random_.between(100, 1000));
      later([&machine] { machine.accept_failures = 0; });
      return;
    case Fault::kNoConnect:
      machine.ignores_connects = true;
      later([&machine] { machine.ignores_connects = false; });
      return;
    case Fault::kPause:
      host.paused_until_ns = world_.now_ns() + random_.span(kFaultMax);
      // The whole process, or its worker gets no turn while callers go on.
      host.application_until_ns = random_.chance(500) ? host.paused_until_ns : 0;
      return;
    case Fault::kClockJump:
      for (const base::Nanoseconds step_ns = random_.span(kJumpMax);
           Host* const other : world_.hosts_on(host.machine)) {
        other->clock.jump(step_ns);
      }
      return;
    case Fault::kNoMemory:
      host.no_memory_per_mille = static_cast<std::uint32_t>(random_.between(20, 700));
      later([&host] { host.no_memory_per_mille = 0; });
      return;
    case Fault::kPortTaken:
      machine.ports_taken.push_back(static_cast<std::uint16_t>(World::kPort + random_.below(3)));
      later([&machine] { machine.ports_taken.clear(); });
      return;
    case Fault::kLateMessage:
      world_.neighborhood.kernel(host.machine).latency_max_ns = random_.span(kSlowLatencyMax);
      later([this, &host] {
        world_.neighborhood.kernel(host.machine).latency_max_ns = Neighborhood::kLatencyMax;
      });
      return;
    case Fault::kNoPages:
      world_.neighborhood.kernel(host.machine).page_failures =
          static_cast<std::uint32_t>(random_.between(50, 700));
      later([this, &host] { world_.neighborhood.kernel(host.machine).page_failures = 0; });
      return;
    case Fault::kNoCopies:
    case Fault::kStopInCopy:
    case Fault::kKillInCopy:
      strike_copies(fault, host);
      return;
    default:
      end_hosts(fault, host);
      return;
  }
}

/// None of them outlives the process.
void Nemesis::strike_copies(Fault fault, Host& host) {
  if (host.neighbors == nullptr) {
    return;
  }
  if (fault == Fault::kNoCopies) {
    host.neighbors->forbid_copies(true);
    later([&host] {
      if (host.neighbors != nullptr) {
        host.neighbors->forbid_copies(false);
      }
    });
    return;
  }
  HostNeighbors::Ambush ambush;
  ambush.copies_before = static_cast<std::uint32_t>(random_.size(kCopiesBeforeMax)) - 1;
  ambush.kills = fault == Fault::kKillInCopy;
  if (!ambush.kills || random_.chance(300)) {
    ambush.stop_before_ns = random_.chance(600) ? random_.span(kFaultMax) : 0;
  }
  if (!ambush.kills && (ambush.stop_before_ns == 0 || random_.chance(300))) {
    ambush.stop_after_ns = random_.span(kFaultMax);
  }
  host.neighbors->lay(ambush);
}

void Nemesis::end() {
  over_ = true;
  world_.trace.note(world_.now_ns(), "all faults end");
  for (std::uint32_t a = 0; a < world_.fabric.machines(); ++a) {
    Machine& machine = world_.fabric.machine(a);
    machine.accept_failures = 0;
    machine.ignores_connects = false;
    machine.ports_taken.clear();
    world_.neighborhood.kernel(a).latency_max_ns = Neighborhood::kLatencyMax;
    world_.neighborhood.kernel(a).page_failures = 0;
    for (std::uint32_t b = 0; b < a; ++b) {
      restore_link(a, b);
    }
  }
  for (const auto& host : world_.hosts) {
    host->no_memory_per_mille = 0;
    host->paused_until_ns = 0;
    host->application_until_ns = 0;
    if (host->neighbors != nullptr) {
      host->neighbors->call_off();
      host->neighbors->forbid_copies(false);
    }
    if (host->state == Host::State::kDown && random_.chance(700)) {
      ++world_.stats.restarts;
      world_.start(*host);
    } else if (host->engine != nullptr) {
      world_.wake(*host, world_.now_ns());
    }
  }
}

}  // namespace orbite::sim
