// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/fixed_text.hpp"
#include "orbite/error.hpp"

namespace orbite::base {

/// Error::message() without memory of its own.
FixedText<512> error_line(const Error& error) noexcept;

}  // namespace orbite::base
