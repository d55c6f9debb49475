// SPDX-License-Identifier: Apache-2.0
#include "copy/copier.hpp"

#include <algorithm>
#include <cstring>

namespace orbite::copy {
namespace {

/// Taken where the system does not tell the size of its caches.
constexpr std::uint64_t kUnknownCacheBytes = std::uint64_t{32} << 20;

bool overlaps(const Part& block) noexcept {
  const auto target = reinterpret_cast<std::uintptr_t>(block.target);  // NOLINT
  const auto source = reinterpret_cast<std::uintptr_t>(block.source);  // NOLINT
  return (target > source ? target - source : source - target) < block.bytes;
}

}  // namespace

Thresholds Thresholds::make(const Config::Copy& config, std::uint64_t last_level_cache_bytes) {
  const std::uint64_t cache_bytes =
      last_level_cache_bytes == 0 ? kUnknownCacheBytes : last_level_cache_bytes;
  // Source and target share the cache, and neither has it alone.
  const std::uint64_t measured = cache_bytes / 16 * 3;
  return {config.non_temporal_min_bytes == 0 ? measured : config.non_temporal_min_bytes,
          config.non_temporal_part_min_bytes};
}

/// True: it was streamed, and a fence is due.
bool Copier::copy_block(const Part& block, bool streams) const noexcept {
  if (overlaps(block)) {
    std::memmove(block.target, block.source, block.bytes);
    return false;
  }
  if (!streams || block.bytes < thresholds_.non_temporal_part_min_bytes) {
    std::memcpy(block.target, block.source, block.bytes);
    return false;
  }
  kernel_->copy(block.target, block.source, block.bytes);
  return true;
}

std::uint64_t Copier::copy(PartCursor& cursor, std::uint64_t bytes_max,
                           std::uint64_t transfer_bytes) const noexcept {
  const bool streams = transfer_bytes >= thresholds_.non_temporal_min_bytes;
  bool fence_is_due = false;
  std::uint64_t left = bytes_max;
  while (!cursor.parts_.empty()) {
    const Part& part = cursor.parts_.front();
    const std::uint64_t rest = part.bytes - cursor.offset_;
    const auto bytes = static_cast<std::size_t>(std::min(rest, left));
    if (bytes != 0) {
      const Part block{part.target + cursor.offset_, part.source + cursor.offset_, bytes};
      fence_is_due = copy_block(block, streams) || fence_is_due;
      left -= bytes;
    }
    if (bytes < rest) {
      cursor.offset_ += bytes;
      break;
    }
    cursor.parts_ = cursor.parts_.subspan(1);
    cursor.offset_ = 0;
  }
  if (fence_is_due) {
    fence_streaming();
  }
  return bytes_max - left;
}

}  // namespace orbite::copy
