// SPDX-License-Identifier: Apache-2.0
// Workload: requests from their prepare to their release.
#include <algorithm>
#include <array>
#include <utility>

#include "sim/workload.hpp"

namespace orbite::sim {
namespace {

constexpr std::uint64_t kExtentBytesMax = 2048;
constexpr std::size_t kExtentsMax = 6;
constexpr int kRoomTries = 6;

unsigned long long ull(std::uint64_t value) { return value; }

template <typename T>
const char* text_of(const Result<T>& result) {
  return result ? "ok" : error_name(result.error().code()).data();
}

/// The ranges of a request as the engine takes them.
struct Lists {
  std::vector<Descriptor> local;
  std::vector<Descriptor> remote;
};

Lists lists_of(World& world, const RequestModel& request, Handle range) {
  const std::uint64_t local_base = world.host(request.owner.host).arena.address();
  const std::uint64_t remote_base = world.host(request.peer.host).arena.address();
  Lists lists;
  for (const ExtentModel& extent : request.extents) {
    lists.local.push_back(
        {local_base + extent.local, extent.length, extent.local_registration->handle});
    lists.remote.push_back({remote_base + extent.remote, extent.length, range});
  }
  return lists;
}

}  // namespace

// ---- Preparing

std::optional<std::uint64_t> Workload::find_room(const ClaimMap& claims, std::uint64_t begin,
                                                 std::uint64_t end, std::uint64_t length) {
  for (int i = 0; i < kRoomTries && end - begin >= length; ++i) {
    const std::uint64_t at = random_.between(begin, end - length);
    if (claims.free(at, at + length)) {
      return at;
    }
  }
  return std::nullopt;
}

bool Workload::draw_extent(Host& host, const RequestPtr& request, const RangeModel& range,
                           const RegistrationPtr& local) {
  // Of the dead mostly nothing is claimed: nothing of it may come anywhere.
  ClaimMap* const remote = world_.claims_of(request->peer);
  const std::uint64_t length = random_.size(kExtentBytesMax);
  ExtentModel extent{0, 0, length, request->bytes, local, range.registration};
  const auto near_at = find_room(host.claims, local->begin, local->end, length);
  if (!near_at) {
    return false;
  }
  extent.local = *near_at;
  // Often right behind the one before, on both sides: the two then merge.
  if (!request->extents.empty() && random_.chance(300)) {
    const ExtentModel& last = request->extents.back();
    if (last.local + last.length + length <= local->end &&
        host.claims.free(last.local + last.length, last.local + last.length + length)) {
      extent.local = last.local + last.length;
      extent.remote = last.remote + last.length;
    }
  }
  const std::size_t index = request->extents.size();
  host.claims.add({extent.local, extent.local + length, request, index, true});
  const bool behind = extent.remote != 0 && extent.remote >= range.begin &&
                      extent.remote + length <= range.end &&
                      (remote == nullptr || remote->free(extent.remote, extent.remote + length));
  if (!behind) {
    const ClaimMap nothing;
    const auto far_at =
        find_room(remote != nullptr ? *remote : nothing, range.begin, range.end, length);
    if (!far_at) {
      return false;
    }
    extent.remote = *far_at;
  }
  if (remote != nullptr) {
    remote->add({extent.remote, extent.remote + length, request, index, false});
  }
  request->extents.push_back(std::move(extent));
  request->bytes += length;
  return true;
}

bool Workload::draw_extents(Host& host, const RequestPtr& request, const RangeModel& range) {
  std::vector<RegistrationPtr> live;
  for (const RegistrationPtr& registration : host.registrations) {
    if (!registration->deregistered || random_.chance(50)) {
      live.push_back(registration);
    }
  }
  if (live.empty()) {
    return false;
  }
  const std::size_t count = random_.size(kExtentsMax);
  for (std::size_t i = 0; i < count; ++i) {
    if (!draw_extent(host, request, range, live[random_.below(live.size())])) {
      // A claim on one side alone is nothing.
      host.claims.remove_extent(*request, request->extents.size());
    }
  }
  return !request->extents.empty();
}

void Workload::prepare(Host& host) {
  if (host.ranges.empty()) {
    return;
  }
  const RangeModel& range = host.ranges[random_.below(host.ranges.size())];
  const PeerModel& peer = host.peers[range.peer];
  auto request = std::make_shared<RequestModel>();
  request->id = next_id_++;
  request->operation = random_.chance(500) ? Operation::kWrite : Operation::kRead;
  request->owner = host.life();
  request->peer = peer.life;
  if (!draw_extents(host, request, range)) {
    world_.discard_claims(*request);
    return;
  }
  const Lists lists = lists_of(world_, *request, range.handle);
  const World::Call call(world_, host);
  const auto handle =
      world_.enter(host)->prepare({request->operation, peer.handle, lists.local, lists.remote});
  world_.trace.note(
      world_.now_ns(), "host%u prepares %s %llu with host%u: %zu ranges, %llu bytes: %s",
      host.index, request->operation == Operation::kWrite ? "WRITE" : "READ", ull(request->id),
      request->peer.host, request->extents.size(), ull(request->bytes), text_of(handle));
  if (!handle) {
    world_.discard_claims(*request);
    return;
  }
  request->handle = *handle;
  if (range.released) {
    world_.checkers.violation("S8", host.index, 0, "prepared with a range that was released");
  }
  host.requests.push_back(std::move(request));
}

/// Lists that must be refused.
void Workload::prepare_wrong(Host& host) {
  if (host.ranges.empty() || host.registrations.empty()) {
    return;
  }
  const RangeModel& range = host.ranges[random_.below(host.ranges.size())];
  const RegistrationPtr& local = host.registrations[random_.below(host.registrations.size())];
  const std::uint64_t local_base = host.arena.address();
  const std::uint64_t remote_base = world_.host(host.peers[range.peer].life.host).arena.address();
  Descriptor near{local_base + local->begin, 64, local->handle};
  Descriptor far{remote_base + range.begin, 64, range.handle};
  switch (random_.below(6)) {
    case 0:
      near.address = local_base + local->end - 63;
      break;
    case 1:
      far.address = remote_base + range.end - 63;
      break;
    case 2:
      far.length = 63;
      break;
    case 3:
      near.length = 0;
      break;
    case 4:
      near.address = UINT64_MAX - 32;
      break;
    default:
      far.owner.generation = UINT32_MAX;
      break;
  }
  const World::Call call(world_, host);
  const auto handle = world_.enter(host)->prepare(
      {Operation::kRead, host.peers[range.peer].handle, {&near, 1}, {&far, 1}});
  if (handle) {
    world_.checkers.violation("S1", host.index, 0, "ranges outside their bounds were prepared");
    (void)world_.enter(host)->release(*handle);
  }
}

// ---- Posting

RequestPtr Workload::some_request(Host& host, bool active_first) {
  RequestPtr found;
  for (int i = 0; i < 4 && !host.requests.empty(); ++i) {
    found = host.requests[random_.below(host.requests.size())];
    const bool active = found->execution != nullptr && !found->execution->told_terminal;
    // What cannot be posted again is seldom of use.
    const bool spent = found->execution != nullptr && found->execution->told_terminal &&
                       found->execution->last.logical != Logical::kSuccess;
    if (!found->abandoned && active == active_first && (!spent || random_.chance(100))) {
      return found;
    }
  }
  return found != nullptr && !found->abandoned ? found : nullptr;
}

/// The application writes the source anew, and into the destination what differs from it in every
/// byte.
std::shared_ptr<ExecutionModel> Workload::begin_execution(const RequestModel& request) {
  auto execution = std::make_shared<ExecutionModel>();
  execution->id = next_id_++;
  execution->source.resize(request.bytes);
  random_.fill(execution->source);
  execution->sent.resize(request.bytes);
  execution->landed.resize(request.bytes);
  std::vector<std::uint8_t> other(execution->source);
  for (std::uint8_t& byte : other) {
    byte = static_cast<std::uint8_t>(~byte);
  }
  const bool writes = request.operation == Operation::kWrite;
  for (const ExtentModel& extent : request.extents) {
    const std::span<const std::uint8_t> source(execution->source);
    const std::span<const std::uint8_t> target(other);
    world_.put(request.owner, extent.local,
               (writes ? source : target).subspan(extent.offset, extent.length));
    world_.put(request.peer, extent.remote,
               (writes ? target : source).subspan(extent.offset, extent.length));
  }
  return execution;
}

void Workload::post(Host& host, const RequestPtr& request) {
  if (request->execution != nullptr && !request->execution->told_terminal) {
    query(host, request);  // what follows is right or wrong by what is so now
  }
  const std::shared_ptr<ExecutionModel> last = request->execution;
  const bool may = last == nullptr || last->told_terminal;
  std::vector<std::uint8_t> message;
  PostOptions options;
  std::shared_ptr<ExecutionModel> execution = last;
  if (may) {
    execution = begin_execution(*request);
    if (random_.chance(300)) {
      execution->notification = new_notification(host, request->peer);
      message = message_of(*execution->notification);
      options.notification = message;
      sent_[execution->notification->id] = {execution->notification, execution};
      sent_order_.push_back(execution->notification->id);
    }
    request->execution = execution;
  }
  if (random_.chance(300)) {
    options.timeout_ns = random_.span(200 * base::kMillisecond);
  }
  const World::Call call(world_, host);
  const std::uint64_t calls = host.network->calls();
  const base::Nanoseconds begin_ns = world_.time_of(host);
  const auto outcome = world_.enter(host)->post(request->handle, options);
  world_.checkers.bounded(host, "post", host.network->calls() - calls,
                          world_.time_of(host) - begin_ns);
  world_.trace.note(world_.now_ns(), "host%u posts %llu as execution %llu%s: %s", host.index,
                    ull(request->id), ull(execution->id),
                    options.notification ? " with a notification" : "", text_of(outcome));
  if (host.struck) {
    return;
  }
  world_.compare_memory(host);
  if (!outcome) {
    if (may && execution->landed_count != 0) {
      world_.checkers.violation("S1", host.index, execution->id,
                                "bytes moved and post was refused");
    }
    request->execution = last;
    return;
  }
  ++world_.stats.executions;
  world_.checkers.accepted(host, last.get());
  world_.checkers.outcome(host, *request, *outcome);
}

void Workload::post_some(Host& host) {
  if (const RequestPtr request = some_request(host, false); request != nullptr) {
    post(host, request);
  }
}

// ---- Looking and stopping

void Workload::check(Host& host, const RequestPtr& request) {
  const World::Call call(world_, host);
  const std::uint64_t calls = host.network->calls();
  const base::Nanoseconds begin_ns = world_.time_of(host);
  const auto outcome = world_.enter(host)->check(request->handle);
  world_.checkers.bounded(host, "check", host.network->calls() - calls,
                          world_.time_of(host) - begin_ns);
  world_.compare_memory(host);
  if (!outcome) {
    world_.checkers.violation("S8", host.index, request->id, "check of a held request: %s",
                              text_of(outcome));
  } else if (request->execution != nullptr) {
    world_.checkers.outcome(host, *request, *outcome);
  } else if (outcome->drain != Drain::kIdle || outcome->logical != Logical::kNone) {
    world_.checkers.violation("S8", host.index, request->id, "never posted, and not idle");
  }
}

void Workload::check_some(Host& host) {
  const RequestPtr request = some_request(host, true);
  if (request == nullptr) {
    return;
  }
  // As a caller that polls does.
  const std::uint64_t times = random_.size(8);
  for (std::uint64_t i = 0; i < times; ++i) {
    check(host, request);
  }
}

void Workload::query(Host& host, const RequestPtr& request) {
  const World::Call call(world_, host);
  const auto outcome = world_.enter(host)->query(request->handle);
  world_.compare_memory(host);
  if (outcome && request->execution != nullptr) {
    world_.checkers.outcome(host, *request, *outcome);
  }
}

void Workload::query_some(Host& host) {
  if (const RequestPtr request = some_request(host, true); request != nullptr) {
    query(host, request);
  }
}

void Workload::cancel_some(Host& host) {
  const RequestPtr request = some_request(host, true);
  if (request == nullptr) {
    return;
  }
  const World::Call call(world_, host);
  const auto canceled = world_.enter(host)->cancel(request->handle);
  world_.trace.note(world_.now_ns(), "host%u cancels %llu: %s", host.index, ull(request->id),
                    text_of(canceled));
}

void Workload::release(Host& host, const RequestPtr& request) {
  const World::Call call(world_, host);
  const std::uint64_t calls = host.network->calls();
  const base::Nanoseconds begin_ns = world_.time_of(host);
  const auto released = world_.enter(host)->release(request->handle);
  world_.checkers.bounded(host, "release", host.network->calls() - calls,
                          world_.time_of(host) - begin_ns);
  world_.trace.note(world_.now_ns(), "host%u releases %llu: %s", host.index, ull(request->id),
                    text_of(released));
  if (host.struck) {
    return;
  }
  if (released) {
    // Only a terminal one is let go, so this is as good as being told.
    if (request->execution != nullptr) {
      request->execution->told_terminal = true;
    }
    world_.release_claims(request);
    std::erase(host.requests, request);
  } else if (request->execution == nullptr || request->execution->told_terminal) {
    world_.checkers.violation("S8", host.index, request->id, "release of an ended request: %s",
                              text_of(released));
  }
}

void Workload::release_some(Host& host) {
  // Mostly one that is spent.
  for (const RequestPtr& request : host.requests) {
    if (!request->abandoned && request->execution != nullptr && request->execution->told_terminal &&
        random_.chance(300)) {
      release(host, request);
      return;
    }
  }
  if (const RequestPtr request = some_request(host, random_.chance(200)); request != nullptr) {
    release(host, request);
  }
}

void Workload::abandon_some(Host& host) {
  const RequestPtr request = some_request(host, true);
  if (request == nullptr) {
    return;
  }
  const World::Call call(world_, host);
  const auto abandoned = world_.enter(host)->abandon(request->handle);
  world_.trace.note(world_.now_ns(), "host%u abandons %llu: %s", host.index, ull(request->id),
                    text_of(abandoned));
  if (!abandoned) {
    return;
  }
  request->abandoned = true;
  if (request->execution == nullptr || request->execution->told_terminal) {
    world_.release_claims(request);
    std::erase(host.requests, request);
  }
}

void Workload::use_stale_handles(Host& host) {
  const World::Call call(world_, host);
  const Handle stale{static_cast<std::uint32_t>(random_.below(8)), 0x7FFFFFFF};
  const World::Entry entry = world_.enter(host);
  if (entry->check(stale) || entry->post(stale, {}) || entry->release(stale) ||
      entry->cancel(stale) || entry->abandon(stale) || entry->deregister_memory(stale) ||
      entry->retire_peer(stale) || entry->release_range(stale)) {
    world_.checkers.violation("S8", host.index, 0, "a handle that never was is taken");
  }
}

}  // namespace orbite::sim
