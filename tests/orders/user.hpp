// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "memory/registry.hpp"
#include "orbite/transfer.hpp"
#include "sim/sim_transport.hpp"
#include "wire/metadata.hpp"

namespace orbite::test {

/// One pair of ranges of a request, as addresses.
struct Pair {
  std::uint64_t near = 0;
  std::uint64_t far = 0;
  std::uint64_t length = 0;
};

/// The near side: an API like the engine's, over a transport that moves only when the world says
/// so. Requests are numbered in the order in which they were prepared.
class User {
 public:
  User() = default;
  User(const User&) = delete;
  User& operator=(const User&) = delete;
  virtual ~User() = default;

  virtual void register_near(const MemoryDescriptor& memory) = 0;
  virtual void import_far(const wire::ConnectionBlob& connection, const wire::RangeBlob& blob) = 0;
  virtual void prepare(Operation operation, const std::vector<Pair>& pairs) = 0;

  using Message = std::optional<std::vector<std::uint8_t>>;
  virtual Result<void> post(std::uint32_t request, Message message) = 0;
  virtual Result<void> cancel(std::uint32_t request) = 0;
  virtual Result<void> check(std::uint32_t request) = 0;
  virtual Result<void> release(std::uint32_t request) = 0;
  virtual Result<RegistrationState> deregister() = 0;
  virtual Result<void> unload() = 0;
  virtual Result<void> invalidate() = 0;
  virtual void close() = 0;
  /// What goes on without a caller.
  virtual void turn() = 0;

  /// Of the newest execution; without any effect.
  [[nodiscard]] virtual Outcome look(std::uint32_t request) const = 0;
  [[nodiscard]] virtual RegistrationState registration_state() const = 0;

  /// What is in use.
  struct Pools {
    std::uint64_t requests = 0;
    std::uint64_t descriptors = 0;
    std::uint64_t bytes_in_flight = 0;
    std::uint64_t outbox_bytes = 0;
    std::uint64_t slices = 0;
    memory::Registry::Counts registry;
  };
  [[nodiscard]] virtual Pools pools() const = 0;
  /// Charged for a message beyond its bytes.
  [[nodiscard]] virtual std::uint64_t message_overhead() const = 0;

  [[nodiscard]] virtual sim::SimTransport& transport() = 0;
  [[nodiscard]] virtual const sim::SimTransport& transport() const = 0;
  [[nodiscard]] virtual transfer::Flow& flow() = 0;
};

/// Real registry, admission, planner, executions and peers; between them what the engine does from
/// prepare to close, in the engine's order.
std::unique_ptr<User> make_rooms_user(const sim::Script& script, sim::SimTransport::World hooks);
/// The real engine. Its worker's turns are the world's, its clock stands still, and its network is
/// nowhere.
std::unique_ptr<User> make_engine_user(const sim::Script& script, sim::SimTransport::World hooks);

}  // namespace orbite::test
