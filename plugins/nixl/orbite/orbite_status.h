// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "nixl_types.h"
#include "orbite/nixl.h"

namespace orbite::nixl {

// The one place where OrbiTE's answers become NIXL's. Both functions are total.

// The answer to a call. OK is NIXL_SUCCESS; everything else is negative, numbers that this plugin
// does not know included.
nixl_status_t to_nixl(int32_t status) noexcept;

// The state of a request. Anything but IN_PROG and NOT_POSTED says that neither side touches the
// buffers any more: it is given only for a terminal result whose drain is RETIRED, whatever the
// logical outcome is.
nixl_status_t to_nixl(const orbite_nixl_result_t& result) noexcept;

}  // namespace orbite::nixl
