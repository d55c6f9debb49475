// SPDX-License-Identifier: Apache-2.0
// NIXL's headers include their logging, which needs abseil. A plugin that logs by itself needs
// only the names: what is streamed into them is dropped.
#pragma once

#include <ostream>

#define NIXL_ERROR \
  if (true) {      \
  } else           \
    std::ostream(nullptr)
#define NIXL_ASSERT(condition) static_cast<void>(condition)
