// SPDX-License-Identifier: Apache-2.0
// What the built library refuses, with a real engine.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bridge/library_engine.hpp"

namespace orbite::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

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

}  // namespace
}  // namespace orbite::testing
