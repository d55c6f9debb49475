// SPDX-License-Identifier: Apache-2.0
#include "orbite_params.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

namespace orbite::nixl {

namespace {

constexpr const char* kConfig = "config";

// What NIXL's own consumers add to every backend, whether it knows the name or not.
constexpr std::array<std::string_view, 8> kWithoutEffect = {
    "active",    "engine_config", "num_threads",   "file_path",
    "file_size", "shard_dirs",    "use_direct_io", "max_capacity_gb"};

}  // namespace

nixl_b_params_t offered_params() { return {{kConfig, ""}}; }

std::string config_of(const nixl_b_params_t& params) {
  const auto found = params.find(kConfig);
  return found == params.end() ? std::string() : found->second;
}

std::string refusal_of(const nixl_b_params_t& params) {
  const std::string config = config_of(params);
  const std::size_t first = config.find_first_not_of(" \t\r\n");
  if (first != std::string::npos &&
      std::string_view("/.~").find(config[first]) != std::string_view::npos) {
    return "parameter 'config' begins with '" + config.substr(first, 16) +
           "': it is the JSON document itself; for a file, name it in ORBITE_CONFIG";
  }
  std::vector<std::string> unknown;
  for (const auto& [key, value] : params) {
    if (key != kConfig &&
        std::find(kWithoutEffect.begin(), kWithoutEffect.end(), key) == kWithoutEffect.end()) {
      unknown.push_back(key);
    }
  }
  if (unknown.empty()) {
    return {};
  }
  std::sort(unknown.begin(), unknown.end());
  std::string text = unknown.size() == 1 ? "unknown parameter" : "unknown parameters";
  for (const std::string& key : unknown) {
    text += " '" + key + "'";
  }
  text += "; allowed: 'config' (JSON), and without effect";
  for (const std::string_view key : kWithoutEffect) {
    text += " '" + std::string(key) + "'";
  }
  return text;
}

}  // namespace orbite::nixl
