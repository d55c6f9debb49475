// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/random.hpp"
#include "support/caller.hpp"

namespace orbite::test {

/// Bytes that a request needs on each side at most, gaps included.
[[nodiscard]] inline std::size_t bytes_for(std::size_t count, std::size_t length_max) {
  return count * (length_max + 16) + 64;
}

/// `count` pairs of 1 to `length_max` bytes with guards around them, scattered on the far side.
/// Some are neighbours on both sides. No two overlap.
inline std::vector<Block> draw_blocks(base::RandomSource& random, std::size_t count,
                                      std::size_t length_max) {
  std::vector<Block> blocks(count);
  for (Block& block : blocks) {
    block.length = 1 + random.next_u64() % length_max;
  }
  const auto place = [&](std::size_t Block::* where, const std::vector<std::size_t>& order) {
    std::size_t offset = 16;
    for (const std::size_t i : order) {
      blocks[i].*where = offset;
      offset += blocks[i].length + (random.next_u64() % 3 == 0 ? 0 : 1 + random.next_u64() % 16);
    }
  };
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  place(&Block::local, order);
  for (std::size_t i = 0; i + 1 < count; i += 1 + random.next_u64() % 4) {
    std::swap(order[i], order[i + random.next_u64() % (count - i)]);
  }
  place(&Block::remote, order);
  return blocks;
}

[[nodiscard]] inline std::uint64_t bytes_of(const std::vector<Block>& blocks) {
  std::uint64_t sum = 0;
  for (const Block& block : blocks) {
    sum += block.length;
  }
  return sum;
}

/// Source and target of a request, filled so that each byte that moved is seen as such.
struct Stage {
  Operation operation;
  std::vector<Block> blocks;
  Buffer& near;
  Buffer& far;
  std::vector<std::uint8_t> before;  ///< of the target

  Stage(Operation wanted, std::vector<Block> wanted_blocks, Buffer& near_side, Buffer& far_side,
        std::uint64_t seed)
      : operation(wanted), blocks(std::move(wanted_blocks)), near(near_side), far(far_side) {
    source().fill_as_source(seed);
    target().fill_as_target(seed + 1);
    before = target().bytes;
  }
  [[nodiscard]] Buffer& source() const { return operation == Operation::kWrite ? near : far; }
  [[nodiscard]] Buffer& target() const { return operation == Operation::kWrite ? far : near; }

  /// For each byte of the request, in its order, whether it is in place.
  [[nodiscard]] std::vector<bool> moved() const {
    std::vector<bool> in_place;
    std::vector<std::uint8_t> model = before;
    for (const Block& block : blocks) {
      const bool writes = operation == Operation::kWrite;
      for (std::size_t i = 0; i < block.length; ++i) {
        const std::size_t from = (writes ? block.local : block.remote) + i;
        const std::size_t to = (writes ? block.remote : block.local) + i;
        const std::uint8_t byte = target().bytes[to];
        in_place.push_back(byte < 128);
        if (byte < 128) {
          EXPECT_EQ(byte, source().bytes[from]) << "byte " << in_place.size() - 1;
          model[to] = byte;
        }
      }
    }
    EXPECT_TRUE(model == target().bytes) << "a byte outside the request has changed";
    return in_place;
  }

  /// What a terminal outcome says of the bytes is what the bytes say.
  void expect_honest(const Outcome& outcome) const {
    EXPECT_TRUE(outcome.terminal());
    const std::vector<bool> in_place = moved();
    const auto count =
        static_cast<std::uint64_t>(std::count(in_place.begin(), in_place.end(), true));
    const auto prefix = static_cast<std::uint64_t>(
        std::find(in_place.begin(), in_place.end(), false) - in_place.begin());
    EXPECT_EQ(outcome.bytes_total, in_place.size());
    EXPECT_LE(outcome.bytes_prefix, prefix);
    switch (outcome.effect) {
      case RemoteEffect::kNone:
        EXPECT_EQ(count, 0U);
        break;
      case RemoteEffect::kPrefix:
        EXPECT_EQ(outcome.bytes_prefix, prefix);
        EXPECT_EQ(count, prefix);
        break;
      case RemoteEffect::kComplete:
        EXPECT_EQ(count, in_place.size());
        break;
      case RemoteEffect::kUnknown:
        break;
    }
    if (outcome.logical == Logical::kSuccess) {
      EXPECT_EQ(outcome.effect, RemoteEffect::kComplete);
    }
  }
};

}  // namespace orbite::test
