// SPDX-License-Identifier: Apache-2.0
#include "sim/checkers.hpp"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>

#include "engine/access.hpp"

namespace orbite::sim {
namespace {

constexpr std::size_t kViolationsMax = 20;
/// What one call of post, check or release may ask of the system: its work limit is 16 calls, each
/// of which may end a lane.
constexpr std::uint64_t kCallsMax = 200;

unsigned long long ull(std::uint64_t value) { return value; }

const char* name_of(Checkers::Access kind) {
  switch (kind) {
    case Checkers::Access::kSent:
      return "sent from";
    case Checkers::Access::kRead:
      return "copied from";
    case Checkers::Access::kLanded:
      return "landed in";
  }
  return "";
}

}  // namespace

void Checkers::violation(const char* invariant, std::uint32_t host, std::uint64_t execution,
                         const char* format, ...) {
  if (ignores_) {
    return;
  }
  std::array<char, 400> text{};
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  trace_.note(scheduler_.now_ns(), "VIOLATION %s host%u execution %llu: %s", invariant, host,
              ull(execution), text.data());
  if (violations_.size() < kViolationsMax && seen_.emplace(invariant, execution).second) {
    violations_.push_back({invariant, text.data(), host, execution, scheduler_.now_ns()});
  }
}

// ---- Accesses

void Checkers::foreign(Host& host, const Host& owner) {
  violation("S1", host.index, 0, "an access to the memory of host%u", owner.index);
}

void Checkers::freed(const SharedPages& pages, std::uint64_t offset, std::uint64_t length,
                     Access kind) {
  violation("S3", pages.life.host, 0, "%llu bytes %s %llu in pages that their owner had freed",
            ull(length), name_of(kind), ull(offset));
}

void Checkers::astray(const Host& host, std::uint64_t length) {
  violation("S1", host.index, 0, "a copy of %llu bytes where nobody has memory", ull(length));
}

void Checkers::access(const Memory& memory, std::uint64_t offset, std::uint64_t length,
                      Access kind) {
  if (ignores_) {
    return;
  }
  trace_.mix(offset * 4 + static_cast<std::uint64_t>(kind));
  trace_.mix(length);
  const std::uint64_t end = offset + length;
  while (offset < end) {
    const Claim* const claim = memory.claims.find(offset);
    std::uint64_t step_end = end;
    if (claim != nullptr) {
      step_end = std::min(end, claim->end);
      claimed(memory, *claim, offset, step_end - offset, kind);
    } else {
      while (step_end > offset + 1 && !memory.claims.free(offset, step_end)) {
        --step_end;
      }
      unclaimed(memory, offset, step_end - offset, kind);
    }
    offset = step_end;
  }
}

void Checkers::unclaimed(const Memory& memory, std::uint64_t offset, std::uint64_t length,
                         Access kind) {
  const Host& host = memory.host;
  const bool is_past = memory.life != host.life();
  const Claim* const ghost = is_past ? nullptr : host.ghosts.find(offset);
  if (ghost != nullptr && ghost->request->execution != nullptr) {
    violation("S7", host.index, ghost->request->execution->id,
              "%llu bytes %s %llu of life %u, where the execution was posted to an earlier life",
              ull(length), name_of(kind), ull(offset), host.life_number);
    return;
  }
  for (auto grave = host.graves.rbegin(); !is_past && grave != host.graves.rend(); ++grave) {
    if (grave->begin <= offset && offset < grave->end && grave->request->execution != nullptr) {
      violation("S2", host.index, grave->request->execution->id,
                "%llu bytes %s %llu after the execution was terminal and its request was released",
                ull(length), name_of(kind), ull(offset));
      return;
    }
  }
  violation("S1", host.index, 0, "%llu bytes %s %llu of life %u, which no execution has",
            ull(length), name_of(kind), ull(offset), memory.life.number);
}

void Checkers::claimed(const Memory& memory, const Claim& claim, std::uint64_t offset,
                       std::uint64_t length, Access kind) {
  const RequestModel& request = *claim.request;
  ExecutionModel* const execution = request.execution.get();
  const ExtentModel& extent = request.extents[claim.extent];
  const RegistrationModel& registration =
      claim.is_local ? *extent.local_registration : *extent.remote_registration;
  const std::uint64_t id = execution != nullptr ? execution->id : 0;
  const auto broken = [&](const char* invariant, const char* why) {
    violation(invariant, memory.host.index, id, "%llu bytes %s %llu: %s", ull(length),
              name_of(kind), ull(offset), why);
  };
  if (execution == nullptr) {
    broken("S1", "the request was never posted");
    return;
  }
  if (claim.is_source() != (kind != Access::kLanded)) {
    broken("S1", "the wrong direction");
    return;
  }
  if (execution->told_terminal) {
    broken("S2", "the execution was terminal");
    return;
  }
  if (registration.life != memory.life) {
    broken("S7", "the registration is of another life of the host");
    return;
  }
  if (registration.retired()) {
    broken("S3", "the registration had retired");
    return;
  }
  bytes_of(memory, *execution, extent.offset + (offset - claim.begin), offset, length, kind);
}

void Checkers::bytes_of(const Memory& memory, ExecutionModel& execution, std::uint64_t in_request,
                        std::uint64_t offset, std::uint64_t length, Access kind) {
  std::vector<bool>& seen = kind == Access::kLanded ? execution.landed : execution.sent;
  const std::uint8_t* const bytes = memory.bytes + (offset - memory.first);
  for (std::uint64_t i = 0; i < length; ++i) {
    if (seen[in_request + i]) {
      violation("S4", memory.host.index, execution.id,
                "byte %llu of the request was %s memory twice", ull(in_request + i), name_of(kind));
      return;
    }
    seen[in_request + i] = true;
    if (bytes[i] != execution.source[in_request + i]) {
      violation("S1", memory.host.index, execution.id,
                "byte %llu of the request is not that of its source", ull(in_request + i));
      return;
    }
  }
  if (kind == Access::kLanded) {
    execution.landed_count += length;
    stats_.bytes_landed += length;
  }
}

// ---- Registrations

void Checkers::retired(RegistrationModel& registration) {
  if (ignores_) {
    return;
  }
  if (++registration.retired_calls > 1) {
    violation("S3", registration.life.host, 0, "registration %llu retired %u times",
              ull(registration.id), registration.retired_calls);
  }
  if (!registration.deregistered) {
    violation("S3", registration.life.host, 0, "registration %llu retired before it was removed",
              ull(registration.id));
  }
}

void Checkers::registration_state(const RegistrationModel& registration, RegistrationState state) {
  const std::uint32_t host = registration.life.host;
  switch (state) {
    case RegistrationState::kLive:
      if (registration.deregistered) {
        violation("S8", host, 0, "registration %llu is live after its removal",
                  ull(registration.id));
      }
      return;
    case RegistrationState::kFenced:
      if (!registration.deregistered || registration.retired()) {
        violation("S8", host, 0, "registration %llu is fenced, %s", ull(registration.id),
                  registration.retired() ? "and had retired" : "and nobody removed it");
      }
      return;
    case RegistrationState::kRetired:
      if (registration.retired_calls != 1) {
        violation("S3", host, 0,
                  "registration %llu is said to be retired, its owner was told %u times",
                  ull(registration.id), registration.retired_calls);
      }
      return;
    case RegistrationState::kUnquiesced:
      violation("S8", host, 0,
                "registration %llu is unquiesced, and nothing failed to be destroyed",
                ull(registration.id));
      return;
  }
}

// ---- Outcomes

void Checkers::accepted(const Host& host, const ExecutionModel* last) {
  if (last == nullptr) {
    return;
  }
  if (!last->told_terminal) {
    violation("S8", host.index, last->id, "posted again while it is not terminal");
  } else if (last->last.logical != Logical::kSuccess) {
    violation("S4", host.index, last->id, "posted again after it had failed");
  }
}

void Checkers::outcome(Host& host, RequestModel& request, const Outcome& outcome) {
  if (ignores_) {
    return;
  }
  ExecutionModel& execution = *request.execution;
  const Outcome& last = execution.last;
  const auto broken = [&](const char* why) {
    violation("S8", host.index, execution.id,
              "%s: logical %u then %u, drain %u then %u, code %u then %u", why,
              static_cast<unsigned>(last.logical), static_cast<unsigned>(outcome.logical),
              static_cast<unsigned>(last.drain), static_cast<unsigned>(outcome.drain),
              static_cast<unsigned>(last.code), static_cast<unsigned>(outcome.code));
  };
  if (outcome.drain != Drain::kPending && outcome.drain != Drain::kRetired) {
    broken("a posted execution is idle or unquiesced");
  }
  if (outcome.drain == Drain::kRetired && outcome.logical == Logical::kNone) {
    broken("retired without an outcome");
  }
  if (execution.reported) {
    if (last.logical != Logical::kNone &&
        (outcome.logical != last.logical || outcome.code != last.code)) {
      broken("the outcome changed");
    }
    if (last.drain == Drain::kRetired &&
        (outcome.drain != last.drain || outcome.effect != last.effect ||
         outcome.bytes_prefix != last.bytes_prefix)) {
      broken("a terminal outcome changed");
    }
  }
  if ((outcome.logical == Logical::kSuccess) != (outcome.code == ErrorCode::kOk) &&
      outcome.logical != Logical::kNone) {
    broken("code and outcome differ");
  }
  execution.last = outcome;
  execution.reported = true;
  if (outcome.terminal() && !execution.told_terminal) {
    execution.told_terminal = true;
    ended(host, request, outcome);
    trace_.note(
        scheduler_.now_ns(), "host%u execution %llu ended: %s, effect %u, prefix %llu of %llu",
        host.index, ull(execution.id),
        outcome.logical == Logical::kSuccess ? "success" : error_name(outcome.code).data(),
        static_cast<unsigned>(outcome.effect), ull(outcome.bytes_prefix), ull(request.bytes));
  }
}

/// The first terminal answer: what it says of the destination must be so.
void Checkers::ended(Host& host, const RequestModel& request, const Outcome& outcome) {
  const ExecutionModel& execution = *request.execution;
  std::uint64_t prefix = 0;
  while (prefix < request.bytes && execution.landed[prefix]) {
    ++prefix;
  }
  const std::uint64_t landed = execution.landed_count;
  switch (outcome.logical) {
    case Logical::kSuccess:
      ++stats_.succeeded;
      break;
    case Logical::kCanceled:
      ++stats_.canceled;
      break;
    case Logical::kFailed:
    case Logical::kNone:
      ++stats_.failed;
      break;
  }
  bool right = false;
  switch (outcome.effect) {
    case RemoteEffect::kNone:
      right = landed == 0;
      break;
    case RemoteEffect::kPrefix:
      right = prefix == outcome.bytes_prefix && landed == prefix;
      break;
    case RemoteEffect::kComplete:
      right = landed == request.bytes;
      break;
    case RemoteEffect::kUnknown:
      right = prefix >= outcome.bytes_prefix;
      break;
  }
  if (outcome.logical == Logical::kSuccess && outcome.effect != RemoteEffect::kComplete) {
    right = false;
  }
  if (!right) {
    violation("S1", host.index, execution.id,
              "logical %u says effect %u with a prefix of %llu; %llu bytes landed, the first %llu "
              "in a row, of %llu",
              static_cast<unsigned>(outcome.logical), static_cast<unsigned>(outcome.effect),
              ull(outcome.bytes_prefix), ull(landed), ull(prefix), ull(request.bytes));
  }
}

// ---- Notifications

void Checkers::delivered(const Host& host, NotificationModel& notification,
                         const ExecutionModel* execution) {
  if (ignores_) {
    return;
  }
  const std::uint64_t id = execution != nullptr ? execution->id : 0;
  if (notification.to != host.life()) {
    violation("S7", host.index, id, "notification %llu was for life %u of host%u",
              ull(notification.id), notification.to.number, notification.to.host);
  }
  if (++notification.delivered > 1) {
    violation("S5", host.index, id, "notification %llu was delivered %u times",
              ull(notification.id), notification.delivered);
  }
  if (execution != nullptr && execution->landed_count != execution->source.size()) {
    violation("S5", host.index, id, "notification %llu came when %llu of %zu bytes had landed",
              ull(notification.id), ull(execution->landed_count), execution->source.size());
  }
}

// ---- Pools

void Checkers::pools(const Host& host) {
  const transfer::Admission& admission = EngineAccess::admission(*host.engine);
  for (const transfer::Budget* budget : {&admission.requests, &admission.descriptors,
                                         &admission.bytes_in_flight, &admission.outbox_bytes}) {
    if (budget->used() > budget->max()) {
      violation("S6", host.index, 0, "%s: %llu used of %llu", budget->name(), ull(budget->used()),
                ull(budget->max()));
    }
  }
  // An abandoned request keeps its charge until it has ended, and nobody is told when.
  std::uint64_t held = 0;
  std::uint64_t abandoned = 0;
  for (const RequestPtr& request : host.requests) {
    ++(request->abandoned ? abandoned : held);
  }
  if (admission.requests.used() < held || admission.requests.used() > held + abandoned) {
    violation("S6", host.index, 0, "%llu requests are charged, %llu are held and %llu abandoned",
              ull(admission.requests.used()), ull(held), ull(abandoned));
  }
  std::uint64_t unretired = 0;
  for (const RegistrationPtr& registration : host.registrations) {
    unretired += registration->retired() ? 0 : 1;
  }
  const memory::Registry::Counts counts = EngineAccess::impl(*host.engine).registry.counts();
  if (counts.live + counts.fenced != unretired || counts.unquiesced != 0) {
    violation("S6", host.index, 0,
              "the registry holds %llu live, %llu fenced and %llu unquiesced registrations, %llu "
              "have not retired",
              ull(counts.live), ull(counts.fenced), ull(counts.unquiesced), ull(unretired));
  }
}

void Checkers::pools_at_rest(const Host& host) {
  const transfer::Admission& admission = EngineAccess::admission(*host.engine);
  const memory::Registry::Counts counts = EngineAccess::impl(*host.engine).registry.counts();
  for (const transfer::Budget* budget : {&admission.requests, &admission.descriptors,
                                         &admission.bytes_in_flight, &admission.outbox_bytes}) {
    if (budget->used() != 0) {
      violation("S6", host.index, 0, "%s: %llu still charged when everything has ended",
                budget->name(), ull(budget->used()));
    }
  }
  const std::size_t slices = EngineAccess::slices_out(*host.engine);
  if (slices != 0 || counts.loans != 0 || counts.live + counts.fenced != 0) {
    violation("S6", host.index, 0,
              "%zu slices, %llu loans and %llu registrations are left when everything has ended",
              slices, ull(counts.loans), ull(counts.live + counts.fenced));
  }
}

// ---- Steps and sockets

void Checkers::bounded(const Host& host, const char* what, std::uint64_t calls,
                       base::Nanoseconds elapsed_ns) {
  if (calls > kCallsMax || elapsed_ns != 0) {
    violation("S9", host.index, 0, "%s made %llu system calls and took %llu ns", what, ull(calls),
              ull(elapsed_ns));
  }
}

void Checkers::misuse(const Host& host, const char* what, platform::Socket socket) {
  violation("S10", host.index, 0, "%s of socket %d, which is not open", what, socket);
}

void Checkers::sockets_left(const Host& host, std::size_t count) {
  if (count != 0) {
    violation("S10", host.index, 0, "%zu sockets were never closed", count);
  }
}

}  // namespace orbite::sim
