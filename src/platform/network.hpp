// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>
#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/fixed_text.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"

namespace orbite::platform {

/// An IPv4 or IPv6 address with a port.
class SocketAddress {
 public:
  SocketAddress() = default;
  /// `literal` is an IPv4 or IPv6 literal without brackets; names are not resolved.
  /// kInvalidArgument names the text.
  static Result<SocketAddress> parse(std::string_view literal, std::uint16_t port);
  /// `family` 4 or 6 (anything else gives an unset address); an IPv4 address stands in the first
  /// four bytes.
  static SocketAddress from_bytes(std::uint8_t family, const std::array<std::uint8_t, 16>& bytes,
                                  std::uint16_t port);
  static SocketAddress any(std::uint8_t family, std::uint16_t port);
  static SocketAddress loopback(std::uint8_t family, std::uint16_t port);

  [[nodiscard]] std::uint8_t family() const noexcept { return family_; }  ///< 4 or 6; 0: unset
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  void set_port(std::uint16_t port) noexcept { port_ = port; }
  [[nodiscard]] const std::array<std::uint8_t, 16>& bytes() const noexcept { return bytes_; }
  [[nodiscard]] bool is_loopback() const noexcept;  ///< 127/8, ::1, and 127/8 mapped into IPv6
  [[nodiscard]] bool is_any() const noexcept;
  /// "10.0.0.1:99", "[::1]:99"
  [[nodiscard]] std::string text() const { return line().string(); }
  /// text() without memory of its own.
  [[nodiscard]] base::FixedText<64> line() const noexcept;
  friend bool operator==(const SocketAddress&, const SocketAddress&) = default;

 private:
  std::array<std::uint8_t, 16> bytes_{};
  std::uint16_t port_ = 0;
  std::uint8_t family_ = 0;
};

/// Names a socket, a poller or a wakeup of one Network; -1 is none.
using Socket = int;
inline constexpr Socket kNoSocket = -1;

/// The result of one non-blocking send or receive.
struct IoResult {
  enum class Kind : std::uint8_t {
    kBytes,       ///< `bytes` (> 0) were moved
    kWouldBlock,  ///< nothing moved, try again when the poller says so
    kEnded,       ///< receive: the peer sent FIN
    kFailed       ///< `native_errno` says why; ECONNRESET and EPIPE come from the peer
  };
  Kind kind = Kind::kWouldBlock;
  std::size_t bytes = 0;
  int native_errno = 0;
};

inline constexpr std::uint32_t kPollIn = 1;
inline constexpr std::uint32_t kPollOut = 2;
inline constexpr std::uint32_t kPollError = 4;  ///< reset, hang-up; always reported

struct PollEvent {
  std::uint64_t token = 0;
  std::uint32_t events = 0;
};

/// Every socket of a transport goes through one of these, so that the same TCP code runs over the
/// operating system and over a simulated network. All sockets are non-blocking and close-on-exec.
class Network {
 public:
  Network() = default;
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  virtual ~Network() = default;

  /// An address of family 6 that is_any() listens on both families. kAddressInUse and
  /// kAddressNotLocal name the address.
  virtual Result<Socket> listen(const SocketAddress& address) = 0;
  virtual Result<SocketAddress> local_address(Socket socket) = 0;
  /// kNotFound: nobody is waiting. kSystem: no descriptor or memory for the one that waits; the
  /// listener stays readable. `peer` of an IPv4 client is an IPv4 address, on any listener.
  virtual Result<Socket> accept(Socket listener, SocketAddress& peer) = 0;
  /// Starts; the socket polls kPollOut when it is decided. `source` may be nullptr; its port may be
  /// 0. kAddressNotLocal and kAddressInUse name the source, kPeerUnreachable the address.
  virtual Result<Socket> connect(const SocketAddress& address, const SocketAddress* source) = 0;
  /// After kPollOut: kBytes (with 0 bytes) when connected, kWouldBlock when not decided yet,
  /// kFailed with errno.
  virtual IoResult connect_result(Socket socket) = 0;

  /// One call to the system for at most the first 1,024 buffers. kWouldBlock when these are empty.
  virtual IoResult send(Socket socket, std::span<const iovec> buffers) = 0;
  virtual IoResult receive(Socket socket, std::span<const iovec> buffers) = 0;
  /// FIN to the peer; receiving goes on.
  virtual void shutdown_send(Socket socket) = 0;
  /// Ends the connection or the listener, whoever else holds the descriptor.
  virtual void close(Socket socket) = 0;

  /// TCP_NODELAY, keepalive (0: off) and, when not empty, the congestion control; what the system
  /// refuses of it is left as it was.
  struct SocketOptions {
    base::Nanoseconds keepalive_idle_ns = 0;
    std::string congestion_control;
    /// What we sent and the peer's kernel never acknowledged ends the connection after this time;
    /// 0: after the system's, which is many minutes, and keepalive does not look meanwhile.
    base::Nanoseconds unacknowledged_max_ns = 0;
  };
  virtual void configure(Socket socket, const SocketOptions& options) = 0;

  virtual Result<Socket> make_poller() = 0;
  /// Level-triggered. `events` 0 keeps the socket known, reporting errors only.
  virtual Result<void> poller_add(Socket poller, Socket socket, std::uint32_t events,
                                  std::uint64_t token) = 0;
  virtual void poller_modify(Socket poller, Socket socket, std::uint32_t events,
                             std::uint64_t token) = 0;
  virtual void poller_remove(Socket poller, Socket socket) = 0;
  /// At most `timeout_ns` (0: look only), never earlier than that without an event, except for a
  /// signal. Returns the number of events written.
  virtual std::size_t poller_wait(Socket poller, std::span<PollEvent> events,
                                  base::Nanoseconds timeout_ns) = 0;
  /// A socket that a poller can wait for and any thread can signal.
  virtual Result<Socket> make_wakeup() = 0;
  virtual void signal(Socket wakeup) = 0;
  virtual void clear(Socket wakeup) = 0;
};

/// The operating system's. Safe from any thread. A child made by fork() has none of the sockets,
/// pollers and wakeups of its parent: they are closed there before fork() returns (limits:
/// open_descriptors.hpp). Their numbers mean nothing in the child.
class SystemNetwork final : public Network {
 public:
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
  std::size_t poller_wait(Socket poller, std::span<PollEvent> events,
                          base::Nanoseconds timeout_ns) override;
  Result<Socket> make_wakeup() override;
  void signal(Socket wakeup) override;
  void clear(Socket wakeup) override;
};

}  // namespace orbite::platform
