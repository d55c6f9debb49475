// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rapidcheck.h>

#include <cstdint>
#include <vector>

#include "transfer/extents.hpp"

namespace orbite::transfer::testing {

/// How the blocks of a stretch of a drawn list lie.
enum class Lie { kStridedBoth, kStridedHere, kStridedThere, kIndexedBoth, kAdjacent, kMixed };

/// The next block of one side: after the last one, a stride on, or wherever its page is.
inline std::uint64_t next_address(bool strided, std::uint64_t last, std::uint64_t stride) {
  return strided ? last + stride : 0x1000 * *rc::gen::inRange<std::uint64_t>(1, 1 << 20);
}

inline Extent next_extent(Lie lie, Extent last, std::uint64_t stride) {
  switch (lie) {
    case Lie::kAdjacent:
      last.local_address += last.length;
      last.remote_address += last.length;
      return last;
    case Lie::kMixed:
      last.length = *rc::gen::inRange<std::uint64_t>(1, 3000);
      last.local_index = *rc::gen::inRange<std::uint32_t>(0, 3);
      last.remote_index = *rc::gen::inRange<std::uint32_t>(0, 3);
      break;
    default:
      break;
  }
  last.local_address = next_address(lie == Lie::kStridedBoth || lie == Lie::kStridedHere,
                                    last.local_address, stride);
  last.remote_address = next_address(lie == Lie::kStridedBoth || lie == Lie::kStridedThere,
                                     last.remote_address, 2 * stride);
  return last;
}

/// As callers submit them: neighbours are not merged. Strides may be 0 or go down.
inline std::vector<Extent> draw_tasks() {
  std::vector<Extent> tasks;
  Extent last{0x100000000, 0x200000000, 4096, 0, 0};
  const auto stretches = *rc::gen::inRange(1, 6);
  for (int i = 0; i < stretches; ++i) {
    const auto lie = *rc::gen::element(Lie::kStridedBoth, Lie::kStridedHere, Lie::kStridedThere,
                                       Lie::kIndexedBoth, Lie::kAdjacent, Lie::kMixed);
    const auto stride = *rc::gen::element<std::uint64_t>(0, 1, 4096, 5000, 65536, -8192);
    if (*rc::gen::arbitrary<bool>()) {
      last.length = *rc::gen::element<std::uint64_t>(1, 7, 512, 4096);
    }
    const auto count = *rc::gen::inRange(1, 24);
    for (int block = 0; block < count; ++block) {
      last = next_extent(lie, last, stride);
      tasks.push_back(last);
    }
  }
  return tasks;
}

/// What becomes of tasks, in the plainest words.
inline std::vector<Extent> merge_neighbours(const std::vector<Extent>& tasks) {
  std::vector<Extent> extents;
  for (const Extent& task : tasks) {
    if (!extents.empty()) {
      Extent follower = extents.back();
      follower.local_address += follower.length;
      follower.remote_address += follower.length;
      follower.length = task.length;
      if (follower == task) {
        extents.back().length += task.length;
        continue;
      }
    }
    extents.push_back(task);
  }
  return extents;
}

inline std::vector<Extent> draw_extents() { return merge_neighbours(draw_tasks()); }

}  // namespace orbite::transfer::testing
