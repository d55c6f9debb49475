// SPDX-License-Identifier: Apache-2.0
#include "copy/native_kernels.hpp"

#if defined(__x86_64__)

#include <immintrin.h>

// Each loop is written for its instruction set and compiled for it alone: whatever else is in this
// file runs on every processor. Macros, because a function that these call would have to be
// compiled for each of the sets, too.

#define ORBITE_FETCH(address) \
  _mm_prefetch(reinterpret_cast<const char*>(address), _MM_HINT_NTA) /* NOLINT */

/// One round of four lines, with ORBITE_LINE(offset) for each.
#define ORBITE_STREAM_ROUND(ORBITE_LINE) \
  do {                                   \
    ORBITE_LINE(0);                      \
    ORBITE_LINE(kLineBytes);             \
    ORBITE_LINE(2 * kLineBytes);         \
    ORBITE_LINE(3 * kLineBytes);         \
    target += kRoundBytes;               \
    source += kRoundBytes;               \
    lines -= 4;                          \
  } while (false)

/// The loops over `lines` lines. Nothing outside the block is fetched: it may be in use by others.
#define ORBITE_STREAM_LINES(ORBITE_LINE)                                                      \
  do {                                                                                        \
    while (lines >= kTranslateAheadBytes / kLineBytes + 4) {                                  \
      if (reinterpret_cast<std::uintptr_t>(target) % kPageBytes < kRoundBytes) { /* NOLINT */ \
        ORBITE_FETCH(source + kTranslateAheadBytes);                                          \
        ORBITE_FETCH(target + kTranslateAheadBytes);                                          \
      }                                                                                       \
      ORBITE_STREAM_ROUND(ORBITE_LINE);                                                       \
    }                                                                                         \
    while (lines >= 4) {                                                                      \
      ORBITE_STREAM_ROUND(ORBITE_LINE);                                                       \
    }                                                                                         \
    for (; lines != 0; --lines) {                                                             \
      ORBITE_LINE(0);                                                                         \
      target += kLineBytes;                                                                   \
      source += kLineBytes;                                                                   \
    }                                                                                         \
  } while (false)

// NOLINTBEGIN(cppcoreguidelines-pro-type-reinterpret-cast)
#define ORBITE_LINE_512(offset)                                      \
  _mm512_stream_si512(reinterpret_cast<__m512i*>(target + (offset)), \
                      _mm512_loadu_si512(reinterpret_cast<const void*>(source + (offset))))

#define ORBITE_HALF_256(offset)                                      \
  _mm256_stream_si256(reinterpret_cast<__m256i*>(target + (offset)), \
                      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + (offset))))
#define ORBITE_LINE_256(offset)     \
  do {                              \
    ORBITE_HALF_256(offset);        \
    ORBITE_HALF_256((offset) + 32); \
  } while (false)

#define ORBITE_QUARTER_128(offset)                                \
  _mm_stream_si128(reinterpret_cast<__m128i*>(target + (offset)), \
                   _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + (offset))))
#define ORBITE_LINE_128(offset)        \
  do {                                 \
    ORBITE_QUARTER_128(offset);        \
    ORBITE_QUARTER_128((offset) + 16); \
    ORBITE_QUARTER_128((offset) + 32); \
    ORBITE_QUARTER_128((offset) + 48); \
  } while (false)
// NOLINTEND(cppcoreguidelines-pro-type-reinterpret-cast)

namespace orbite::copy {
namespace {

__attribute__((target("avx512f"))) void stream_avx512(std::byte* target, const std::byte* source,
                                                      std::size_t lines) noexcept {
  ORBITE_STREAM_LINES(ORBITE_LINE_512);
}

__attribute__((target("avx2"))) void stream_avx2(std::byte* target, const std::byte* source,
                                                 std::size_t lines) noexcept {
  ORBITE_STREAM_LINES(ORBITE_LINE_256);
}

void stream_sse2(std::byte* target, const std::byte* source, std::size_t lines) noexcept {
  ORBITE_STREAM_LINES(ORBITE_LINE_128);
}

}  // namespace

// Both ask whether the system saves the registers, too.
bool has_avx512() noexcept { return __builtin_cpu_supports("avx512f") != 0; }
bool has_avx2() noexcept { return __builtin_cpu_supports("avx2") != 0; }

void copy_avx512(std::byte* target, const std::byte* source, std::size_t bytes) noexcept {
  copy_streaming<stream_avx512>(target, source, bytes);
}

void copy_avx2(std::byte* target, const std::byte* source, std::size_t bytes) noexcept {
  copy_streaming<stream_avx2>(target, source, bytes);
}

void copy_sse2(std::byte* target, const std::byte* source, std::size_t bytes) noexcept {
  copy_streaming<stream_sse2>(target, source, bytes);
}

}  // namespace orbite::copy

#undef ORBITE_FETCH
#undef ORBITE_STREAM_ROUND
#undef ORBITE_STREAM_LINES
#undef ORBITE_LINE_512
#undef ORBITE_HALF_256
#undef ORBITE_LINE_256
#undef ORBITE_QUARTER_128
#undef ORBITE_LINE_128

#endif
