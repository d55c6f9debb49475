// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "copy/sanitizers.hpp"

namespace orbite::copy {

#if defined(__x86_64__)
[[nodiscard]] bool has_avx512() noexcept;
[[nodiscard]] bool has_avx2() noexcept;
void copy_avx512(std::byte* target, const std::byte* source, std::size_t bytes) noexcept;
void copy_avx2(std::byte* target, const std::byte* source, std::size_t bytes) noexcept;
void copy_sse2(std::byte* target, const std::byte* source, std::size_t bytes) noexcept;
#elif defined(__aarch64__)
void copy_neon(std::byte* target, const std::byte* source, std::size_t bytes) noexcept;
#endif

inline constexpr std::size_t kLineBytes = 64;
/// How far ahead the addresses of both sides are translated, a line for each page. Pages are 4 KiB
/// where it matters; larger ones cost it nothing. Measured: docs/design/copy.md.
inline constexpr std::size_t kTranslateAheadBytes = 8'192;
inline constexpr std::size_t kPageBytes = 4'096;
/// What one round of a kernel's main loop copies.
inline constexpr std::size_t kRoundBytes = 4 * kLineBytes;

/// What is the same for every instruction set: only whole lines of the target can be streamed, the
/// bytes before the first and behind the last are copied the usual way. `copy_lines` gets an
/// aligned target and a number of lines.
template <auto copy_lines>
inline void copy_streaming(std::byte* target, const std::byte* source, std::size_t bytes) noexcept {
  announce_copy(target, source, bytes);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(target) % kLineBytes;  // NOLINT
  const std::size_t head = misaligned == 0 ? 0 : std::min(kLineBytes - misaligned, bytes);
  if (head != 0) {
    std::memcpy(target, source, head);
  }
  const std::size_t lines = (bytes - head) / kLineBytes;
  copy_lines(target + head, source + head, lines);
  const std::size_t done = head + lines * kLineBytes;
  if (done != bytes) {
    std::memcpy(target + done, source + done, bytes - done);
  }
}

}  // namespace orbite::copy
