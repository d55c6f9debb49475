// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <ios>
#include <string>
#include <system_error>
#include <vector>

#include "config/suggest.hpp"
#include "orbite/config.hpp"

namespace orbite {
namespace {

constexpr std::size_t kShownPathBytesMax = 100;

/// Reads at most one byte more than a document may have, so that parse_config refuses the size.
Result<std::string> read_document(const std::string& path) {
  const std::string shown = config::printable(path, kShownPathBytesMax);
  std::error_code failed;
  const std::filesystem::file_status status = std::filesystem::status(path, failed);
  if (failed) {
    return fail(
        Error::make_native(ErrorCode::kBadConfig, failed.value(), "cannot read %s", shown.c_str()));
  }
  // Opening a FIFO would wait for somebody to write.
  if (!std::filesystem::is_regular_file(status)) {
    return fail(ErrorCode::kBadConfig, "cannot read %s: not a regular file", shown.c_str());
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string document(kConfigBytesMax + 1, '\0');
  if (file) {
    file.read(document.data(), static_cast<std::streamsize>(document.size()));
  }
  if (file.bad() || (file.fail() && !file.eof())) {
    return fail(Error::make_native(ErrorCode::kBadConfig, errno, "cannot read %s", shown.c_str()));
  }
  document.resize(static_cast<std::size_t>(file.gcount()));
  return document;
}

Error in_file(const Error& error, const std::string& path) {
  return Error::make(ErrorCode::kBadConfig, "%s (in %s)", std::string(error.context()).c_str(),
                     config::printable(path, kShownPathBytesMax).c_str());
}

}  // namespace

Result<Config> load_config_file(const std::string& path) {
  Result<std::string> document = read_document(path);
  if (!document) {
    return fail(document.error());
  }
  Result<Config> config = parse_config(*document);
  if (!config) {
    return fail(in_file(config.error(), path));
  }
  return config;
}

std::vector<Error> config_file_errors(const std::string& path) {
  const Result<std::string> document = read_document(path);
  if (!document) {
    return {document.error()};
  }
  std::vector<Error> errors = config_errors(*document);
  for (Error& error : errors) {
    error = in_file(error, path);
  }
  return errors;
}

}  // namespace orbite
