// SPDX-License-Identifier: Apache-2.0
#include "telemetry/route_counters.hpp"

#include <algorithm>

namespace orbite::telemetry {

void RouteCounters::count_failure(ErrorCode code) noexcept {
  const auto* const found = std::find(kErrorCodeList.begin(), kErrorCodeList.end(), code);
  if (found != kErrorCodeList.end()) {
    failures_[static_cast<std::size_t>(found - kErrorCodeList.begin())].add_alone();
  }
}

void RouteCounters::read_into(RouteTelemetry& route) const {
  // Ends before beginnings: what is posted is never less than what ended.
  route.succeeded = 0;
  for (std::size_t i = 0; i < route.latency.size(); ++i) {
    route.latency[i] = latency_.count_in(i);
    route.succeeded += route.latency[i];
  }
  route.latency_sum_ns = latency_.sum_ns();
  route.bytes = bytes_.value();
  route.canceled = canceled_.value();
  route.failed = 0;
  for (std::size_t i = 0; i < kErrorCodes; ++i) {
    if (const std::uint64_t count = failures_[i].value(); count > 0) {
      route.failures.emplace_back(kErrorCodeList[i], count);
      route.failed += count;
    }
  }
  route.posted = posted_.value();
}

}  // namespace orbite::telemetry
