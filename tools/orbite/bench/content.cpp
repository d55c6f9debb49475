// SPDX-License-Identifier: Apache-2.0
#include "bench/content.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace orbite::tool::bench {
namespace {

constexpr std::uint64_t kWord = sizeof(std::uint64_t);

/// One step of splitmix64.
std::uint64_t mix(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15U;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31);
}

std::uint64_t word_at(std::uint64_t key, std::uint64_t offset) {
  return mix((key * 0xD6E8FEB86659FD93U) ^ (offset / kWord));
}

std::uint8_t byte_at(std::uint64_t key, std::uint64_t offset) {
  return static_cast<std::uint8_t>(word_at(key, offset) >> (offset % kWord * 8));
}

class Comparison {
 public:
  explicit Comparison(std::span<const std::uint8_t> area) : area_(area) {}

  /// Counts into `wrong` what differs in [begin, end).
  void range(std::uint64_t begin, std::uint64_t end, std::uint64_t key, std::uint64_t& wrong) {
    for (std::uint64_t at = begin; at < end;) {
      if (at % kWord == 0 && end - at >= kWord) {
        const std::uint64_t expected = word_at(key, at);
        if (std::memcmp(area_.data() + at, &expected, kWord) == 0) {
          at += kWord;
          continue;
        }
      }
      const std::uint64_t stop = std::min(end, at / kWord * kWord + kWord);
      for (; at < stop; ++at) {
        byte(at, key, wrong);
      }
    }
  }

  Mismatch mismatch;

 private:
  void byte(std::uint64_t at, std::uint64_t key, std::uint64_t& wrong) {
    if (area_[at] != byte_at(key, at)) {
      if (!mismatch.any()) {
        mismatch.first_wrong = at;
      }
      ++wrong;
    }
  }

  std::span<const std::uint8_t> area_;
};

}  // namespace

void fill(std::span<std::uint8_t> area, std::uint64_t key) {
  std::uint64_t at = 0;
  for (; area.size() - at >= kWord; at += kWord) {
    const std::uint64_t word = word_at(key, at);
    std::memcpy(area.data() + at, &word, kWord);
  }
  for (; at < area.size(); ++at) {
    area[at] = byte_at(key, at);
  }
}

Mismatch compare(std::span<const std::uint8_t> area, const Layout& layout, std::uint64_t slots,
                 std::uint64_t block_key, std::uint64_t guard_key) {
  const std::vector<std::uint64_t> offsets = block_offsets(layout);
  Comparison comparison(area);
  Mismatch& mismatch = comparison.mismatch;
  const std::uint64_t extent = layout.extent();
  for (std::uint64_t slot = 0; slot < slots; ++slot) {
    const std::uint64_t base = slot * extent;
    std::uint64_t at = base;
    for (const std::uint64_t offset : offsets) {
      comparison.range(at, base + offset, guard_key, mismatch.guards_wrong);
      at = base + offset + layout.size;
      comparison.range(base + offset, at, block_key, mismatch.bytes_wrong);
    }
    comparison.range(at, base + extent, guard_key, mismatch.guards_wrong);
  }
  return mismatch;
}

}  // namespace orbite::tool::bench
