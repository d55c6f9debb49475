// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace orbite::base {

/// Writes the broken condition to stderr and aborts.
[[noreturn]] void check_failed(const char* condition, const char* file, int line) noexcept;

}  // namespace orbite::base

/// Always on. Only for memory safety, ownership, receipts and budget sums: a state in which going
/// on would touch memory that may not be ours. Never for input, which gets a Result.
#if defined(ORBITE_WITHOUT_CHECKS)
// Only to measure what the checks cost. What a condition does beside telling is still done.
#define ORBITE_CHECK(condition)     \
  do {                              \
    static_cast<void>((condition)); \
  } while (false)
#else
#define ORBITE_CHECK(condition)                                     \
  do {                                                              \
    if (!(condition)) [[unlikely]] {                                \
      ::orbite::base::check_failed(#condition, __FILE__, __LINE__); \
    }                                                               \
  } while (false)
#endif

/// On in debug, sanitizer and simulation builds; may cost.
#if defined(NDEBUG) && !defined(ORBITE_ENABLE_DCHECKS)
#define ORBITE_DCHECK(condition) \
  do {                           \
    if (false) {                 \
      (void)(condition);         \
    }                            \
  } while (false)
#else
#define ORBITE_DCHECK(condition) ORBITE_CHECK(condition)
#endif
