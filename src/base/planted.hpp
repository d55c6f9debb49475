// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace orbite::base {

/// Errors made on purpose, for the checkers to catch: one that misses its bug is worth nothing.
enum class Bug : std::uint8_t {
#define ORBITE_PLANTED_BUG(constant, name, invariants, wrong) constant,
#include "base/planted_bugs.def"
#undef ORBITE_PLANTED_BUG
};

struct BugDescription {
  Bug bug;
  std::string_view name;
  std::string_view invariants;
  std::string_view wrong;
};
inline constexpr BugDescription kBugs[] = {
#define ORBITE_PLANTED_BUG(constant, name, invariants, wrong) \
  {Bug::constant, name, invariants, wrong},
#include "base/planted_bugs.def"
#undef ORBITE_PLANTED_BUG
};

#ifdef ORBITE_PLANTED_BUGS
/// Whether the code is to make that error now.
[[nodiscard]] bool planted(Bug bug) noexcept;
/// One at a time. False: no bug of that name.
bool plant(std::string_view name) noexcept;
void unplant() noexcept;
#else
[[nodiscard]] constexpr bool planted(Bug /*bug*/) noexcept { return false; }
#endif

}  // namespace orbite::base
