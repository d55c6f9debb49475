// SPDX-License-Identifier: Apache-2.0
#include "sim/model.hpp"

#include <algorithm>
#include <iterator>

namespace orbite::sim {
namespace {

bool ends_before(const Claim& claim, std::uint64_t offset) { return claim.end <= offset; }

}  // namespace

const Claim* ClaimMap::find(std::uint64_t offset) const {
  const auto at = std::lower_bound(claims_.begin(), claims_.end(), offset, ends_before);
  return at != claims_.end() && at->begin <= offset ? &*at : nullptr;
}

bool ClaimMap::free(std::uint64_t begin, std::uint64_t end) const {
  const auto at = std::lower_bound(claims_.begin(), claims_.end(), begin, ends_before);
  return at == claims_.end() || at->begin >= end;
}

void ClaimMap::add(Claim claim) {
  const auto at = std::lower_bound(claims_.begin(), claims_.end(), claim.begin, ends_before);
  claims_.insert(at, std::move(claim));
}

void ClaimMap::remove_extent(const RequestModel& request, std::size_t extent) {
  std::erase_if(claims_, [&](const Claim& claim) {
    return claim.request.get() == &request && claim.extent == extent;
  });
}

std::vector<Claim> ClaimMap::remove(const RequestModel& request) {
  std::vector<Claim> removed;
  const auto keep = std::stable_partition(claims_.begin(), claims_.end(), [&](const Claim& claim) {
    return claim.request.get() != &request;
  });
  std::move(keep, claims_.end(), std::back_inserter(removed));
  claims_.erase(keep, claims_.end());
  return removed;
}

}  // namespace orbite::sim
