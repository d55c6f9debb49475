// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "bench/options.hpp"

namespace orbite::tool::bench {

/// Says what happens: that it serves, and what went wrong with a client.
using Told = std::function<void(const std::string& text)>;

/// Serves one client after the other. One that went wrong does not end it.
Result<void> run_server(const Options& options, const Told& told);
/// Serves the process that started this one.
Result<void> run_served(const Options& options);

}  // namespace orbite::tool::bench
