// SPDX-License-Identifier: Apache-2.0
#include "sim/workload.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "wire/metadata.hpp"

namespace orbite::sim {
namespace {

constexpr base::Nanoseconds kStepMin = 2 * base::kMicrosecond;
constexpr base::Nanoseconds kRestartMax = 20 * base::kMillisecond;
constexpr std::size_t kPeersMax = 12;

unsigned long long ull(std::uint64_t value) { return value; }

template <typename T>
const char* text_of(const Result<T>& result) {
  return result ? "ok" : error_name(result.error().code()).data();
}

}  // namespace

void Workload::begin() {
  left_ = world_.options.ops;
  introduce();
  for (const auto& host : world_.hosts) {
    host->forgetful = random_.chance(200);
    next_step(*host);
  }
}

/// Without it most of a short run would be spent on getting to know each other.
void Workload::introduce() {
  for (const auto& host : world_.hosts) {
    register_memory(*host);
    register_memory(*host);
  }
  for (std::size_t i = 0; i < 3 * world_.hosts.size(); ++i) {
    for (const auto& host : world_.hosts) {
      if (host->peers.size() < world_.hosts.size()) {
        import_peer(*host);
      }
      import_range(*host);
    }
  }
}

void Workload::next_step(Host& host) {
  // In bursts, as callers come.
  const base::Nanoseconds pace_ns = world_.pace_ns;
  const base::Nanoseconds pause =
      kStepMin + (random_.chance(600) ? random_.size(pace_ns) : random_.below(4 * pace_ns));
  world_.scheduler.after(pause, Layer::kApplication, [this, &host] {
    if (left_ == 0) {
      return;
    }
    --left_;
    if (world_.now_ns() >= host.application_until_ns && !world_.stopped(host)) {
      step(host);
      world_.end_step(host);
    }
    next_step(host);
  });
}

void Workload::step(Host& host) {
  struct Weighted {
    std::uint32_t weight;
    Step step;
  };
  static constexpr std::array<Weighted, 22> kSteps = {{{8, &Workload::register_memory},
                                                       {3, &Workload::deregister_some},
                                                       {2, &Workload::replace_pages},
                                                       {8, &Workload::import_peer},
                                                       {2, &Workload::connect_peer},
                                                       {1, &Workload::retire_peer},
                                                       {10, &Workload::import_range},
                                                       {1, &Workload::release_range},
                                                       {16, &Workload::prepare},
                                                       {1, &Workload::prepare_wrong},
                                                       {26, &Workload::post_some},
                                                       {34, &Workload::check_some},
                                                       {3, &Workload::query_some},
                                                       {3, &Workload::cancel_some},
                                                       {7, &Workload::release_some},
                                                       {1, &Workload::abandon_some},
                                                       {3, &Workload::notify},
                                                       {5, &Workload::receive_some},
                                                       {1, &Workload::fence_dead},
                                                       {1, &Workload::close_some},
                                                       {1, &Workload::use_stale_handles},
                                                       {0, nullptr}}};
  if (host.state == Host::State::kDown) {
    return;
  }
  ++world_.stats.operations;
  if (host.state == Host::State::kClosing) {
    close(host, random_.chance(500) ? 0 : random_.span(10 * base::kMillisecond));
    return;
  }
  std::uint32_t total = 0;
  for (const Weighted& weighted : kSteps) {
    total += weighted.weight;
  }
  auto left = static_cast<std::uint32_t>(random_.below(total));
  for (const Weighted& weighted : kSteps) {
    if (left < weighted.weight) {
      (this->*weighted.step)(host);
      return;
    }
    left -= weighted.weight;
  }
}

// ---- Memory

/// Often all of one kind of memory.
void Workload::register_memory(Host& host) {
  if (!host.allocations.empty() && random_.chance(600)) {
    const SharedPages& pages = *host.allocations[random_.below(host.allocations.size())].pages;
    register_memory(host, pages.begin, pages.end);
  } else {
    register_memory(host, 0, kArenaBytes);
  }
}

/// A part of that.
void Workload::register_memory(Host& host, std::uint64_t begin, std::uint64_t end) {
  auto registration = std::make_shared<RegistrationModel>();
  registration->id = next_id_++;
  registration->life = host.life();
  const std::uint64_t length =
      random_.chance(300) ? end - begin : random_.between(2048, end - begin);
  registration->begin = begin + random_.below(end - begin - length + 1);
  registration->end = registration->begin + length;
  if (random_.chance(100)) {
    registration->access = static_cast<std::uint8_t>(kAccessLocal | random_.below(8));
  }
  MemoryDescriptor descriptor;
  descriptor.address = host.arena.address() + registration->begin;
  descriptor.length = length;
  descriptor.access = registration->access;
  descriptor.retired = [this, &host, registration] {
    const AllocationShelter shelter;
    if (!registration->ended) {
      world_.compare_memory(host);
      world_.checkers.retired(*registration);
    }
  };
  const World::Call call(world_, host);
  const Result<Handle> handle = world_.enter(host)->register_memory(descriptor);
  world_.trace.note(world_.now_ns(), "host%u registers %llu+%llu access %u: %s", host.index,
                    ull(registration->begin), ull(length), registration->access, text_of(handle));
  if (handle) {
    registration->handle = *handle;
    registration->blob = host.engine->export_memory(*handle).value();
    host.registrations.push_back(std::move(registration));
  }
}

void Workload::deregister(Host& host, const RegistrationPtr& registration) {
  registration->deregistered = true;
  const World::Call call(world_, host);
  const auto state = world_.enter(host)->deregister_memory(registration->handle);
  world_.trace.note(world_.now_ns(), "host%u deregisters %llu: %s %d", host.index,
                    ull(registration->id), text_of(state), state ? static_cast<int>(*state) : -1);
  if (state) {
    world_.checkers.registration_state(*registration, *state);
  } else if (!registration->retired()) {
    world_.checkers.violation("S8", host.index, 0, "registration %llu has not retired and is stale",
                              ull(registration->id));
  }
}

void Workload::deregister_some(Host& host) {
  // Those that have retired go out of mind.
  std::erase_if(host.registrations,
                [](const RegistrationPtr& registration) { return registration->retired(); });
  if (!host.registrations.empty()) {
    deregister(host, host.registrations[random_.below(host.registrations.size())]);
  }
}

/// The application frees a shared allocation when nothing of it is registered any more.
void Workload::replace_pages(Host& host) {
  if (host.allocations.empty()) {
    return;
  }
  const std::size_t index = random_.below(host.allocations.size());
  const SharedPages pages = *host.allocations[index].pages;
  bool is_free = true;
  for (const RegistrationPtr& registration : std::vector<RegistrationPtr>(host.registrations)) {
    if (registration->begin < pages.end && pages.begin < registration->end) {
      if (!registration->deregistered) {
        deregister(host, registration);
      }
      is_free = is_free && registration->retired();
    }
  }
  if (is_free) {
    ++world_.stats.pages_replaced;
    world_.replace_pages(host, index);
    register_memory(host, pages.begin, pages.end);
  }
}

// ---- Peers

void Workload::import_peer(Host& host) {
  if (host.peers.size() >= kPeersMax) {
    return;
  }
  const World::Call call(world_, host);
  if (random_.chance(150)) {
    if (const auto handle = world_.enter(host)->self_peer()) {
      host.peers.push_back({*handle, host.life()});
    }
    return;
  }
  // Mostly of somebody who lives; what is known of the dead is not withdrawn.
  const World::Blob* blob = nullptr;
  for (int i = 0; i < 4; ++i) {
    blob = &world_.blobs[random_.below(world_.blobs.size())];
    if (world_.alive(blob->life) && blob->life != host.life()) {
      break;
    }
  }
  const std::string name = world_.host(blob->life.host).name();
  const auto handle = world_.enter(host)->import_peer(name, blob->bytes);
  world_.trace.note(world_.now_ns(), "host%u imports host%u of life %u: %s", host.index,
                    blob->life.host, blob->life.number, text_of(handle));
  if (handle) {
    host.peers.push_back({*handle, blob->life});
  }
}

void Workload::connect_peer(Host& host) {
  if (host.peers.empty()) {
    return;
  }
  const Handle handle = host.peers[random_.below(host.peers.size())].handle;
  const base::Nanoseconds timeout_ns =
      random_.chance(200) ? 0 : random_.span(100 * base::kMillisecond);
  Result<void> connected;
  {
    const World::Call call(world_, host);
    connected = world_.enter(host)->connect_peer(handle, timeout_ns);
  }
  world_.trace.note(world_.now_ns(), "host%u has tried to connect: %s", host.index,
                    text_of(connected));
}

void Workload::retire_peer(Host& host) {
  if (host.peers.empty()) {
    return;
  }
  const std::size_t index = random_.below(host.peers.size());
  const World::Call call(world_, host);
  const auto retired = world_.enter(host)->retire_peer(host.peers[index].handle);
  world_.trace.note(world_.now_ns(), "host%u retires its peer host%u: %s", host.index,
                    host.peers[index].life.host, text_of(retired));
  host.peers[index].retired = true;
}

void Workload::fence_dead(Host& host) {
  for (const PeerModel& peer : host.peers) {
    if (!world_.alive(peer.life)) {
      if (peer.retired || random_.chance(500)) {
        confirm_fenced(host, peer.life);
      } else {
        const World::Call call(world_, host);
        (void)world_.enter(host)->confirm_peer_fenced(peer.handle);
      }
      return;
    }
  }
}

/// An operator knows that this life is over, and says so.
void Workload::confirm_fenced(Host& host, Life life) {
  const auto blob = std::find_if(world_.blobs.begin(), world_.blobs.end(),
                                 [&](const World::Blob& known) { return known.life == life; });
  const auto connection = wire::decode_connection(blob->bytes, wire::Profile::kMemory);
  const World::Call call(world_, host);
  const auto fenced = world_.enter(host)->confirm_epoch_fenced(connection.value().epoch.bytes);
  world_.trace.note(world_.now_ns(), "host%u is told that life %u of host%u is over: %s",
                    host.index, life.number, life.host, text_of(fenced));
}

void Workload::import_range(Host& host) {
  if (host.peers.empty()) {
    return;
  }
  const std::size_t index = random_.below(host.peers.size());
  const PeerModel& peer = host.peers[index];
  RangeModel range;
  range.peer = index;
  const auto& known = world_.host(peer.life.host).registrations;
  if (peer.retired || known.empty() || !world_.alive(peer.life)) {
    return;
  }
  range.registration = known[random_.below(known.size())];
  range.begin = range.registration->begin;
  range.end = range.registration->end;
  const World::Call call(world_, host);
  Result<Handle> handle;
  if (peer.life == host.life() && random_.chance(500)) {
    handle = world_.enter(host)->local_range(range.registration->handle);
  } else {
    if (random_.chance(300)) {
      range.begin += random_.below((range.end - range.begin) / 2);
      range.end -= random_.below((range.end - range.begin) / 2);
    }
    handle = world_.enter(host)->import_range(
        peer.handle, range.registration->blob,
        world_.host(peer.life.host).arena.address() + range.begin, range.end - range.begin);
  }
  world_.trace.note(world_.now_ns(), "host%u imports range %llu of host%u: %s", host.index,
                    ull(range.registration->id), peer.life.host, text_of(handle));
  if (handle) {
    range.handle = *handle;
    host.ranges.push_back(std::move(range));
  }
}

void Workload::release_range(Host& host) {
  if (host.ranges.empty()) {
    return;
  }
  RangeModel& range = host.ranges[random_.below(host.ranges.size())];
  const World::Call call(world_, host);
  (void)world_.enter(host)->release_range(range.handle);
  range.released = true;
}

// ---- Notifications

NotificationPtr Workload::new_notification(Host& host, const Life& to) {
  auto notification = std::make_shared<NotificationModel>();
  notification->id = next_id_++;
  notification->from = host.life();
  notification->to = to;
  ++world_.stats.notifications;
  return notification;
}

std::vector<std::uint8_t> Workload::message_of(const NotificationModel& notification) {
  std::vector<std::uint8_t> message(sizeof(notification.id) + random_.below(64));
  std::memcpy(message.data(), &notification.id, sizeof(notification.id));
  return message;
}

void Workload::notify(Host& host) {
  if (host.peers.empty()) {
    return;
  }
  const PeerModel& peer = host.peers[random_.below(host.peers.size())];
  const NotificationPtr notification = new_notification(host, peer.life);
  sent_[notification->id] = {notification, nullptr};
  const World::Call call(world_, host);
  const std::vector<std::uint8_t> message = message_of(*notification);
  const auto sent = world_.enter(host)->send_notification(peer.handle, message);
  world_.trace.note(world_.now_ns(), "host%u notifies host%u (%llu): %s", host.index,
                    peer.life.host, ull(notification->id), text_of(sent));
}

/// Some applications look into their mailbox at the end only: it gets full.
void Workload::receive_some(Host& host) {
  if (!host.forgetful) {
    receive(host);
  }
}

void Workload::receive(Host& host) {
  const World::Call call(world_, host);
  while (auto message = world_.enter(host)->receive_notification()) {
    std::uint64_t id = 0;
    if (message->message.size() >= sizeof(id)) {
      std::memcpy(&id, message->message.data(), sizeof(id));
    }
    const auto found = sent_.find(id);
    if (found == sent_.end()) {
      world_.checkers.violation("S5", host.index, 0, "a notification that nobody sent");
      continue;
    }
    world_.trace.note(world_.now_ns(), "host%u receives notification %llu of %s", host.index,
                      ull(id), message->sender.c_str());
    const Sent& sent = found->second;
    world_.checkers.delivered(host, *sent.notification, sent.execution.get());
    if (message->sender != world_.host(sent.notification->from.host).name()) {
      world_.checkers.violation("S5", host.index, 0, "notification %llu came in the name of %s",
                                ull(id), message->sender.c_str());
    }
  }
}

void Workload::check_notifications() {
  for (const std::uint64_t id : sent_order_) {
    const Sent& sent = sent_.at(id);
    if (sent.execution->last.logical == Logical::kSuccess && world_.alive(sent.notification->to) &&
        sent.notification->delivered != 1) {
      world_.checkers.violation("S5", sent.notification->from.host, sent.execution->id,
                                "success, and notification %llu was delivered %u times", ull(id),
                                sent.notification->delivered);
    }
  }
}

// ---- Closing

void Workload::close_some(Host& host) {
  if (!random_.chance(400)) {
    return;
  }
  for (const RegistrationPtr& registration : host.registrations) {
    registration->deregistered = true;
  }
  host.state = Host::State::kClosing;
  close(host, random_.chance(500) ? 0 : random_.span(10 * base::kMillisecond));
}

bool Workload::close(Host& host, base::Nanoseconds timeout_ns) {
  CloseStatus status;
  {
    const World::Call call(world_, host);
    status = world_.enter(host)->close(timeout_ns);
  }
  world_.trace.note(world_.now_ns(), "host%u closes: phase %u, %u executions, %u registrations",
                    host.index, static_cast<unsigned>(status.phase), status.executions_unresolved,
                    status.registrations_unresolved);
  if (status.phase != ClosePhase::kClosed || host.struck) {
    return false;
  }
  receive(host);
  for (const RequestPtr& request : std::vector<RequestPtr>(host.requests)) {
    if (request->execution == nullptr || request->abandoned) {
      continue;
    }
    check(host, request);
    if (!request->execution->told_terminal) {
      world_.checkers.violation("S8", host.index, request->execution->id,
                                "not terminal in a closed engine");
    }
  }
  world_.destroy_closed(host);
  world_.scheduler.after(random_.span(kRestartMax), Layer::kFault, [this, &host] {
    if (host.state == Host::State::kDown && !world_.stop_restarts) {
      ++world_.stats.restarts;
      world_.start(host);
    }
  });
  return true;
}

}  // namespace orbite::sim
