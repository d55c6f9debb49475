// SPDX-License-Identifier: Apache-2.0
#include "copy/copier.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "unit/copy/guarded.hpp"

namespace orbite::copy {
namespace {

constexpr std::uint64_t kNever = UINT64_MAX;

/// Streams whatever it may, with every kernel that this processor has.
std::vector<Copier> copiers(std::uint64_t part_min_bytes) {
  std::vector<Copier> all{Copier({kNever, 1}, streaming_kernels().back())};
  for (const StreamingKernel& kernel : streaming_kernels()) {
    if (kernel.runs_here()) {
      all.emplace_back(Thresholds{0, part_min_bytes}, kernel);
    }
  }
  return all;
}

/// A kernel that only counts what it is asked for.
std::atomic<std::uint64_t> streamed_bytes{0};
constexpr StreamingKernel kCounting = {
    "counting", []() noexcept { return true; },
    [](std::byte* target, const std::byte* source, std::size_t bytes) noexcept {
      std::memcpy(target, source, bytes);
      streamed_bytes.fetch_add(bytes, std::memory_order_relaxed);
    }};

std::uint64_t streamed_of(const Copier& copier, std::span<const Part> parts,
                          std::uint64_t transfer_bytes) {
  streamed_bytes.store(0, std::memory_order_relaxed);
  PartCursor cursor(parts);
  copier.copy(cursor, kNever, transfer_bytes);
  EXPECT_TRUE(cursor.at_end());
  return streamed_bytes.load(std::memory_order_relaxed);
}

TEST(CopierChoice, SmallTransfersAndSmallPartsGoThroughTheCaches) {
  std::vector<std::byte> memory(8192);
  const Copier copier({1'000'000, 1'024}, kCounting);
  const Part parts[] = {{memory.data(), memory.data() + 4096, 1'023},
                        {memory.data() + 1'024, memory.data() + 5'120, 1'024},
                        {memory.data() + 2'048, memory.data() + 6'144, 2'000}};
  EXPECT_EQ(streamed_of(copier, parts, 999'999), 0u);
  EXPECT_EQ(streamed_of(copier, parts, 1'000'000), 3'024u);
}

TEST(CopierChoice, OverlapNeverReachesAKernel) {
  std::vector<std::byte> memory(8192);
  const Copier copier({0, 1}, kCounting);
  const Part forward[] = {{memory.data() + 1, memory.data(), 4096}};
  const Part backward[] = {{memory.data(), memory.data() + 4095, 4096}};
  const Part same[] = {{memory.data(), memory.data(), 4096}};
  const Part touching[] = {{memory.data(), memory.data() + 4096, 4096}};
  EXPECT_EQ(streamed_of(copier, forward, kNever), 0u);
  EXPECT_EQ(streamed_of(copier, backward, kNever), 0u);
  EXPECT_EQ(streamed_of(copier, same, kNever), 0u);
  EXPECT_EQ(streamed_of(copier, touching, kNever), 4096u);
}

TEST(CopierChoice, ThresholdsComeFromTheConfigurationOrTheCache) {
  Config::Copy config;
  EXPECT_EQ(Thresholds::make(config, 32U << 20).non_temporal_min_bytes, 6U << 20);
  EXPECT_EQ(Thresholds::make(config, 0).non_temporal_min_bytes, 6U << 20);
  EXPECT_EQ(Thresholds::make(config, 32U << 20).non_temporal_part_min_bytes, 512u);
  config.non_temporal_min_bytes = 12'345;
  config.non_temporal_part_min_bytes = 99;
  EXPECT_EQ(Thresholds::make(config, 32U << 20).non_temporal_min_bytes, 12'345u);
  EXPECT_EQ(Thresholds::make(config, 32U << 20).non_temporal_part_min_bytes, 99u);
}

TEST(CopierBounds, StopsAtTheLimitAndGoesOnThere) {
  const testing::Lines source(1'000, 1);
  const testing::Lines target(1'000, 2);
  const Part parts[] = {{target.data(), source.data(), 300},
                        {target.data() + 300, source.data() + 300, 0},
                        {target.data() + 300, source.data() + 300, 700}};
  for (const Copier& copier : copiers(64)) {
    std::fill_n(target.data(), 1'000, std::byte{0});
    PartCursor cursor(parts);
    EXPECT_EQ(copier.copy(cursor, 0, 1'000), 0u);
    EXPECT_EQ(copier.copy(cursor, 299, 1'000), 299u);
    EXPECT_EQ(target.data()[299], std::byte{0});
    EXPECT_EQ(copier.copy(cursor, 1, 1'000), 1u);
    EXPECT_FALSE(cursor.at_end());
    EXPECT_EQ(copier.copy(cursor, 699, 1'000), 699u);
    EXPECT_EQ(target.data()[999], std::byte{0});
    EXPECT_EQ(copier.copy(cursor, kNever, 1'000), 1u);
    EXPECT_TRUE(cursor.at_end());
    EXPECT_EQ(copier.copy(cursor, kNever, 1'000), 0u);
    EXPECT_EQ(std::memcmp(target.data(), source.data(), 1'000), 0);
  }
}

TEST(CopierBounds, BeginsInsideTheFirstPart) {
  const testing::Lines source(256, 1);
  const testing::Lines target(256, 2);
  const Part parts[] = {{target.data(), source.data(), 200},
                        {target.data() + 200, source.data() + 200, 56}};
  const std::byte before = target.data()[149];
  PartCursor cursor(parts, 150);
  EXPECT_EQ(copiers(1).back().copy(cursor, kNever, 256), 106u);
  EXPECT_EQ(target.data()[149], before);
  EXPECT_EQ(std::memcmp(target.data() + 150, source.data() + 150, 106), 0);
}

struct Place {
  std::size_t target;
  std::size_t source;
  std::size_t bytes;
};

/// What the copier is asked to do, one move after the other.
class Model {
 public:
  Model(const std::byte* arena, std::size_t bytes, const std::vector<Place>& places)
      : bytes_(arena, arena + bytes), left_(places) {}

  /// The next bytes, at most that many.
  void step(std::uint64_t bytes_max) {
    for (Place& place : left_) {
      const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(bytes_max, place.bytes));
      std::memmove(&bytes_[place.target], &bytes_[place.source], bytes);
      place = {place.target + bytes, place.source + bytes, place.bytes - bytes};
      bytes_max -= bytes;
    }
  }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
  std::vector<Place> left_;
};

/// Parts anywhere in one arena, over one another and over their own sources.
TEST(CopierProperty, AnyListOfPartsInAnyStepsIsAsOneMoveAfterTheOther) {
  constexpr std::size_t kArena = 32'768;
  const std::vector<Copier> all = copiers(64);
  EXPECT_TRUE(rc::check("parts and steps", [&] {
    const auto places = *rc::gen::container<std::vector<Place>>(rc::gen::build<Place>(
        rc::gen::set(&Place::target, rc::gen::inRange<std::size_t>(0, kArena / 2)),
        rc::gen::set(&Place::source, rc::gen::inRange<std::size_t>(0, kArena / 2)),
        rc::gen::set(&Place::bytes, rc::gen::weightedOneOf<std::size_t>(
                                        {{2, rc::gen::inRange<std::size_t>(0, 300)},
                                         {1, rc::gen::inRange<std::size_t>(0, kArena / 2)}}))));
    const auto step = *rc::gen::weightedOneOf<std::uint64_t>(
        {{2, rc::gen::inRange<std::uint64_t>(1, 5'000)}, {1, rc::gen::just(kNever)}});
    const Copier& copier = all[*rc::gen::inRange<std::size_t>(0, all.size())];

    const testing::Lines arena(kArena, 3);
    Model model(arena.data(), kArena, places);
    std::vector<Part> parts;
    std::uint64_t total = 0;
    for (const Place& place : places) {
      parts.push_back({arena.data() + place.target, arena.data() + place.source, place.bytes});
      total += place.bytes;
    }
    PartCursor cursor(parts);
    std::uint64_t copied = 0;
    while (copied < total) {
      const std::uint64_t now = copier.copy(cursor, step, total);
      model.step(step);
      RC_ASSERT(now == std::min(step, total - copied));
      copied += now;
    }
    RC_ASSERT(copier.copy(cursor, step, total) == 0u);
    RC_ASSERT(cursor.at_end());
    RC_ASSERT(std::equal(model.bytes().begin(), model.bytes().end(), arena.data()));
  }));
}

}  // namespace
}  // namespace orbite::copy
