// SPDX-License-Identifier: Apache-2.0
#include "platform/open_descriptors.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "platform/at_fork.hpp"

namespace orbite::platform {
namespace {

using Word = std::atomic<std::uint64_t>;
static_assert(Word::is_always_lock_free,
              "the child may find any of them in the middle of a change");
constexpr int kBits = 64;

/// One bit for each descriptor. 128 KiB of address space, of which only pages in use cost memory.
constinit std::array<Word, kDescriptorsMax / kBits> table{};

// Relaxed throughout: the child is alone with its copy, which fork() orders.

/// In the child, where only async-signal-safe calls are allowed.
void close_all_in_child() {
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i].load(std::memory_order_relaxed) == 0) {
      continue;
    }
    for (std::uint64_t open = table[i].exchange(0, std::memory_order_relaxed); open != 0;
         open &= open - 1) {
      static_cast<void>(::close(static_cast<int>(i) * kBits + std::countr_zero(open)));
    }
  }
}

const AtFork close_inherited(close_all_in_child);

std::uint64_t bit_of(int fd) { return std::uint64_t{1} << (fd % kBits); }
Word& word_of(int fd) { return table[static_cast<std::size_t>(fd / kBits)]; }

}  // namespace

void note_opened(int fd) noexcept {
  if (fd >= 0 && fd < kDescriptorsMax) {
    word_of(fd).fetch_or(bit_of(fd), std::memory_order_relaxed);
  }
}

void note_closing(int fd) noexcept {
  if (fd >= 0 && fd < kDescriptorsMax) {
    word_of(fd).fetch_and(~bit_of(fd), std::memory_order_relaxed);
  }
}

}  // namespace orbite::platform
