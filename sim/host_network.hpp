// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "platform/network.hpp"
#include "sim/fabric.hpp"

namespace orbite::sim {

/// A socket of another kind, among those of a HostNetwork.
class Guest {
 public:
  Guest() = default;
  Guest(const Guest&) = delete;
  Guest& operator=(const Guest&) = delete;
  /// Without closed() before it: the machine has lost its power, and nobody is told.
  virtual ~Guest() = default;

  [[nodiscard]] virtual std::uint32_t ready_events() const = 0;
  /// Its process has closed it, or has ended.
  virtual void closed() = 0;
};

/// The sockets, pollers and wakeups of one process on a machine of the fabric. Socket numbers are
/// never used again, so a use after the end is seen.
class HostNetwork final : public platform::Network {
 public:
  using Socket = platform::Socket;
  using IoResult = platform::IoResult;
  using SocketAddress = platform::SocketAddress;

  struct Observer {
    /// Bytes of memory leave it, respectively have landed in it.
    std::function<void(std::uint64_t address, std::uint64_t length)> on_send;
    std::function<void(std::uint64_t address, std::uint64_t length)> on_receive;
    /// A poller has something to say.
    std::function<void()> on_ready;
    /// A number was used that is no open socket: `what` is the call.
    std::function<void(const char* what, Socket socket)> on_misuse;
  };

  HostNetwork(Fabric& fabric, std::uint32_t machine, Observer observer);
  ~HostNetwork() override;

  Result<Socket> listen(const SocketAddress& address) override;
  Result<SocketAddress> local_address(Socket socket) override;
  Result<Socket> accept(Socket listener, SocketAddress& peer) override;
  Result<Socket> connect(const SocketAddress& address, const SocketAddress* source) override;
  IoResult connect_result(Socket socket) override;
  IoResult send(Socket socket, std::span<const iovec> buffers) override;
  IoResult receive(Socket socket, std::span<const iovec> buffers) override;
  void shutdown_send(Socket socket) override;
  void close(Socket socket) override;
  void configure(Socket socket, const SocketOptions& options) override;
  Result<Socket> make_poller() override;
  Result<void> poller_add(Socket poller, Socket socket, std::uint32_t events,
                          std::uint64_t token) override;
  void poller_modify(Socket poller, Socket socket, std::uint32_t events,
                     std::uint64_t token) override;
  void poller_remove(Socket poller, Socket socket) override;
  /// Never sleeps: time passes in the scheduler alone.
  std::size_t poller_wait(Socket poller, std::span<platform::PollEvent> events,
                          base::Nanoseconds timeout_ns) override;
  Result<Socket> make_wakeup() override;
  void signal(Socket wakeup) override;
  void clear(Socket wakeup) override;

  /// The process ends: its kernel closes every socket. From here on each call does nothing.
  void kill();
  /// As kill(), with the machine: power_off() has ended the sockets.
  void vanish();
  /// Told once, when the process has ended; empty: nobody.
  void at_end(std::function<void()> told) { at_end_ = std::move(told); }

  [[nodiscard]] std::uint32_t machine() const noexcept { return machine_; }
  [[nodiscard]] bool dead() const noexcept { return dead_; }
  [[nodiscard]] const Observer& observer() const noexcept { return observer_; }
  /// Something is ready that a poller of this process waits for.
  [[nodiscard]] bool any_ready() const;
  [[nodiscard]] std::size_t open_sockets() const noexcept { return open_; }
  /// System calls made so far.
  [[nodiscard]] std::uint64_t calls() const noexcept { return calls_; }

  // For the fabric.
  [[nodiscard]] Socket listener_at(std::uint16_t port) const;
  [[nodiscard]] bool backlog_has_room(Socket listener) const;
  void enter_backlog(Socket listener, Fabric::ConnectionPtr connection);
  void changed(Socket socket);

  // For guests and who uses them.
  Socket admit(std::unique_ptr<Guest> guest);
  /// A system call on it. nullptr: it is no such socket, which is told, or the process is dead.
  template <typename Wanted>
  Wanted* guest(Socket socket, const char* what) {
    Entry* const entry = find(socket, Kind::kGuest, what);
    auto* const found = entry != nullptr ? dynamic_cast<Wanted*>(entry->guest.get()) : nullptr;
    if (entry != nullptr && found == nullptr) {
      observer_.on_misuse(what, socket);
    }
    return found;
  }
  /// A system call on none.
  void count_call() noexcept { ++calls_; }

 private:
  enum class Kind : std::uint8_t { kNone, kStream, kListener, kPoller, kWakeup, kGuest };
  struct Interest {
    Socket socket;
    std::uint32_t events;
    std::uint64_t token;
  };
  struct Entry {
    Kind kind = Kind::kNone;
    Fabric::ConnectionPtr connection;
    std::uint32_t side = 0;
    SocketAddress address;                      ///< of a listener
    std::deque<Fabric::ConnectionPtr> backlog;  ///< of a listener
    std::vector<Interest> interests;            ///< of a poller
    std::size_t turn = 0;                       ///< of a poller: where its next answer begins
    bool signalled = false;                     ///< of a wakeup
    std::unique_ptr<Guest> guest;
  };

  Socket open(Kind kind);
  Entry* find(Socket socket, Kind kind, const char* what);
  [[nodiscard]] std::uint32_t ready_events(const Entry& entry) const;
  [[nodiscard]] static std::uint32_t stream_events(const End& end, std::uint32_t send_buffer);
  void end_entry(Entry& entry);
  void tell_end();
  [[nodiscard]] std::size_t cut(std::size_t bytes);

  Fabric& fabric_;
  const std::uint32_t machine_;
  const Observer observer_;
  std::vector<Entry> entries_;
  std::vector<std::size_t> pollers_;  ///< indices of entries_
  std::size_t open_ = 0;
  std::uint64_t calls_ = 0;
  bool dead_ = false;
  std::function<void()> at_end_;
};

}  // namespace orbite::sim
