// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ORBITE_COPY_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define ORBITE_COPY_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define ORBITE_COPY_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define ORBITE_COPY_TSAN 1
#endif

#if defined(ORBITE_COPY_ASAN)
extern "C" void __asan_loadN(void* address, unsigned long bytes);   // NOLINT
extern "C" void __asan_storeN(void* address, unsigned long bytes);  // NOLINT
#elif defined(ORBITE_COPY_TSAN)
extern "C" void __tsan_read_range(void* address, unsigned long bytes);   // NOLINT
extern "C" void __tsan_write_range(void* address, unsigned long bytes);  // NOLINT
#endif

namespace orbite::copy {

/// Tells the sanitizer of an access that it does not see by itself, because it is made with
/// instructions that compilers do not instrument. Nothing in other builds.
inline void announce_copy([[maybe_unused]] std::byte* target,
                          [[maybe_unused]] const std::byte* source,
                          [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(ORBITE_COPY_ASAN)
  __asan_loadN(const_cast<std::byte*>(source), bytes);  // NOLINT
  __asan_storeN(target, bytes);
#elif defined(ORBITE_COPY_TSAN)
  __tsan_read_range(const_cast<std::byte*>(source), bytes);  // NOLINT
  __tsan_write_range(target, bytes);
#endif
}

}  // namespace orbite::copy
