// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_transport.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/assert.hpp"

namespace orbite::sim {

class SimTransport::SimFlow final : public transfer::Flow {
 public:
  explicit SimFlow(const base::SourceEpoch& peer_epoch)
      : Flow(policy::TransportKind::kTcp), epoch(peer_epoch) {}

  const base::SourceEpoch epoch;
  std::array<std::size_t, policy::kQosClasses> accepted{};
  bool is_reset = false;
};

namespace {

std::size_t class_of(const transfer::Slice& slice) { return static_cast<std::size_t>(slice.qos); }

}  // namespace

SimTransport::SimTransport(transfer::Planner& planner, const Script& script, World world)
    : CompletionPath(planner), script_(script), world_(std::move(world)), random_(script.seed) {}

SimTransport::~SimTransport() = default;

std::uint64_t SimTransport::draw(std::uint64_t bound) { return random_.next_u64() % bound; }

void SimTransport::note(const char* what, const Job& job) {
  trace_ = (trace_ ^ static_cast<std::uint64_t>(what[0]) ^ (job.id << 8) ^ (step_ << 32)) *
           0x9E3779B97F4A7C15ULL;
}

// ---- Transport

Result<std::shared_ptr<transfer::Flow>> SimTransport::open(const peer::Peer& peer) {
  std::erase_if(flows_, [](const auto& entry) { return entry.second.expired(); });
  for (const auto& [epoch, flow] : flows_) {
    if (epoch == peer.epoch()) {
      return std::shared_ptr<transfer::Flow>(flow.lock());
    }
  }
  auto flow = std::make_shared<SimFlow>(peer.epoch());
  flows_.emplace_back(peer.epoch(), flow);
  return std::shared_ptr<transfer::Flow>(std::move(flow));
}

bool SimTransport::has_room(transfer::Flow& flow, policy::QosClass qos) {
  return static_cast<SimFlow&>(flow).accepted.at(static_cast<std::size_t>(qos)) < script_.queue_max;
}

Result<void> SimTransport::submit(transfer::Flow& flow, transfer::Slice& slice) {
  auto& sim_flow = static_cast<SimFlow&>(flow);
  if (sim_flow.is_reset) {
    return fail(ErrorCode::kPeerDisconnected, "the simulated peer is gone");
  }
  if (!has_room(flow, slice.qos) || chance(script_.refused)) {
    return fail(ErrorCode::kBudgetExhausted, "the script refuses this slice");
  }
  auto job = std::make_unique<Job>();
  job->id = next_id_++;
  job->slice = &slice;
  job->flow = &sim_flow;
  job->due_step = step_ + delay();
  job->fate = world_.fate_of ? world_.fate_of(slice) : draw_fate(slice);
  ++sim_flow.accepted.at(class_of(slice));
  note("accept", *job);
  jobs_.push_back(std::move(job));
  return {};
}

Fate SimTransport::draw_fate(const transfer::Slice& slice) {
  const std::uint64_t bytes = slice.bytes;
  std::uint64_t fate = draw(1000);
  const auto falls_to = [&fate](std::uint32_t share) {
    const bool falls = fate < share;
    fate -= falls ? 0 : share;
    return falls;
  };
  if (falls_to(script_.failed_none)) {
    return {{ErrorCode::kIoFailed, EIO, 0, RemoteEffect::kNone, false}};
  }
  if (falls_to(script_.failed_prefix)) {
    const std::uint64_t prefix = bytes > 0 ? draw(bytes) : 0;
    const auto effect = prefix > 0 ? RemoteEffect::kPrefix : RemoteEffect::kNone;
    return {{ErrorCode::kShortTransfer, 0, prefix, effect, false}, prefix};
  }
  if (const bool retires = falls_to(script_.failed_unknown); retires || falls_to(script_.lost)) {
    const std::uint64_t prefix = draw(bytes + 1);
    const auto code = retires ? ErrorCode::kPeerDisconnected : ErrorCode::kPeerSilent;
    const std::uint64_t late = draw(bytes - prefix + 1);
    return {{code, 0, prefix, RemoteEffect::kUnknown, false}, prefix + late, !retires};
  }
  return {{ErrorCode::kOk, 0, bytes, RemoteEffect::kComplete, false}, bytes};
}

void SimTransport::drop_unposted(transfer::Flow& flow, const transfer::Execution& execution) {
  std::vector<Job*> dropped;
  for (const auto& job : jobs_) {
    if (job->flow == &flow && job->phase == Phase::kQueued &&
        job->slice->execution.get() == &execution) {
      dropped.push_back(job.get());
    }
  }
  for (Job* const job : dropped) {
    fail_unposted(*job, ErrorCode::kCanceled);
  }
}

Result<void> SimTransport::connect(transfer::Flow& flow, base::Nanoseconds /*timeout_ns*/) {
  if (static_cast<SimFlow&>(flow).is_reset) {
    return fail(ErrorCode::kPeerUnreachable, "the simulated peer is gone");
  }
  return {};
}

Result<std::vector<wire::DescribedRange>> SimTransport::describe(
    transfer::Flow& flow, std::span<const wire::RegistrationRef> registrations,
    base::Nanoseconds timeout_ns) {
  ORBITE_TRY(connect(flow, timeout_ns));
  memory::Registry* const registry = world_.registry_of(static_cast<SimFlow&>(flow).epoch);
  std::vector<wire::DescribedRange> described(registrations.size());
  for (std::size_t i = 0; i < registrations.size(); ++i) {
    const wire::RegistrationRef& asked = registrations[i];
    wire::DescribedRange& range = described[i];
    range.index = asked.index;
    range.generation = asked.generation;
    if (registry == nullptr) {
      continue;
    }
    const auto found = registry->find(Handle{asked.index, asked.generation});
    if (found && std::memcmp((*found)->key().bytes.data(), asked.key, sizeof(asked.key)) == 0) {
      range.live = 1;
      range.address = (*found)->range().address();
      range.length = (*found)->range().length();
      range.device_id = (*found)->device_id();
      range.access = (*found)->access();
    }
  }
  return described;
}

void SimTransport::confirm_fenced(transfer::Flow& flow) {
  while (true) {
    const auto lost = std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& job) {
      return job->flow == &flow && job->phase == Phase::kLost;
    });
    if (lost == jobs_.end()) {
      return;
    }
    end(**lost);
  }
}

std::uint64_t SimTransport::unproved(transfer::Flow& flow) {
  return static_cast<std::uint64_t>(std::count_if(jobs_.begin(), jobs_.end(), [&](const auto& job) {
    return job->flow == &flow && job->phase == Phase::kLost;
  }));
}

void SimTransport::reset_peer(transfer::Flow& flow) {
  auto& sim_flow = static_cast<SimFlow&>(flow);
  sim_flow.is_reset = true;
  while (true) {
    const auto found = std::find_if(jobs_.begin(), jobs_.end(),
                                    [&](const auto& job) { return job->flow == &flow; });
    if (found == jobs_.end()) {
      return;
    }
    Job& job = **found;
    if (job.phase == Phase::kQueued) {
      fail_unposted(job, ErrorCode::kPeerDisconnected);
      continue;
    }
    if (job.phase == Phase::kPosted && !job.is_refused) {
      job.fate = {{ErrorCode::kPeerDisconnected, 0, 0, RemoteEffect::kUnknown, false},
                  job.moved + draw(job.slice->bytes - job.moved + 1)};
    }
    if (job.phase == Phase::kPosted) {
      complete(*job.slice, job.fate.result);
    }
    end(job);
  }
}

// ---- Steps

void SimTransport::drive(transfer::Flow& flow, transfer::WorkLimit& limit,
                         transfer::Driver /*driver*/) {
  ++step_;
  if (script_.stepped) {
    return;
  }
  auto& sim_flow = static_cast<SimFlow&>(flow);
  while (!limit.exhausted()) {
    Job* const job = pick_due(sim_flow);
    if (job == nullptr) {
      return;
    }
    advance(*job, limit);
  }
}

SimTransport::Job* SimTransport::pick_due(const SimFlow& flow) {
  std::vector<Job*> due;
  for (const auto& job : jobs_) {
    if (job->flow == &flow && job->phase != Phase::kLost && job->due_step <= step_) {
      due.push_back(job.get());
    }
  }
  if (due.empty()) {
    return nullptr;
  }
  return script_.delay_max == 0 ? due.front() : due[draw(due.size())];
}

void SimTransport::advance(Job& job, transfer::WorkLimit& limit) {
  switch (job.phase) {
    case Phase::kQueued:
      limit.spend(0);
      if (job.slice->execution->stopped()) {
        fail_unposted(job, ErrorCode::kCanceled);
      } else {
        post(job);
      }
      return;
    case Phase::kPosted:
      limit.spend(job.fate.result.prefix_bytes);
      finish(job);
      return;
    case Phase::kCompleted:
      limit.spend(job.fate.moved - job.moved);
      end(job);
      return;
    case Phase::kLost:
      return;
  }
}

void SimTransport::post(Job& job) {
  note("post", job);
  job.phase = Phase::kPosted;
  job.due_step = step_ + delay();
  if (world_.on_enter) {
    world_.on_enter(*job.slice);
  }
  borrow_far(job);
}

/// As a target does for a frame: from its registry, by handle and key, before the first byte.
void SimTransport::borrow_far(Job& job) {
  const transfer::Execution& execution = *job.slice->execution;
  if (job.slice->bytes == 0) {
    return;
  }
  memory::Registry* const registry = world_.registry_of(execution.peer().epoch());
  const transfer::Prepared& prepared = *execution.prepared();
  const auto direction = execution.operation() == Operation::kWrite ? memory::Direction::kWrite
                                                                    : memory::Direction::kRead;
  for (transfer::ExtentCursor extents = job.slice->extents; !extents.at_end();) {
    const auto& remote = *prepared.remotes[extents.take().remote_index];
    if (remote.own() != nullptr) {
      continue;  // the execution itself holds the loan
    }
    Result<memory::RangeLoan> loan =
        registry == nullptr
            ? fail(ErrorCode::kPeerDisconnected, "the simulated peer is gone")
            : registry->borrow_remote(Handle{remote.blob().index, remote.blob().generation},
                                      remote.blob().key, direction);
    if (!loan) {
      job.far_loans.clear();
      job.fate = {{loan.error().code(), 0, 0, RemoteEffect::kNone, false}};
      job.is_refused = true;
      return;
    }
    job.far_loans.push_back(std::move(*loan));
  }
}

/// The known prefix moves, then the completion is told.
void SimTransport::finish(Job& job) {
  note("complete", job);
  transfer::SliceResult& result = job.fate.result;
  move_up_to(job, result.prefix_bytes);
  if (job.slice->carries_notification && result.code == ErrorCode::kOk) {
    const bool delivered = !chance(script_.notification_refused) && world_.deliver &&
                           world_.deliver(*job.slice->execution);
    result.notification_delivered = delivered;
    result.code = delivered ? ErrorCode::kOk : ErrorCode::kNotificationFailed;
  }
  job.phase = job.fate.is_lost ? Phase::kLost : Phase::kCompleted;
  job.due_step = step_ + delay();
  complete(*job.slice, result);
}

/// What was still under way moves, then the retirement is told.
void SimTransport::end(Job& job) {
  note("retire", job);
  move_up_to(job, job.fate.moved);
  job.far_loans.clear();
  transfer::Slice& slice = *job.slice;
  --job.flow->accepted.at(class_of(slice));
  std::erase_if(jobs_, [&](const auto& entry) { return entry.get() == &job; });
  retire(slice);
}

void SimTransport::fail_unposted(Job& job, ErrorCode code) {
  job.fate = {{code, 0, 0, RemoteEffect::kNone, false}};
  complete(*job.slice, job.fate.result);
  end(job);
}

// ---- Steps of the world's

bool SimTransport::can(const Job& job, Step step) {
  switch (step) {
    case Step::kEnter:
      return job.phase == Phase::kQueued;
    case Step::kLand:
      return job.phase != Phase::kQueued && job.moved < job.fate.moved;
    case Step::kComplete:
      return job.phase == Phase::kPosted && job.moved >= job.fate.result.prefix_bytes;
    case Step::kRetire:
      return job.phase == Phase::kCompleted && job.moved == job.fate.moved;
  }
  return false;
}

SimTransport::Job* SimTransport::find(const transfer::Execution& execution, Step step) const {
  const auto found = std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& job) {
    return job->slice->execution.get() == &execution && can(*job, step);
  });
  return found == jobs_.end() ? nullptr : found->get();
}

bool SimTransport::can(const transfer::Execution& execution, Step step) const {
  return find(execution, step) != nullptr;
}

void SimTransport::take(const transfer::Execution& execution, Step step) {
  Job* const job = find(execution, step);
  ORBITE_CHECK(job != nullptr);
  switch (step) {
    case Step::kLand:
      move_up_to(*job, job->fate.moved);
      return;
    case Step::kEnter:
    case Step::kComplete:
    case Step::kRetire:
      transfer::WorkLimit one_step{UINT64_MAX, 1};
      advance(*job, one_step);
      return;
  }
}

std::size_t SimTransport::on_wire(const transfer::Execution& execution) const {
  return static_cast<std::size_t>(std::count_if(jobs_.begin(), jobs_.end(), [&](const auto& job) {
    return job->slice->execution.get() == &execution && !job->far_loans.empty();
  }));
}

std::size_t SimTransport::outstanding(const transfer::Execution& execution) const {
  return static_cast<std::size_t>(std::count_if(jobs_.begin(), jobs_.end(), [&](const auto& job) {
    return job->slice->execution.get() == &execution;
  }));
}

std::uint64_t SimTransport::digest(const transfer::Execution& execution) const {
  std::uint64_t digest = 0;
  const auto add = [&digest](std::uint64_t value) {
    digest = (digest ^ value) * 0x9E3779B97F4A7C15ULL;
    digest ^= digest >> 29;
  };
  for (const auto& job : jobs_) {
    if (job->slice->execution.get() == &execution) {
      add(static_cast<std::uint64_t>(job->phase) + 1);
      add(job->slice->offset);
      add(job->moved);
      add(static_cast<std::uint64_t>(job->fate.result.code));
    }
  }
  return digest;
}

// ---- Bytes

void SimTransport::move_up_to(Job& job, std::uint64_t moved) {
  if (job.moved < moved) {
    move_bytes(*job.slice, job.moved, moved);
    job.moved = moved;
  }
}

void SimTransport::move_bytes(const transfer::Slice& slice, std::uint64_t from, std::uint64_t to) {
  const transfer::Execution& execution = *slice.execution;
  std::uint64_t position = 0;
  for (transfer::ExtentCursor extents = slice.extents; !extents.at_end() && position < to;) {
    const transfer::Extent extent = extents.take();
    const std::uint64_t begin = std::max(from, position);
    const std::uint64_t end = std::min(to, position + extent.length);
    if (begin < end) {
      const std::uint64_t inside = begin - position;
      const std::uint64_t local = extent.local_address + inside;
      const std::uint64_t remote = extent.remote_address + inside;
      const bool writes = execution.operation() == Operation::kWrite;
      const Access access{&execution, slice.offset + begin, writes ? local : remote,
                          writes ? remote : local, end - begin};
      if (world_.on_access) {
        world_.on_access(access);
      }
      // SAFETY: both ranges lie in registrations on which loans are out: the execution's here, the
      // job's at the far side.
      std::memmove(reinterpret_cast<void*>(access.target),        // NOLINT
                   reinterpret_cast<const void*>(access.source),  // NOLINT
                   access.length);
    }
    position += extent.length;
  }
}

}  // namespace orbite::sim
