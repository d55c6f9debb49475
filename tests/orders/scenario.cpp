// SPDX-License-Identifier: Apache-2.0
#include "orders/scenario.hpp"

namespace orbite::test {

const char* name_of(Act act) {
  static constexpr const char* kNames[kActs] = {
      "post",   "cancel",   "check",  "release",    "enter", "land",     "complete",
      "retire", "dereg(l)", "unload", "invalidate", "close", "dereg(r)", "restart"};
  return kNames[static_cast<std::size_t>(act)];
}

std::string text_of(const std::vector<Event>& order) {
  std::string text;
  for (const Event& event : order) {
    text += text.empty() ? "" : " ";
    text += name_of(event.act);
    if (is_of_request(event.act)) {
      text += std::to_string(event.request);
    }
  }
  return text;
}

}  // namespace orbite::test
