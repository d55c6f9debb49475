// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

#include "bench/options.hpp"

namespace orbite::tool::bench {

/// Adds the command `bench`, which writes what it reads into `arguments`. Only a parsed command
/// line is good for parse_options.
CLI::App* add_command(CLI::App& app, Arguments& arguments);

}  // namespace orbite::tool::bench
