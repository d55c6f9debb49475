// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

#include "platform/native_address.hpp"
#include "platform/network.hpp"

namespace orbite::platform {
namespace {

struct GoodAddress {
  std::string_view literal;
  std::uint8_t family;
  bool loopback;
  bool any;
  std::string_view text;
};

TEST(SocketAddressParse, AcceptsLiterals) {
  constexpr GoodAddress kTable[] = {
      {"127.0.0.1", 4, true, false, "127.0.0.1:99"},
      {"127.255.0.9", 4, true, false, "127.255.0.9:99"},
      {"128.0.0.1", 4, false, false, "128.0.0.1:99"},
      {"0.0.0.0", 4, false, true, "0.0.0.0:99"},
      {"255.255.255.255", 4, false, false, "255.255.255.255:99"},
      {"10.0.0.1", 4, false, false, "10.0.0.1:99"},
      {"::", 6, false, true, "[::]:99"},
      {"::1", 6, true, false, "[::1]:99"},
      {"::2", 6, false, false, "[::2]:99"},
      {"1::1", 6, false, false, "[1::1]:99"},
      {"FD00:0:0::1", 6, false, false, "[fd00::1]:99"},
      {"::ffff:127.0.0.1", 6, true, false, "[::ffff:127.0.0.1]:99"},
      {"::ffff:10.0.0.1", 6, false, false, "[::ffff:10.0.0.1]:99"},
      {"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 6, false, false,
       "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:99"},
  };
  for (const GoodAddress& row : kTable) {
    const auto address = SocketAddress::parse(row.literal, 99);
    ASSERT_TRUE(address) << row.literal << ": " << address.error().message();
    EXPECT_EQ(address->family(), row.family) << row.literal;
    EXPECT_EQ(address->port(), 99) << row.literal;
    EXPECT_EQ(address->is_loopback(), row.loopback) << row.literal;
    EXPECT_EQ(address->is_any(), row.any) << row.literal;
    EXPECT_EQ(address->text(), row.text);
  }
}

TEST(SocketAddressParse, RefusesTheRestAndNamesIt) {
  using namespace std::string_view_literals;
  const std::string too_long(4096, '1');
  const std::string_view bad[] = {""sv,
                                  " 127.0.0.1"sv,
                                  "127.0.0.1 "sv,
                                  "127.0.0"sv,
                                  "127.1"sv,
                                  "127.0.0.1.1"sv,
                                  "256.0.0.1"sv,
                                  "1.2.3.-4"sv,
                                  "01.2.3.4"sv,
                                  "0x7f.0.0.1"sv,
                                  "2130706433"sv,
                                  "localhost"sv,
                                  "example.org"sv,
                                  "127.0.0.1:80"sv,
                                  "[::1]"sv,
                                  "::1]"sv,
                                  ":::"sv,
                                  "1::2::3"sv,
                                  "12345::"sv,
                                  "::g"sv,
                                  "1:2:3:4:5:6:7"sv,
                                  "1:2:3:4:5:6:7:8:9"sv,
                                  "fe80::1%lo"sv,
                                  "::ffff:1.2.3"sv,
                                  "*"sv,
                                  "127.0.0.1\0"sv,
                                  "127.0.0.1\n"sv,
                                  "\x1b[31m"sv,
                                  too_long};
  for (const std::string_view literal : bad) {
    const auto address = SocketAddress::parse(literal, 1);
    ASSERT_FALSE(address) << literal;
    EXPECT_EQ(address.error().code(), ErrorCode::kInvalidArgument);
    const std::string message = address.error().message();
    EXPECT_EQ(message.find_first_of("\x1b\n"), std::string::npos) << message;
    EXPECT_NE(message.find("is not an IPv4 or IPv6 literal"), std::string::npos) << message;
  }
  EXPECT_NE(SocketAddress::parse("localhost", 1).error().message().find("\"localhost\""),
            std::string::npos);
}

RC_GTEST_PROP(SocketAddress, ParsesItsOwnText,
              (std::array<std::uint8_t, 16> bytes, std::uint16_t port, bool ipv6)) {
  const auto address = SocketAddress::from_bytes(ipv6 ? 6 : 4, bytes, port);
  std::string text = address.text();
  text.resize(text.rfind(':'));
  if (ipv6) {
    text = text.substr(1, text.size() - 2);
  }
  const auto parsed = SocketAddress::parse(text, port);
  RC_ASSERT(parsed.has_value());
  RC_ASSERT(*parsed == address);
}

TEST(SocketAddress, IgnoresTheUnusedBytesOfAnIpv4Address) {
  std::array<std::uint8_t, 16> bytes{10, 0, 0, 1};
  const auto clean = SocketAddress::from_bytes(4, bytes, 7);
  bytes[9] = 1;
  EXPECT_EQ(SocketAddress::from_bytes(4, bytes, 7), clean);
}

TEST(SocketAddress, IsUnsetWithoutAFamily) {
  for (const auto& address : {SocketAddress(), SocketAddress::from_bytes(5, {127}, 80)}) {
    EXPECT_EQ(address.family(), 0);
    EXPECT_EQ(address.port(), 0);
    EXPECT_FALSE(address.is_any());
    EXPECT_FALSE(address.is_loopback());
    EXPECT_EQ(address.text(), "unset");
    EXPECT_EQ(NativeAddress::from(address).bytes, 0U);
  }
}

TEST(SocketAddress, PortCanBeSetLater) {
  auto address = SocketAddress::loopback(6, 0);
  address.set_port(65535);
  EXPECT_EQ(address.text(), "[::1]:65535");
}

TEST(NativeAddress, GoesThereAndBack) {
  for (const auto* literal : {"10.1.2.3", "fd00::12:3"}) {
    const auto address = *SocketAddress::parse(literal, 4321);
    EXPECT_EQ(to_socket_address(NativeAddress::from(address).get()), address);
  }
}

TEST(NativeAddress, TurnsAMappedAddressIntoIpv4) {
  const auto mapped = *SocketAddress::parse("::ffff:10.1.2.3", 5);
  EXPECT_EQ(to_socket_address(NativeAddress::from(mapped).get()).text(), "10.1.2.3:5");
}

TEST(NativeAddress, KnowsNoOtherFamily) {
  sockaddr other{};
  other.sa_family = AF_UNIX;
  EXPECT_EQ(to_socket_address(&other), SocketAddress());
  EXPECT_EQ(to_socket_address(nullptr), SocketAddress());
}

}  // namespace
}  // namespace orbite::platform
