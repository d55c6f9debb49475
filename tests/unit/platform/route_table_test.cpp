// SPDX-License-Identifier: Apache-2.0
#include "platform/route_table.hpp"

#include <gtest/gtest.h>

#include <string_view>

namespace orbite::platform {
namespace {

constexpr std::string_view kIpv4Header =
    "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";

std::string ipv4(std::initializer_list<std::string_view> lines) {
  DefaultRoute route;
  route.add_ipv4(kIpv4Header);
  for (const auto line : lines) {
    route.add_ipv4(line);
  }
  return route.interface();
}

std::string ipv6(std::initializer_list<std::string_view> lines) {
  DefaultRoute route;
  for (const auto line : lines) {
    route.add_ipv6(line);
  }
  return route.interface();
}

TEST(DefaultRouteIpv4, IsTheUsableOneWithTheLowestMetric) {
  constexpr std::string_view kNet = "eth9\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
  constexpr std::string_view kSlow =
      "wlan0\t00000000\t010200C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n";
  constexpr std::string_view kFast =
      "eth0\t00000000\t010200C0\t0003\t0\t0\t99\t00000000\t0\t0\t0\n";
  constexpr std::string_view kSame =
      "eth1\t00000000\t010200C0\t0003\t0\t0\t99\t00000000\t0\t0\t0\n";
  constexpr std::string_view kDown = "eth2\t00000000\t010200C0\t0002\t0\t0\t1\t00000000\t0\t0\t0\n";
  constexpr std::string_view kReject = "lo\t00000000\t00000000\t0201\t0\t0\t0\t00000000\t0\t0\t0\n";
  constexpr std::string_view kHalf = "tun0\t00000000\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0\n";
  EXPECT_EQ(ipv4({}), "");
  EXPECT_EQ(ipv4({kNet, kHalf, kDown, kReject}), "");
  EXPECT_EQ(ipv4({kNet, kSlow}), "wlan0");
  EXPECT_EQ(ipv4({kSlow, kFast, kSame, kDown, kHalf}), "eth0");
  EXPECT_EQ(ipv4({kSame, kFast}), "eth1");
}

TEST(DefaultRouteIpv4, PassesOverWhatDoesNotParse) {
  EXPECT_EQ(ipv4({"", "\n", "eth0", "eth0\t00000000", "eth0 00000000 x 0003 0 0 zz 00000000",
                  "eth0 00000000 x zz 0 0 1 00000000", "eth0 0000 x 0003 0 0 1 00000000",
                  "eth0 00000000 x 0003 0 0 -1 00000000", "eth0 00000000 x 0003 0 0 1 0000000",
                  "eth0 00000000 x 0003 0 0 99999999999999999999 00000000"}),
            "");
}

TEST(DefaultRouteIpv6, IsTheUsableOneWithTheLowestMetric) {
  constexpr std::string_view kZeros = "00000000000000000000000000000000";
  const auto line = [&](std::string_view length, std::string_view metric, std::string_view flags,
                        std::string_view interface) {
    return std::string(kZeros) + " " + std::string(length) + " " + std::string(kZeros) +
           " 00 fd000000000000000000000000000001 " + std::string(metric) + " 00000002 00000000 " +
           std::string(flags) + "     " + std::string(interface) + "\n";
  };
  const std::string reject = line("00", "ffffffff", "00200200", "lo");
  const std::string network = line("40", "00000001", "00000001", "eth9");
  const std::string slow = line("00", "00000400", "00000003", "eth0");
  const std::string fast = line("00", "000003ff", "00000003", "eth1");
  const std::string down = line("00", "00000001", "00000002", "eth2");
  EXPECT_EQ(ipv6({}), "");
  EXPECT_EQ(ipv6({reject, network, down}), "");
  EXPECT_EQ(ipv6({reject, slow}), "eth0");
  EXPECT_EQ(ipv6({slow, fast, down}), "eth1");
  EXPECT_EQ(ipv6({"", "x", kZeros, line("0", "00000001", "00000003", "eth0"),
                  line("00", "xyz", "00000003", "eth0"), line("00", "00000001", "00000003", "")}),
            "");
}

}  // namespace
}  // namespace orbite::platform
