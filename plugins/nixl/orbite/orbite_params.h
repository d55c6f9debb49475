// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "nixl_types.h"

namespace orbite::nixl {

// The parameters that the plugin offers, with their defaults.
nixl_b_params_t offered_params();

// The engine's configuration, as JSON, in the parameter `config`. Empty: not given.
std::string config_of(const nixl_b_params_t& params);

// Why these creation parameters are refused, with the name of the one at fault; empty if they are
// not.
std::string refusal_of(const nixl_b_params_t& params);

}  // namespace orbite::nixl
