// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <variant>

#include "config/keys.hpp"
#include "orbite/config.hpp"

namespace orbite::config {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

TEST(ConfigKeys, EveryRowIsComplete) {
  std::set<std::string_view> paths;
  std::set<std::string_view> sections;
  std::string_view section;
  Config config;
  for (const KeySpec& spec : key_specs()) {
    EXPECT_TRUE(paths.insert(spec.path).second) << spec.path << " is there twice";
    EXPECT_EQ(std::string(spec.section()) + '.' + std::string(spec.name()), spec.path);
    EXPECT_EQ(spec.name().find('.'), std::string_view::npos) << spec.path;
    EXPECT_FALSE(spec.meaning.empty()) << spec.path;
    // Cells of a Markdown table.
    EXPECT_EQ(spec.meaning.find('|'), std::string_view::npos) << spec.path;
    EXPECT_EQ(spec.allowed.find('|'), std::string_view::npos) << spec.path;
    if (spec.section() != section) {
      section = spec.section();
      EXPECT_TRUE(sections.insert(section).second) << section << " is not in one piece";
    }
    const Field field = spec.field(config);
    const bool is_text =
        std::holds_alternative<std::string*>(field) || std::holds_alternative<StringList*>(field);
    EXPECT_EQ(spec.accepts != nullptr, is_text) << spec.path;
    EXPECT_LE(spec.minimum, spec.maximum) << spec.path;
    if (std::holds_alternative<std::uint16_t*>(field)) {
      EXPECT_LE(spec.maximum, 65'535u) << spec.path;
    }
  }
}

TEST(ConfigKeys, UnitsFollowTheNames) {
  Config config;
  for (const KeySpec& spec : key_specs()) {
    const bool is_number = std::holds_alternative<std::uint64_t*>(spec.field(config));
    const std::string_view unit = !is_number                                            ? ""
                                  : spec.name().ends_with("_ms")                        ? "ms"
                                  : spec.name().find("bytes") != std::string_view::npos ? "bytes"
                                                                                        : "";
    EXPECT_EQ(spec.unit, unit) << spec.path;
  }
}

TEST(ConfigDefaults, SchemaDescribesEveryKey) {
  const Json document = Json::parse(config_schema_json());
  const Json& keys = document.at("keys");
  ASSERT_EQ(keys.size(), key_specs().size());
  std::size_t index = 0;
  for (const KeySpec& spec : key_specs()) {
    const Json& key = keys.at(index++);
    EXPECT_EQ(key.at("key"), spec.path);
    EXPECT_EQ(key.at("meaning"), spec.meaning);
    EXPECT_EQ(key.contains("minimum"), spec.maximum != 0) << spec.path;
  }
}

TEST(ConfigDefaults, SchemaHoldsTypeRangeAndDefault) {
  const Json document = Json::parse(config_schema_json());
  Json slice;
  Json routes;
  for (const Json& key : document.at("keys")) {
    if (key.at("key") == "tcp.slice_bytes") {
      slice = key;
    } else if (key.at("key") == "transfer.routes") {
      routes = key;
    }
  }
  EXPECT_EQ(slice.at("type"), "integer");
  EXPECT_EQ(slice.at("unit"), "bytes");
  EXPECT_EQ(slice.at("minimum"), 65'536);
  EXPECT_EQ(slice.at("maximum"), 4'194'304);
  EXPECT_EQ(slice.at("default"), 1'048'576);
  EXPECT_EQ(routes.at("type"), "array of strings");
  EXPECT_EQ(routes.at("default"), (Json{"local", "shm", "cma", "tcp"}));
}

TEST(ConfigDefaults, JsonIsTheDocumentOfAllDefaults) {
  const Json document = Json::parse(config_defaults_json());
  for (const KeySpec& spec : key_specs()) {
    EXPECT_TRUE(document.at(std::string(spec.section())).contains(spec.name())) << spec.path;
  }
  const Result<Config> config = parse_config(config_defaults_json());
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(*config, Config{});
}

TEST(ConfigDefaults, TextAndMarkdownHoldEveryKey) {
  const std::string text = "\n" + config_defaults_text();
  const std::string markdown = config_defaults_markdown();
  for (const KeySpec& spec : key_specs()) {
    EXPECT_THAT(text, HasSubstr("\n" + std::string(spec.path) + " = ")) << spec.path;
    EXPECT_THAT(text, HasSubstr("\n    " + std::string(spec.meaning) + "\n")) << spec.path;
    EXPECT_THAT(markdown, HasSubstr("\n| `" + std::string(spec.path) + "` | ")) << spec.path;
  }
}

TEST(ConfigDefaults, TextShowsTypeRangeDefaultAndMeaning) {
  EXPECT_THAT(config_defaults_text(),
              HasSubstr("\ntcp.slice_bytes = 1048576 (1 MiB)\n"
                        "    integer: 65536..4194304 bytes; at most tcp.lane_bytes_in_flight_max\n"
                        "    largest piece in which a large transfer is put on a connection\n"));
  EXPECT_THAT(config_defaults_text(),
              HasSubstr("\ntransfer.routes = [\"local\",\"shm\",\"cma\",\"tcp\"]\n"
                        "    array of strings: 1..4 of: local, shm, cma, tcp, none twice\n"));
}

}  // namespace
}  // namespace orbite::config
