// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "commands.hpp"
#include "orbite/config.hpp"

namespace orbite::tool {

int run_config_check(const std::string& file) {
  const Result<Config> config = load_config_file(file);
  if (!config) {
    write_error(config.error().message());
    return kExitFailed;
  }
  return write_output("ok\n");
}

int run_config_defaults(Format format) {
  switch (format) {
    case Format::kText:
      return write_output(config_defaults_text());
    case Format::kJson:
      return write_output(config_defaults_json() + '\n');
    case Format::kMarkdown:
      return write_output(config_defaults_markdown());
  }
  return kExitUsage;
}

}  // namespace orbite::tool
