// SPDX-License-Identifier: Apache-2.0
#include "sim/world.hpp"

#include <algorithm>
#include <utility>

#include "base/assert.hpp"
#include "engine/access.hpp"

namespace orbite::sim {
namespace {

constexpr std::size_t kGravesMax = 64;
/// A thread that something wakes runs so much later.
constexpr base::Nanoseconds kWakeMin = base::kMicrosecond;
constexpr base::Nanoseconds kWakeMax = 30 * base::kMicrosecond;
constexpr base::Nanoseconds kTurnMin = 500;

template <typename T, std::size_t N>
T pick(Random& random, const T (&values)[N]) {
  return values[random.below(N)];
}

}  // namespace

World::World(std::uint64_t seed, const Options& run_options)
    : options(run_options),
      random(seed),
      trace(run_options.keeps_log),
      scheduler(random.next()),
      checkers(scheduler, trace, stats),
      hosts_count(draw_hosts()),
      fabric(scheduler, trace, random.next(), draw_machines()),
      neighborhood(fabric, random.next()) {
  pace_ns = pick<base::Nanoseconds>(
      random, {100 * base::kMicrosecond, base::kMillisecond, 10 * base::kMillisecond});
  for (std::uint32_t i = 0; i < hosts_count; ++i) {
    const std::uint32_t machine =
        i < fabric.machines() ? i : static_cast<std::uint32_t>(random.below(fabric.machines()));
    hosts.push_back(std::make_unique<Host>(i, machine, scheduler, random.next()));
  }
  draw_kernels();
  scheduler.before_event = [this] { settle_copy(); };
}

std::uint32_t World::draw_hosts() {
  const auto drawn = static_cast<std::uint32_t>(random.between(kHostsMin, kHostsMax));
  return options.hosts != 0 ? options.hosts : drawn;
}

/// Mostly one for each host: links exist between machines alone.
std::uint32_t World::draw_machines() {
  const bool shared = random.chance(400);
  const auto drawn = static_cast<std::uint32_t>(random.between(1, hosts_count));
  if (options.machines != 0) {
    return std::min(options.machines, hosts_count);
  }
  return shared ? drawn : hosts_count;
}

void World::draw_kernels() {
  const NeighborsUse drawn =
      pick(random, {NeighborsUse::kNone, NeighborsUse::kSome, NeighborsUse::kAll,
                    NeighborsUse::kAll, NeighborsUse::kAll, NeighborsUse::kAll});
  neighbors_use_ = options.neighbors == NeighborsUse::kDrawn ? drawn : options.neighbors;
  for (std::uint32_t i = 0; i < fabric.machines(); ++i) {
    Neighborhood::Kernel& kernel = neighborhood.kernel(i);
    kernel.backlog_max = pick<std::size_t>(random, {1, 16, 128});
    kernel.messages_max = pick<std::size_t>(random, {1, 4, 16, 64});
    kernel.has_process_handles = !random.chance(50);
    kernel.can_forbid_writes = !random.chance(30);
    kernel.forbids_copies = random.chance(100);
    kernel.has_huge_pages = random.chance(100);
  }
}

std::vector<Host*> World::hosts_on(std::uint32_t machine) const {
  std::vector<Host*> found;
  for (const auto& host : hosts) {
    if (host->machine == machine) {
      found.push_back(host.get());
    }
  }
  return found;
}

World::~World() {
  for (const auto& host : hosts) {
    if (host->engine != nullptr) {
      kill(*host);
    }
  }
}

/// Small, so that every limit is met.
Config World::draw_config(const Host& host) {
  Config config;
  config.listen.port = kPort;
  config.listen.port_max = kPort + 8;
  config.tcp.bulk_lanes_per_peer = random.between(1, 3);
  config.tcp.connect_timeout_ms = random.between(10, 200);
  config.tcp.handshake_timeout_ms = random.between(20, 200);
  config.tcp.progress_timeout_ms = random.between(100, 400);
  config.tcp.idle_lane_timeout_ms = random.between(100, 1000);
  config.tcp.slice_bytes = pick<std::uint64_t>(random, {300, 1024, 4096, 65'536});
  config.tcp.small_bytes = pick<std::uint64_t>(random, {0, 512, 2048});
  config.tcp.lane_bytes_in_flight_max = std::max<std::uint64_t>(
      config.tcp.slice_bytes, pick<std::uint64_t>(random, {2048, 16'384, 1 << 20}));
  config.tcp.served_lanes_max = pick<std::uint64_t>(random, {6, 32, 1024});
  config.tcp.handshakes_max = pick<std::uint64_t>(random, {2, 128});
  config.tcp.keepalive_idle_ms = random.between(50, 1000);
  config.limits.registrations_max = pick<std::uint64_t>(random, {6, 64});
  config.limits.peers_max = pick<std::uint64_t>(random, {6, 64});
  config.limits.requests_max = pick<std::uint64_t>(random, {8, 256});
  config.limits.descriptors_max = pick<std::uint64_t>(random, {24, 4096});
  config.limits.descriptors_per_request_max = 24;
  config.limits.bytes_in_flight_max = pick<std::uint64_t>(random, {6000, 1 << 20});
  config.limits.ranges_max = pick<std::uint64_t>(random, {12, 256});
  config.notifications.message_bytes_max = 256;
  config.notifications.inbox_bytes_max = pick<std::uint64_t>(random, {2000, 65'536});
  config.notifications.outbox_bytes_max = pick<std::uint64_t>(random, {2000, 65'536});
  config.close.timeout_ms = 100;
  config.shm.enabled = !random.chance(80);
  config.cma.enabled = !random.chance(120);
  trace.note(now_ns(), "%s: slices of %llu, %llu bulk lanes, %llu served lanes",
             host.name().c_str(), static_cast<unsigned long long>(config.tcp.slice_bytes),
             static_cast<unsigned long long>(config.tcp.bulk_lanes_per_peer),
             static_cast<unsigned long long>(config.tcp.served_lanes_max));
  return config;
}

void World::on_bytes(Host& host, std::uint64_t address, std::uint64_t length,
                     Checkers::Access kind) {
  if (host.arena.contains(address, length)) {
    const std::uint64_t offset = address - host.arena.address();
    if (kind == Checkers::Access::kLanded) {
      host.arena.accept(offset, length);
    }
    checkers.access(host, offset, length, kind);
    return;
  }
  for (const auto& other : hosts) {
    if (address < other->arena.address() + kArenaBytes &&
        address + length > other->arena.address()) {
      checkers.foreign(host, *other);
    }
  }
}

HostNetwork::Observer World::observer(Host& host) {
  HostNetwork::Observer observer;
  observer.on_send = [this, &host](std::uint64_t address, std::uint64_t length) {
    on_bytes(host, address, length, Checkers::Access::kSent);
  };
  observer.on_receive = [this, &host](std::uint64_t address, std::uint64_t length) {
    on_bytes(host, address, length, Checkers::Access::kLanded);
  };
  observer.on_ready = [this, &host] { wake(host, now_ns() + random.between(kWakeMin, kWakeMax)); };
  observer.on_misuse = [this, &host](const char* what, platform::Socket socket) {
    checkers.misuse(host, what, socket);
  };
  return observer;
}

World::Entry::Entry(World& world, Host& host)
    : world_(world), host_(host), fault_(world.draw_allocation_fault(host)) {}

World::Entry::~Entry() {
  const AllocationShelter shelter;
  world_.settle_copy();
  world_.stats.allocations += fault_.seen();
  world_.stats.allocations_failed += fault_.failed();
}

/// Of a run in which a certain one is to fail: whether it comes now.
AllocationFault World::draw_allocation_fault(const Host& host) {
  const std::uint64_t begun = stats.allocations;
  if (options.failing_allocations > 0) {
    const std::uint64_t end = options.first_failing_allocation + options.failing_allocations;
    const std::uint64_t first = std::max(options.first_failing_allocation, begun);
    return {first - begun, end > first ? end - first : 0};
  }
  if (host.no_memory_per_mille == 0 || !random.chance(host.no_memory_per_mille)) {
    return {0, 0};
  }
  return {random.size(60) - 1, random.chance(500) ? 1 : random.size(1000)};
}

Result<std::unique_ptr<TransferEngine>> World::create(Host& host, EngineOptions engine_options,
                                                      EngineEnvironment environment) {
  const Entry entry = enter(host);
  try {
    return EngineAccess::create(std::move(engine_options), std::move(environment));
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, "creating an engine");
  }
}

HostNeighbors::Hooks World::neighbor_hooks(Host& host) {
  HostNeighbors::Hooks hooks;
  hooks.lacks_memory = [this, &host] {
    return host.no_memory_per_mille > 0 && random.chance(host.no_memory_per_mille);
  };
  hooks.stop = [this, &host](base::Nanoseconds time_ns) { stop_inside(host, time_ns); };
  hooks.may_die = [this, &host] { return !inside(host); };
  hooks.killed = [this, &host](std::uint64_t bytes, std::uint64_t bytes_max) {
    strike(host, bytes, bytes_max);
  };
  return hooks;
}

void World::make_process(Host& host) {
  host.network = std::make_unique<HostNetwork>(fabric, host.machine, observer(host));
  host.waiter.begin_life();
  if (neighbors_use_ == NeighborsUse::kAll ||
      (neighbors_use_ == NeighborsUse::kSome && random.chance(500))) {
    host.neighbors =
        std::make_unique<HostNeighbors>(neighborhood, *host.network, neighbor_hooks(host));
    host.neighbors->add_memory(host.arena.address(), kArenaBytes);
  }
}

void World::end_process(Host& host) {
  host.neighbors = nullptr;
  host.network = nullptr;
}

bool World::start(Host& host) {
  ORBITE_CHECK(host.state == Host::State::kDown);
  if (!fabric.machine(host.machine).up) {
    fabric.power_on(host.machine);
  }
  host.ghosts = host.claims;
  if (!host.allocations.empty()) {
    host.past_claims.emplace(host.life_number, std::move(host.claims));
  }
  host.claims.clear();
  host.graves.clear();
  ++host.life_number;
  make_process(host);
  draw_allocations(host);
  host.arena.fill(random, 0, kArenaBytes);
  EngineEnvironment environment{
      *host.network,
      host.clock,
      host.engine_random,
      host.waiter,
      [&host, this] {
        const std::uint16_t boots = fabric.machine(host.machine).boots;
        base::HostIdentity identity;
        identity.boot_id = {static_cast<std::uint8_t>(host.machine + 1),
                            static_cast<std::uint8_t>(boots),
                            static_cast<std::uint8_t>(boots >> 8)};
        return Result<base::HostIdentity>(identity);
      },
      [&host] { return std::vector<platform::SocketAddress>{Fabric::address_of(host.machine)}; },
      [this, &host](std::uint64_t target, std::uint64_t source, std::uint64_t bytes) {
        on_copy(host, target, source, bytes);
      },
      false,
      host.neighbors.get(),
      [this, &host](const base::ByteRange& range) { return find_shared(host, range); }};
  EngineOptions engine_options{host.name(), draw_config(host)};
  auto engine = create(host, std::move(engine_options), std::move(environment));
  if (!engine) {
    trace.note(now_ns(), "%s cannot start: %s", host.name().c_str(),
               engine.error().message().c_str());
    end_process(host);
    return false;
  }
  host.engine = std::move(*engine);
  blobs.push_back({host.life(), host.engine->connection_blob()});
  // A mailbox that nobody has ever looked into drops messages.
  (void)host.engine->receive_notification();
  host.state = Host::State::kUp;
  host.wake_at_ns = 0;
  trace.note(now_ns(), "%s starts its life %u on machine%u", host.name().c_str(), host.life_number,
             host.machine);
  wake(host, now_ns());
  return true;
}

// ---- The worker

void World::wake(Host& host, base::Nanoseconds when_ns) {
  when_ns = std::max(when_ns, host.paused_until_ns);
  if (host.wake_at_ns != 0 && host.wake_at_ns <= when_ns) {
    return;
  }
  host.wake_at_ns = when_ns;
  scheduler.at(when_ns, Layer::kWorker, [this, &host, serial = ++host.wake_serial] {
    if (serial != host.wake_serial || host.engine == nullptr) {
      return;
    }
    host.wake_at_ns = 0;
    if (now_ns() < host.paused_until_ns) {
      wake(host, host.paused_until_ns);
    } else if (stopped(host)) {
      wake(host, std::max(now_ns() + kWakeMax, stopped_until_ns_));
    } else {
      turn(host);
    }
  });
}

void World::turn(Host& host) {
  trace.mix(host.index + 16);
  base::Nanoseconds sleep_ns = 0;
  {
    const Entry entry = enter(host);
    sleep_ns = EngineAccess::work(*host.engine);
  }
  after_step(host);
  if (host.struck) {
    end_step(host);
    return;
  }
  if (EngineAccess::worker_ended(*host.engine)) {
    return;
  }
  const bool ready = host.network->any_ready();
  wake(host,
       now_ns() + (ready ? random.between(kWakeMin, kWakeMax) : std::max(sleep_ns, kTurnMin)));
}

void World::compare_memory(Host& host) {
  settle_copy();
  host.arena.compare([&](std::uint64_t offset, std::uint64_t length) {
    checkers.access(host, offset, length, Checkers::Access::kLanded);
  });
}

void World::after_step(Host& host) {
  if (host.engine == nullptr || host.struck) {
    return;
  }
  compare_memory(host);
  checkers.pools(host);
}

bool World::pools_empty(const Host& host) const {
  const transfer::Admission& admission = EngineAccess::admission(*host.engine);
  return admission.requests.used() == 0 && admission.outbox_bytes.used() == 0 &&
         EngineAccess::slices_out(*host.engine) == 0;
}

// ---- Ends

void World::release_claims(const RequestPtr& request) {
  for (const auto& host : hosts) {
    for (Claim& claim : host->claims.remove(*request)) {
      host->graves.push_back(std::move(claim));
    }
    if (host->graves.size() > kGravesMax) {
      host->graves.erase(host->graves.begin(),
                         host->graves.end() - static_cast<std::ptrdiff_t>(kGravesMax));
    }
  }
}

void World::discard_claims(const RequestModel& request) {
  for (const auto& host : hosts) {
    (void)host->claims.remove(request);
    for (auto& [life, claims] : host->past_claims) {
      (void)claims.remove(request);
    }
  }
}

void World::forget_requests(Host& host) {
  for (const RequestPtr& request : std::exchange(host.requests, {})) {
    request->abandoned = true;
    const bool may_act = request->execution != nullptr && !request->execution->told_terminal;
    if (!may_act) {
      release_claims(request);
    }
  }
  for (const RegistrationPtr& registration : std::exchange(host.registrations, {})) {
    registration->ended = true;
  }
  host.peers.clear();
  host.ranges.clear();
}

void World::count(const Host& host) {
  const telemetry::Counters& counters = EngineAccess::impl(*host.engine).counters;
#define ORBITE_COUNTER(name, meaning) stats.engines.name.add(counters.name.value());
#define ORBITE_GAUGE(name, meaning)
#include "orbite/telemetry.def"
#undef ORBITE_COUNTER
#undef ORBITE_GAUGE
  const Result<Telemetry> telemetry = host.engine->telemetry();
  for (std::size_t i = 0; telemetry && i < policy::kTransportKinds; ++i) {
    const std::string_view name = policy::transport_name(static_cast<policy::TransportKind>(i));
    for (const RouteTelemetry& route : telemetry->routes) {
      stats.executions_by[i] += route.transport == name ? route.posted : 0;
    }
  }
}

void World::die(Host& host) {
  count(host);
  forget_requests(host);
  host.state = Host::State::kDown;
  ++host.wake_serial;
  // Its memory is checked no more, and what the dead engine still tells is heard by nobody.
  (void)EngineAccess::destroy_dead(std::move(host.engine));
  host.engine = nullptr;
  end_process(host);
}

/// Its kernel has ended its sockets already. The engine's code is still running.
void World::strike(Host& host, std::uint64_t bytes, std::uint64_t bytes_max) {
  trace.note(now_ns(), "%s is killed inside a copy, when %llu of %llu bytes are made",
             host.name().c_str(), static_cast<unsigned long long>(bytes),
             static_cast<unsigned long long>(bytes_max));
  settle_copy();
  host.struck = true;
  host.waiter.end_life();
  checkers.ignore_all(true);
}

void World::end_step(Host& host) {
  if (!host.struck) {
    return;
  }
  die(host);
  host.struck = false;
  checkers.ignore_all(false);
  if (on_struck_down) {
    on_struck_down(host);
  }
}

void World::stop_inside(Host& host, base::Nanoseconds time_ns) {
  if (stopped_ != nullptr) {
    return;
  }
  trace.note(now_ns(), "%s stands still inside a copy", host.name().c_str());
  const base::Nanoseconds begin_ns = now_ns();
  stopped_ = &host;
  stopped_until_ns_ = begin_ns + time_ns;
  scheduler.run_until(stopped_until_ns_);
  stopped_ = nullptr;
  host.stopped_ns += now_ns() - begin_ns;
  trace.note(now_ns(), "%s goes on", host.name().c_str());
}

void World::kill(Host& host) {
  trace.note(now_ns(), "%s: its process is killed", host.name().c_str());
  host.network->kill();
  die(host);
}

void World::power_off(std::uint32_t machine) {
  trace.note(now_ns(), "machine%u loses its power", machine);
  std::vector<Host*> dying = hosts_on(machine);
  std::erase_if(dying, [](const Host* host) { return host->engine == nullptr; });
  for (const Host* const host : dying) {
    host->network->vanish();
  }
  fabric.power_off(machine);
  for (Host* const host : dying) {
    die(*host);
  }
}

void World::destroy_closed(Host& host) {
  for (const RegistrationPtr& registration : host.registrations) {
    if (registration->retired_calls != 1) {
      checkers.violation(
          "S3", host.index, 0, "registration %llu retired %u times in a closed engine",
          static_cast<unsigned long long>(registration->id), registration->retired_calls);
    }
  }
  count(host);
  host.engine = nullptr;
  checkers.sockets_left(host, host.network->open_sockets());
  forget_requests(host);
  host.state = Host::State::kDown;
  ++host.wake_serial;
  end_process(host);
  trace.note(now_ns(), "%s has closed", host.name().c_str());
}

}  // namespace orbite::sim
