// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "bench/measure.hpp"

namespace orbite::tool::bench {

struct Report {
  std::string between;  ///< who with whom
  std::vector<OperationReport> operations;
};

std::string text_of(const Options& options, const Report& report);
std::string json_of(const Options& options, const Report& report);
/// Names what is wrong; empty when nothing is.
std::string mismatch_text(const OperationReport& report);

}  // namespace orbite::tool::bench
