// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>

#include "config/keys.hpp"
#include "orbite/config.hpp"

namespace orbite::config {
namespace {

using Json = nlohmann::ordered_json;

bool is_integer(const Field& field) {
  return std::holds_alternative<std::uint16_t*>(field) ||
         std::holds_alternative<std::uint64_t*>(field);
}

std::string_view type_of(const Field& field) {
  struct Visitor {
    std::string_view operator()(bool*) const { return "boolean"; }
    std::string_view operator()(std::uint16_t*) const { return "integer"; }
    std::string_view operator()(std::uint64_t*) const { return "integer"; }
    std::string_view operator()(std::string*) const { return "string"; }
    std::string_view operator()(StringList*) const { return "array of strings"; }
  };
  return std::visit(Visitor{}, field);
}

Json default_of(const Field& field) {
  return std::visit([](const auto* value) { return Json(*value); }, field);
}

/// " (1 MiB)" for a number of bytes that is a whole number of a larger unit.
std::string in_larger_unit(const KeySpec& spec, std::uint64_t value) {
  if (spec.unit != "bytes" || value == 0) {
    return "";
  }
  constexpr std::string_view kUnits[] = {"", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  while (unit + 1 < std::size(kUnits) && value % 1'024 == 0) {
    value /= 1'024;
    ++unit;
  }
  return unit == 0 ? "" : " (" + std::to_string(value) + ' ' + std::string(kUnits[unit]) + ')';
}

std::string allowed_of(const KeySpec& spec, const Field& field) {
  if (std::holds_alternative<bool*>(field)) {
    return "true, false";
  }
  const std::string numbers = std::to_string(spec.minimum) + ".." + std::to_string(spec.maximum);
  std::string more(spec.allowed);
  if (std::holds_alternative<std::string*>(field)) {
    return more;
  }
  if (std::holds_alternative<StringList*>(field)) {
    return numbers + " of: " + more;
  }
  std::string text = numbers;
  if (!spec.unit.empty()) {
    text += ' ' + std::string(spec.unit);
  }
  return more.empty() ? text : text + "; " + more;
}

std::string default_text_of(const KeySpec& spec, Config& defaults) {
  const Field field = spec.field(defaults);
  std::string text = default_of(field).dump();
  if (is_integer(field)) {
    text += in_larger_unit(spec, integer_value(spec, defaults));
  }
  return text;
}

constexpr std::string_view kMarkdownHead =
    R"(<!-- Written by `orbite config defaults --markdown`. -->
# Configuration

An engine takes one JSON document: an object of sections, each an object of keys. Every key has a
default, so `{}` is a complete document. A key that is not listed here, a key that is there twice, a
value of another type or outside its range, and a document that is larger than 1 MiB or not valid
JSON are refused with the path of the key and what is allowed. `orbite config check FILE` names all
that is wrong with a file, and `orbite config defaults --json` writes a document to start from.

A pool that peers share (`limits.bytes_in_flight_max`, `notifications.inbox_bytes_max`,
`notifications.outbox_bytes_max`, `tcp.served_lanes_max`) is not filled by one of them with many
items: a peer that has a part of it gets more only while it has no more than what stays free. What a
request or a message asks for on its own may be as much as is free. A pool that has no room answers
with an error that names the pool, its limit and the key.

A program that makes an engine gives the document to it. Through NIXL it is the value of the backend
parameter `config`; where the parameters of a backend cannot be set, the environment variable
`ORBITE_CONFIG` may name a file that holds it.

```json
{
  "listen": {"port": 18500, "port_max": 18599},
  "tcp": {"bulk_lanes_per_peer": 4}
}
```
)";

}  // namespace
}  // namespace orbite::config

namespace orbite {

std::string config_defaults_text() {
  Config defaults;
  std::string text;
  for (const config::KeySpec& spec : config::key_specs()) {
    const config::Field field = spec.field(defaults);
    text += std::string(spec.path) + " = " + config::default_text_of(spec, defaults) + "\n    " +
            std::string(config::type_of(field)) + ": " + config::allowed_of(spec, field) +
            "\n    " + std::string(spec.meaning) + '\n';
  }
  return text;
}

std::string config_defaults_json() {
  Config defaults;
  config::Json document = config::Json::object();
  for (const config::KeySpec& spec : config::key_specs()) {
    document[std::string(spec.section())][std::string(spec.name())] =
        config::default_of(spec.field(defaults));
  }
  return document.dump(2);
}

std::string config_schema_json() {
  Config defaults;
  config::Json keys = config::Json::array();
  for (const config::KeySpec& spec : config::key_specs()) {
    const config::Field field = spec.field(defaults);
    config::Json key = {{"key", spec.path}, {"type", config::type_of(field)}};
    if (!spec.unit.empty()) {
      key["unit"] = spec.unit;
    }
    if (spec.maximum != 0) {
      key["minimum"] = spec.minimum;
      key["maximum"] = spec.maximum;
    }
    if (!spec.allowed.empty()) {
      key["allowed"] = spec.allowed;
    }
    key["default"] = config::default_of(field);
    key["meaning"] = spec.meaning;
    keys.push_back(std::move(key));
  }
  return config::Json{{"keys", std::move(keys)}}.dump(2);
}

std::string config_defaults_markdown() {
  Config defaults;
  std::string text(config::kMarkdownHead);
  std::string_view section;
  for (const config::KeySpec& spec : config::key_specs()) {
    if (spec.section() != section) {
      section = spec.section();
      text += "\n## " + std::string(section) +
              "\n\n| key | type | allowed | default | meaning |\n|---|---|---|---|---|\n";
    }
    const config::Field field = spec.field(defaults);
    text += "| `" + std::string(spec.path) + "` | " + std::string(config::type_of(field)) + " | " +
            config::allowed_of(spec, field) + " | `" + config::default_text_of(spec, defaults) +
            "` | " + std::string(spec.meaning) + " |\n";
  }
  return text;
}

}  // namespace orbite
