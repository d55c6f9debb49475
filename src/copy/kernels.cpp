// SPDX-License-Identifier: Apache-2.0
#include "copy/kernels.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "copy/native_kernels.hpp"

namespace orbite::copy {
namespace {

void copy_plain(std::byte* target, const std::byte* source, std::size_t bytes) noexcept {
  if (bytes != 0) {
    std::memcpy(target, source, bytes);
  }
}

bool always() noexcept { return true; }

constexpr StreamingKernel kKernels[] = {
#if defined(__x86_64__)
    {"avx512", has_avx512, copy_avx512},
    {"avx2", has_avx2, copy_avx2},
    {"sse2", always, copy_sse2},
#elif defined(__aarch64__)
    {"neon", always, copy_neon},
#endif
    {"plain", always, copy_plain},
};

}  // namespace

std::span<const StreamingKernel> streaming_kernels() noexcept { return kKernels; }

const StreamingKernel& best_streaming_kernel() noexcept {
  // Relaxed: all who look find the same one, which is constant.
  static constinit std::atomic<const StreamingKernel*> known{nullptr};
  const StreamingKernel* best = known.load(std::memory_order_relaxed);
  if (best == nullptr) {
    best = std::find_if(std::begin(kKernels), std::end(kKernels) - 1,
                        [](const StreamingKernel& kernel) { return kernel.runs_here(); });
    known.store(best, std::memory_order_relaxed);
  }
  return *best;
}

void fence_streaming() noexcept {
#if defined(__x86_64__)
  // A release store does not order streaming stores: this fence does.
  __builtin_ia32_sfence();
#else
  // Pairs with whatever acquires what the thread stores next.
  std::atomic_thread_fence(std::memory_order_release);
#endif
}

}  // namespace orbite::copy
