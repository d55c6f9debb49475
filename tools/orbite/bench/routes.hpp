// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "bench/options.hpp"

namespace orbite::tool::bench {

/// Why an engine whose info_json() that is did not go that way to its peer.
std::string why_not(const std::string& info_json, Transport transport);

/// "cma", "cma+tcp".
std::string routes_text(const std::vector<const char*>& routes);

}  // namespace orbite::tool::bench
