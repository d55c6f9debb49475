// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace orbite::platform {

/// The interface of the default route with the lowest metric, the first of equals; lines are fed
/// one by one in the format of /proc/net/route (add_ipv4) or /proc/net/ipv6_route (add_ipv6). Lines
/// that do not parse are passed over.
class DefaultRoute {
 public:
  void add_ipv4(std::string_view line);
  void add_ipv6(std::string_view line);
  /// Empty when there is none.
  [[nodiscard]] const std::string& interface() const noexcept { return interface_; }

 private:
  void offer(std::string_view interface, std::uint64_t metric);

  std::string interface_;
  std::uint64_t metric_ = 0;
};

}  // namespace orbite::platform
