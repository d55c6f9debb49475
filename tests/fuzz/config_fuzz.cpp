// SPDX-License-Identifier: Apache-2.0
// Any bytes as a configuration: refused with a message of printable text, or accepted with every
// value inside its range.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "base/assert.hpp"
#include "config/keys.hpp"
#include "orbite/config.hpp"

namespace {

bool is_allowed(const orbite::config::KeySpec& spec, orbite::Config& config) {
  struct Visitor {
    const orbite::config::KeySpec& spec;
    bool in_range(std::uint64_t value) const {
      return value >= spec.minimum && value <= spec.maximum;
    }
    bool operator()(const bool*) const { return true; }
    bool operator()(const std::uint16_t* value) const { return in_range(*value); }
    bool operator()(const std::uint64_t* value) const { return in_range(*value); }
    bool operator()(const std::string* value) const { return spec.accepts(*value); }
    bool operator()(const orbite::config::StringList* value) const {
      return in_range(value->size()) && std::all_of(value->begin(), value->end(), spec.accepts);
    }
  };
  return std::visit(Visitor{spec}, spec.field(config));
}

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // SAFETY: any object may be read as char.
  orbite::Result<orbite::Config> config =
      orbite::parse_config({reinterpret_cast<const char*>(data), size});
  const std::vector<orbite::Error> errors =
      orbite::config_errors({reinterpret_cast<const char*>(data), size});
  ORBITE_CHECK(config.has_value() == errors.empty());
  ORBITE_CHECK(errors.size() <= orbite::kConfigErrorsMax);
  for (const orbite::Error& error : errors) {
    ORBITE_CHECK(error.code() == orbite::ErrorCode::kBadConfig);
    ORBITE_CHECK(!error.context().empty());
    ORBITE_CHECK(is_printable(error.context()));
  }
  if (!config) {
    ORBITE_CHECK(config.error().context() == errors.front().context());
    return 0;
  }
  for (const orbite::config::KeySpec& spec : orbite::config::key_specs()) {
    ORBITE_CHECK(is_allowed(spec, *config));
  }
  return 0;
}
