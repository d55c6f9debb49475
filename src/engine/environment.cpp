// SPDX-License-Identifier: Apache-2.0
#include "engine/environment.hpp"

#include "base/log.hpp"
#include "platform/at_fork.hpp"
#include "platform/per_process.hpp"
#include "platform/processors.hpp"
#include "platform/system.hpp"
#include "platform/system_neighbors.hpp"

namespace orbite {
namespace {

struct System {
  platform::SystemNetwork network;
  platform::SystemNeighbors neighbors;
  platform::SystemClock clock;
  platform::SystemRandom random;
  base::ThreadWaiter waiter;
};

const platform::AtFork forget_log(base::forget_log);

// Never destroyed: an engine in quarantine outlives the end of main().
constinit platform::PerProcess<System> of_process;

}  // namespace

EngineEnvironment system_environment() {
  System& system = of_process.get();
  return {system.network,
          system.clock,
          system.random,
          system.waiter,
          platform::host_identity,
          platform::default_route_addresses,
          {},
          true,
          &system.neighbors,
          [](const base::ByteRange& range) -> std::optional<memory::SharedPart> {
            const auto* const shared = memory::SharedAllocations::if_any();
            return shared == nullptr ? std::nullopt : shared->find(range);
          },
          platform::processors_are_short};
}

}  // namespace orbite
