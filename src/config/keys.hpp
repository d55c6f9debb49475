// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "orbite/config.hpp"

namespace orbite::config {

using StringList = std::vector<std::string>;
/// Where a key lives in a Config; the alternative is its type.
using Field = std::variant<bool*, std::uint16_t*, std::uint64_t*, std::string*, StringList*>;

/// One row of the only list of keys: parsing, defaults and documentation come from it. Defaults are
/// those of a default-constructed Config.
struct KeySpec {
  /// `section.name`; every key has exactly one section.
  std::string_view path;
  Field (*field)(Config&);
  /// Of an integer: its range. Of a list: the number of its entries. Otherwise 0.
  std::uint64_t minimum = 0;
  std::uint64_t maximum = 0;
  /// Of an integer that has one: "bytes" or "ms".
  std::string_view unit = {};
  /// Of a string, or of each entry of a list.
  bool (*accepts)(std::string_view) = nullptr;
  /// Says what `accepts` accepts, or what holds of an integer beyond its range.
  std::string_view allowed = {};
  /// A clause that can stand in a table cell.
  std::string_view meaning = {};

  [[nodiscard]] std::string_view section() const { return path.substr(0, path.find('.')); }
  [[nodiscard]] std::string_view name() const { return path.substr(path.find('.') + 1); }
};

/// `part` must not be larger than `whole`; both are std::uint64_t keys.
struct Containment {
  std::string_view part;
  std::string_view whole;
};

/// The keys of a section are adjacent.
std::span<const KeySpec> key_specs();
std::span<const Containment> containments();

/// nullptr when there is none.
const KeySpec* find_key(std::string_view path);
/// The sections in the order of the table.
std::vector<std::string_view> section_names();

/// The value of an integer key.
std::uint64_t integer_value(const KeySpec& spec, Config& config);

}  // namespace orbite::config
