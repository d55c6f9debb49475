// SPDX-License-Identifier: Apache-2.0
// The built library with a real engine: bytes, handles, refusals and what is left afterwards. The
// engines listen on loopback alone.

#include <arpa/inet.h>
#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "bridge/entries.hpp"

namespace orbite::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr const char* kLoopback =
    R"({"listen": {"address": "127.0.0.1"}, "advertise": {"addresses": ["127.0.0.1"]}})";
constexpr const char* kTcpOnly =
    R"({"listen": {"address": "127.0.0.1"}, "advertise": {"addresses": ["127.0.0.1"]},
        "transfer": {"routes": ["tcp"]}})";
constexpr std::chrono::seconds kLongest{60};

// One engine and short forms of its calls, each of which must succeed.
class Engine {
 public:
  explicit Engine(const std::string& name, const char* config = kLoopback) : name_(name) {
    EXPECT_EQ(create(name, config, handle, error), ORBITE_NIXL_OK) << error.message;
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine() { release(); }

  void release() {
    if (handle != 0) {
      EXPECT_EQ(orbite_nixl_engine_release(handle, &error), ORBITE_NIXL_OK) << error.message;
    }
    handle = 0;
  }

  orbite_nixl_memory_t memory(std::vector<unsigned char>& bytes,
                              std::uint32_t access = ORBITE_NIXL_ACCESS_ALL) {
    auto record = make_record<orbite_nixl_memory_t>();
    record.address = reinterpret_cast<std::uint64_t>(bytes.data());
    record.length = bytes.size();
    record.access = access;
    return record;
  }
  orbite_nixl_registration_t add(std::vector<unsigned char>& bytes,
                                 std::uint32_t access = ORBITE_NIXL_ACCESS_ALL) {
    orbite_nixl_registration_t registration = 0;
    const auto record = memory(bytes, access);
    EXPECT_EQ(orbite_nixl_memory_register(handle, &record, &registration, &error), ORBITE_NIXL_OK)
        << error.message;
    return registration;
  }
  std::vector<unsigned char> connection_blob() {
    std::vector<unsigned char> blob(4096);
    std::size_t bytes = blob.size();
    EXPECT_EQ(orbite_nixl_peer_export(handle, blob.data(), &bytes, &error), ORBITE_NIXL_OK);
    blob.resize(bytes);
    return blob;
  }
  std::vector<unsigned char> memory_blob(orbite_nixl_registration_t registration) {
    std::vector<unsigned char> blob(4096);
    std::size_t bytes = blob.size();
    EXPECT_EQ(orbite_nixl_memory_export(handle, registration, blob.data(), &bytes, &error),
              ORBITE_NIXL_OK);
    blob.resize(bytes);
    return blob;
  }
  orbite_nixl_status_t import(const std::string& name, const std::vector<unsigned char>& blob,
                              orbite_nixl_peer_t& peer) {
    return orbite_nixl_peer_import(handle, name.data(), name.size(), blob.data(), blob.size(),
                                   &peer, &error);
  }
  orbite_nixl_peer_t peer_of(Engine& other) {
    orbite_nixl_peer_t peer = 0;
    EXPECT_EQ(import(other.name_, other.connection_blob(), peer), ORBITE_NIXL_OK) << error.message;
    return peer;
  }
  orbite_nixl_range_t range_of(orbite_nixl_peer_t peer, const std::vector<unsigned char>& blob,
                               const std::vector<unsigned char>& bytes) {
    orbite_nixl_range_t range = 0;
    EXPECT_EQ(orbite_nixl_range_import(handle, peer, blob.data(), blob.size(),
                                       reinterpret_cast<std::uint64_t>(bytes.data()), bytes.size(),
                                       &range, &error),
              ORBITE_NIXL_OK)
        << error.message;
    return range;
  }
  orbite_nixl_status_t prepare(orbite_nixl_operation_t operation, orbite_nixl_peer_t peer,
                               const std::vector<orbite_nixl_descriptor_t>& local,
                               const std::vector<orbite_nixl_descriptor_t>& remote,
                               orbite_nixl_request_t& request) {
    EXPECT_EQ(local.size(), remote.size());
    auto record = make_record<orbite_nixl_prepare_t>();
    record.operation = static_cast<std::uint32_t>(operation);
    record.peer = peer;
    record.local = local.data();
    record.remote = remote.data();
    record.count = local.size();
    return orbite_nixl_request_prepare(handle, &record, &request, &error);
  }
  // Posts and drives a prepared request to its end.
  orbite_nixl_result_t run(orbite_nixl_request_t request,
                           const orbite_nixl_post_t* post = nullptr) {
    auto result = make_record<orbite_nixl_result_t>();
    EXPECT_EQ(orbite_nixl_request_post(handle, request, post, &result, &error), ORBITE_NIXL_OK)
        << error.message;
    const auto end = std::chrono::steady_clock::now() + kLongest;
    while (result.terminal == 0) {
      if (std::chrono::steady_clock::now() > end) {
        ADD_FAILURE() << "request not terminal in time";
        break;
      }
      std::this_thread::yield();
      EXPECT_EQ(orbite_nixl_request_check(handle, request, &result, &error), ORBITE_NIXL_OK)
          << error.message;
    }
    return result;
  }
  // Waits for one message: {sender, message}.
  std::pair<std::string, std::string> receive() {
    std::array<char, 256> name{};
    std::array<char, 256> message{};
    const auto end = std::chrono::steady_clock::now() + kLongest;
    while (std::chrono::steady_clock::now() < end) {
      std::size_t name_bytes = name.size();
      std::size_t message_bytes = message.size();
      const orbite_nixl_status_t status = orbite_nixl_notification_receive(
          handle, name.data(), &name_bytes, message.data(), &message_bytes, &error);
      if (status == ORBITE_NIXL_OK) {
        return {std::string(name.data(), name_bytes), std::string(message.data(), message_bytes)};
      }
      EXPECT_EQ(status, ORBITE_NIXL_ERR_NOT_FOUND) << error.message;
      std::this_thread::yield();
    }
    ADD_FAILURE() << "no message in time";
    return {};
  }
  nlohmann::json info() {
    std::string text(1 << 20, '\0');
    std::size_t bytes = text.size();
    EXPECT_EQ(orbite_nixl_engine_info(handle, text.data(), &bytes, &error), ORBITE_NIXL_OK);
    return nlohmann::json::parse(text.substr(0, bytes));
  }

  orbite_nixl_engine_t handle = 0;
  orbite_nixl_error_t error = make_record<orbite_nixl_error_t>();

 private:
  std::string name_;
};

std::vector<unsigned char> pattern(std::size_t bytes, unsigned seed) {
  std::vector<unsigned char> made(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    made[i] = static_cast<unsigned char>(i * 31 + i / 253 + seed);
  }
  return made;
}

orbite_nixl_descriptor_t piece(const std::vector<unsigned char>& bytes, std::size_t offset,
                               std::size_t length, std::uint64_t owner) {
  return {reinterpret_cast<std::uint64_t>(bytes.data()) + offset, length, owner};
}

struct TelemetryOf {
  explicit TelemetryOf(Engine& engine) {
    std::size_t route_count = 0;
    std::size_t budget_count = 0;
    EXPECT_EQ(orbite_nixl_telemetry_read(engine.handle, &numbers, nullptr, &route_count, nullptr,
                                         &budget_count, &engine.error),
              ORBITE_NIXL_ERR_BUFFER_TOO_SMALL);
    routes.assign(route_count, make_record<orbite_nixl_route_t>());
    budgets.assign(budget_count, make_record<orbite_nixl_budget_t>());
    EXPECT_EQ(orbite_nixl_telemetry_read(engine.handle, &numbers, routes.data(), &route_count,
                                         budgets.data(), &budget_count, &engine.error),
              ORBITE_NIXL_OK)
        << engine.error.message;
    EXPECT_EQ(route_count, routes.size());
    EXPECT_EQ(budget_count, budgets.size());
  }
  const orbite_nixl_route_t& route(std::string_view transport, orbite_nixl_operation_t operation,
                                   orbite_nixl_class_t qos) const {
    for (const orbite_nixl_route_t& each : routes) {
      if (each.transport == transport && each.operation == operation && each.qos == qos) {
        return each;
      }
    }
    ADD_FAILURE() << "no such route";
    return routes.front();
  }
  const orbite_nixl_budget_t& budget(std::string_view name) const {
    for (const orbite_nixl_budget_t& each : budgets) {
      if (each.name == name) {
        return each;
      }
    }
    ADD_FAILURE() << "no such budget";
    return budgets.front();
  }

  orbite_nixl_telemetry_t numbers = make_record<orbite_nixl_telemetry_t>();
  std::vector<orbite_nixl_route_t> routes;
  std::vector<orbite_nixl_budget_t> budgets;
};

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

// Somebody else's port on loopback: connections are made, and nothing is ever said on them.
struct Stranger {
  Stranger() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), bytes), 0);
    EXPECT_EQ(::listen(socket, 16), 0);
    EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    port = ntohs(address.sin_port);
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  ~Stranger() { ::close(socket); }

  int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::uint16_t port = 0;
};

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

TEST(BridgeLibrary, RefusesMadeUpHandlesInEveryEntry) {
  Engine engine("agent");
  const std::vector<std::string> without_object = {
      "AbiQuery",       "EngineCreate",       "EngineClose",    "EngineRelease",
      "EngineInfo",     "TelemetryRead",      "TelemetryText",  "MemoryRegister",
      "PeerExport",     "PeerSelf",           "PeerImport",     "NotificationReceive",
      "UnresolvedRead", "EpochConfirmFenced", "SharedAllocate", "SharedImport",
      "SharedFree"};
  int tried = 0;
  for (const Entry& entry : entries()) {
    if (std::count(without_object.begin(), without_object.end(), entry.name) != 0) {
      continue;
    }
    for (const std::uint64_t handle : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32,
                                       (std::uint64_t{77} << 32) | 5, ~std::uint64_t{0}}) {
      Arguments arguments;
      arguments.engine = engine.handle;
      arguments.handle = handle;
      arguments.prepare_record.peer = handle;
      arguments.local[0].owner = handle;
      arguments.remote[0].owner = handle;
      EXPECT_EQ(entry.call(arguments), ORBITE_NIXL_ERR_STALE_HANDLE)
          << entry.name << " " << std::hex << handle << " " << arguments.error_record.message;
      ++tried;
    }
  }
  EXPECT_EQ(tried, 5 * (static_cast<int>(entries().size() - without_object.size())));
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

class BridgeLists : public ::testing::Test {
 protected:
  BridgeLists() {
    registration = engine.add(bytes);
    EXPECT_EQ(orbite_nixl_peer_self(engine.handle, &self, &engine.error), ORBITE_NIXL_OK);
    EXPECT_EQ(orbite_nixl_range_local(engine.handle, registration, &range, &engine.error),
              ORBITE_NIXL_OK);
  }
  orbite_nixl_status_t refused(const orbite_nixl_descriptor_t& local,
                               const orbite_nixl_descriptor_t& remote,
                               orbite_nixl_operation_t operation = ORBITE_NIXL_WRITE) {
    orbite_nixl_request_t request = 0;
    // The second pair is at fault, so that a list is looked at to its end.
    const orbite_nixl_status_t status =
        engine.prepare(operation, self, {piece(bytes, 0, 8, registration), local},
                       {piece(bytes, 64, 8, range), remote}, request);
    EXPECT_EQ(request, 0U);
    return status;
  }

  Engine engine{"agent"};
  std::vector<unsigned char> bytes = pattern(4096, 5);
  orbite_nixl_registration_t registration = 0;
  orbite_nixl_peer_t self = 0;
  orbite_nixl_range_t range = 0;
};

TEST_F(BridgeLists, OfUnequalLengthsAreRefused) {
  EXPECT_EQ(refused(piece(bytes, 0, 8, registration), piece(bytes, 64, 9, range)),
            ORBITE_NIXL_ERR_LENGTH_MISMATCH);
}

TEST_F(BridgeLists, WithEmptyOrOverflowingRangesAreRefused) {
  EXPECT_EQ(refused(piece(bytes, 0, 0, registration), piece(bytes, 64, 0, range)),
            ORBITE_NIXL_ERR_INVALID_RANGE);
  const std::uint64_t last = ~std::uint64_t{0};
  EXPECT_EQ(refused({last - 3, 8, registration}, piece(bytes, 64, 8, range)),
            ORBITE_NIXL_ERR_INVALID_RANGE);
  EXPECT_EQ(refused(piece(bytes, 0, 8, registration), {last - 3, 8, range}),
            ORBITE_NIXL_ERR_INVALID_RANGE);
  EXPECT_EQ(refused({0, 8, registration}, piece(bytes, 64, 8, range)),
            ORBITE_NIXL_ERR_INVALID_RANGE);
}

TEST_F(BridgeLists, OutsideTheirOwnerAreRefused) {
  for (const std::size_t offset : {bytes.size(), bytes.size() - 7, std::size_t{0} - 1}) {
    EXPECT_EQ(refused(piece(bytes, offset, 8, registration), piece(bytes, 64, 8, range)),
              ORBITE_NIXL_ERR_INVALID_RANGE);
    EXPECT_EQ(refused(piece(bytes, 0, 8, registration), piece(bytes, offset, 8, range)),
              ORBITE_NIXL_ERR_INVALID_RANGE);
  }
}

TEST_F(BridgeLists, WithStaleOwnersAreRefused) {
  EXPECT_EQ(refused(piece(bytes, 0, 8, 0), piece(bytes, 64, 8, range)),
            ORBITE_NIXL_ERR_STALE_HANDLE);
  EXPECT_EQ(refused(piece(bytes, 0, 8, registration), piece(bytes, 64, 8, 0)),
            ORBITE_NIXL_ERR_STALE_HANDLE);
}

TEST_F(BridgeLists, WithoutTheRightsAreRefused) {
  auto other = pattern(4096, 6);
  const auto read_only =
      engine.add(other, ORBITE_NIXL_ACCESS_LOCAL | ORBITE_NIXL_ACCESS_REMOTE_READ);
  orbite_nixl_range_t read_range = 0;
  ASSERT_EQ(orbite_nixl_range_local(engine.handle, read_only, &read_range, &engine.error),
            ORBITE_NIXL_OK);
  EXPECT_EQ(refused(piece(bytes, 0, 8, registration), piece(other, 0, 8, read_range)),
            ORBITE_NIXL_ERR_NOT_ALLOWED);
  EXPECT_TRUE(engine.info().contains("budgets")) << "the engine still answers";
}

TEST(BridgeLibrary, RefusesAlteredBlobs) {
  Engine here("here");
  Engine there("there");
  auto bytes = pattern(4096, 7);
  const auto connection = there.connection_blob();
  EXPECT_EQ(connection, there.connection_blob());
  const auto memory = there.memory_blob(there.add(bytes));
  const auto peer = here.peer_of(there);
  const auto import_memory = [&](const std::vector<unsigned char>& blob) {
    orbite_nixl_range_t range = 0;
    const orbite_nixl_status_t status = orbite_nixl_range_import(
        here.handle, peer, blob.data(), blob.size(), reinterpret_cast<std::uint64_t>(bytes.data()),
        bytes.size(), &range, &here.error);
    EXPECT_EQ(status == ORBITE_NIXL_OK, range != 0);
    return status;
  };
  const auto bad = AnyOf(ORBITE_NIXL_ERR_BAD_METADATA, ORBITE_NIXL_ERR_INCOMPATIBLE);
  for (const auto* blob : {&connection, &memory}) {
    const auto import = [&](const std::vector<unsigned char>& altered) {
      orbite_nixl_peer_t other = 0;
      return blob == &memory ? import_memory(altered) : here.import("other", altered, other);
    };
    for (std::size_t i = 0; i < blob->size(); ++i) {
      auto altered = *blob;
      altered[i] ^= 1;
      EXPECT_THAT(import(altered), bad) << "byte " << i;
      EXPECT_THAT(import({blob->begin(), blob->begin() + static_cast<long>(i)}), bad);
    }
    auto longer = *blob;
    longer.push_back(0);
    EXPECT_THAT(import(longer), bad);
  }
  // One in the place of the other.
  orbite_nixl_peer_t other = 0;
  EXPECT_THAT(here.import("other", memory, other), bad);
  EXPECT_THAT(import_memory(connection), bad);
  EXPECT_EQ(import_memory(memory), ORBITE_NIXL_OK);
}

TEST(BridgeLibrary, RefusesRangesOutsideTheDescribedOne) {
  Engine here("here");
  Engine there("there");
  auto bytes = pattern(4096, 8);
  const auto blob = there.memory_blob(there.add(bytes));
  const auto peer = here.peer_of(there);
  const auto address = reinterpret_cast<std::uint64_t>(bytes.data());
  orbite_nixl_range_t range = 0;
  for (const auto& [from, length] : {std::pair<std::uint64_t, std::uint64_t>{address - 1, 8},
                                     {address, bytes.size() + 1},
                                     {address + bytes.size() - 7, 8},
                                     {address + bytes.size(), 1}}) {
    EXPECT_EQ(orbite_nixl_range_import(here.handle, peer, blob.data(), blob.size(), from, length,
                                       &range, &here.error),
              ORBITE_NIXL_ERR_INVALID_RANGE);
  }
  EXPECT_EQ(range, 0U);
}

TEST(BridgeLibrary, NamesTheAddressThatItCannotHave) {
  Stranger stranger;
  const std::string port = std::to_string(stranger.port);
  auto error = make_record<orbite_nixl_error_t>();
  orbite_nixl_engine_t engine = 0;
  EXPECT_EQ(create("agent", R"({"listen": {"address": "127.0.0.1", "port": )" + port + "}}", engine,
                   error),
            ORBITE_NIXL_ERR_ADDRESS_IN_USE);
  EXPECT_THAT(error.message, HasSubstr("127.0.0.1:" + port));
  // A documentation address: not ours.
  EXPECT_EQ(create("agent", R"({"listen": {"address": "192.0.2.1"}})", engine, error),
            ORBITE_NIXL_ERR_ADDRESS_NOT_LOCAL);
  EXPECT_THAT(error.message, HasSubstr("192.0.2.1"));
  EXPECT_EQ(engine, 0U);
}

/// Or takes an operator's word, which is no admission.
bool only_looks(const Entry& entry) {
  return entry.name.starts_with("Telemetry") || entry.name == "UnresolvedRead" ||
         entry.name == "EpochConfirmFenced";
}

TEST(BridgeLibrary, AClosedEngineAdmitsNothing) {
  Engine engine("agent");
  auto bytes = pattern(4096, 9);
  engine.add(bytes);
  auto status = make_record<orbite_nixl_close_t>();
  ASSERT_EQ(orbite_nixl_engine_close(engine.handle, 10'000'000'000, &status, &engine.error),
            ORBITE_NIXL_OK);
  EXPECT_EQ(status.phase, ORBITE_NIXL_CLOSE_CLOSED);
  EXPECT_EQ(status.executions_unresolved + status.registrations_unresolved, 0U);
  for (const Entry& entry : entries()) {
    if (entry.name == "MemoryRegister" || entry.name == "PeerSelf" || entry.name == "PeerImport") {
      Arguments arguments;
      arguments.engine = engine.handle;
      EXPECT_EQ(entry.call(arguments), ORBITE_NIXL_ERR_ENGINE_CLOSING) << entry.name;
    } else if (entry.takes_engine && entry.can_fail && !only_looks(entry)) {
      Arguments arguments;
      arguments.engine = engine.handle;
      EXPECT_THAT(entry.call(arguments),
                  AnyOf(ORBITE_NIXL_ERR_ENGINE_CLOSING, ORBITE_NIXL_ERR_STALE_HANDLE))
          << entry.name;
    }
  }
  // What only looks still answers.
  EXPECT_TRUE(engine.info().is_object());
  EXPECT_EQ(TelemetryOf(engine).numbers.registrations_live, 0U);
  EXPECT_EQ(orbite_nixl_engine_close(engine.handle, 0, &status, &engine.error), ORBITE_NIXL_OK);
  EXPECT_EQ(status.phase, ORBITE_NIXL_CLOSE_CLOSED);
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
