// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "commands.hpp"
#include "orbite/config.hpp"
#include "orbite/engine.hpp"
#include "platform/system.hpp"

namespace orbite::tool {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLabelColumns = 15;

void append_line(std::string& text, std::string_view label, const std::string& value) {
  text += label;
  text.append(kLabelColumns > label.size() ? kLabelColumns - label.size() : 1, ' ');
  text += value;
  text += '\n';
}

/// One line for each entry of a list, the label on the first.
void append_list(std::string& text, std::string_view label, const Json& entries) {
  if (entries.empty()) {
    append_line(text, label, "nothing");
  }
  for (const Json& entry : entries) {
    append_line(text, label, entry.get<std::string>());
    label = "";
  }
}

/// "compiler 12.2.0, wire_version 1" of an object of scalars.
std::string in_one_line(const Json& members) {
  std::string line;
  for (const auto& [name, value] : members.items()) {
    line += line.empty() ? "" : ", ";
    line += name + ' ' + (value.is_string() ? value.get<std::string>() : value.dump());
  }
  return line;
}

std::string render(const Json& info) {
  std::string text;
  append_line(text, "version", info.at("version"));
  append_line(text, "build", in_one_line(info.at("build")));
  append_line(text, "configuration",
              info.at("configuration").is_null() ? "defaults" : info.at("configuration"));
  const std::string listen = info.at("listen");
  append_line(text, "listens on", listen.empty() ? "nothing" : listen);
  append_list(text, "advertises", info.at("advertise"));
  std::string_view label = "transports";
  for (const Json& transport : info.at("transports")) {
    std::string value = transport.at("name");
    value += transport.at("available").get<bool>()
                 ? ": available"
                 : ": not available: " + transport.at("reason").get<std::string>();
    append_line(text, label, value);
    label = "";
  }
  return text;
}

}  // namespace

int run_info(const std::optional<std::string>& file, Format format) {
  const std::optional<std::string> source = file ? file : platform::environment_config();
  Result<Config> config = source ? load_config_file(*source) : Result<Config>(Config{});
  if (!config) {
    write_error(config.error().message());
    return kExitFailed;
  }
  Result<std::unique_ptr<TransferEngine>> engine =
      TransferEngine::create({.name = "orbite-info", .config = *config});
  std::string taken;
  if (!engine && engine.error().code() == ErrorCode::kAddressInUse) {
    // Most likely by the very engine that somebody asks about: all else can still be told.
    taken = engine.error().message();
    config->listen.port = 0;
    config->listen.port_max = 0;
    engine = TransferEngine::create({.name = "orbite-info", .config = *config});
  }
  if (!engine) {
    write_error(engine.error().message());
    return kExitFailed;
  }
  Json info = Json::parse((*engine)->info_json());
  info["configuration"] = source ? Json(*source) : Json(nullptr);
  if (!taken.empty()) {
    info["listen"] = taken;
  }
  return write_output(format == Format::kJson ? info.dump(2) + '\n' : render(info));
}

}  // namespace orbite::tool
