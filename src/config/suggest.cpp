// SPDX-License-Identifier: Apache-2.0
#include "config/suggest.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "config/keys.hpp"

namespace orbite::config {
namespace {

// Bounds the work of edit_distance: no key is nearly as long.
constexpr std::size_t kNameBytesMax = 64;
constexpr std::size_t kListBytesMax = 120;

// Levenshtein distance: insertions, removals and replacements of one byte.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

struct Nearest {
  std::string_view text;
  std::size_t distance = kNameBytesMax;

  void offer(std::string_view candidate, std::size_t candidate_distance) {
    if (candidate_distance < distance) {
      text = candidate;
      distance = candidate_distance;
    }
  }
};

Nearest nearest_to(std::string_view section, std::string_view name) {
  Nearest nearest;
  if (section.empty()) {
    for (const std::string_view candidate : section_names()) {
      nearest.offer(candidate, edit_distance(name, candidate));
    }
  }
  for (const KeySpec& spec : key_specs()) {
    // A key of the same section is the better guess where names are equally near.
    const std::size_t elsewhere = spec.section() == section ? 0 : 1;
    nearest.offer(spec.path, edit_distance(name, spec.name()) + elsewhere);
  }
  return nearest;
}

/// Cut after a whole name, so that a message that ends with it stays readable.
std::string allowed_names(std::string_view section) {
  std::vector<std::string_view> names;
  if (section.empty()) {
    names = section_names();
  } else {
    for (const KeySpec& spec : key_specs()) {
      if (spec.section() == section) {
        names.push_back(spec.name());
      }
    }
  }
  std::string text;
  for (const std::string_view name : names) {
    if (text.size() + name.size() > kListBytesMax) {
      return text + ", ...";
    }
    text += text.empty() ? "" : ", ";
    text += name;
  }
  return text;
}

}  // namespace

std::string advice_for_unknown_key(std::string_view section, std::string_view name) {
  if (section.empty() && find_key(name) != nullptr) {
    const KeySpec& spec = *find_key(name);
    return "write {\"" + std::string(spec.section()) + "\": {\"" + std::string(spec.name()) +
           "\": ...}}";
  }
  if (name.size() <= kNameBytesMax) {
    const Nearest nearest = nearest_to(section, name);
    if (nearest.distance <= std::max<std::size_t>(2, name.size() / 3)) {
      return "did you mean " + std::string(nearest.text) + "?";
    }
  }
  return "allowed here: " + allowed_names(section);
}

std::string printable(std::string_view text, std::size_t bytes_max) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string result;
  for (const char c : text) {
    if (result.size() >= bytes_max) {
      return result + "...";
    }
    if (c >= ' ' && c <= '~') {
      result += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      result += "\\x";
      result += kDigits[byte >> 4];
      result += kDigits[byte & 15];
    }
  }
  return result;
}

}  // namespace orbite::config
