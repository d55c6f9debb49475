// SPDX-License-Identifier: Apache-2.0
#include "sim/host_network.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/assert.hpp"
#include "sim/allocation_fault.hpp"

namespace orbite::sim {
namespace {

using platform::IoResult;
using platform::kPollError;
using platform::kPollIn;
using platform::kPollOut;

/// A new connection takes so much whole, as a kernel does.
constexpr std::uint64_t kFirstBytesWhole = 1024;
constexpr std::size_t kPartsMax = 1024;

IoResult failed(int native_errno) { return {IoResult::Kind::kFailed, 0, native_errno}; }
IoResult moved(std::size_t bytes) {
  return bytes > 0 ? IoResult{IoResult::Kind::kBytes, bytes, 0} : IoResult{};
}

std::size_t sum_of(std::span<const iovec> buffers) {
  std::size_t bytes = 0;
  for (const iovec& part : buffers) {
    bytes += part.iov_len;
  }
  return bytes;
}

std::uint64_t address_of(const iovec& part) {
  return reinterpret_cast<std::uint64_t>(part.iov_base);
}

}  // namespace

HostNetwork::HostNetwork(Fabric& fabric, std::uint32_t machine, Observer observer)
    : fabric_(fabric), machine_(machine), observer_(std::move(observer)) {
  fabric_.attach(*this);
}

HostNetwork::~HostNetwork() {
  kill();
  fabric_.detach(*this);
}

platform::Socket HostNetwork::open(Kind kind) {
  entries_.emplace_back();
  entries_.back().kind = kind;
  ++open_;
  return static_cast<Socket>(entries_.size() - 1);
}

HostNetwork::Entry* HostNetwork::find(Socket socket, Kind kind, const char* what) {
  ++calls_;
  if (dead_) {
    return nullptr;
  }
  if (socket >= 0 && static_cast<std::size_t>(socket) < entries_.size() &&
      entries_[static_cast<std::size_t>(socket)].kind == kind) {
    return &entries_[static_cast<std::size_t>(socket)];
  }
  observer_.on_misuse(what, socket);
  return nullptr;
}

// ---- Listening

Result<platform::Socket> HostNetwork::listen(const SocketAddress& address) {
  const AllocationShelter shelter;
  ++calls_;
  if (dead_) {
    return fail(ErrorCode::kSystem, "no such process");
  }
  SocketAddress bound = address;
  if (bound.port() == 0) {
    do {
      bound.set_port(fabric_.machine(machine_).next_port++);
    } while (!fabric_.port_free(machine_, bound.port()));
  } else if (!fabric_.port_free(machine_, bound.port())) {
    return fail(Error::make_native(ErrorCode::kAddressInUse, EADDRINUSE, "cannot listen on %s",
                                   bound.text().c_str()));
  }
  const Socket socket = open(Kind::kListener);
  entries_.back().address = bound;
  return socket;
}

Result<platform::SocketAddress> HostNetwork::local_address(Socket socket) {
  const AllocationShelter shelter;
  const Entry* const entry = find(socket, Kind::kListener, "local_address");
  if (entry == nullptr) {
    return fail(ErrorCode::kSystem, "no listener");
  }
  return entry->address;
}

platform::Socket HostNetwork::listener_at(std::uint16_t port) const {
  for (std::size_t i = 0; i < entries_.size() && !dead_; ++i) {
    if (entries_[i].kind == Kind::kListener && entries_[i].address.port() == port) {
      return static_cast<Socket>(i);
    }
  }
  return platform::kNoSocket;
}

bool HostNetwork::backlog_has_room(Socket listener) const {
  return entries_[static_cast<std::size_t>(listener)].backlog.size() < fabric_.limits.backlog_max;
}

void HostNetwork::enter_backlog(Socket listener, Fabric::ConnectionPtr connection) {
  entries_[static_cast<std::size_t>(listener)].backlog.push_back(std::move(connection));
  changed(listener);
}

Result<platform::Socket> HostNetwork::accept(Socket listener, SocketAddress& peer) {
  const AllocationShelter shelter;
  Entry* const entry = find(listener, Kind::kListener, "accept");
  if (entry == nullptr || entry->backlog.empty()) {
    return fail(ErrorCode::kNotFound, "nobody is waiting");
  }
  if (fabric_.random().chance(fabric_.machine(machine_).accept_failures)) {
    return fail(Error::make_native(ErrorCode::kSystem, EMFILE, "cannot accept"));
  }
  Fabric::ConnectionPtr connection = std::move(entry->backlog.front());
  entry->backlog.pop_front();
  const Socket socket = open(Kind::kStream);
  End& end = connection->ends[1];
  end.holder = End::Holder::kProcess;
  end.process = this;
  end.socket = socket;
  peer = connection->ends[0].address;
  entries_.back().connection = std::move(connection);
  entries_.back().side = 1;
  return socket;
}

// ---- Streams

Result<platform::Socket> HostNetwork::connect(const SocketAddress& address,
                                              const SocketAddress* /*source*/) {
  const AllocationShelter shelter;
  ++calls_;
  if (dead_) {
    return fail(ErrorCode::kSystem, "no such process");
  }
  if (address.family() == 6) {
    return fail(Error::make_native(ErrorCode::kPeerUnreachable, EADDRNOTAVAIL,
                                   "cannot connect to %s", address.text().c_str()));
  }
  const Socket socket = open(Kind::kStream);
  Fabric::ConnectionPtr connection = fabric_.start_connect(*this, machine_, address);
  End& end = connection->ends[0];
  end.holder = End::Holder::kProcess;
  end.process = this;
  end.socket = socket;
  entries_.back().connection = std::move(connection);
  entries_.back().side = 0;
  return socket;
}

IoResult HostNetwork::connect_result(Socket socket) {
  const AllocationShelter shelter;
  Entry* const entry = find(socket, Kind::kStream, "connect_result");
  if (entry == nullptr) {
    return failed(EBADF);
  }
  End& end = entry->connection->ends[entry->side];
  if (end.error != 0) {
    return failed(std::exchange(end.error, 0));
  }
  if (end.connected && !end.dead) {
    return {IoResult::Kind::kBytes, 0, 0};
  }
  return end.dead ? failed(ENOTCONN) : IoResult{};
}

std::size_t HostNetwork::cut(std::size_t bytes) {
  const std::size_t limit = fabric_.limits.call_bytes_max;
  if (limit == 0 || bytes <= 1) {
    return bytes;
  }
  return std::min<std::size_t>(bytes, fabric_.random().size(limit));
}

IoResult HostNetwork::send(Socket socket, std::span<const iovec> buffers) {
  const AllocationShelter shelter;
  Entry* const entry = find(socket, Kind::kStream, "send");
  if (entry == nullptr) {
    return failed(EBADF);
  }
  End& end = entry->connection->ends[entry->side];
  if (end.error != 0) {
    return failed(std::exchange(end.error, 0));
  }
  if (end.dead || end.fin_queued) {
    return failed(EPIPE);
  }
  const std::uint64_t held = end.written - end.acked;
  const std::size_t room =
      held < fabric_.limits.send_buffer_bytes ? fabric_.limits.send_buffer_bytes - held : 0;
  buffers = buffers.first(std::min(buffers.size(), kPartsMax));
  std::size_t bytes = std::min(sum_of(buffers), room);
  if (!end.connected || bytes == 0) {
    return {};
  }
  if (end.written >= kFirstBytesWhole) {
    bytes = cut(bytes);
  }
  std::size_t left = bytes;
  for (const iovec& part : buffers) {
    const std::size_t step = std::min(left, part.iov_len);
    if (step > 0) {
      observer_.on_send(address_of(part), step);
      end.sending.append(part.iov_base, step);
    }
    left -= step;
  }
  end.written += bytes;
  fabric_.written(entry->connection, entry->side);
  return moved(bytes);
}

IoResult HostNetwork::receive(Socket socket, std::span<const iovec> buffers) {
  const AllocationShelter shelter;
  Entry* const entry = find(socket, Kind::kStream, "receive");
  if (entry == nullptr) {
    return failed(EBADF);
  }
  End& end = entry->connection->ends[entry->side];
  buffers = buffers.first(std::min(buffers.size(), kPartsMax));
  const std::size_t room = sum_of(buffers);
  if (end.received.empty() && room > 0) {
    if (end.fin_received) {
      return {IoResult::Kind::kEnded, 0, 0};
    }
    if (end.error != 0) {
      return failed(std::exchange(end.error, 0));
    }
    // What is left after the error was told.
    return end.dead ? IoResult{IoResult::Kind::kEnded, 0, 0} : IoResult{};
  }
  const std::size_t bytes = cut(std::min(room, end.received.size()));
  std::size_t left = bytes;
  for (const iovec& part : buffers) {
    const std::size_t step = end.received.take(part.iov_base, std::min(left, part.iov_len));
    if (step > 0) {
      observer_.on_receive(address_of(part), step);
    }
    left -= step;
  }
  if (bytes > 0) {
    fabric_.room_made(entry->connection, entry->side);
  }
  return moved(bytes);
}

void HostNetwork::shutdown_send(Socket socket) {
  const AllocationShelter shelter;
  Entry* const entry = find(socket, Kind::kStream, "shutdown_send");
  if (entry == nullptr) {
    return;
  }
  End& end = entry->connection->ends[entry->side];
  if (end.connected && !end.dead && !end.fin_queued) {
    end.fin_queued = true;
    fabric_.written(entry->connection, entry->side);
  }
}

void HostNetwork::configure(Socket socket, const SocketOptions& options) {
  const AllocationShelter shelter;
  if (Entry* const entry = find(socket, Kind::kStream, "configure"); entry != nullptr) {
    fabric_.keep_alive(entry->connection, entry->side, options.keepalive_idle_ns);
  }
}

void HostNetwork::end_entry(Entry& entry) {
  const Kind kind = std::exchange(entry.kind, Kind::kNone);
  --open_;
  if (kind == Kind::kStream) {
    fabric_.close_end(std::exchange(entry.connection, nullptr), entry.side);
  } else if (kind == Kind::kListener) {
    entry.backlog.clear();
    fabric_.listener_closed(*this, static_cast<Socket>(&entry - entries_.data()));
  } else if (kind == Kind::kGuest) {
    std::exchange(entry.guest, nullptr)->closed();
  }
}

void HostNetwork::close(Socket socket) {
  const AllocationShelter shelter;
  ++calls_;
  if (dead_) {
    return;
  }
  if (socket < 0 || static_cast<std::size_t>(socket) >= entries_.size() ||
      entries_[static_cast<std::size_t>(socket)].kind == Kind::kNone) {
    observer_.on_misuse("close", socket);
    return;
  }
  for (const std::size_t poller : pollers_) {
    std::erase_if(entries_[poller].interests,
                  [&](const Interest& it) { return it.socket == socket; });
  }
  end_entry(entries_[static_cast<std::size_t>(socket)]);
}

void HostNetwork::kill() {
  if (dead_) {
    return;
  }
  for (Entry& entry : entries_) {
    if (entry.kind != Kind::kNone) {
      end_entry(entry);
    }
  }
  dead_ = true;
  tell_end();
}

void HostNetwork::vanish() {
  dead_ = true;
  for (Entry& entry : entries_) {
    entry.guest = nullptr;
  }
  tell_end();
}

void HostNetwork::tell_end() {
  if (const auto told = std::exchange(at_end_, nullptr)) {
    told();
  }
}

platform::Socket HostNetwork::admit(std::unique_ptr<Guest> guest) {
  const Socket socket = open(Kind::kGuest);
  entries_.back().guest = std::move(guest);
  return socket;
}

// ---- Polling

Result<platform::Socket> HostNetwork::make_poller() {
  const AllocationShelter shelter;
  ++calls_;
  pollers_.push_back(entries_.size());
  return open(Kind::kPoller);
}

Result<platform::Socket> HostNetwork::make_wakeup() {
  const AllocationShelter shelter;
  ++calls_;
  return open(Kind::kWakeup);
}

void HostNetwork::signal(Socket wakeup) {
  const AllocationShelter shelter;
  if (Entry* const entry = find(wakeup, Kind::kWakeup, "signal"); entry != nullptr) {
    entry->signalled = true;
    changed(wakeup);
  }
}

void HostNetwork::clear(Socket wakeup) {
  const AllocationShelter shelter;
  if (Entry* const entry = find(wakeup, Kind::kWakeup, "clear"); entry != nullptr) {
    entry->signalled = false;
  }
}

std::uint32_t HostNetwork::stream_events(const End& end, std::uint32_t send_buffer) {
  std::uint32_t events = 0;
  if (!end.received.empty() || end.fin_received || end.dead) {
    events |= kPollIn;
  }
  if (end.dead || (end.connected && end.written - end.acked < send_buffer)) {
    events |= kPollOut;
  }
  if (end.dead || end.error != 0 || (end.fin_received && end.fin_queued)) {
    events |= kPollError;
  }
  return events;
}

std::uint32_t HostNetwork::ready_events(const Entry& entry) const {
  switch (entry.kind) {
    case Kind::kStream:
      return stream_events(entry.connection->ends[entry.side], fabric_.limits.send_buffer_bytes);
    case Kind::kListener:
      return entry.backlog.empty() ? 0 : kPollIn;
    case Kind::kWakeup:
      return entry.signalled ? kPollIn : 0;
    case Kind::kGuest:
      return entry.guest != nullptr ? entry.guest->ready_events() : 0;
    case Kind::kNone:
    case Kind::kPoller:
      return 0;
  }
  return 0;
}

void HostNetwork::changed(Socket socket) {
  if (dead_) {
    return;
  }
  const std::uint32_t ready = ready_events(entries_[static_cast<std::size_t>(socket)]);
  for (const std::size_t poller : pollers_) {
    for (const Interest& interest : entries_[poller].interests) {
      if (interest.socket == socket && (ready & (interest.events | kPollError)) != 0) {
        observer_.on_ready();
        return;
      }
    }
  }
}

bool HostNetwork::any_ready() const {
  if (dead_) {
    return false;
  }
  for (const std::size_t poller : pollers_) {
    for (const Interest& interest : entries_[poller].interests) {
      const Entry& polled = entries_[static_cast<std::size_t>(interest.socket)];
      if ((ready_events(polled) & (interest.events | kPollError)) != 0) {
        return true;
      }
    }
  }
  return false;
}

Result<void> HostNetwork::poller_add(Socket poller, Socket socket, std::uint32_t events,
                                     std::uint64_t token) {
  const AllocationShelter shelter;
  Entry* const entry = find(poller, Kind::kPoller, "poller_add");
  if (entry == nullptr) {
    return fail(ErrorCode::kSystem, "no poller");
  }
  if (static_cast<std::size_t>(socket) >= entries_.size() ||
      entries_[static_cast<std::size_t>(socket)].kind == Kind::kNone) {
    observer_.on_misuse("poller_add", socket);
    return fail(ErrorCode::kSystem, "no socket");
  }
  entry->interests.push_back({socket, events, token});
  changed(socket);
  return {};
}

void HostNetwork::poller_modify(Socket poller, Socket socket, std::uint32_t events,
                                std::uint64_t token) {
  const AllocationShelter shelter;
  Entry* const entry = find(poller, Kind::kPoller, "poller_modify");
  if (entry == nullptr) {
    return;
  }
  for (Interest& interest : entry->interests) {
    if (interest.socket == socket) {
      interest = {socket, events, token};
      changed(socket);
      return;
    }
  }
  observer_.on_misuse("poller_modify", socket);
}

void HostNetwork::poller_remove(Socket poller, Socket socket) {
  const AllocationShelter shelter;
  if (Entry* const entry = find(poller, Kind::kPoller, "poller_remove"); entry != nullptr) {
    // A socket that was never added, or not any more, is no mistake: see adopt().
    std::erase_if(entry->interests, [&](const Interest& it) { return it.socket == socket; });
  }
}

std::size_t HostNetwork::poller_wait(Socket poller, std::span<platform::PollEvent> events,
                                     base::Nanoseconds timeout_ns) {
  const AllocationShelter shelter;
  ORBITE_CHECK(timeout_ns == 0);
  Entry* const entry = find(poller, Kind::kPoller, "poller_wait");
  if (entry == nullptr) {
    return 0;
  }
  std::size_t count = 0;
  const std::size_t known = entry->interests.size();
  const std::size_t start = entry->turn++;
  for (std::size_t i = 0; i < known && count < events.size(); ++i) {
    const Interest& interest = entry->interests[(start + i) % known];
    const std::uint32_t ready = ready_events(entries_[static_cast<std::size_t>(interest.socket)]) &
                                (interest.events | kPollError);
    if (ready != 0) {
      events[count++] = {interest.token, ready};
    }
  }
  return count;
}

}  // namespace orbite::sim
