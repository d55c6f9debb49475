// SPDX-License-Identifier: Apache-2.0
#include "telemetry/route_counters.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

namespace orbite::telemetry {
namespace {

TEST(LatencyBucket, BoundsRiseAndEachBelongsToItsOwnBucket) {
  EXPECT_EQ(latency_bucket(0), 0U);
  for (std::size_t i = 0; i < kLatencyBounds; ++i) {
    EXPECT_EQ(latency_bucket(latency_bound_ns(i)), i);
    EXPECT_EQ(latency_bucket(latency_bound_ns(i) + 1), i + 1);
    if (i > 0) {
      EXPECT_GT(latency_bound_ns(i), latency_bound_ns(i - 1));
    }
  }
  EXPECT_EQ(latency_bucket(UINT64_MAX), kLatencyBounds);
  EXPECT_EQ(latency_bound_ns(0), 1'000U);
  EXPECT_EQ(latency_bound_ns(1), 1'500U);
  EXPECT_EQ(latency_bound_ns(2), 2'000U);
  EXPECT_EQ(latency_bound_ns(kLatencyBounds - 1), 50'331'648'000U);
}

RC_GTEST_PROP(LatencyBucketProperty, IsTheLowestBoundThatIsNotBelow, (std::uint64_t any)) {
  // Of every magnitude.
  const std::uint64_t latency_ns = any >> *rc::gen::inRange(0, 64);
  std::size_t expected = 0;
  while (expected < kLatencyBounds && latency_bound_ns(expected) < latency_ns) {
    ++expected;
  }
  RC_ASSERT(latency_bucket(latency_ns) == expected);
}

TEST(RouteCounters, TellWhatCameOfExecutions) {
  RouteCounters counters;
  for (int i = 0; i < 7; ++i) {
    counters.count_posted();
  }
  counters.count_success(100, 1'000);
  counters.count_success(50, 60'000'000'000);
  counters.count_canceled();
  counters.count_failure(ErrorCode::kPeerSilent);
  counters.count_failure(ErrorCode::kPeerSilent);
  counters.count_failure(ErrorCode::kInvalidArgument);
  counters.count_failure(static_cast<ErrorCode>(65'000));
  RouteTelemetry route;
  counters.read_into(route);
  EXPECT_EQ(route.posted, 7U);
  EXPECT_EQ(route.succeeded, 2U);
  EXPECT_EQ(route.bytes, 150U);
  EXPECT_EQ(route.latency_sum_ns, 60'000'001'000U);
  EXPECT_EQ(route.latency.front(), 1U);
  EXPECT_EQ(route.latency.back(), 1U);
  EXPECT_EQ(route.canceled, 1U);
  EXPECT_EQ(route.failed, 3U);
  EXPECT_EQ(route.failures, (std::vector<std::pair<ErrorCode, std::uint64_t>>{
                                {ErrorCode::kInvalidArgument, 1}, {ErrorCode::kPeerSilent, 2}}));
}

TEST(RouteCounters, LoseNothingWithManyThreads) {
  RouteCounters counters;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (std::uint64_t n = 0; n < 5'000; ++n) {
        const std::lock_guard lock(mutex);
        counters.count_posted();
        counters.count_success(3, n * 1'000);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  RouteTelemetry route;
  counters.read_into(route);
  EXPECT_EQ(route.posted, 20'000U);
  EXPECT_EQ(route.succeeded, 20'000U);
  EXPECT_EQ(route.bytes, 60'000U);
  EXPECT_EQ(std::accumulate(route.latency.begin(), route.latency.end(), std::uint64_t{0}), 20'000U);
}

}  // namespace
}  // namespace orbite::telemetry
