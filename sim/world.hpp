// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/environment.hpp"
#include "sim/allocation_fault.hpp"
#include "sim/checkers.hpp"
#include "sim/fabric.hpp"
#include "sim/host.hpp"
#include "sim/neighborhood.hpp"
#include "sim/options.hpp"
#include "sim/random.hpp"
#include "sim/scheduler.hpp"
#include "sim/trace.hpp"

namespace orbite::sim {

/// Hosts on the machines of a fabric, each with a real engine: their births and deaths, and the
/// turns of their workers.
class World {
 public:
  World(std::uint64_t seed, const Options& options);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  /// A new life of a host that is down. False: no engine could be made; it stays down.
  bool start(Host& host);
  /// The process dies at once; its kernel ends its connections.
  void kill(Host& host);
  /// The step of a host is over. If its process was killed in the middle of it, the host is down
  /// now.
  void end_step(Host& host);
  /// The machine dies without a word, and every host on it.
  void power_off(std::uint32_t machine);
  /// The engine has closed: it is destroyed.
  void destroy_closed(Host& host);
  /// The worker of a host gets its turn at that time, or earlier.
  void wake(Host& host, base::Nanoseconds when_ns);

  /// A call of the application into its engine. At its end the host's memory is looked at.
  class Call {
   public:
    Call(World& world, Host& host) : world_(world), host_(host) {}
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call() { world_.after_step(host_); }

   private:
    World& world_;
    Host& host_;
  };

  /// An entry into a host's engine, which ends with its full expression: `enter(host)->post(...)`.
  /// Allocations in it are the engine's, and may fail.
  class Entry {
   public:
    Entry(World& world, Host& host);
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry();
    TransferEngine* operator->() const noexcept { return host_.engine.get(); }

   private:
    World& world_;
    Host& host_;
    AllocationFault fault_;
  };
  [[nodiscard]] Entry enter(Host& host) { return {*this, host}; }

  /// What has come into a host's memory by other ways than a receive.
  void compare_memory(Host& host);
  /// Its engine is about to copy within its address space, when this returns.
  void on_copy(Host& host, std::uint64_t target, std::uint64_t source, std::uint64_t bytes);

  // Shared allocations: parts of a host's memory that its neighbours may map.

  /// A new one for that part of its memory, which is none yet.
  void share(Host& host, std::uint64_t begin, std::uint64_t end);
  /// The application frees one, of which nothing is registered, and gets another one at the same
  /// addresses.
  void replace_pages(Host& host, std::size_t allocation);
  /// Of a life whose memory others can reach or may have. nullptr: nobody can.
  [[nodiscard]] ClaimMap* claims_of(const Life& life);
  /// What an application writes, or would have if it had lived.
  void put(const Life& life, std::uint64_t offset, std::span<const std::uint8_t> bytes);

  [[nodiscard]] base::Nanoseconds now_ns() const noexcept { return scheduler.now_ns(); }
  [[nodiscard]] Host& host(std::uint32_t index) { return *hosts[index]; }
  [[nodiscard]] std::vector<Host*> hosts_on(std::uint32_t machine) const;
  /// Somebody stands inside its engine, waiting or in the middle of a copy: it can neither be ended
  /// from outside nor entered.
  [[nodiscard]] bool inside(const Host& host) const {
    return host.waiter.waiting() || stopped_ == &host;
  }
  /// Its process stands still in the middle of a copy.
  [[nodiscard]] bool stopped(const Host& host) const { return stopped_ == &host; }
  /// The time of the process: it does not pass while it stands still inside a copy.
  [[nodiscard]] base::Nanoseconds time_of(const Host& host) const {
    return now_ns() - host.stopped_ns;
  }
  /// Hosts share a machine, and their engines know of it.
  [[nodiscard]] bool has_neighbors() const noexcept {
    return fabric.machines() < hosts_count && neighbors_use_ != NeighborsUse::kNone;
  }
  /// Every request of a host that is gone becomes nobody's.
  void forget_requests(Host& host);
  [[nodiscard]] bool alive(const Life& life) const {
    return hosts[life.host]->engine != nullptr && hosts[life.host]->life_number == life.number;
  }
  /// The request has ended for its application; its memory is free again.
  void release_claims(const RequestPtr& request);
  /// It never came to be.
  void discard_claims(const RequestModel& request);

  [[nodiscard]] bool pools_empty(const Host& host) const;

  const Options options;
  Random random;
  Stats stats;
  Trace trace;
  Scheduler scheduler;
  Checkers checkers;
  const std::uint32_t hosts_count;
  Fabric fabric;
  Neighborhood neighborhood;
  std::vector<std::unique_ptr<Host>> hosts;
  /// The connection blobs of every life so far: metadata is never withdrawn.
  struct Blob {
    Life life;
    std::vector<std::uint8_t> bytes;
  };
  std::vector<Blob> blobs;
  bool stop_restarts = false;
  /// Told of a host that was killed in the middle of a step, when it is down.
  std::function<void(Host& host)> on_struck_down;
  /// Of this run: about the time between two steps of a host, from busy callers to idle ones.
  base::Nanoseconds pace_ns = 0;
  static constexpr std::uint16_t kPort = 7'000;

 private:
  friend class Call;
  friend class Entry;
  AllocationFault draw_allocation_fault(const Host& host);
  Result<std::unique_ptr<TransferEngine>> create(Host& host, EngineOptions engine_options,
                                                 EngineEnvironment environment);
  void after_step(Host& host);
  void count(const Host& host);
  std::uint32_t draw_hosts();
  std::uint32_t draw_machines();
  void draw_kernels();
  void make_process(Host& host);
  static void end_process(Host& host);
  HostNeighbors::Hooks neighbor_hooks(Host& host);
  /// Everybody else goes on for so long.
  void stop_inside(Host& host, base::Nanoseconds time_ns);
  void strike(Host& host, std::uint64_t bytes, std::uint64_t bytes_max);
  void turn(Host& host);
  void die(Host& host);
  Config draw_config(const Host& host);
  HostNetwork::Observer observer(Host& host);
  void on_bytes(Host& host, std::uint64_t address, std::uint64_t length, Checkers::Access kind);

  /// Where an address of a process lies in the memory of some host.
  struct Place {
    Host* host;
    const SharedPages* pages;  ///< nullptr: the process's own memory
    std::uint64_t offset;      ///< in the arena
    const std::uint8_t* bytes;
  };
  /// A copy that the engine makes right now.
  struct CopyUnderWay {
    Place target;
    std::uint64_t length;
  };
  void draw_allocations(Host& host);
  std::optional<memory::SharedPart> find_shared(const Host& host, const base::ByteRange& range);
  std::optional<Place> find_place(Host& host, std::uint64_t address, std::uint64_t length);
  void touch(const Place& place, std::uint64_t length, Checkers::Access kind);
  void copy_part(Host& host, std::uint64_t target, std::uint64_t source, std::uint64_t bytes,
                 bool is_made);
  /// A copy that was under way is made: before anybody looks, and before anybody else does
  /// anything.
  void settle_copy();

  NeighborsUse neighbors_use_ = NeighborsUse::kNone;
  std::vector<std::shared_ptr<SharedPages>>
      shared_pages_;  ///< of all hosts, while anybody has them
  std::optional<CopyUnderWay> copy_under_way_;
  const Host* stopped_ = nullptr;
  base::Nanoseconds stopped_until_ns_ = 0;  ///< or later: who is inside its engine is waited for
};

}  // namespace orbite::sim
