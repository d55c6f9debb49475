// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "config/keys.hpp"
#include "orbite/config.hpp"

namespace orbite::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using Json = nlohmann::json;

// The context of the refusal, or "accepted".
std::string refusal(std::string_view document) {
  const Result<Config> config = parse_config(document);
  if (config) {
    return "accepted";
  }
  EXPECT_EQ(config.error().code(), ErrorCode::kBadConfig);
  return std::string(config.error().context());
}

std::string document_with(const KeySpec& spec, const Json& value) {
  return Json{{spec.section(), {{spec.name(), value}}}}.dump();
}

bool is_integer(const KeySpec& spec) {
  Config config;
  const Field field = spec.field(config);
  return std::holds_alternative<std::uint16_t*>(field) ||
         std::holds_alternative<std::uint64_t*>(field);
}

TEST(ConfigParse, EmptyObjectGivesTheDefaults) {
  const Result<Config> config = parse_config(" {} \n");
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(*config, Config{});
}

TEST(ConfigParse, EmptySectionsGiveTheDefaults) {
  Json document = Json::object();
  for (const std::string_view section : section_names()) {
    document[std::string(section)] = Json::object();
  }
  const Result<Config> config = parse_config(document.dump());
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(*config, Config{});
}

TEST(ConfigParse, SetsWhatIsGivenAndNothingElse) {
  const Result<Config> config = parse_config(R"({
    "listen": {"address": "::1", "port": 18500, "port_max": 18599},
    "advertise": {"addresses": ["192.0.2.1", "2001:db8::1"], "port": 7},
    "local": {"enabled": false},
    "tcp": {"slice_bytes": 65536, "loopback_congestion_control": "", "source_address": "127.0.0.1"},
    "transfer": {"routes": ["tcp"]},
    "limits": {"bytes_in_flight_max": 1152921504606846976},
    "log": {"level": "warn"}
  })");
  ASSERT_TRUE(config.has_value()) << config.error().message();
  Config expected;
  expected.listen.address = "::1";
  expected.listen.port = 18500;
  expected.listen.port_max = 18599;
  expected.advertise.addresses = {"192.0.2.1", "2001:db8::1"};
  expected.advertise.port = 7;
  expected.local.enabled = false;
  expected.tcp.slice_bytes = 65536;
  expected.tcp.loopback_congestion_control = "";
  expected.tcp.source_address = "127.0.0.1";
  expected.transfer.routes = {"tcp"};
  expected.limits.bytes_in_flight_max = std::uint64_t{1} << 60;
  expected.log.level = "warn";
  EXPECT_EQ(*config, expected);
}

TEST(ConfigParse, KeepsTheOrderOfRoutes) {
  const Result<Config> config = parse_config(R"({"transfer": {"routes": ["tcp", "local"]}})");
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_THAT(config->transfer.routes, ElementsAre("tcp", "local"));
}

TEST(ConfigParse, AcceptsAnEmptyListWhereTheTableDoes) {
  const Result<Config> config = parse_config(R"({"advertise": {"addresses": []}})");
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_THAT(config->advertise.addresses, IsEmpty());
}

TEST(ConfigParse, AcceptsEveryDefaultGivenExplicitly) {
  Config defaults;
  Json document = Json::object();
  for (const KeySpec& spec : key_specs()) {
    document[std::string(spec.section())][std::string(spec.name())] =
        std::visit([](const auto* value) { return Json(*value); }, spec.field(defaults));
  }
  const Result<Config> config = parse_config(document.dump());
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(*config, Config{});
}

bool is_part(const KeySpec& spec) {
  return std::any_of(containments().begin(), containments().end(),
                     [&spec](const Containment& each) { return each.part == spec.path; });
}

TEST(ConfigParse, StoresEveryKeyInAFieldOfItsOwn) {
  for (const KeySpec& spec : key_specs()) {
    Config changed;
    std::visit(
        [&spec](auto* value) {
          using Type = std::remove_pointer_t<decltype(value)>;
          if constexpr (std::is_same_v<Type, bool>) {
            *value = !*value;
          } else if constexpr (std::is_integral_v<Type>) {
            *value = static_cast<Type>(is_part(spec) ? spec.minimum : spec.maximum);
          } else if constexpr (std::is_same_v<Type, std::string>) {
            *value = spec.path == "log.level"                         ? "debug"
                     : spec.path == "tcp.loopback_congestion_control" ? "reno"
                                                                      : "127.0.0.1";
          } else {
            *value = {spec.path == "transfer.routes" ? "tcp" : "127.0.0.1"};
          }
        },
        spec.field(changed));
    std::string document = document_with(
        spec, std::visit([](const auto* value) { return Json(*value); }, spec.field(changed)));
    if (spec.path == "listen.port_max") {
      // Means something only with listen.port.
      changed.listen.port = 1;
      document = R"({"listen": {"port": 1, "port_max": 65535}})";
    }
    const Result<Config> config = parse_config(document);
    ASSERT_TRUE(config.has_value()) << config.error().message();
    EXPECT_EQ(*config, changed) << spec.path;
    EXPECT_NE(*config, Config{}) << spec.path;
  }
}

TEST(ConfigParse, HoldsEveryIntegerToItsRange) {
  for (const KeySpec& spec : key_specs()) {
    if (!is_integer(spec)) {
      continue;
    }
    const std::string path(spec.path);
    const std::string range = std::to_string(spec.minimum) + ".." + std::to_string(spec.maximum);
    EXPECT_THAT(refusal(document_with(spec, spec.maximum + 1)),
                AllOf(StartsWith(path + ": " + std::to_string(spec.maximum + 1)),
                      HasSubstr("out of range, allowed " + range)));
    EXPECT_THAT(refusal(document_with(spec, -1)),
                StartsWith(path + ": -1 is out of range, allowed " + range));
    if (spec.minimum > 0) {
      EXPECT_THAT(refusal(document_with(spec, spec.minimum - 1)),
                  StartsWith(path + ": " + std::to_string(spec.minimum - 1) +
                             " is out of range, allowed " + range));
    }
    for (const std::uint64_t bound : {spec.minimum, spec.maximum}) {
      const std::string message = refusal(document_with(spec, bound));
      EXPECT_THAT(message, Not(HasSubstr("out of range, allowed " + range))) << path;
    }
  }
}

struct Refused {
  const char* document;
  const char* message;
};

void PrintTo(const Refused& refused, std::ostream* stream) { *stream << refused.document; }

class ConfigParseRefuses : public ::testing::TestWithParam<Refused> {};

TEST_P(ConfigParseRefuses, WithPathAndWhatIsAllowed) {
  EXPECT_EQ(refusal(GetParam().document), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    WrongType, ConfigParseRefuses,
    ::testing::Values(
        Refused{"[]", "document: is an array, must be an object"},
        Refused{"null", "document: is null, must be an object"},
        Refused{"17", "document: is 17, must be an object"},
        Refused{R"("{}")", R"(document: is the string "{}", must be an object)"},
        Refused{R"({"tcp": true})", "tcp: is true, must be an object"},
        Refused{R"({"tcp": []})", "tcp: is an array, must be an object"},
        Refused{R"({"tcp": {"enabled": 1}})", "tcp.enabled: is 1, must be true or false"},
        Refused{R"({"tcp": {"enabled": "true"}})",
                R"(tcp.enabled: is the string "true", must be true or false)"},
        Refused{R"({"tcp": {"enabled": null}})", "tcp.enabled: is null, must be true or false"},
        Refused{R"({"tcp": {"enabled": {}}})", "tcp.enabled: is an object, must be true or false"},
        Refused{R"({"tcp": {"bulk_lanes_per_peer": "4"}})",
                R"(tcp.bulk_lanes_per_peer: is the string "4", must be an integer, 1..16)"},
        Refused{R"({"tcp": {"bulk_lanes_per_peer": 4.0}})",
                "tcp.bulk_lanes_per_peer: is 4.0, must be an integer, 1..16"},
        Refused{R"({"tcp": {"bulk_lanes_per_peer": 1e1}})",
                "tcp.bulk_lanes_per_peer: is 1e1, must be an integer, 1..16"},
        Refused{R"({"tcp": {"slice_bytes": [65536]}})",
                "tcp.slice_bytes: is an array, must be an integer, 65536..4194304 bytes"},
        Refused{R"({"log": {"level": 3}})",
                "log.level: is 3, must be a string: \"\", trace, debug, info, warn, error, off"},
        Refused{R"({"transfer": {"routes": "tcp"}})",
                "transfer.routes: is the string \"tcp\", must be an array of 1..4 strings: local, "
                "shm, cma, tcp, none twice"},
        Refused{R"({"transfer": {"routes": ["tcp", 1]}})",
                "transfer.routes[1]: is 1, must be a string: local, shm, cma, tcp, none twice"},
        Refused{
            R"({"transfer": {"routes": [["tcp"]]}})",
            "transfer.routes[0]: is an array, must be a string: local, shm, cma, tcp, none twice"},
        Refused{R"({"transfer": {"routes": [{}]}})",
                "transfer.routes[0]: is an object, must be a string: local, shm, cma, tcp, none "
                "twice"}));

INSTANTIATE_TEST_SUITE_P(
    OutOfRange, ConfigParseRefuses,
    ::testing::Values(
        Refused{R"({"tcp": {"bulk_lanes_per_peer": 99}})",
                "tcp.bulk_lanes_per_peer: 99 is out of range, allowed 1..16"},
        Refused{R"({"listen": {"port": 65536}})",
                "listen.port: 65536 is out of range, allowed 0..65535"},
        Refused{R"({"tcp": {"slice_bytes": 18446744073709551616}})",
                "tcp.slice_bytes: 18446744073709551616 is out of range, allowed 65536..4194304 "
                "bytes"},
        Refused{R"({"tcp": {"slice_bytes": -9223372036854775809}})",
                "tcp.slice_bytes: -9223372036854775809 is out of range, allowed 65536..4194304 "
                "bytes"},
        Refused{R"({"transfer": {"routes": []}})",
                "transfer.routes: too few entries, allowed 1..4 of them"},
        Refused{R"({"transfer": {"routes": ["tcp", "local", "shm", "cma", "tcp"]}})",
                "transfer.routes: too many entries, allowed 1..4 of them"},
        Refused{R"({"transfer": {"routes": ["tcp", "tcp"]}})",
                R"(transfer.routes[1]: "tcp" is there twice, allowed once)"},
        Refused{R"({"transfer": {"routes": ["rdma"]}})",
                "transfer.routes[0]: \"rdma\" is not allowed, allowed: local, shm, cma, tcp, none "
                "twice"},
        Refused{R"({"log": {"level": "loud"}})",
                "log.level: \"loud\" is not allowed, allowed: \"\", trace, debug, info, warn, "
                "error, off"},
        Refused{R"({"tcp": {"loopback_congestion_control": "abcdefghijklmnop"}})",
                "tcp.loopback_congestion_control: \"abcdefghijklmnop\" is not allowed, allowed: "
                "0..15 of the characters a-z A-Z 0-9 _ -"},
        Refused{R"({"tcp": {"loopback_congestion_control": "a\u0000b"}})",
                "tcp.loopback_congestion_control: \"a\\x00b\" is not allowed, allowed: 0..15 of "
                "the characters a-z A-Z 0-9 _ -"}));

INSTANTIATE_TEST_SUITE_P(
    UnknownKey, ConfigParseRefuses,
    ::testing::Values(
        Refused{R"({"tpc": {}})", "tpc: unknown key; did you mean tcp?"},
        Refused{R"({"tcp": {"slice_byte": 1}})",
                "tcp.slice_byte: unknown key; did you mean tcp.slice_bytes?"},
        Refused{R"({"tcp": {"Enabled": true}})",
                "tcp.Enabled: unknown key; did you mean tcp.enabled?"},
        Refused{R"({"tcp": {"port": 1}})", "tcp.port: unknown key; did you mean listen.port?"},
        Refused{R"({"slice_bytes": 1})", "slice_bytes: unknown key; did you mean tcp.slice_bytes?"},
        Refused{R"({"tcp.enabled": true})",
                R"(tcp.enabled: unknown key; write {"tcp": {"enabled": ...}})"},
        Refused{
            R"({"bandwidth": 1})",
            "bandwidth: unknown key; allowed here: listen, advertise, local, copy, shm, cma, tcp, "
            "transfer, limits, notifications, worker, close, log"},
        Refused{R"({"listen": {"interface_name": "eth0"}})",
                "listen.interface_name: unknown key; allowed here: address, port, port_max"},
        Refused{R"({"": {}})",
                "\"\": unknown key; allowed here: listen, advertise, local, copy, shm, cma, tcp, "
                "transfer, "
                "limits, notifications, worker, close, log"},
        Refused{R"({"tcp": {"multi_rail": true}})",
                "tcp.multi_rail: unknown key; allowed here: enabled, source_address, "
                "bulk_lanes_per_peer, connect_timeout_ms, handshake_timeout_ms, "
                "progress_timeout_ms, ..."},
        Refused{R"({"log": {"l\u00e9vel\u0000": ""}})",
                "log.l\\xc3\\xa9vel\\x00: unknown key; allowed here: level"}));

INSTANTIATE_TEST_SUITE_P(
    DuplicateKey, ConfigParseRefuses,
    ::testing::Values(Refused{R"({"tcp": {}, "log": {}, "tcp": {}})",
                              "tcp: duplicate key, allowed once"},
                      Refused{R"({"tcp": {"enabled": true, "small_bytes": 0, "enabled": true}})",
                              "tcp.enabled: duplicate key, allowed once"},
                      Refused{R"({"tcp": {"enabled": true, "\u0065nabled": true}})",
                              "tcp.enabled: duplicate key, allowed once"}));

INSTANTIATE_TEST_SUITE_P(
    Relations, ConfigParseRefuses,
    ::testing::Values(
        Refused{R"({"listen": {"port_max": 10}})",
                "listen.port_max: 10 without listen.port, allowed 0, or set listen.port too"},
        Refused{R"({"listen": {"port_max": 10, "port": 11}})",
                "listen.port_max: 10 is out of range, allowed 0 or 11..65535, as listen.port is "
                "11"},
        Refused{R"({"tcp": {"lane_bytes_in_flight_max": 1048576, "slice_bytes": 1048577}})",
                "tcp.slice_bytes: 1048577 is more than tcp.lane_bytes_in_flight_max, allowed at "
                "most 1048576"},
        Refused{R"({"limits": {"descriptors_max": 10}})",
                "limits.descriptors_per_request_max: 4194304 is more than limits.descriptors_max, "
                "allowed at most 10"},
        Refused{R"({"notifications": {"inbox_bytes_max": 65536}})",
                "notifications.message_bytes_max: 1048576 is more than "
                "notifications.inbox_bytes_max, allowed at most 65536"},
        Refused{R"({"notifications": {"outbox_bytes_max": 65536}})",
                "notifications.message_bytes_max: 1048576 is more than "
                "notifications.outbox_bytes_max, allowed at most 65536"}));

TEST(ConfigParse, AcceptsRelationsAtTheirBounds) {
  EXPECT_EQ(refusal(R"({"listen": {"port": 11, "port_max": 11}})"), "accepted");
  EXPECT_EQ(refusal(R"({"tcp": {"slice_bytes": 1048576, "lane_bytes_in_flight_max": 1048576}})"),
            "accepted");
}

class ConfigParseNotJson : public ::testing::TestWithParam<Refused> {};

TEST_P(ConfigParseNotJson, IsRefusedWithThePlace) {
  EXPECT_THAT(refusal(GetParam().document), StartsWith(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Places, ConfigParseNotJson,
    ::testing::Values(
        Refused{"", "line 1, column 1: not JSON: "}, Refused{"{", "line 1, column 2: not JSON: "},
        Refused{"\n\n  x", "line 3, column 3: not JSON: "},
        Refused{"{}x", "line 1, column 3: not JSON: "},
        Refused{"{}{}", "line 1, column 3: not JSON: "},
        Refused{"{\"tcp\": {},}", "line 1, column 12: not JSON: "},
        Refused{"{\"tcp\": {}\n\"log\": {}}", "line 2, column 5: not JSON: "},
        Refused{"{'tcp': {}}", "line 1, column 2: not JSON: "},
        Refused{"{} // comment", "line 1, column 4: not JSON: "},
        Refused{"{\"tcp\": {\"slice_bytes\": NaN}}", "line 1, column 25: not JSON: "},
        Refused{"{\"tcp\": {\"slice_bytes\": 065536}}", "line 1, column 30: not JSON: "},
        Refused{"{\"tcp\": {\"slice_bytes\": +65536}}", "line 1, column 25: not JSON: "},
        Refused{"{\"tcp\": {\"slice_bytes\": 1e400}}", "line 1, column "},
        Refused{"{\"log\": {\"level\": \"\xFF\"}}", "line 1, column 20: not JSON: "},
        Refused{"{\"log\": {\"level\": \"\xED\xA0\x80\"}}", "line 1, column "},
        Refused{"{\"log\": {\"level\": \"\\ud800\"}}", "line 1, column "},
        Refused{"{\"log\": {\"level\": \"a\tb\"}}", "line 1, column "},
        Refused{"\xC2\xA0{}", "line 1, column 1: not JSON: "}));

TEST(ConfigParse, RefusesWhatFollowsANulByte) {
  EXPECT_EQ(refusal(std::string_view("{}\0{\"tcp\": 1}", 13)),
            "line 1, column 3: not JSON: a NUL byte");
  EXPECT_EQ(refusal(std::string_view("{}\n\0", 4)), "line 2, column 1: not JSON: a NUL byte");
}

TEST(ConfigParse, RefusesMoreBytesThanAllowed) {
  std::string document = "{}";
  document.resize(kConfigBytesMax, ' ');
  EXPECT_EQ(refusal(document), "accepted");
  document += ' ';
  EXPECT_EQ(refusal(document), "document: 1048577 bytes are too many, allowed 1048576");
}

TEST(ConfigParse, RefusesDeepNestingAtItsFirstWrongLevel) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_EQ(refusal(deep), "document: is an array, must be an object");
  EXPECT_EQ(refusal(R"({"tcp": )" + deep + "}"), "tcp: is an array, must be an object");
  EXPECT_EQ(refusal(R"({"tcp": {"enabled": )" + deep + "}}"),
            "tcp.enabled: is an array, must be true or false");
  EXPECT_EQ(refusal(R"({"transfer": {"routes": )" + deep + "}}"),
            "transfer.routes[0]: is an array, must be a string: local, shm, cma, tcp, none twice");
  std::string objects;
  for (int i = 0; i < 10'000; ++i) {
    objects += R"({"log":)";
  }
  objects += "0" + std::string(10'000, '}');
  EXPECT_EQ(refusal(objects), "log.log: unknown key; allowed here: level");
}

TEST(ConfigParse, RefusesDeepNestingThatDoesNotEnd) {
  EXPECT_THAT(refusal(std::string(500'000, '[')), StartsWith("line 1, column 500001: not JSON: "));
}

TEST(ConfigParse, KeepsMessagesShortWhateverTheDocumentHolds) {
  const std::string long_text(300'000, 'x');
  const std::string key = refusal("{\"" + long_text + "\": 1}");
  EXPECT_THAT(key, StartsWith(std::string(48, 'x') + "...: unknown key; allowed here: listen"));
  const std::string value = refusal(R"({"log": {"level": ")" + long_text + "\"}}");
  EXPECT_EQ(value, "log.level: \"" + std::string(40, 'x') +
                       "...\" is not allowed, allowed: \"\", trace, debug, info, warn, error, off");
  const std::string number =
      refusal(R"({"tcp": {"slice_bytes": )" + std::string(300'000, '9') + "}}");
  EXPECT_THAT(number, AnyOf(HasSubstr("out of range"), HasSubstr("overflow")));
}

class ConfigAddresses : public ::testing::TestWithParam<const char*> {};

TEST_P(ConfigAddresses, IsRefusedWhereAnAddressIsDue) {
  const Json text = std::string(GetParam());
  EXPECT_THAT(refusal(Json{{"listen", {{"address", text}}}}.dump()),
              AllOf(StartsWith("listen.address: \""), HasSubstr("allowed: \"\" or an IPv4 or")));
  EXPECT_THAT(refusal(Json{{"tcp", {{"source_address", text}}}}.dump()),
              AllOf(StartsWith("tcp.source_address: \""), HasSubstr("allowed: \"\" or a unicast")));
  EXPECT_THAT(refusal(Json{{"advertise", {{"addresses", {text}}}}}.dump()),
              AllOf(StartsWith("advertise.addresses[0]: \""), HasSubstr("allowed: unicast IPv4")));
}

INSTANTIATE_TEST_SUITE_P(NotAddresses, ConfigAddresses,
                         ::testing::Values("localhost", "1.2.3", "1.2.3.4.5", "1.2.3.256",
                                           " 1.2.3.4", "1.2.3.4 ", "1.2.3.4:5", "[::1]", "::1%lo",
                                           "fe80::1", "fe80::1%eth0", "224.0.0.1",
                                           "255.255.255.255", "ff02::1", "1::2::3",
                                           "12345::", "0x7f.1", "*"));

TEST(ConfigParse, RefusesANulByteInsideAnAddress) {
  EXPECT_THAT(refusal(R"({"listen": {"address": "127.0.0.1\u0000x"}})"),
              StartsWith("listen.address: \"127.0.0.1\\x00x\" is not allowed"));
}

TEST(ConfigParse, TakesUnspecifiedAddressesForListeningOnly) {
  for (const std::string text : {"0.0.0.0", "::"}) {
    EXPECT_EQ(refusal(Json{{"listen", {{"address", text}}}}.dump()), "accepted");
    EXPECT_THAT(refusal(Json{{"tcp", {{"source_address", text}}}}.dump()),
                HasSubstr("is not allowed"));
    EXPECT_THAT(refusal(Json{{"advertise", {{"addresses", {text}}}}}.dump()),
                HasSubstr("is not allowed"));
  }
}

TEST(ConfigParse, RefusesAnEmptyAdvertisedAddress) {
  EXPECT_THAT(refusal(R"({"advertise": {"addresses": [""]}})"),
              StartsWith("advertise.addresses[0]: \"\" is not allowed"));
}

TEST(ConfigParse, RefusesNineAdvertisedAddresses) {
  Json addresses = Json::array();
  for (int i = 1; i <= 8; ++i) {
    addresses.push_back("192.0.2." + std::to_string(i));
  }
  EXPECT_EQ(refusal(Json{{"advertise", {{"addresses", addresses}}}}.dump()), "accepted");
  addresses.push_back("192.0.2.9");
  EXPECT_EQ(refusal(Json{{"advertise", {{"addresses", addresses}}}}.dump()),
            "advertise.addresses: too many entries, allowed 0..8 of them");
}

std::vector<std::string> all_refusals(std::string_view document) {
  std::vector<std::string> contexts;
  for (const Error& error : config_errors(document)) {
    EXPECT_EQ(error.code(), ErrorCode::kBadConfig);
    contexts.emplace_back(error.context());
  }
  return contexts;
}

TEST(ConfigErrors, AreNoneForWhatIsAccepted) {
  EXPECT_THAT(all_refusals("{}"), IsEmpty());
  EXPECT_THAT(all_refusals(config_defaults_json()), IsEmpty());
}

TEST(ConfigErrors, TellEverythingThatIsWrongInOrder) {
  EXPECT_THAT(
      all_refusals(R"({
    "listen": {"port": 70000, "prot": {"deep": [1, {"port": 2}]}, "port_max": 5},
    "nonsense": {"port": "x", "more": []},
    "tcp": [1, {"enabled": 3}],
    "local": {"enabled": [true], "enabled": false},
    "transfer": {"routes": ["local", "udp", {"a": ["b"]}, "shm", "tcp"]},
    "advertise": {"addresses": [1, "192.0.2.1", "192.0.2.1", [2]]},
    "log": {"level": {"level": "info"}},
    "log": {"level": 5},
    "close": {"timeout_ms": "soon"}
  })"),
      ElementsAre(
          StartsWith("listen.port: 70000 is out of range"), StartsWith("listen.prot: unknown key"),
          StartsWith("nonsense: unknown key"), StartsWith("tcp: is an array"),
          StartsWith("local.enabled: is an array"), StartsWith("local.enabled: duplicate key"),
          StartsWith("transfer.routes[1]: \"udp\""), StartsWith("transfer.routes[2]: is an object"),
          StartsWith("transfer.routes: too many entries"),
          StartsWith("advertise.addresses[0]: is 1"),
          StartsWith("advertise.addresses[2]: \"192.0.2.1\" is there twice"),
          StartsWith("advertise.addresses[3]: is an array"), StartsWith("log.level: is an object"),
          StartsWith("log: duplicate key"), StartsWith("close.timeout_ms: is the string")));
}

TEST(ConfigErrors, OfSeveralKeysAreToldOnlyOfGoodOnes) {
  EXPECT_THAT(all_refusals(R"({"listen": {"port": -1, "port_max": 5},
                               "notifications": {"inbox_bytes_max": 65536,
                                                 "outbox_bytes_max": 1}})"),
              ElementsAre(StartsWith("listen.port: -1 is out of range"),
                          StartsWith("notifications.outbox_bytes_max: 1 is out of range"),
                          StartsWith("notifications.message_bytes_max: 1048576 is more than "
                                     "notifications.inbox_bytes_max")));
}

TEST(ConfigErrors, AreBounded) {
  std::string document = R"({"listen": {"port": 1)";
  for (int i = 0; i < 1'000; ++i) {
    document += ",\"key" + std::to_string(i) + "\": [[{\"a\": 1}]]";
  }
  document += "}}";
  EXPECT_EQ(config_errors(document).size(), kConfigErrorsMax);
  EXPECT_THAT(all_refusals("[{\"port\": 1}, [[]]]"),
              ElementsAre("document: is an array, must be an object"));
  EXPECT_THAT(all_refusals("{\"tcp\": }"), ElementsAre(HasSubstr("not JSON")));
}

TEST(ConfigErrors, FirstIsTheOneThatParsingTells) {
  for (const std::string_view document :
       {R"({"a": 1, "b": 2})", R"({"log": {"level": "loud"}, "tcp": 1})", "[", ""}) {
    EXPECT_EQ(refusal(document), all_refusals(document).front());
  }
}

}  // namespace
}  // namespace orbite::config
