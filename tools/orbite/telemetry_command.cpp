// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "commands.hpp"
#include "orbite/telemetry.hpp"

namespace orbite::tool {

/// As text: what an engine that has done nothing shows.
int run_telemetry(Format format) {
  if (format == Format::kMarkdown) {
    return write_output(telemetry_markdown());
  }
  return write_output(telemetry_text({}));
}

}  // namespace orbite::tool
