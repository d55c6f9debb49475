// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orbite/transfer.hpp"

namespace orbite::test {

/// What can happen next to one request, or to the engine around all of them.
enum class Act : std::uint8_t {
  // Of a request; by the user:
  kPost,
  kCancel,
  kCheck,
  kRelease,
  // by the world, whenever the transport is at that point:
  kEnter,
  kLand,
  kComplete,
  kRetire,
  // Of the engine; by the user:
  kDeregisterNear,
  kUnload,
  kInvalidate,
  kClose,
  // by the far side:
  kDeregisterFar,
  kRestart
};
inline constexpr std::size_t kActs = 14;
[[nodiscard]] const char* name_of(Act act);
[[nodiscard]] constexpr bool is_of_request(Act act) { return act <= Act::kRetire; }

struct Event {
  Act act = Act::kPost;
  std::uint8_t request = 0;
};
[[nodiscard]] std::string text_of(const std::vector<Event>& order);

/// What becomes of the first slice of each execution; later ones succeed.
enum class Ending : std::uint8_t {
  kSuccess,
  kShort,    ///< a prefix lands, and no more
  kUnknown,  ///< completed without a word of its bytes, which land later
  kLost      ///< the same, and retired by an operator's word alone
};

/// A world to start from, and what its user does: each call once, in any order.
struct Scenario {
  std::string name;
  std::uint8_t requests = 1;
  Operation operation = Operation::kWrite;
  Ending ending = Ending::kSuccess;
  std::uint8_t slices = 1;
  bool notifies = false;
  std::uint8_t posts = 1;  ///< of each request
  std::vector<Act> calls;
  bool is_engine = false;  ///< the real engine stands behind the calls, else its rooms
};

}  // namespace orbite::test
