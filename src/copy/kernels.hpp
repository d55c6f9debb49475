// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace orbite::copy {

/// A copy past the caches: what it writes goes to memory and evicts nothing. Any alignment, any
/// length; the ranges must not overlap. On x86-64 others see its bytes in order with what the
/// thread does next only after fence_streaming().
struct StreamingKernel {
  std::string_view name;
  bool (*runs_here)() noexcept;
  void (*copy)(std::byte* target, const std::byte* source, std::size_t bytes) noexcept;
};

/// Those that were built, the preferred first. The last one is std::memcpy and runs everywhere.
std::span<const StreamingKernel> streaming_kernels() noexcept;

/// The first that this processor runs.
const StreamingKernel& best_streaming_kernel() noexcept;

/// Orders the streaming stores of this thread before each of its later stores: a flag that it sets
/// after this call tells the truth about them.
void fence_streaming() noexcept;

}  // namespace orbite::copy
