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
inline bool Copier::copy_block(const Part& block, bool streams) const noexcept {
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
  // Kept out of memory while it goes on: small parts are a matter of nanoseconds.
  const Part* part = cursor.parts_.data();
  const Part* const end = part + cursor.parts_.size();
  std::size_t offset = cursor.offset_;
  for (; part != end; ++part, offset = 0) {
    const std::size_t rest = part->bytes - offset;
    const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(rest, left));
    if (bytes != 0) {
      fence_is_due |= copy_block({part->target + offset, part->source + offset, bytes}, streams);
      left -= bytes;
    }
    if (bytes < rest) {
      offset += bytes;
      break;
    }
  }
  cursor.parts_ = {part, end};
  cursor.offset_ = offset;
  if (fence_is_due) {
    fence_streaming();
  }
  return bytes_max - left;
}

}  // namespace orbite::copy
