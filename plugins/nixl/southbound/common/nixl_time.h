// SPDX-License-Identifier: Apache-2.0
// The unit types of NIXL's interface: plain counts.
#pragma once

#include <cstdint>

namespace nixlTime {
using ns_t = uint64_t;
using us_t = uint64_t;
using ms_t = uint64_t;
using sec_t = uint64_t;
}  // namespace nixlTime
