// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orbite/config.hpp"
#include "orbite/error.hpp"
#include "orbite/handle.hpp"
#include "orbite/memory.hpp"
#include "orbite/telemetry.hpp"
#include "orbite/transfer.hpp"

namespace orbite {

struct EngineOptions {
  std::string name;  ///< how peers see us in their notifications; 1..256 bytes
  Config config;
};

/// What is not retired at one peer although its outcome is known.
struct UnresolvedPeer {
  std::string name;
  std::array<std::uint8_t, 16> epoch{};  ///< the life of the peer that it was posted to
  bool retired = false;                  ///< no handle of ours names this life any more
  std::uint32_t requests = 0;            ///< those whose outcome is known
  std::uint64_t bytes = 0;               ///< of these
  std::uint64_t pieces = 0;              ///< of them under way on connections in trouble
  /// What happened to the connection that has been in trouble longest, else to the requests.
  ErrorCode code = ErrorCode::kOk;
  int native_errno = 0;
  std::string address;            ///< of that connection; empty when none is in trouble
  std::uint64_t duration_ns = 0;  ///< since it got into trouble
};

struct Notification {
  std::string sender;
  std::vector<std::uint8_t> message;
};

/// The phases of a close, in order.
enum class ClosePhase : std::uint8_t {
  kOpen,
  kDrainingServed,  ///< what peers do with our memory
  kDrainingPosted,  ///< what we do with theirs
  kRetiring,
  kClosed,
  kUnquiesced  ///< the proof cannot be had for something; it stays in quarantine
};

struct CloseStatus {
  ClosePhase phase = ClosePhase::kOpen;
  std::uint32_t executions_unresolved = 0;
  std::uint32_t registrations_unresolved = 0;
  std::uint32_t peers_unresolved = 0;
};

/// The owner of everything: registrations, peers, executions, transports, one worker thread.
///
/// Every member may be called from any thread at any time. None of them blocks unless it is said,
/// and then no longer than the given time. In a forked child every call answers kForked. A call for
/// which there is no memory is refused with kOutOfMemory and has done nothing; only those that
/// return no Result, but a list or a text, throw std::bad_alloc. What is under way needs none to
/// end.
class TransferEngine {
 public:
  /// kInvalidArgument, kAddressInUse, kAddressNotLocal, kSystem, kOutOfMemory; kBudgetExhausted
  /// when more than limits.quarantined_engines_max engines of this process were given up.
  static Result<std::unique_ptr<TransferEngine>> create(EngineOptions options);
  TransferEngine(const TransferEngine&) = delete;
  TransferEngine& operator=(const TransferEngine&) = delete;
  /// Gives close its configured time; what is unresolved then is left to quarantine.
  ~TransferEngine();

  // Memory.
  /// kInvalidRange, kInvalidArgument, kBudgetExhausted, kEngineClosing.
  Result<Handle> register_memory(const MemoryDescriptor& memory);
  /// Fences at once; retires with the last loan. Never waits.
  Result<RegistrationState> deregister_memory(Handle registration);
  /// kStaleHandle once it has retired and its slot is reused.
  Result<RegistrationState> registration_state(Handle registration) const;
  /// The public blob of a registration, for peers.
  Result<std::vector<std::uint8_t>> export_memory(Handle registration) const;

  // Peers.
  /// Endpoint, epoch and secret; the same bytes for the engine's life.
  [[nodiscard]] const std::vector<std::uint8_t>& connection_blob() const noexcept;
  /// Ourselves as a peer. kEngineClosing, kBudgetExhausted.
  Result<Handle> self_peer();
  Result<Handle> import_peer(std::string_view name, std::span<const std::uint8_t> blob);
  /// Blocks until a connection stands and the peer has said which of its imported ranges are still
  /// registered; those that are not are fenced. Then, for a neighbour, until it is known whether
  /// its memory can be borrowed, which fails nothing. At most timeout_ns for all of it (0: the
  /// configured connect timeout).
  Result<void> connect_peer(Handle peer, std::uint64_t timeout_ns);
  Result<void> retire_peer(Handle peer);
  Result<void> confirm_peer_fenced(Handle peer);
  /// The same for all peers of an epoch, one that no handle names any more too. kNotFound when none
  /// is known and nothing posted to it is unresolved.
  Result<void> confirm_epoch_fenced(const std::array<std::uint8_t, 16>& epoch);
  /// By epoch, retired ones too. Empty in a forked child.
  [[nodiscard]] std::vector<UnresolvedPeer> unresolved_peers() const;

  // Ranges of peers.
  Result<Handle> import_range(Handle peer, std::span<const std::uint8_t> blob,
                              std::uint64_t address, std::uint64_t length);
  Result<Handle> local_range(Handle registration);
  Result<void> release_range(Handle range);

  // Requests.
  Result<Handle> prepare(const PrepareOptions& options);
  Result<Outcome> post(Handle request, const PostOptions& options);
  /// One bounded step of progress, then the state.
  Result<Outcome> check(Handle request);
  Result<Outcome> query(Handle request) const;
  Result<void> cancel(Handle request);
  /// kActive, with the handle still good, while its execution has not retired.
  Result<void> release(Handle request);
  /// Ends the handle whatever its state; the engine keeps the execution until it has retired.
  Result<void> abandon(Handle request);

  // Notifications.
  Result<void> send_notification(Handle peer, std::span<const std::uint8_t> message);
  /// The oldest message received, if any whose size fits; when it does not fit, it stays and its
  /// sizes are in `needed`.
  struct NotificationSizes {
    std::size_t sender_bytes = 0;
    std::size_t message_bytes = 0;
  };
  std::optional<Notification> receive_notification();
  std::optional<Notification> receive_notification(NotificationSizes capacity,
                                                   NotificationSizes& needed);

  /// Fences everything at the first call; waits at most timeout_ns (0: observe only).
  CloseStatus close(std::uint64_t timeout_ns);

  /// Version, transports with the reason why one is off, addresses, epoch, counters, budgets in
  /// use, unresolved work per peer.
  [[nodiscard]] std::string info_json() const;
  /// Counts, latencies and budgets; telemetry_text() prints them.
  [[nodiscard]] Result<Telemetry> telemetry() const;

 private:
  class Impl;
  friend class EngineAccess;  // for the simulated world
  explicit TransferEngine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The version of this build, as "0.1.0".
[[nodiscard]] const char* version() noexcept;

/// Executions per route since the library was loaded, over all engines: "tcp:12,local:3".
[[nodiscard]] std::string process_routes();

}  // namespace orbite
