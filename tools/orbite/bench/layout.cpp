// SPDX-License-Identifier: Apache-2.0
#include "bench/layout.hpp"

#include <cinttypes>
#include <iterator>

namespace orbite::tool::bench {
namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::size_t kShownBytesMax = 40;
constexpr std::uint64_t kKib = 1024;
constexpr std::uint64_t kMib = 1024 * kKib;

// A model of 60 layers: K and V of each are pools of pages of their own, of which a request takes
// every second one.
constexpr std::uint32_t kKvLayers = 60;
constexpr std::uint32_t kKvBlocks = 16;
constexpr std::uint64_t kKvBlockBytes = 32 * kKib;

/// Blocks of a run of `blocks` that follow their neighbour directly, counted up to block `index`.
std::uint64_t adjacent_until(const Layout& layout, std::uint64_t index) {
  return index * layout.adjacent_percent / 100;
}

Layout blocks_of(std::uint32_t blocks, std::uint64_t size) {
  Layout layout;
  layout.blocks = blocks;
  layout.size = size;
  return layout;
}

Layout kv_cache() {
  Layout layout = blocks_of(kKvBlocks, kKvBlockBytes);
  layout.runs = kKvLayers * 2;
  layout.gap = kKvBlockBytes;
  layout.run_gap = kMib;
  return layout;
}

Result<void> check_range(const char* name, std::uint64_t value, std::uint64_t low,
                         std::uint64_t high) {
  if (value < low || value > high) {
    return fail(ErrorCode::kInvalidArgument, "%s is %" PRIu64 ", allowed %" PRIu64 "..%" PRIu64,
                name, value, low, high);
  }
  return {};
}

}  // namespace

std::uint64_t Layout::extent() const {
  const std::uint64_t gaps = blocks - adjacent_until(*this, blocks - 1);
  const std::uint64_t bytes = gap + runs * (blocks * size + gaps * gap + run_gap);
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

Result<void> check_layout(const Layout& layout) {
  for (const Result<void>& checked :
       {check_range("runs of blocks", layout.runs, 1, kBlocksMax),
        check_range("blocks of a run", layout.blocks, 1, kBlocksMax),
        check_range("blocks of a request", layout.blocks_total(), 1, kBlocksMax),
        check_range("bytes of a block", layout.size, 1, kBlockBytesMax),
        check_range("bytes between blocks", layout.gap, 1, kBlockBytesMax),
        check_range("bytes between runs", layout.run_gap, 0, kBlockBytesMax),
        check_range("percent of adjacent blocks", layout.adjacent_percent, 0, 100)}) {
    if (!checked) {
      return checked;
    }
  }
  return {};
}

std::vector<std::uint64_t> block_offsets(const Layout& layout) {
  std::vector<std::uint64_t> offsets;
  offsets.reserve(layout.blocks_total());
  std::uint64_t offset = layout.gap;
  for (std::uint32_t run = 0; run < layout.runs; ++run) {
    for (std::uint32_t block = 0; block < layout.blocks; ++block) {
      offsets.push_back(offset);
      const bool next_is_adjacent = block + 1 < layout.blocks && adjacent_until(layout, block + 1) >
                                                                     adjacent_until(layout, block);
      offset += layout.size + (next_is_adjacent ? 0 : layout.gap);
    }
    offset += layout.run_gap;
  }
  return offsets;
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {
      {"4K", blocks_of(1, 4 * kKib), "one block of 4 KiB"},
      {"64K", blocks_of(1, 64 * kKib), "one block of 64 KiB"},
      {"64M", blocks_of(1, 64 * kMib), "one block of 64 MiB"},
      {"1024x64K", blocks_of(1024, 64 * kKib), "1024 blocks of 64 KiB"},
      {"4096x4K", blocks_of(4096, 4 * kKib), "4096 blocks of 4 KiB"},
      {"100000x4K", blocks_of(100'000, 4 * kKib), "100,000 blocks of 4 KiB"},
      {"kv", kv_cache(),
       "a KV cache: 60 layers x K and V x 16 blocks of 32 KiB, every second block of its pool"},
  };
  return all;
}

Result<Layout> find_shape(std::string_view name) {
  std::string names;
  for (const Shape& shape : shapes()) {
    if (shape.name == name) {
      return shape.layout;
    }
    names += names.empty() ? "" : ", ";
    names += shape.name;
  }
  return fail(ErrorCode::kInvalidArgument, "--shape: '%s' is none of %s",
              std::string(name.substr(0, kShownBytesMax)).c_str(), names.c_str());
}

std::string size_text(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB"};
  std::size_t unit = 0;
  while (unit + 1 < std::size(kUnits) && bytes >= kKib && bytes % kKib == 0) {
    bytes /= kKib;
    ++unit;
  }
  return std::to_string(bytes) + ' ' + kUnits[unit];
}

std::string layout_text(const Layout& layout) {
  std::string text = layout.runs > 1 ? std::to_string(layout.runs) + " x " : "";
  text += std::to_string(layout.blocks) + " x " + size_text(layout.size);
  if (layout.adjacent_percent > 0) {
    text += ", " + std::to_string(layout.adjacent_percent) + " % adjacent";
  }
  return text;
}

}  // namespace orbite::tool::bench
