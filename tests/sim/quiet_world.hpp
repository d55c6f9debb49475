// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "sim/options.hpp"

namespace orbite::test {

/// Nothing happens but what the test does. 0 hosts or machines: as many as the seed draws.
inline sim::Options quiet_world(std::uint32_t hosts, std::uint32_t machines) {
  sim::Options options;
  options.hosts = hosts;
  options.machines = machines;
  options.faults = 0;
  return options;
}

/// The same on one machine, whose engines can all be neighbours.
inline sim::Options quiet_neighbors(std::uint32_t hosts) {
  sim::Options options = quiet_world(hosts, 1);
  options.neighbors = sim::NeighborsUse::kAll;
  return options;
}

}  // namespace orbite::test
