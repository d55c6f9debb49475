// SPDX-License-Identifier: Apache-2.0
#include "sim/local_sockets.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace orbite::sim {
namespace {

using platform::IoResult;
using platform::kPollError;
using platform::kPollIn;
using platform::kPollOut;

IoResult failed(int native_errno) { return {IoResult::Kind::kFailed, 0, native_errno}; }

}  // namespace

// ---- Connections

LocalConnection::LocalConnection(Neighborhood& neighborhood, const RecordPtr& client,
                                 const RecordPtr& server)
    : neighborhood_(neighborhood), machine_(client->machine) {
  ends_[0].process = client;
  ends_[1].process = server;
}

void LocalConnection::attach(std::uint32_t side, HostNetwork& network, platform::Socket socket) {
  End& end = ends_[side];
  end.network = &network;
  end.socket = socket;
  end.accepted = true;
}

bool LocalConnection::has_room(const End& end) const {
  return end.travelling.size() + end.received.size() < neighborhood_.kernel(machine_).messages_max;
}

void LocalConnection::poke(std::uint32_t side) {
  if (End& end = ends_[side]; end.network != nullptr) {
    end.network->changed(end.socket);
  }
}

template <typename Arrive>
void LocalConnection::tell(std::uint32_t side, Arrive arrive) {
  End& end = ends_[side];
  const base::Nanoseconds now_ns = neighborhood_.scheduler().now_ns();
  const base::Nanoseconds when_ns = now_ns + neighborhood_.latency(machine_);
  if (when_ns == now_ns && end.last_arrival_ns < now_ns) {
    arrive();
    poke(side);
    return;
  }
  end.last_arrival_ns = std::max(when_ns, end.last_arrival_ns + 1);
  neighborhood_.scheduler().at(end.last_arrival_ns, Layer::kNetwork,
                               [self = shared_from_this(), side, arrive] {
                                 arrive();
                                 self->poke(side);
                               });
}

void LocalConnection::close(std::uint32_t side) {
  End& end = ends_[side];
  const bool resets = end.lost || !end.accepted || !end.travelling.empty() || !end.received.empty();
  forget(side);
  tell(1 - side, [this, side, resets] {
    End& other = ends_[1 - side];
    other.told_end = true;
    other.error = resets || ends_[side].lost ? ECONNRESET : 0;
  });
}

void LocalConnection::forget(std::uint32_t side) {
  End& end = ends_[side];
  end.closed = true;
  end.network = nullptr;
  end.travelling.clear();
  end.received.clear();
}

IoResult LocalConnection::send(std::uint32_t side, std::span<const std::uint8_t> message,
                               const Files& files) {
  End& from = ends_[side];
  End& to = ends_[1 - side];
  if (from.error != 0) {
    return failed(std::exchange(from.error, 0));
  }
  if (from.told_end) {
    return failed(EPIPE);
  }
  if (!has_room(to)) {
    return {};
  }
  ++neighborhood_.counts.messages;
  neighborhood_.fabric().trace().mix(message.size());
  if (to.closed) {
    to.lost = true;  // and its kernel throws it away
  } else {
    to.travelling.push_back({{message.begin(), message.end()}, files});
    tell(1 - side, [&to] {
      if (!to.travelling.empty()) {
        to.received.push_back(std::move(to.travelling.front()));
        to.travelling.pop_front();
      }
    });
  }
  return {IoResult::Kind::kBytes, message.size(), 0};
}

IoResult LocalConnection::receive(std::uint32_t side, std::span<std::uint8_t> buffer,
                                  Files& files) {
  End& end = ends_[side];
  files.clear();
  if (end.error != 0) {
    return failed(std::exchange(end.error, 0));
  }
  if (end.received.empty()) {
    return end.told_end ? IoResult{IoResult::Kind::kEnded, 0, 0} : IoResult{};
  }
  Message message = std::move(end.received.front());
  end.received.pop_front();
  poke(1 - side);
  if (message.bytes.size() > buffer.size()) {
    return failed(EMSGSIZE);
  }
  std::copy(message.bytes.begin(), message.bytes.end(), buffer.begin());
  files = std::move(message.files);
  return {IoResult::Kind::kBytes, message.bytes.size(), 0};
}

std::uint32_t LocalConnection::ready_events(std::uint32_t side) const {
  const End& end = ends_[side];
  std::uint32_t events = 0;
  if (!end.received.empty() || end.told_end) {
    events |= kPollIn;
  }
  if (end.told_end || has_room(ends_[1 - side])) {
    events |= kPollOut;
  }
  if (end.told_end) {
    events |= kPollError;
  }
  return events;
}

// ---- Sockets

LocalEnd::~LocalEnd() { connection->forget(side); }

std::uint32_t LocalEnd::ready_events() const { return connection->ready_events(side); }

LocalListener::LocalListener(Neighborhood& neighborhood, HostNetwork& network,
                             Neighborhood::RecordPtr process, std::string name)
    : neighborhood_(neighborhood),
      network_(network),
      process_(std::move(process)),
      name_(std::move(name)) {
  neighborhood_.names().emplace(std::pair(process_->machine, name_), this);
}

LocalListener::~LocalListener() { neighborhood_.names().erase({process_->machine, name_}); }

std::uint32_t LocalListener::ready_events() const { return backlog_.empty() ? 0 : kPollIn; }

void LocalListener::closed() {
  for (const auto& connection : std::exchange(backlog_, {})) {
    connection->close(1);
  }
}

bool LocalListener::has_room() const {
  return backlog_.size() < neighborhood_.kernel(process_->machine).backlog_max;
}

void LocalListener::enter(std::shared_ptr<LocalConnection> connection) {
  backlog_.push_back(std::move(connection));
  network_.changed(socket_);
}

std::shared_ptr<LocalConnection> LocalListener::next() const {
  return backlog_.empty() ? nullptr : backlog_.front();
}

}  // namespace orbite::sim
