// SPDX-License-Identifier: Apache-2.0
// The order in which the parts of an engine go.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/access.hpp"
#include "engine/environment.hpp"
#include "platform/processors.hpp"
#include "support/faulty_network.hpp"
#include "unit/engine/engine_pair.hpp"

namespace orbite {
namespace {

using Went = std::vector<std::string>;

/// Nobody waits in an engine that only starts and ends, but for copy workers to be out of a
/// transport.
class RecordingWaiter final : public base::Waiter {
 public:
  explicit RecordingWaiter(Went& went) : went_(went) {}
  bool wait_for(std::unique_lock<std::mutex>& /*lock*/, std::condition_variable& /*changed*/,
                base::Nanoseconds /*timeout_ns*/, const std::function<bool()>& ready) override {
    went_.emplace_back("copy workers of a transport");
    return ready();
  }

 private:
  Went& went_;
};

std::string kind_of(platform::Socket socket) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    return "poller or wakeup";
  }
  return address.ss_family == AF_UNIX ? "lender" : "TCP";
}

/// A copy worker that is done with its piece still looks whether TCP needs the engine's worker, and
/// all that polls needs the poller.
TEST(Destruction, BeginsWithThoseWhoUseTheOthers) {
  Went went;
  RecordingWaiter waiter(went);
  test::FaultyNetwork network;
  network.before_close = [&](platform::Socket socket) { went.push_back(kind_of(socket)); };
  EngineEnvironment system = system_environment();
  Config config;
  config.listen.address = "127.0.0.1";
  // It is refused after all parts have started, so nothing of it is closed in an orderly way first.
  config.advertise.addresses = {"nowhere"};
  const auto refused = EngineAccess::create({"a", config}, {network,
                                                            system.clock,
                                                            system.random,
                                                            waiter,
                                                            system.host_identity,
                                                            system.default_route_addresses,
                                                            {},
                                                            true,
                                                            system.neighbors});
  ASSERT_FALSE(refused.has_value());
  ASSERT_EQ(refused.error().code(), ErrorCode::kInvalidArgument) << refused.error().message();
  Went expected;
  if (platform::usable_processors() > 1) {
    expected.assign(3, "copy workers of a transport");
  }
  expected.insert(expected.end(), {"TCP", "lender", "poller or wakeup", "poller or wakeup"});
  EXPECT_EQ(went, expected);
}

}  // namespace
}  // namespace orbite
