// SPDX-License-Identifier: Apache-2.0
#include "platform/route_table.hpp"

#include <net/route.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>

namespace orbite::platform {
namespace {

/// The first words of a line; the rest are empty.
template <std::size_t N>
std::array<std::string_view, N> words_of(std::string_view line) {
  constexpr std::string_view kBlank = " \t\n";
  std::array<std::string_view, N> words{};
  for (std::string_view& word : words) {
    const std::size_t start = std::min(line.find_first_not_of(kBlank), line.size());
    line.remove_prefix(start);
    word = line.substr(0, line.find_first_of(kBlank));
    line.remove_prefix(word.size());
  }
  return words;
}

std::optional<std::uint64_t> number(std::string_view text, int base) {
  std::uint64_t value = 0;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [stop, error] = std::from_chars(begin, end, value, base);
  if (text.empty() || error != std::errc{} || stop != end) {
    return std::nullopt;
  }
  return value;
}

bool all_zeros(std::string_view text, std::size_t digits) {
  return text.size() == digits && text.find_first_not_of('0') == std::string_view::npos;
}

bool usable(std::uint64_t flags) { return (flags & RTF_UP) != 0 && (flags & RTF_REJECT) == 0; }

}  // namespace

void DefaultRoute::offer(std::string_view interface, std::uint64_t metric) {
  if (!interface.empty() && (interface_.empty() || metric < metric_)) {
    interface_ = interface;
    metric_ = metric;
  }
}

void DefaultRoute::add_ipv4(std::string_view line) {
  // Iface Destination Gateway Flags RefCnt Use Metric Mask; the metric alone is decimal.
  const auto words = words_of<8>(line);
  const auto flags = number(words[3], 16);
  const auto metric = number(words[6], 10);
  if (all_zeros(words[1], 8) && all_zeros(words[7], 8) && flags && metric && usable(*flags)) {
    offer(words[0], *metric);
  }
}

void DefaultRoute::add_ipv6(std::string_view line) {
  // Destination length, source length, next hop, metric, references, uses, flags, interface.
  const auto words = words_of<10>(line);
  const auto metric = number(words[5], 16);
  const auto flags = number(words[8], 16);
  if (all_zeros(words[0], 32) && all_zeros(words[1], 2) && flags && metric && usable(*flags)) {
    offer(words[9], *metric);
  }
}

}  // namespace orbite::platform
