// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "orbite/telemetry.hpp"

namespace orbite {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

Telemetry one_route() {
  Telemetry telemetry;
  telemetry.engine = "e";
  RouteTelemetry& route = telemetry.routes.emplace_back();
  route.transport = "tcp";
  route.operation = Operation::kWrite;
  route.qos = "bulk";
  return telemetry;
}

TEST(Exposition, HasAHeadForEachMetricEvenWithoutSamples) {
  const std::string text = telemetry_text({});
  EXPECT_THAT(text, HasSubstr("# HELP orbite_executions_posted_total executions admitted\n"
                              "# TYPE orbite_executions_posted_total counter\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE orbite_execution_seconds histogram\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE orbite_quarantined_bytes gauge\n"
                              "orbite_quarantined_bytes{engine=\"\"} 0\n"));
  EXPECT_EQ(text.back(), '\n');
}

TEST(Exposition, EscapesWhatALabelCannotHold) {
  Telemetry telemetry;
  telemetry.engine = std::string("a\\b\"c\nz\0e\xC3\xBC\x7F", 12);
  EXPECT_THAT(lines_of(telemetry_text(telemetry)),
              Contains(R"(orbite_lanes_open{engine="a\\b\"c\nz\\x00e\\xc3\\xbc\\x7f"} 0)"));
}

TEST(Exposition, BucketsCountUpAndBoundsAreExact) {
  Telemetry telemetry = one_route();
  RouteTelemetry& route = telemetry.routes.front();
  route.latency[0] = 2;
  route.latency[3] = 1;
  route.latency[kLatencyBounds] = 4;
  route.latency_sum_ns = 201'000'000'003;
  const auto lines = lines_of(telemetry_text(telemetry));
  const std::string route_labels = R"(transport="tcp",operation="write",class="bulk")";
  const std::string head =
      R"(orbite_execution_seconds_bucket{engine="e",)" + route_labels + ",le=\"";
  EXPECT_THAT(lines, Contains(head + "0.000001\"} 2"));
  EXPECT_THAT(lines, Contains(head + "0.0000015\"} 2"));
  EXPECT_THAT(lines, Contains(head + "0.000003\"} 3"));
  EXPECT_THAT(lines, Contains(head + "50.331648\"} 3"));
  EXPECT_THAT(lines, Contains(head + "+Inf\"} 7"));
  const std::string labels = R"({engine="e",transport="tcp",operation="write",class="bulk"} )";
  EXPECT_THAT(lines, Contains("orbite_execution_seconds_sum" + labels + "201.000000003"));
  EXPECT_THAT(lines, Contains("orbite_execution_seconds_count" + labels + "7"));
}

TEST(Exposition, NamesOutcomesCodesAndBudgets) {
  Telemetry telemetry = one_route();
  RouteTelemetry& route = telemetry.routes.front();
  route.succeeded = 1;
  route.canceled = 2;
  route.failed = 3;
  route.failures = {{ErrorCode::kPeerSilent, 3}};
  telemetry.budgets = {{"peers", "limits.peers_max", 1, 2, 3}};
  const auto lines = lines_of(telemetry_text(telemetry));
  const std::string labels = R"({engine="e",transport="tcp",operation="write",class="bulk",)";
  EXPECT_THAT(lines,
              Contains("orbite_executions_retired_total" + labels + R"(outcome="success"} 1)"));
  EXPECT_THAT(lines,
              Contains("orbite_executions_retired_total" + labels + R"(outcome="canceled"} 2)"));
  EXPECT_THAT(lines,
              Contains("orbite_executions_retired_total" + labels + R"(outcome="failed"} 3)"));
  EXPECT_THAT(lines,
              Contains("orbite_executions_failed_total" + labels + R"(code="PeerSilent"} 3)"));
  const std::string budget = R"({engine="e",budget="peers",key="limits.peers_max"} )";
  EXPECT_THAT(lines, Contains("orbite_budget_used" + budget + "1"));
  EXPECT_THAT(lines, Contains("orbite_budget_max" + budget + "2"));
  EXPECT_THAT(lines, Contains("orbite_budget_refused_total" + budget + "3"));
}

}  // namespace
}  // namespace orbite
