// SPDX-License-Identifier: Apache-2.0
#include "sim_shrink.hpp"

#include <utility>

namespace orbite::tool {
namespace {

constexpr std::uint32_t kTriesMax = 200;

class Shrinker {
 public:
  Shrinker(std::uint64_t seed, Shrunk& best) : seed_(seed), best_(best) {}

  /// Takes `smaller` over if it fails as well, and in the same way.
  Result<bool> attempt(const sim::Options& smaller) {
    if (best_.tries >= kTriesMax) {
      return false;
    }
    ++best_.tries;
    ORBITE_ASSIGN_OR_RETURN(CaseResult result, run_case(seed_, smaller));
    if (!result.failed() || result.kind() != best_.result.kind()) {
      return false;
    }
    best_.options = smaller;
    best_.result = std::move(result);
    return true;
  }

  Result<bool> fewer_steps() {
    bool any = false;
    for (std::uint32_t cut = best_.options.ops / 2; cut > 0; cut /= 2) {
      while (cut < best_.options.ops) {
        sim::Options smaller = best_.options;
        smaller.ops -= cut;
        ORBITE_ASSIGN_OR_RETURN(const bool smaller_fails, attempt(smaller));
        if (!smaller_fails) {
          break;
        }
        any = true;
      }
    }
    return any;
  }

  Result<bool> fewer_faults() {
    bool any = false;
    for (std::size_t i = 0; i < sim::kFaults; ++i) {
      const sim::FaultSet one = sim::bit(static_cast<sim::Fault>(i));
      if ((best_.options.faults & one) != 0) {
        sim::Options smaller = best_.options;
        smaller.faults &= ~one;
        ORBITE_ASSIGN_OR_RETURN(const bool smaller_fails, attempt(smaller));
        any = any || smaller_fails;
      }
    }
    return any;
  }

  Result<bool> no_neighbors() {
    if (best_.options.neighbors == sim::NeighborsUse::kNone) {
      return false;
    }
    sim::Options smaller = best_.options;
    smaller.neighbors = sim::NeighborsUse::kNone;
    return attempt(smaller);
  }

  Result<bool> fewer_hosts() {
    for (std::uint32_t hosts = sim::kHostsMin; hosts < sim::kHostsMax; ++hosts) {
      if (best_.options.hosts != 0 && hosts >= best_.options.hosts) {
        break;
      }
      sim::Options smaller = best_.options;
      smaller.hosts = hosts;
      ORBITE_ASSIGN_OR_RETURN(const bool smaller_fails, attempt(smaller));
      if (smaller_fails) {
        return true;
      }
    }
    return false;
  }

 private:
  const std::uint64_t seed_;
  Shrunk& best_;
};

}  // namespace

Result<Shrunk> shrink(std::uint64_t seed, const sim::Options& options) {
  Shrunk best;
  best.options = options;
  best.options.keeps_log = true;
  ORBITE_ASSIGN_OR_RETURN(best.result, run_case(seed, best.options));
  Shrinker shrinker(seed, best);
  bool any = best.result.failed();
  while (any) {
    ORBITE_ASSIGN_OR_RETURN(const bool hosts, shrinker.fewer_hosts());
    ORBITE_ASSIGN_OR_RETURN(const bool neighbors, shrinker.no_neighbors());
    ORBITE_ASSIGN_OR_RETURN(const bool faults, shrinker.fewer_faults());
    ORBITE_ASSIGN_OR_RETURN(const bool steps, shrinker.fewer_steps());
    any = hosts || neighbors || faults || steps;
  }
  return best;
}

}  // namespace orbite::tool
