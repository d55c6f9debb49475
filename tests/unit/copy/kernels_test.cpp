// SPDX-License-Identifier: Apache-2.0
#include "copy/kernels.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "unit/copy/guarded.hpp"

namespace orbite::copy {
namespace {

using testing::Lines;
using testing::pattern;

constexpr std::size_t kGuard = 64;

std::vector<const StreamingKernel*> kernels_here() {
  std::vector<const StreamingKernel*> kernels;
  for (const StreamingKernel& kernel : streaming_kernels()) {
    if (kernel.runs_here()) {
      kernels.push_back(&kernel);
    }
  }
  return kernels;
}

/// Source and target of the same size, and what the target was filled with.
struct Memory {
  explicit Memory(std::size_t bytes)
      : source(bytes, 1), target(bytes + 2 * kGuard, 2), filling(bytes + 2 * kGuard, 2) {}

  /// Copies, compares what arrived and the bytes around it, and leaves the target as it was.
  [[nodiscard]] ::testing::AssertionResult copies(const StreamingKernel& kernel, std::size_t to,
                                                  std::size_t from, std::size_t bytes) const {
    std::byte* const at = target.data() + kGuard + to;
    const std::byte* const before = filling.data() + kGuard + to;
    const std::byte* const out = source.data() + from;
    kernel.copy(at, out, bytes);
    fence_streaming();
    const bool arrived = std::memcmp(at, out, bytes) == 0;
    const bool guarded = std::memcmp(at - kGuard, before - kGuard, kGuard) == 0 &&
                         std::memcmp(at + bytes, before + bytes, kGuard) == 0;
    std::memcpy(at - kGuard, before - kGuard, bytes + 2 * kGuard);
    if (arrived && guarded) {
      return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure()
           << kernel.name << ": " << bytes << " bytes to offset " << to << " from " << from
           << (arrived ? "" : ": other bytes arrived") << (guarded ? "" : ": a guard is broken");
  }

  Lines source;
  Lines target;
  Lines filling;
};

TEST(CopyKernels, ThePlainOneIsLastAndRunsEverywhere) {
  ASSERT_FALSE(streaming_kernels().empty());
  EXPECT_EQ(streaming_kernels().back().name, "plain");
  EXPECT_TRUE(streaming_kernels().back().runs_here());
  EXPECT_TRUE(best_streaming_kernel().runs_here());
  EXPECT_EQ(&best_streaming_kernel(), kernels_here().front());
}

TEST(CopyKernels, EveryLengthUpTo4KiBArrivesWhole) {
  constexpr std::size_t kMost = 4096;
  const Memory memory(kMost + 64);
  for (const StreamingKernel* kernel : kernels_here()) {
    for (std::size_t bytes = 0; bytes <= kMost; ++bytes) {
      // Every alignment of both sides is met, though not with every length.
      ASSERT_TRUE(memory.copies(*kernel, bytes % 64, (bytes / 64 * 7) % 64, bytes));
      ASSERT_TRUE(memory.copies(*kernel, (bytes * 37) % 65, (bytes * 11) % 65, bytes));
    }
  }
}

TEST(CopyKernels, EveryAlignmentOfBothSidesArrivesWhole) {
  const Memory memory(8192);
  for (const StreamingKernel* kernel : kernels_here()) {
    for (std::size_t to = 0; to <= 64; ++to) {
      for (std::size_t from = 0; from <= 64; ++from) {
        for (const std::size_t bytes : {1U, 63U, 64U, 65U, 127U, 129U, 300U, 1345U}) {
          ASSERT_TRUE(memory.copies(*kernel, to, from, bytes));
        }
      }
    }
  }
}

TEST(CopyKernels, LargeBlocksArriveWhole) {
  constexpr std::size_t kMost = 3U << 20;
  const Memory memory(kMost + 64);
  for (const StreamingKernel* kernel : kernels_here()) {
    for (const std::size_t bytes : {65'536U, 65'537U, 1'048'575U, 3U << 20}) {
      ASSERT_TRUE(memory.copies(*kernel, bytes % 61, bytes % 59, bytes));
    }
  }
}

TEST(CopyKernels, AnyCopyArrivesWhole) {
  const Memory memory(70'000);
  EXPECT_TRUE(rc::check("any alignment, any length", [&] {
    const auto kernels = kernels_here();
    const auto* kernel = kernels[*rc::gen::inRange<std::size_t>(0, kernels.size())];
    const auto to = *rc::gen::inRange<std::size_t>(0, 4096);
    const auto from = *rc::gen::inRange<std::size_t>(0, 4096);
    const auto bytes =
        *rc::gen::weightedOneOf<std::size_t>({{3, rc::gen::inRange<std::size_t>(0, 600)},
                                              {1, rc::gen::inRange<std::size_t>(0, 65'000)}});
    RC_ASSERT(memory.copies(*kernel, to, from, bytes));
  }));
}

/// The page before the ranges and the page behind them cannot be touched at all.
TEST(CopyKernels, NothingIsReadOrWrittenOutsideTheRanges) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t inside = 2 * page;
  const auto fenced = [&] {
    void* const all =
        ::mmap(nullptr, inside + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(all, MAP_FAILED);
    auto* const data = static_cast<std::byte*>(all) + page;
    EXPECT_EQ(::mprotect(data, inside, PROT_READ | PROT_WRITE), 0);
    return data;
  };
  std::byte* const source = fenced();
  std::byte* const target = fenced();
  for (std::size_t i = 0; i < inside; ++i) {
    source[i] = pattern(i, 1);
  }
  for (const StreamingKernel* kernel : kernels_here()) {
    for (std::size_t bytes = 0; bytes <= inside; bytes += bytes < 600 ? 1 : 509) {
      kernel->copy(target, source, bytes);
      ASSERT_EQ(std::memcmp(target, source, bytes), 0) << kernel->name << ' ' << bytes;
      kernel->copy(target + (inside - bytes), source + (inside - bytes), bytes);
      ASSERT_EQ(std::memcmp(target + (inside - bytes), source + (inside - bytes), bytes), 0)
          << kernel->name << ' ' << bytes;
    }
  }
  ::munmap(source - page, inside + 2 * page);
  ::munmap(target - page, inside + 2 * page);
}

}  // namespace
}  // namespace orbite::copy
