// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "sim/page_file.hpp"
#include "sim/random.hpp"

namespace orbite::sim {

inline constexpr std::uint64_t kArenaBytes = std::uint64_t{32} << 10;
/// A multiple of the pages of the machine that runs the world.
inline constexpr std::uint64_t kArenaPage = 4096;

/// The memory of a host's application, with a copy of what it must hold. Whatever nobody has
/// claimed guards what somebody has. It has the same addresses in every life of the host, and parts
/// of it may be pages that others can map. Beside it nothing is mapped.
class Arena {
 public:
  Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  [[nodiscard]] std::uint64_t address() const noexcept {
    return reinterpret_cast<std::uint64_t>(bytes_);
  }
  /// False: not (all) inside.
  [[nodiscard]] bool contains(std::uint64_t address_begin, std::uint64_t length) const noexcept {
    return address_begin >= address() && length <= kArenaBytes &&
           address_begin - address() <= kArenaBytes - length;
  }
  [[nodiscard]] const std::uint8_t* data() const noexcept { return bytes_; }

  /// Whole pages of the arena become those of the file from `file_offset` on.
  void share(std::uint64_t offset, std::uint64_t length, const SimPageFile& file,
             std::uint64_t file_offset);
  /// All of it is ordinary memory again.
  void unshare();

  /// The application writes.
  void fill(Random& random, std::uint64_t offset, std::uint64_t length) {
    random.fill({bytes_ + offset, length});
    accept(offset, length);
  }
  void put(std::uint64_t offset, std::span<const std::uint8_t> bytes) {
    std::memcpy(bytes_ + offset, bytes.data(), bytes.size());
    accept(offset, bytes.size());
  }
  /// What is there now is right.
  void accept(std::uint64_t offset, std::uint64_t length) {
    std::memcpy(copy_.data() + offset, bytes_ + offset, length);
  }
  /// Calls `changed(offset, length)` for each run of bytes that differ from the copy, and accepts
  /// them.
  template <typename Changed>
  void compare(Changed changed) {
    constexpr std::uint64_t kBlock = 512;
    for (std::uint64_t block = 0; block < kArenaBytes; block += kBlock) {
      if (std::memcmp(bytes_ + block, copy_.data() + block, kBlock) != 0) {
        compare_block(block, block + kBlock, changed);
      }
    }
  }

 private:
  template <typename Changed>
  void compare_block(std::uint64_t at, std::uint64_t end, Changed changed) {
    while (at < end) {
      std::uint64_t run = 0;
      while (at + run < end && bytes_[at + run] != copy_[at + run]) {
        ++run;
      }
      if (run > 0) {
        accept(at, run);
        changed(at, run);
      }
      at += run + 1;
    }
  }

  std::uint8_t* bytes_;
  std::vector<std::uint8_t> copy_;
};

}  // namespace orbite::sim
