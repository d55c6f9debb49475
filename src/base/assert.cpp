// SPDX-License-Identifier: Apache-2.0
#include "base/assert.hpp"

#include <cstdio>
#include <cstdlib>

namespace orbite::base {

void check_failed(const char* condition, const char* file, int line) noexcept {
  std::fprintf(stderr, "orbite: check failed: %s (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace orbite::base
