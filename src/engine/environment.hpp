// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/clock.hpp"
#include "base/ids.hpp"
#include "base/random.hpp"
#include "base/result.hpp"
#include "base/waiter.hpp"
#include "memory/shared_allocations.hpp"
#include "platform/neighbors.hpp"
#include "platform/network.hpp"

namespace orbite {

/// Everything that an engine asks of the system. All of it outlives the engine.
struct EngineEnvironment {
  platform::Network& network;
  const base::Clock& clock;
  base::RandomSource& random;  ///< safe from any thread that calls the engine
  base::Waiter& waiter;
  std::function<Result<base::HostIdentity>()> host_identity;
  std::function<std::vector<platform::SocketAddress>()> default_route_addresses;
  /// Told of each copy between two ranges of this engine, before it is made; may be empty.
  std::function<void(std::uint64_t target, std::uint64_t source, std::uint64_t bytes)> on_copy;
  /// False: the engine starts no thread; whoever made it does its worker's turns.
  bool starts_worker = true;
  /// nullptr: engines of one host have nothing of each other beyond the network.
  platform::Neighbors* neighbors = nullptr;
  /// The shared allocation that a range of this process lies in, if it does; may be empty.
  std::function<std::optional<memory::SharedPart>(const base::ByteRange&)> find_shared = {};
  /// More threads want a processor than there are; may be empty.
  std::function<bool()> processors_are_short = {};
};

/// The operating system's.
EngineEnvironment system_environment();

}  // namespace orbite
