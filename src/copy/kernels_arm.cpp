// SPDX-License-Identifier: Apache-2.0
#include "copy/native_kernels.hpp"

#if defined(__aarch64__)

namespace orbite::copy {
namespace {

/// STNP is a hint that the bytes will not be used soon; its stores are ordered like all others.
void stream_neon(std::byte* target, const std::byte* source, std::size_t lines) noexcept {
  for (; lines != 0; --lines) {
    // SAFETY: `lines` whole lines can be read at the source and written at the target.
    __asm__ volatile(
        "ldp q0, q1, [%[source]]\n\t"
        "ldp q2, q3, [%[source], #32]\n\t"
        "stnp q0, q1, [%[target]]\n\t"
        "stnp q2, q3, [%[target], #32]"
        :
        : [source] "r"(source), [target] "r"(target)
        : "v0", "v1", "v2", "v3", "memory");
    target += kLineBytes;
    source += kLineBytes;
  }
}

}  // namespace

void copy_neon(std::byte* target, const std::byte* source, std::size_t bytes) noexcept {
  copy_streaming<stream_neon>(target, source, bytes);
}

}  // namespace orbite::copy

#endif
