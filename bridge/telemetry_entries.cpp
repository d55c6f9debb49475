// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>

#include "base/assert.hpp"
#include "codes.hpp"
#include "engine_table.hpp"
#include "entry.hpp"
#include "telemetry/route_counters.hpp"

namespace orbite::bridge {
namespace {

static_assert(kLatencyBounds == ORBITE_NIXL_LATENCY_BOUNDS);
static_assert(kLatencyBounds + 1 == ORBITE_NIXL_LATENCY_BUCKETS);
static_assert(telemetry::kErrorCodes <= ORBITE_NIXL_FAILURES_MAX);

/// No list is longer; what a caller has beyond is not looked at.
constexpr std::size_t kRecordsMax = 64;

/// The heads of what may be filled. `count` says how many there are, unless `records` is null.
template <typename Record>
Result<void> check_records(const Record* records, const std::size_t* count, const char* name,
                           const char* count_name) {
  ORBITE_TRY(check_pointer(count, count_name));
  if (records == nullptr) {
    return {};
  }
  ORBITE_TRY(check_pointer(records, name));
  for (std::size_t i = 0; i < std::min(*count, kRecordsMax); ++i) {
    ORBITE_TRY(check_head(records[i].record, sizeof(Record), name, MajorCheck::kStrict));
  }
  return {};
}

/// Sets the count to what is needed.
Result<void> check_room(const void* records, std::size_t* count, std::size_t needed,
                        const char* name) {
  ORBITE_CHECK(needed <= kRecordsMax);
  const std::size_t capacity = records == nullptr ? 0 : *count;
  *count = needed;
  if (capacity < needed) {
    return fail(ErrorCode::kBufferTooSmall, "%s has room for %zu records; %zu are needed", name,
                capacity, needed);
  }
  return {};
}

template <std::size_t N>
void copy_text(std::string_view text, char (&out)[N]) {
  ORBITE_CHECK(text.size() < N);
  std::memset(out, 0, N);
  std::copy(text.begin(), text.end(), out);
}

void copy_route(const RouteTelemetry& route, orbite_nixl_route_t& out) {
  copy_text(route.transport, out.transport);
  out.operation = static_cast<std::uint32_t>(route.operation);
  out.qos =
      std::string_view(route.qos) == "latency" ? ORBITE_NIXL_CLASS_LATENCY : ORBITE_NIXL_CLASS_BULK;
  out.posted = route.posted;
  out.succeeded = route.succeeded;
  out.canceled = route.canceled;
  out.failed = route.failed;
  out.bytes = route.bytes;
  out.active = route.active;
  out.unquiesced = route.unquiesced;
  out.unquiesced_bytes = route.unquiesced_bytes;
  out.latency_sum_ns = route.latency_sum_ns;
  std::copy(route.latency.begin(), route.latency.end(), std::begin(out.latency));
  out.reserved = 0;
  out.failure_count = 0;
  std::fill(std::begin(out.failures), std::end(out.failures), orbite_nixl_failure_t{});
  for (const auto& [code, count] : route.failures) {
    out.failures[out.failure_count++] = {static_cast<std::int32_t>(code), 0, count};
  }
}

void copy_budget(const BudgetTelemetry& budget, orbite_nixl_budget_t& out) {
  copy_text(budget.name, out.name);
  copy_text(budget.key, out.key);
  out.used = budget.used;
  out.max = budget.max;
  out.refused = budget.refused;
}

void copy_numbers(const Telemetry& telemetry, orbite_nixl_telemetry_t& out) {
#define ORBITE_COUNTER(name, meaning) out.name = telemetry.counters.name;
#define ORBITE_GAUGE(name, meaning) out.name = telemetry.gauges.name;
#include "orbite/telemetry.def"
#undef ORBITE_COUNTER
#undef ORBITE_GAUGE
  for (std::size_t i = 0; i < kLatencyBounds; ++i) {
    out.latency_bounds_ns[i] = latency_bound_ns(i);
  }
}

}  // namespace
}  // namespace orbite::bridge

using orbite::Result;
using orbite::Telemetry;
using orbite::bridge::check_pointer;
using orbite::bridge::check_record;
using orbite::bridge::check_records;
using orbite::bridge::check_room;
using orbite::bridge::copy_budget;
using orbite::bridge::copy_numbers;
using orbite::bridge::copy_out;
using orbite::bridge::copy_route;
using orbite::bridge::EngineLease;
using orbite::bridge::guarded;
using orbite::bridge::input_bytes;

orbite_nixl_status_t orbite_nixl_telemetry_read(orbite_nixl_engine_t engine,
                                                orbite_nixl_telemetry_t* telemetry,
                                                orbite_nixl_route_t* routes, size_t* route_count,
                                                orbite_nixl_budget_t* budgets, size_t* budget_count,
                                                orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_TRY(check_record(telemetry, "telemetry"));
    ORBITE_TRY(check_records(routes, route_count, "routes", "route_count"));
    ORBITE_TRY(check_records(budgets, budget_count, "budgets", "budget_count"));
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    ORBITE_ASSIGN_OR_RETURN(const Telemetry found, lease->telemetry());
    // Both, so that both counts are told.
    const auto routes_fit = check_room(routes, route_count, found.routes.size(), "routes");
    ORBITE_TRY(check_room(budgets, budget_count, found.budgets.size(), "budgets"));
    ORBITE_TRY(routes_fit);
    copy_numbers(found, *telemetry);
    for (std::size_t i = 0; i < found.routes.size(); ++i) {
      copy_route(found.routes[i], routes[i]);
    }
    for (std::size_t i = 0; i < found.budgets.size(); ++i) {
      copy_budget(found.budgets[i], budgets[i]);
    }
    return {};
  });
}

orbite_nixl_status_t orbite_nixl_telemetry_text(orbite_nixl_engine_t engine, char* buffer,
                                                size_t* bytes, orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_TRY(check_pointer(bytes, "bytes"));
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    ORBITE_ASSIGN_OR_RETURN(const Telemetry found, lease->telemetry());
    const std::string text = telemetry_text(found);
    ORBITE_ASSIGN_OR_RETURN(const auto data, input_bytes(text.data(), text.size(), "telemetry"));
    return copy_out(data, buffer, bytes, "buffer");
  });
}
