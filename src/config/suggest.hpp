// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace orbite::config {

/// What an unknown key may have been meant to be, or what is allowed in its place, as the end of a
/// sentence. `section` is empty for a key at the top of the document.
std::string advice_for_unknown_key(std::string_view section, std::string_view name);

/// `text` for a message: whatever is not printable ASCII as \xNN, cut after about `bytes_max` bytes
/// of it.
std::string printable(std::string_view text, std::size_t bytes_max);

}  // namespace orbite::config
