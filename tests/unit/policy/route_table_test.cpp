// SPDX-License-Identifier: Apache-2.0
#include "policy/route_table.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace orbite::policy {
namespace {

Config config(bool local, bool tcp, std::vector<std::string> routes) {
  Config made;
  made.local.enabled = local;
  made.tcp.enabled = tcp;
  made.transfer.routes = std::move(routes);
  return made;
}

struct Case {
  const char* name;
  bool local;
  bool tcp;
  std::vector<std::string> routes;
  bool self_has_route;
  bool peer_has_route;
};

class RouteTableTest : public ::testing::TestWithParam<Case> {};

TEST_P(RouteTableTest, ChoosesByPeerAndConfiguration) {
  const Case& it = GetParam();
  const RouteTable table(config(it.local, it.tcp, it.routes));
  const auto self = table.choose(true, 1);
  const auto peer = table.choose(false, 1);
  ASSERT_EQ(self.has_value(), it.self_has_route);
  ASSERT_EQ(peer.has_value(), it.peer_has_route);
  if (self) {
    EXPECT_EQ(self->transport, TransportKind::kLocal);
  } else {
    EXPECT_EQ(self.error().code(), ErrorCode::kTransportUnavailable);
    EXPECT_NE(self.error().context().find("local"), std::string_view::npos);
  }
  if (peer) {
    EXPECT_EQ(peer->transport, TransportKind::kTcp);
  } else {
    EXPECT_EQ(peer.error().code(), ErrorCode::kTransportUnavailable);
    EXPECT_NE(peer.error().context().find("tcp"), std::string_view::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Configurations, RouteTableTest,
    ::testing::Values(Case{"Default", true, true, {"local", "tcp"}, true, true},
                      Case{"OtherOrder", true, true, {"tcp", "local"}, true, true},
                      Case{"LocalOnly", true, true, {"local"}, true, false},
                      Case{"TcpOnly", true, true, {"tcp"}, false, true},
                      Case{"LocalOff", false, true, {"local", "tcp"}, false, true},
                      Case{"TcpOff", true, false, {"local", "tcp"}, true, false},
                      Case{"BothOff", false, false, {"local", "tcp"}, false, false}),
    [](const auto& it) { return std::string(it.param.name); });

TEST(RouteTableClass, SmallRequestsAreLatencyWork) {
  Config made;
  made.tcp.small_bytes = 1000;
  const RouteTable table(made);
  for (const bool self : {true, false}) {
    EXPECT_EQ(table.choose(self, 0)->qos, QosClass::kLatency);
    EXPECT_EQ(table.choose(self, 1000)->qos, QosClass::kLatency);
    EXPECT_EQ(table.choose(self, 1001)->qos, QosClass::kBulk);
    EXPECT_EQ(table.choose(self, UINT64_MAX)->qos, QosClass::kBulk);
  }
}

TEST(TransportName, IsThatOfTheConfiguration) {
  EXPECT_STREQ(transport_name(TransportKind::kLocal), "local");
  EXPECT_STREQ(transport_name(TransportKind::kTcp), "tcp");
}

}  // namespace
}  // namespace orbite::policy
