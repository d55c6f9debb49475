// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace orbite::config {

/// An IPv4 or IPv6 literal that a socket can be bound to: no zone, not multicast, not broadcast,
/// not link-local IPv6 (which means nothing without a zone).
bool is_listen_address(std::string_view text);

/// The same, and not an unspecified address (0.0.0.0 or ::).
bool is_unicast_address(std::string_view text);

}  // namespace orbite::config
