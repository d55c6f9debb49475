// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "platform/network.hpp"
#include "sim/fabric.hpp"

namespace orbite::sim {

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
  void vanish() noexcept { dead_ = true; }

  [[nodiscard]] std::uint32_t machine() const noexcept { return machine_; }
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

 private:
  enum class Kind : std::uint8_t { kNone, kStream, kListener, kPoller, kWakeup };
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
  };

  Socket open(Kind kind);
  Entry* find(Socket socket, Kind kind, const char* what);
  [[nodiscard]] std::uint32_t ready_events(const Entry& entry) const;
  [[nodiscard]] static std::uint32_t stream_events(const End& end, std::uint32_t send_buffer);
  void end_entry(Entry& entry);
  [[nodiscard]] std::size_t cut(std::size_t bytes);

  Fabric& fabric_;
  const std::uint32_t machine_;
  const Observer observer_;
  std::vector<Entry> entries_;
  std::vector<std::size_t> pollers_;  ///< indices of entries_
  std::size_t open_ = 0;
  std::uint64_t calls_ = 0;
  bool dead_ = false;
};

}  // namespace orbite::sim
