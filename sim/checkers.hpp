// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "sim/host.hpp"
#include "sim/model.hpp"
#include "sim/options.hpp"
#include "sim/scheduler.hpp"
#include "sim/trace.hpp"

namespace orbite::sim {

/// Watches every access to the memory of every host and every answer of every engine, and compares
/// them with what the applications know. Knows nothing of the inside of an engine but its pools.
class Checkers {
 public:
  Checkers(const Scheduler& scheduler, Trace& trace, Stats& stats)
      : scheduler_(scheduler), trace_(trace), stats_(stats) {}

  /// The memory of a host as one of its lives has it, or had it.
  struct Memory {
    Host& host;
    Life life;
    const ClaimMap& claims;
    const std::uint8_t* bytes;  ///< from offset `first` of the arena on
    std::uint64_t first;
  };

  enum class Access : std::uint8_t {
    kSent,   ///< bytes leave the memory for a socket or a neighbour
    kRead,   ///< or for another range of the same host
    kLanded  ///< bytes have come into it
  };
  /// S1, S2, S3, S4, S7: an access of that host's engine, or of its kernel on behalf of it.
  void access(Host& host, std::uint64_t offset, std::uint64_t length, Access kind) {
    access({host, host.life(), host.claims, host.arena.data(), 0}, offset, length, kind);
  }
  /// Also of a life that is over, whose pages somebody has.
  void access(const Memory& memory, std::uint64_t offset, std::uint64_t length, Access kind);
  /// S3: of pages that their owner, who lives on, has freed when nothing in them was registered.
  void freed(const SharedPages& pages, std::uint64_t offset, std::uint64_t length, Access kind);
  /// S1: a copy of that host's engine from or to an address at which nobody's memory is.
  void astray(const Host& host, std::uint64_t length);
  /// An address outside the host's own arena but inside that of another one.
  void foreign(Host& host, const Host& owner);

  /// S3: a registration says that nothing can touch its range any more.
  void retired(RegistrationModel& registration);
  /// S3, S8.
  void registration_state(const RegistrationModel& registration, RegistrationState state);

  /// S1, S8: what an engine answers of the newest execution of a request.
  void outcome(Host& host, RequestModel& request, const Outcome& outcome);
  /// S4, S8: post() was accepted; `last` is the execution before it, if any.
  void accepted(const Host& host, const ExecutionModel* last);

  /// S5, S7: an application has taken a notification out of its mailbox.
  /// It belongs to `execution`, unless that is nullptr.
  void delivered(const Host& host, NotificationModel& notification,
                 const ExecutionModel* execution);

  /// S6 after a step.
  void pools(const Host& host);
  /// S6 when everything has ended.
  void pools_at_rest(const Host& host);

  /// S9: post, check or release of that host is over.
  void bounded(const Host& host, const char* what, std::uint64_t calls,
               base::Nanoseconds elapsed_ns);
  /// S10: a socket was used after its end, or closed twice.
  void misuse(const Host& host, const char* what, platform::Socket socket);
  /// S10: the engine is gone.
  void sockets_left(const Host& host, std::size_t count);

  /// A process has died in the middle of its step: until the step is over, nothing that is told
  /// here is heard, since nobody but the dead can be telling it.
  void ignore_all(bool ignores) noexcept { ignores_ = ignores; }

  void violation(const char* invariant, std::uint32_t host, std::uint64_t execution,
                 const char* format, ...) __attribute__((format(printf, 5, 6)));
  [[nodiscard]] std::vector<Violation>& violations() noexcept { return violations_; }

 private:
  void claimed(const Memory& memory, const Claim& claim, std::uint64_t offset, std::uint64_t length,
               Access kind);
  void unclaimed(const Memory& memory, std::uint64_t offset, std::uint64_t length, Access kind);
  void bytes_of(const Memory& memory, ExecutionModel& execution, std::uint64_t in_request,
                std::uint64_t offset, std::uint64_t length, Access kind);
  void ended(Host& host, const RequestModel& request, const Outcome& outcome);

  const Scheduler& scheduler_;
  Trace& trace_;
  Stats& stats_;
  std::vector<Violation> violations_;
  std::set<std::pair<std::string, std::uint64_t>> seen_;
  bool ignores_ = false;
};

}  // namespace orbite::sim
