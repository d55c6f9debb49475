// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include "base/assert.hpp"

namespace orbite::platform {

/// Has a child of fork() call something before anything else of it runs: only async-signal-safe
/// calls are allowed there.
///
/// Only for namespace scope, so that it is registered when the library is loaded. What a function
/// initialises when it is first called, a child finds half done for ever if another thread of its
/// parent was just doing it.
class AtFork {
 public:
  explicit AtFork(void (*in_child)()) noexcept {
    ORBITE_CHECK(::pthread_atfork(nullptr, nullptr, in_child) == 0);
  }
};

}  // namespace orbite::platform
