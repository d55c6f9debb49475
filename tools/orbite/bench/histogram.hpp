// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace orbite::tool::bench {

/// Durations in constant memory. A quantile is exact below 128 ns, else at most 1/64 above the
/// true one; the largest value is exact.
class Histogram {
 public:
  Histogram();
  void add(std::uint64_t value_ns);
  void merge(const Histogram& other);

  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] std::uint64_t max() const { return max_; }
  /// The smallest value that at least `per_mille` of 1000 values do not exceed; 0 when there is
  /// none.
  [[nodiscard]] std::uint64_t quantile(std::uint64_t per_mille) const;

 private:
  std::vector<std::uint64_t> buckets_;
  std::uint64_t count_ = 0;
  std::uint64_t max_ = 0;
};

/// 0 when there is none; the mean of both when two are in the middle.
double median(std::vector<double> values);

}  // namespace orbite::tool::bench
