// SPDX-License-Identifier: Apache-2.0
// The built library with a real engine: bytes, handles and what is left afterwards. The engines
// listen on loopback alone.

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "bridge/library_engine.hpp"

namespace orbite::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

int count_entries(const char* directory) {
  int count = 0;
  DIR* const stream = ::opendir(directory);
  EXPECT_NE(stream, nullptr);
  while (::readdir(stream) != nullptr) {
    ++count;
  }
  ::closedir(stream);
  return count;
}

TEST(BridgeLibrary, MovesBytesBothWaysOverTcp) {
  Engine here("here", kTcpOnly);
  Engine there("there", kTcpOnly);
  const auto source = pattern(1 << 20, 1);
  auto local = source;
  std::vector<unsigned char> remote(local.size(), 0);
  const auto own = here.add(local);
  const auto blob = there.memory_blob(there.add(remote));
  const auto peer = here.peer_of(there);
  EXPECT_EQ(orbite_nixl_peer_connect(here.handle, peer, 0, &here.error), ORBITE_NIXL_OK)
      << here.error.message;
  const auto range = here.range_of(peer, blob, remote);

  // The second half to the front, in two pieces, with a message.
  const std::size_t quarter = local.size() / 4;
  orbite_nixl_request_t write = 0;
  ASSERT_EQ(here.prepare(
                ORBITE_NIXL_WRITE, peer,
                {piece(local, 2 * quarter, quarter, own), piece(local, 3 * quarter, quarter, own)},
                {piece(remote, 0, quarter, range), piece(remote, quarter, quarter, range)}, write),
            ORBITE_NIXL_OK)
      << here.error.message;
  auto post = make_record<orbite_nixl_post_t>();
  const std::string message("wri\0tten", 8);
  post.notification = message.data();
  post.notification_bytes = message.size();
  const orbite_nixl_result_t written = here.run(write, &post);
  EXPECT_EQ(written.logical, ORBITE_NIXL_LOGICAL_SUCCESS)
      << orbite_nixl_status_text(written.status);
  EXPECT_EQ(written.drain, ORBITE_NIXL_DRAIN_RETIRED);
  EXPECT_EQ(written.effect, ORBITE_NIXL_EFFECT_COMPLETE);
  EXPECT_EQ(written.bytes_prefix, 2 * quarter);
  EXPECT_EQ(written.bytes_total, 2 * quarter);
  EXPECT_STREQ(written.route, "tcp");
  EXPECT_TRUE(std::equal(remote.begin(), remote.begin() + 2 * static_cast<long>(quarter),
                         source.begin() + 2 * static_cast<long>(quarter)));
  EXPECT_TRUE(std::all_of(remote.begin() + 2 * static_cast<long>(quarter), remote.end(),
                          [](unsigned char byte) { return byte == 0; }));
  EXPECT_EQ(there.receive(), std::make_pair(std::string("here"), message));

  // All of it back.
  orbite_nixl_request_t read = 0;
  ASSERT_EQ(here.prepare(ORBITE_NIXL_READ, peer, {piece(local, 0, local.size(), own)},
                         {piece(remote, 0, remote.size(), range)}, read),
            ORBITE_NIXL_OK);
  EXPECT_EQ(here.run(read).logical, ORBITE_NIXL_LOGICAL_SUCCESS);
  EXPECT_EQ(local, remote);
  EXPECT_EQ(orbite_nixl_request_release(here.handle, write, &here.error), ORBITE_NIXL_OK);
  EXPECT_EQ(orbite_nixl_request_release(here.handle, read, &here.error), ORBITE_NIXL_OK);

  std::array<char, 256> routes{};
  EXPECT_GT(orbite_nixl_process_routes(routes.data(), routes.size()), 0);
  EXPECT_THAT(routes.data(), HasSubstr("tcp:"));
}

TEST(BridgeLibrary, MovesBytesWithinItselfAndNotifiesItself) {
  Engine engine("self");
  const auto source = pattern(70'000, 2);
  auto from = source;
  std::vector<unsigned char> to(from.size(), 0);
  const auto from_registration = engine.add(from);
  const auto to_registration = engine.add(to);
  orbite_nixl_peer_t self = 0;
  orbite_nixl_range_t range = 0;
  ASSERT_EQ(orbite_nixl_peer_self(engine.handle, &self, &engine.error), ORBITE_NIXL_OK);
  ASSERT_EQ(orbite_nixl_range_local(engine.handle, to_registration, &range, &engine.error),
            ORBITE_NIXL_OK);
  orbite_nixl_request_t request = 0;
  ASSERT_EQ(
      engine.prepare(ORBITE_NIXL_WRITE, self, {piece(from, 0, from.size(), from_registration)},
                     {piece(to, 0, to.size(), range)}, request),
      ORBITE_NIXL_OK)
      << engine.error.message;
  // A drained success may be posted again.
  for (int round = 0; round < 3; ++round) {
    std::fill(to.begin(), to.end(), static_cast<unsigned char>(0));
    const orbite_nixl_result_t result = engine.run(request);
    EXPECT_EQ(result.logical, ORBITE_NIXL_LOGICAL_SUCCESS);
    EXPECT_EQ(to, source);
  }
  ASSERT_EQ(orbite_nixl_notification_send(engine.handle, self, "", 0, &engine.error),
            ORBITE_NIXL_OK);
  EXPECT_EQ(engine.receive(), std::make_pair(std::string("self"), std::string()));
  ASSERT_EQ(orbite_nixl_notification_send(engine.handle, self, "abc", 3, &engine.error),
            ORBITE_NIXL_OK);
  EXPECT_EQ(engine.receive(), std::make_pair(std::string("self"), std::string("abc")));
  // A lease on our own range is not the registration.
  EXPECT_EQ(orbite_nixl_range_release(engine.handle, range, &engine.error), ORBITE_NIXL_OK);
  std::int32_t state = -1;
  EXPECT_EQ(orbite_nixl_memory_query(engine.handle, to_registration, &state, &engine.error),
            ORBITE_NIXL_OK);
  EXPECT_EQ(state, ORBITE_NIXL_REGISTRATION_LIVE);
}

TEST(BridgeLibrary, AMessageStaysUntilTheBuffersFit) {
  Engine engine("self");
  orbite_nixl_peer_t self = 0;
  ASSERT_EQ(orbite_nixl_peer_self(engine.handle, &self, &engine.error), ORBITE_NIXL_OK);
  ASSERT_EQ(orbite_nixl_notification_send(engine.handle, self, "abc", 3, &engine.error),
            ORBITE_NIXL_OK);
  std::array<char, 8> name{};
  std::array<char, 8> message{};
  std::size_t name_bytes = 0;
  std::size_t message_bytes = 0;
  const auto end = std::chrono::steady_clock::now() + kLongest;
  orbite_nixl_status_t status = ORBITE_NIXL_ERR_NOT_FOUND;
  while (status == ORBITE_NIXL_ERR_NOT_FOUND && std::chrono::steady_clock::now() < end) {
    name_bytes = name.size();
    message_bytes = 2;
    status = orbite_nixl_notification_receive(engine.handle, name.data(), &name_bytes,
                                              message.data(), &message_bytes, &engine.error);
  }
  EXPECT_EQ(status, ORBITE_NIXL_ERR_BUFFER_TOO_SMALL);
  EXPECT_EQ(name_bytes, 4U);
  EXPECT_EQ(message_bytes, 3U);
  EXPECT_EQ(engine.receive(), std::make_pair(std::string("self"), std::string("abc")));
}

TEST(BridgeLibrary, HandlesEndOnce) {
  Engine engine("agent");
  auto bytes = pattern(4096, 3);
  const auto registration = engine.add(bytes);
  orbite_nixl_peer_t self = 0;
  orbite_nixl_range_t range = 0;
  orbite_nixl_request_t first = 0;
  orbite_nixl_request_t second = 0;
  ASSERT_EQ(orbite_nixl_peer_self(engine.handle, &self, &engine.error), ORBITE_NIXL_OK);
  ASSERT_EQ(orbite_nixl_range_local(engine.handle, registration, &range, &engine.error),
            ORBITE_NIXL_OK);
  for (orbite_nixl_request_t* request : {&first, &second}) {
    ASSERT_EQ(engine.prepare(ORBITE_NIXL_READ, self, {piece(bytes, 0, 8, registration)},
                             {piece(bytes, 8, 8, range)}, *request),
              ORBITE_NIXL_OK);
  }
  auto result = make_record<orbite_nixl_result_t>();
  EXPECT_EQ(orbite_nixl_request_query(engine.handle, first, &result, &engine.error),
            ORBITE_NIXL_OK);
  EXPECT_EQ(result.terminal, 0);
  EXPECT_EQ(result.drain, ORBITE_NIXL_DRAIN_IDLE);
  EXPECT_STREQ(result.route, "");
  EXPECT_EQ(orbite_nixl_request_release(engine.handle, first, &engine.error), ORBITE_NIXL_OK);
  EXPECT_EQ(orbite_nixl_request_abandon(engine.handle, second, &engine.error), ORBITE_NIXL_OK);
  for (const orbite_nixl_request_t request : {first, second}) {
    EXPECT_EQ(orbite_nixl_request_release(engine.handle, request, &engine.error),
              ORBITE_NIXL_ERR_STALE_HANDLE);
    EXPECT_EQ(orbite_nixl_request_post(engine.handle, request, nullptr, &result, &engine.error),
              ORBITE_NIXL_ERR_STALE_HANDLE);
  }
  EXPECT_EQ(orbite_nixl_range_release(engine.handle, range, &engine.error), ORBITE_NIXL_OK);
  EXPECT_EQ(orbite_nixl_range_release(engine.handle, range, &engine.error),
            ORBITE_NIXL_ERR_STALE_HANDLE);
  EXPECT_EQ(orbite_nixl_memory_deregister(engine.handle, registration, nullptr, &engine.error),
            ORBITE_NIXL_OK);
}

TEST(BridgeLibrary, TellsOnceThatMemoryHasRetired) {
  Engine engine("agent");
  auto bytes = pattern(4096, 4);
  std::atomic<int> retired{0};
  auto memory = engine.memory(bytes);
  memory.retired = [](void* context) {
    // Relaxed: read by the same thread, or after the engine has joined its own.
    static_cast<std::atomic<int>*>(context)->fetch_add(1, std::memory_order_relaxed);
  };
  memory.context = &retired;
  orbite_nixl_registration_t registration = 0;
  ASSERT_EQ(orbite_nixl_memory_register(engine.handle, &memory, &registration, &engine.error),
            ORBITE_NIXL_OK);
  EXPECT_EQ(retired, 0);
  std::int32_t state = -1;
  ASSERT_EQ(orbite_nixl_memory_deregister(engine.handle, registration, &state, &engine.error),
            ORBITE_NIXL_OK);
  EXPECT_EQ(state, ORBITE_NIXL_REGISTRATION_RETIRED);
  EXPECT_THAT(orbite_nixl_memory_query(engine.handle, registration, &state, &engine.error),
              AnyOf(ORBITE_NIXL_OK, ORBITE_NIXL_ERR_STALE_HANDLE));
  EXPECT_EQ(state, ORBITE_NIXL_REGISTRATION_RETIRED);
  engine.release();
  EXPECT_EQ(retired, 1);
}

TEST(BridgeLibrary, TellsWhatItIs) {
  Engine engine("agent");
  auto abi = make_record<orbite_nixl_abi_t>();
  ASSERT_EQ(orbite_nixl_abi_query(&abi, nullptr), ORBITE_NIXL_OK);
  const nlohmann::json info = engine.info();
  EXPECT_EQ(info.at("version"), abi.version);
  std::string text(8, '\0');
  std::size_t bytes = text.size();
  EXPECT_EQ(orbite_nixl_engine_info(engine.handle, text.data(), &bytes, &engine.error),
            ORBITE_NIXL_ERR_BUFFER_TOO_SMALL);
  EXPECT_GT(bytes, 8U);
}

TEST(BridgeLibrary, CountsPerRouteAndOutcomeWithLatencies) {
  Engine engine("counted", R"({"notifications": {"message_bytes_max": 10},)"
                           R"( "limits": {"requests_max": 1}})");
  auto bytes = pattern(1 << 20, 3);
  const orbite_nixl_registration_t registration = engine.add(bytes);
  orbite_nixl_peer_t self = 0;
  ASSERT_EQ(orbite_nixl_peer_self(engine.handle, &self, &engine.error), ORBITE_NIXL_OK);
  orbite_nixl_range_t range = 0;
  ASSERT_EQ(orbite_nixl_range_local(engine.handle, registration, &range, &engine.error),
            ORBITE_NIXL_OK);
  orbite_nixl_request_t request = 0;
  const auto prepare = [&](std::size_t size) {
    return engine.prepare(ORBITE_NIXL_WRITE, self, {piece(bytes, 0, size, registration)},
                          {piece(bytes, 512 << 10, size, range)}, request);
  };
  ASSERT_EQ(prepare(100), ORBITE_NIXL_OK);
  EXPECT_EQ(engine.run(request).logical, ORBITE_NIXL_LOGICAL_SUCCESS);
  EXPECT_EQ(engine.run(request).logical, ORBITE_NIXL_LOGICAL_SUCCESS);
  EXPECT_EQ(prepare(100), ORBITE_NIXL_ERR_BUDGET_EXHAUSTED);
  EXPECT_STREQ(engine.error.message,
               "budget exhausted: requests: 1 asked, 1 of 1 in use (limits.requests_max)");
  const TelemetryOf seen(engine);
  const orbite_nixl_route_t& small =
      seen.route("local", ORBITE_NIXL_WRITE, ORBITE_NIXL_CLASS_LATENCY);
  EXPECT_EQ(small.posted, 2U);
  EXPECT_EQ(small.succeeded, 2U);
  EXPECT_EQ(small.bytes, 200U);
  EXPECT_EQ(small.active, 0U);
  EXPECT_EQ(small.failure_count, 0U);
  EXPECT_EQ(std::accumulate(std::begin(small.latency), std::end(small.latency), std::uint64_t{0}),
            2U);
  EXPECT_GT(small.latency_sum_ns, 0U);
  const orbite_nixl_route_t& bulk = seen.route("local", ORBITE_NIXL_WRITE, ORBITE_NIXL_CLASS_BULK);
  EXPECT_EQ(bulk.posted, 0U);
  EXPECT_EQ(seen.numbers.registrations_live, 1U);
  EXPECT_EQ(seen.numbers.registered_bytes, 1U << 20);
  EXPECT_EQ(seen.numbers.latency_bounds_ns[0], 1'000U);
  EXPECT_EQ(seen.budget("requests").used, 1U);
  EXPECT_EQ(seen.budget("requests").max, 1U);
  EXPECT_EQ(seen.budget("requests").refused, 1U);
  EXPECT_STREQ(seen.budget("requests").key, "limits.requests_max");
  EXPECT_EQ(seen.budget("bytes_in_flight").used, 0U);
}

TEST(BridgeLibrary, TelemetryIsReadIntoRoomForAllOrNothing) {
  Engine engine("agent");
  TelemetryOf whole(engine);
  std::size_t route_count = whole.routes.size() - 1;
  std::size_t budget_count = whole.budgets.size();
  whole.numbers.registrations_live = 77;
  EXPECT_EQ(
      orbite_nixl_telemetry_read(engine.handle, &whole.numbers, whole.routes.data(), &route_count,
                                 whole.budgets.data(), &budget_count, &engine.error),
      ORBITE_NIXL_ERR_BUFFER_TOO_SMALL);
  EXPECT_EQ(route_count, whole.routes.size());
  EXPECT_EQ(budget_count, whole.budgets.size());
  EXPECT_EQ(whole.numbers.registrations_live, 77U);
  whole.routes.back().record.size -= 8;
  EXPECT_EQ(
      orbite_nixl_telemetry_read(engine.handle, &whole.numbers, whole.routes.data(), &route_count,
                                 whole.budgets.data(), &budget_count, &engine.error),
      ORBITE_NIXL_ERR_ABI_MISMATCH);
  EXPECT_EQ(whole.numbers.registrations_live, 77U);
}

TEST(BridgeLibrary, AThousandEnginesLeaveNoDescriptorsAndNoThreads) {
  {
    const Engine warm("warm");
  }
  const int descriptors = count_entries("/proc/self/fd");
  const int threads = count_entries("/proc/self/task");
  for (int i = 0; i < 1000; ++i) {
    const Engine engine("agent");
  }
  EXPECT_EQ(count_entries("/proc/self/fd"), descriptors);
  EXPECT_EQ(count_entries("/proc/self/task"), threads);
}

TEST(BridgeLibrary, ReleaseAmongCallsOfOtherThreadsIsSafe) {
  for (int round = 0; round < 20; ++round) {
    Engine engine("agent");
    const orbite_nixl_engine_t handle = engine.handle;
    auto bytes = pattern(4096, 10);
    std::atomic<int> started{0};
    std::vector<std::thread> callers;
    for (int i = 0; i < 3; ++i) {
      callers.emplace_back([&, handle] {
        auto memory = engine.memory(bytes);
        orbite_nixl_status_t status = ORBITE_NIXL_OK;
        while (status == ORBITE_NIXL_OK) {
          orbite_nixl_registration_t registration = 0;
          status = orbite_nixl_memory_register(handle, &memory, &registration, nullptr);
          if (status == ORBITE_NIXL_OK) {
            status = orbite_nixl_memory_deregister(handle, registration, nullptr, nullptr);
          }
          // Release: pairs with the acquire below.
          started.fetch_add(1, std::memory_order_release);
        }
        EXPECT_THAT(status, AnyOf(ORBITE_NIXL_ERR_STALE_HANDLE, ORBITE_NIXL_ERR_ENGINE_CLOSING));
      });
    }
    // Acquire: pairs with the release of the callers.
    while (started.load(std::memory_order_acquire) < 30) {
      std::this_thread::yield();
    }
    engine.release();
    for (std::thread& caller : callers) {
      caller.join();
    }
    EXPECT_EQ(orbite_nixl_engine_release(handle, nullptr), ORBITE_NIXL_ERR_STALE_HANDLE);
  }
}

TEST(BridgeLibrary, ReleaseEndsACallThatWaits) {
  Stranger stranger;
  // Its blob leads to the stranger.
  const std::string misled =
      R"({"listen": {"address": "127.0.0.1"}, "advertise": {"addresses": ["127.0.0.1"], "port": )" +
      std::to_string(stranger.port) + "}}";
  Engine there("there", misled.c_str());
  Engine here("here", R"({"listen": {"address": "127.0.0.1"},
                          "advertise": {"addresses": ["127.0.0.1"]},
                          "tcp": {"connect_timeout_ms": 20000, "handshake_timeout_ms": 20000},
                          "close": {"timeout_ms": 10000}})");
  const orbite_nixl_engine_t handle = here.handle;
  const auto peer = here.peer_of(there);
  const auto begin = std::chrono::steady_clock::now();
  std::thread caller([handle, peer] {
    auto error = make_record<orbite_nixl_error_t>();
    EXPECT_NE(orbite_nixl_peer_connect(handle, peer, 20'000'000'000, &error), ORBITE_NIXL_OK);
  });
  // The call is inside once its connection has come.
  pollfd waiting{.fd = stranger.socket, .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&waiting, 1, 30'000), 1);
  here.release();
  caller.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
}

TEST(BridgeLibrary, AForkedChildIsRefusedByEveryEntry) {
  Engine engine("agent");
  const pid_t child = ::fork();
  if (child == 0) {
    int wrong = 0;
    for (const Entry& entry : entries()) {
      Arguments arguments;
      arguments.engine = engine.handle;
      wrong += !entry.takes_engine || entry.call(arguments) == ORBITE_NIXL_ERR_FORKED ? 0 : 1;
    }
    ::_exit(wrong);
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  auto bytes = pattern(4096, 11);
  EXPECT_NE(engine.add(bytes), 0U);
}

}  // namespace
}  // namespace orbite::testing
