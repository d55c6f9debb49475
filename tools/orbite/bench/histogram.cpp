// SPDX-License-Identifier: Apache-2.0
#include "bench/histogram.hpp"

#include <algorithm>
#include <bit>

namespace orbite::tool::bench {
namespace {

// Values of one bucket share their leading seven bits; those below 128 have a bucket each.
constexpr unsigned kLeadingBits = 7;
constexpr std::uint64_t kExact = std::uint64_t{1} << kLeadingBits;
constexpr std::uint64_t kHalf = kExact / 2;
constexpr std::size_t kBuckets = kExact + (64 - kLeadingBits) * kHalf;

std::size_t bucket_of(std::uint64_t value) {
  if (value < kExact) {
    return value;
  }
  const unsigned shift = static_cast<unsigned>(std::bit_width(value)) - kLeadingBits;
  return kExact + (shift - 1) * kHalf + ((value >> shift) - kHalf);
}

std::uint64_t largest_of(std::size_t bucket) {
  if (bucket < kExact) {
    return bucket;
  }
  const std::uint64_t shift = (bucket - kExact) / kHalf + 1;
  const std::uint64_t leading = (bucket - kExact) % kHalf + kHalf;
  return (leading << shift) + ((std::uint64_t{1} << shift) - 1);
}

}  // namespace

Histogram::Histogram() : buckets_(kBuckets) {}

void Histogram::add(std::uint64_t value_ns) {
  ++buckets_[bucket_of(value_ns)];
  ++count_;
  max_ = std::max(max_, value_ns);
}

void Histogram::merge(const Histogram& other) {
  for (std::size_t i = 0; i < kBuckets; ++i) {
    buckets_[i] += other.buckets_[i];
  }
  count_ += other.count_;
  max_ = std::max(max_, other.max_);
}

std::uint64_t Histogram::quantile(std::uint64_t per_mille) const {
  const std::uint64_t rank = std::max<std::uint64_t>((count_ * per_mille + 999) / 1000, 1);
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    seen += buckets_[i];
    if (seen >= rank) {
      return std::min(largest_of(i), max_);
    }
  }
  return max_;
}

double median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace orbite::tool::bench
