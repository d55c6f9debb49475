// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>
#include <vector>

#include "commands.hpp"
#include "orbite/config.hpp"

namespace orbite::tool {

namespace {

/// No more than is needed to see that it is too much.
std::string read_input() {
  std::string text(kConfigBytesMax + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), stdin));
  return text;
}

}  // namespace

int run_config_check(const std::string& file) {
  const std::vector<Error> errors =
      file == "-" ? config_errors(read_input()) : config_file_errors(file);
  for (const Error& error : errors) {
    write_error(error.message());
  }
  if (errors.size() == kConfigErrorsMax) {
    write_error("there may be more errors than these");
  }
  return errors.empty() ? write_output("ok\n") : kExitFailed;
}

int run_config_defaults(Format format) {
  switch (format) {
    case Format::kText:
      return write_output(config_defaults_text());
    case Format::kJson:
      return write_output(config_defaults_json() + '\n');
    case Format::kSchema:
      return write_output(config_schema_json() + '\n');
    case Format::kMarkdown:
      return write_output(config_defaults_markdown());
  }
  return kExitUsage;
}

}  // namespace orbite::tool
