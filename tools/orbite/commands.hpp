// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bench/options.hpp"
#include "sim/options.hpp"

namespace orbite::tool {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
/// The command line was not understood; nothing was done.
inline constexpr int kExitUsage = 2;

enum class Format { kText, kJson, kMarkdown, kSchema };

// Every command writes its result to standard output, its errors to standard error, and returns an
// exit code.

/// `file`: the configuration; none is the file that ORBITE_CONFIG names, or else the defaults.
int run_info(const std::optional<std::string>& file, Format format);
/// `file`: its path, or "-" for standard input.
int run_config_check(const std::string& file);
int run_config_defaults(Format format);
int run_telemetry(Format format);

struct SimArguments {
  std::uint64_t seeds = 1'000;
  std::uint64_t seed = 1;  ///< the first
  std::uint64_t jobs = 1;
  sim::Options options;
  bool json = false;
  bool log = false;  ///< one seed, every event of it
};
/// kExitFailed when an invariant was violated.
int run_sim(const SimArguments& arguments);

/// kExitFailed when a transfer failed or moved wrong bytes.
int run_bench(const bench::Arguments& arguments);

/// kExitFailed, with a message, when standard output cannot be written.
int write_output(const std::string& text);
void write_error(const std::string& text);

}  // namespace orbite::tool
