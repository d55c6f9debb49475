// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine_pair.hpp"
#include "remote_process.hpp"

namespace orbite {
namespace {

using test::eventually;
using test::Node;
using test::RemoteProcess;
using test::warm_up;

constexpr std::size_t kLarge = std::size_t{64} << 20;

Config impatient() {
  Config config = test::loopback_config();
  config.tcp.progress_timeout_ms = 200;
  config.close.timeout_ms = 200;
  return config;
}

/// Posts a WRITE to a stopped peer and waits for its logical failure.
Handle write_into_silence(Node& node, const RemoteProcess& remote) {
  const Handle request = remote.prepare(node, Operation::kWrite, kLarge).value();
  remote.stop();
  EXPECT_TRUE(node.engine->post(request, {}).has_value());
  EXPECT_TRUE(eventually([&] { return node.engine->check(request)->logical != Logical::kNone; }));
  const Outcome outcome = node.engine->check(request).value();
  EXPECT_EQ(outcome.logical, Logical::kFailed);
  EXPECT_EQ(outcome.code, ErrorCode::kPeerSilent);
  EXPECT_EQ(outcome.drain, Drain::kPending);
  EXPECT_FALSE(outcome.terminal());
  return request;
}

RouteTelemetry bulk_writes_of(const Telemetry& telemetry) {
  for (const RouteTelemetry& route : telemetry.routes) {
    if (route.transport == std::string("tcp") && route.operation == Operation::kWrite &&
        route.qos == std::string("bulk")) {
      return route;
    }
  }
  ADD_FAILURE() << "no such route";
  return {};
}

TEST(EngineSilentPeer, KeepsAFailedWriteUntilThePeerAnswers) {
  RemoteProcess remote(kLarge);
  Node node("a", kLarge, impatient());
  remote.introduce_to(node);
  warm_up(node, remote, kLarge);
  const Handle request = write_into_silence(node, remote);
  // However often we ask: our own impression proves nothing.
  for (int i = 0; i < 1000; ++i) {
    ASSERT_FALSE(node.engine->check(request)->terminal());
  }
  EXPECT_EQ(node.engine->release(request).error().code(), ErrorCode::kActive);
  EXPECT_EQ(node.engine->post(request, {}).error().code(), ErrorCode::kActive);
  EXPECT_EQ(node.engine->deregister_memory(node.registration).value(), RegistrationState::kFenced);
  const Telemetry held = node.engine->telemetry().value();
  EXPECT_GT(held.gauges.slices_unproved, 0U);
  EXPECT_EQ(held.gauges.registrations_fenced, 1U);
  const RouteTelemetry bulk_writes = bulk_writes_of(held);
  EXPECT_EQ(bulk_writes.active, 1U);
  EXPECT_EQ(bulk_writes.unquiesced, 1U);
  EXPECT_EQ(bulk_writes.unquiesced_bytes, kLarge);
  EXPECT_EQ(bulk_writes.failed, 0U);
  remote.go_on();
  const Outcome outcome = test::wait_terminal(*node.engine, request);
  EXPECT_EQ(outcome.code, ErrorCode::kPeerSilent);
  EXPECT_EQ(outcome.effect, RemoteEffect::kUnknown);
  const Telemetry drained = node.engine->telemetry().value();
  EXPECT_EQ(bulk_writes_of(drained).unquiesced, 0U);
  EXPECT_EQ(bulk_writes_of(drained).unquiesced_bytes, 0U);
  EXPECT_EQ(bulk_writes_of(drained).failures,
            (std::vector<std::pair<ErrorCode, std::uint64_t>>{{ErrorCode::kPeerSilent, 1}}));
  EXPECT_EQ(drained.gauges.slices_unproved, 0U);
  EXPECT_TRUE(eventually([&] {
    const auto state = node.engine->registration_state(node.registration);
    return !state || *state == RegistrationState::kRetired;
  }));
  EXPECT_EQ(node.engine->post(request, {}).error().code(), ErrorCode::kNotRepostable);
  EXPECT_TRUE(node.engine->release(request).has_value());
}

TEST(EngineSilentPeer, TakesItsDeathAsProof) {
  RemoteProcess remote(kLarge);
  Node node("a", kLarge, impatient());
  remote.introduce_to(node);
  warm_up(node, remote, kLarge);
  const Handle request = write_into_silence(node, remote);
  remote.kill();
  const Outcome outcome = test::wait_terminal(*node.engine, request);
  EXPECT_EQ(outcome.logical, Logical::kFailed);
  EXPECT_EQ(outcome.effect, RemoteEffect::kUnknown);
}

TEST(EngineSilentPeer, TakesTheWordOfAnOperator) {
  RemoteProcess remote(kLarge);
  Node node("a", kLarge, impatient());
  remote.introduce_to(node);
  warm_up(node, remote, kLarge);
  const Handle request = write_into_silence(node, remote);
  ASSERT_TRUE(node.engine->confirm_peer_fenced(node.peer).has_value());
  const Outcome outcome = test::wait_terminal(*node.engine, request);
  EXPECT_EQ(outcome.logical, Logical::kFailed);
  EXPECT_EQ(outcome.effect, RemoteEffect::kUnknown);
}

TEST(EngineDeath, FailsAnActiveReadWithItsExactPrefix) {
  RemoteProcess remote(kLarge);
  Node node("a", kLarge, test::loopback_config());
  remote.introduce_to(node);
  warm_up(node, remote, kLarge);
  const Handle request = remote.prepare(node, Operation::kRead, kLarge).value();
  remote.stop();
  ASSERT_TRUE(node.engine->post(request, {}).has_value());
  remote.kill();
  const Outcome outcome = test::wait_terminal(*node.engine, request);
  EXPECT_EQ(outcome.logical, Logical::kFailed);
  EXPECT_LT(outcome.bytes_prefix, kLarge);
}

TEST(EngineCancel, DropsWhatWasNotSentAndDrainsTheRest) {
  RemoteProcess remote(kLarge);
  Node node("a", kLarge, test::loopback_config());
  remote.introduce_to(node);
  warm_up(node, remote, kLarge);
  remote.stop();
  // The lanes fill up with the first requests; of the last one nothing is sent.
  std::vector<Handle> requests;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(remote.prepare(node, Operation::kWrite, kLarge).value());
    ASSERT_TRUE(node.engine->post(requests.back(), {}).has_value());
  }
  ASSERT_TRUE(node.engine->cancel(requests.back()).has_value());
  const Outcome queued = node.engine->check(requests.back()).value();
  EXPECT_TRUE(queued.terminal());
  EXPECT_EQ(queued.logical, Logical::kCanceled);
  EXPECT_EQ(queued.effect, RemoteEffect::kNone);
  ASSERT_TRUE(node.engine->cancel(requests.front()).has_value());
  const Outcome running = node.engine->check(requests.front()).value();
  EXPECT_EQ(running.logical, Logical::kCanceled);
  EXPECT_FALSE(running.terminal()) << "bytes of it are on the way";
  remote.go_on();
  const Outcome drained = test::wait_terminal(*node.engine, requests.front());
  EXPECT_EQ(drained.logical, Logical::kCanceled);
  EXPECT_GT(drained.bytes_prefix, 0u);
  EXPECT_EQ(test::wait_terminal(*node.engine, requests[1]).logical, Logical::kSuccess);
  EXPECT_EQ(test::wait_terminal(*node.engine, requests[2]).logical, Logical::kSuccess);
  for (const Handle request : requests) {
    EXPECT_TRUE(node.engine->release(request).has_value());
  }
}

TEST(EngineDeadline, IsALogicalOutcomeAndNotAProof) {
  RemoteProcess remote(kLarge);
  Node node("a", kLarge, test::loopback_config());
  remote.introduce_to(node);
  warm_up(node, remote, kLarge);
  const Handle request = remote.prepare(node, Operation::kWrite, kLarge).value();
  remote.stop();
  PostOptions options;
  options.timeout_ns = 20'000'000;
  ASSERT_TRUE(node.engine->post(request, options).has_value());
  ASSERT_TRUE(eventually([&] { return node.engine->check(request)->logical == Logical::kFailed; }));
  EXPECT_EQ(node.engine->check(request)->code, ErrorCode::kDeadlineExceeded);
  EXPECT_FALSE(node.engine->check(request)->terminal());
  remote.go_on();
  EXPECT_EQ(test::wait_terminal(*node.engine, request).code, ErrorCode::kDeadlineExceeded);
}

TEST(EngineAbandon, AdoptsTheRequestUntilItHasRetired) {
  RemoteProcess remote(kLarge);
  Node node("a", kLarge, test::loopback_config());
  remote.introduce_to(node);
  warm_up(node, remote, kLarge);
  const Handle request = remote.prepare(node, Operation::kWrite, kLarge).value();
  remote.stop();
  ASSERT_TRUE(node.engine->post(request, {}).has_value());
  ASSERT_TRUE(node.engine->abandon(request).has_value());
  EXPECT_EQ(node.engine->check(request).error().code(), ErrorCode::kStaleHandle);
  EXPECT_EQ(node.engine->deregister_memory(node.registration).value(), RegistrationState::kFenced);
  remote.go_on();
  ASSERT_TRUE(eventually([&] {
    const auto state = node.engine->registration_state(node.registration);
    return !state || *state == RegistrationState::kRetired;
  }));
  EXPECT_NE(node.engine->info_json().find("\"requests_adopted\": 1"), std::string::npos);
}

TEST(EngineClose, DrainsWhatRunsAndRefusesTheRest) {
  Node a("a", kLarge);
  Node b("b", kLarge);
  a.know("b", b);
  const Handle request = test::prepare(a, b, Operation::kWrite, {{0, 0, kLarge}}).value();
  ASSERT_TRUE(a.engine->post(request, {}).has_value());
  CloseStatus status = a.engine->close(0);
  EXPECT_NE(status.phase, ClosePhase::kOpen);
  status = a.engine->close(20'000'000'000);
  EXPECT_EQ(status.phase, ClosePhase::kClosed);
  EXPECT_EQ(status.executions_unresolved, 0u);
  EXPECT_TRUE(a.engine->query(request)->terminal());
  EXPECT_EQ(a.engine->post(request, {}).error().code(), ErrorCode::kEngineClosing);
  EXPECT_EQ(a.engine->register_memory({}).error().code(), ErrorCode::kEngineClosing);
}

TEST(EngineClose, NeverWaitsForAPeerThatStopsInTheMiddleOfAFrame) {
  // The engine under test is the target: its peer stops while it writes into us.
  RemoteProcess remote(kLarge);
  Config config = impatient();
  auto node = std::make_unique<Node>("a", kLarge, config);
  remote.introduce_to(*node);
  const Handle request = remote.prepare(*node, Operation::kWrite, kLarge).value();
  ASSERT_TRUE(node->engine->post(request, {}).has_value());
  ASSERT_EQ(test::wait_terminal(*node->engine, request).logical, Logical::kSuccess);
  remote.stop();
  const auto start = std::chrono::steady_clock::now();
  node.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(EngineFork, ChildTouchesNothingOfTheParent) {
  Node a("a", 4096);
  const pid_t child = fork();
  if (child == 0) {
    const bool refused =
        a.engine->register_memory({1, 1, 0, MemoryKind::kDram, 7, {}}).error().code() ==
            ErrorCode::kForked &&
        a.engine->prepare({}).error().code() == ErrorCode::kForked;
    a.engine.reset();  // must neither hang nor touch the parent's threads
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_TRUE(a.engine->deregister_memory(a.registration).has_value());
}

TEST(EngineLanes, CloseWhenIdleAndComeBack) {
  Config config = test::loopback_config();
  config.tcp.idle_lane_timeout_ms = 100;
  Node a("a", 4 << 20, config);
  Node b("b", 4 << 20);
  a.know("b", b);
  const Handle request = test::prepare(a, b, Operation::kWrite, {{0, 0, 4 << 20}}).value();
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(a.engine->post(request, {}).has_value());
    ASSERT_EQ(test::wait_terminal(*a.engine, request).logical, Logical::kSuccess);
    EXPECT_TRUE(eventually(
        [&] { return a.engine->info_json().find("\"lane_sockets\": 0") != std::string::npos; }));
    EXPECT_TRUE(eventually(
        [&] { return b.engine->info_json().find("\"served_lanes\": 0") != std::string::npos; }));
  }
}

TEST(EnginePeers, ComeBackAtNoCostAndWithNothingOfTheirOldLife) {
  Node a("a", 4096);
  Node b("b", 4096);
  a.know("b", b);
  const Handle old_request = test::prepare(a, b, Operation::kWrite, {{0, 0, 4096}}).value();
  ASSERT_TRUE(a.engine->post(old_request, {}).has_value());
  ASSERT_EQ(test::wait_terminal(*a.engine, old_request).logical, Logical::kSuccess);
  ASSERT_TRUE(a.engine->retire_peer(a.peer).has_value());
  EXPECT_EQ(a.engine->post(old_request, {}).error().code(), ErrorCode::kPeerRetired);
  EXPECT_EQ(test::prepare(a, b, Operation::kWrite, {{0, 0, 1}}).error().code(),
            ErrorCode::kStaleHandle);
  const Handle old_range = a.range;
  a.know("b", b);
  EXPECT_EQ(a.engine->post(old_request, {}).error().code(), ErrorCode::kPeerRetired);
  std::swap(a.range, const_cast<Handle&>(old_range));
  EXPECT_EQ(test::prepare(a, b, Operation::kWrite, {{0, 0, 1}}).error().code(),
            ErrorCode::kInvalidArgument);
  std::swap(a.range, const_cast<Handle&>(old_range));
  const Handle request = test::prepare(a, b, Operation::kWrite, {{0, 0, 4096}}).value();
  ASSERT_TRUE(a.engine->post(request, {}).has_value());
  ASSERT_EQ(test::wait_terminal(*a.engine, request).logical, Logical::kSuccess);
  EXPECT_NE(a.engine->info_json().find("\"lanes_connected\": 1"), std::string::npos)
      << "the connection of the old life was still good";
}

TEST(EnginePeers, NewEpochUnderAnOldNameIsAnotherPeer) {
  Node a("a", 4096);
  auto b = std::make_unique<Node>("b", 4096);
  a.know("b", *b);
  const Handle old_request = test::prepare(a, *b, Operation::kWrite, {{0, 0, 4096}}).value();
  b = std::make_unique<Node>("b", 4096);
  a.know("b", *b);
  EXPECT_EQ(a.engine->post(old_request, {}).error().code(), ErrorCode::kPeerRetired);
  const Handle request = test::prepare(a, *b, Operation::kWrite, {{0, 0, 4096}}).value();
  ASSERT_TRUE(a.engine->post(request, {}).has_value());
  EXPECT_EQ(test::wait_terminal(*a.engine, request).logical, Logical::kSuccess);
}

TEST(EngineListen, NamesAPortThatIsTakenAndAnAddressThatIsNotOurs) {
  Config config = test::loopback_config();
  Node a("a", 64, config);
  const std::string info = a.engine->info_json();
  const std::size_t at = info.find("\"listen\": \"127.0.0.1:");
  ASSERT_NE(at, std::string::npos);
  const int port = std::stoi(info.substr(at + 21));
  config.listen.port = static_cast<std::uint16_t>(port);
  const auto taken = TransferEngine::create({"b", config});
  ASSERT_FALSE(taken.has_value());
  EXPECT_EQ(taken.error().code(), ErrorCode::kAddressInUse);
  EXPECT_NE(taken.error().message().find("127.0.0.1:" + std::to_string(port)), std::string::npos)
      << taken.error().message();
  config.listen.port_max = static_cast<std::uint16_t>(std::min(port + 50, 65535));
  EXPECT_TRUE(TransferEngine::create({"b", config}).has_value());
  config = test::loopback_config();
  config.listen.address = "192.0.2.77";
  const auto foreign = TransferEngine::create({"b", config});
  ASSERT_FALSE(foreign.has_value());
  EXPECT_EQ(foreign.error().code(), ErrorCode::kAddressNotLocal);
  EXPECT_NE(foreign.error().message().find("192.0.2.77"), std::string::npos);
}

}  // namespace
}  // namespace orbite
