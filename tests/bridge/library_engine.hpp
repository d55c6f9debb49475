// SPDX-License-Identifier: Apache-2.0
// An engine of the built library. It listens on loopback alone.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bridge/entries.hpp"

namespace orbite::testing {

inline constexpr const char* kLoopback =
    R"({"listen": {"address": "127.0.0.1"}, "advertise": {"addresses": ["127.0.0.1"]}})";
inline constexpr const char* kTcpOnly =
    R"({"listen": {"address": "127.0.0.1"}, "advertise": {"addresses": ["127.0.0.1"]},
        "transfer": {"routes": ["tcp"]}})";
inline constexpr std::chrono::seconds kLongest{60};

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

inline std::vector<unsigned char> pattern(std::size_t bytes, unsigned seed) {
  std::vector<unsigned char> made(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    made[i] = static_cast<unsigned char>(i * 31 + i / 253 + seed);
  }
  return made;
}

inline orbite_nixl_descriptor_t piece(const std::vector<unsigned char>& bytes, std::size_t offset,
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

}  // namespace orbite::testing
