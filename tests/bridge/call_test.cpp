// SPDX-License-Identifier: Apache-2.0
// What crosses the C ABI in each call, over an engine double.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "bridge/bridge_test.hpp"
#include "codes.hpp"

namespace orbite::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(BridgeTest, ReleaseEndsTheHandleAndTheEngine) {
  EXPECT_EQ(fake_engine().alive, 1);
  EXPECT_EQ(orbite_nixl_engine_release(arguments.engine, arguments.error), ORBITE_NIXL_OK);
  EXPECT_EQ(fake_engine().alive, 0);
  EXPECT_EQ(orbite_nixl_engine_release(arguments.engine, arguments.error),
            ORBITE_NIXL_ERR_STALE_HANDLE);
  EXPECT_THAT(arguments.error_record.message, HasSubstr("is not open"));
}

TEST_F(BridgeTest, AbiQueryAnswersACallerOfAnotherMajorVersion) {
  arguments.abi_record.record.abi_major = 9;
  arguments.error_record.record.abi_major = 9;
  EXPECT_EQ(orbite_nixl_abi_query(arguments.abi, arguments.error), ORBITE_NIXL_OK);
  EXPECT_EQ(arguments.abi_record.abi_major, ORBITE_NIXL_ABI_MAJOR);
  EXPECT_EQ(arguments.abi_record.abi_minor, ORBITE_NIXL_ABI_MINOR);
  EXPECT_EQ(arguments.abi_record.features, ORBITE_NIXL_FEATURE_TCP | ORBITE_NIXL_FEATURE_LOCAL);
  EXPECT_GT(arguments.abi_record.wire_version, 0U);
  EXPECT_STREQ(arguments.abi_record.version, "9.8.7");
  arguments.abi_record.record.size = 8;
  EXPECT_EQ(orbite_nixl_abi_query(arguments.abi, arguments.error), ORBITE_NIXL_ERR_ABI_MISMATCH);
}

TEST_F(BridgeTest, StatusTextsAreThoseOfTheCodes) {
  for (const bridge::CodePair& pair : bridge::kCodePairs) {
    EXPECT_EQ(orbite_nixl_status_text(pair.status), error_text(pair.code));
  }
  for (const std::int32_t unknown : {-1, 1, 99, 112, 65535, 65636, INT32_MAX, INT32_MIN}) {
    EXPECT_STREQ(orbite_nixl_status_text(unknown), "unknown error") << unknown;
  }
}

TEST_F(BridgeTest, LongMessagesAreCutAndEnded) {
  const std::string longest(300, 'x');
  fake_engine().failure = Error::make_native(ErrorCode::kSystem, 13, "%s", longest.c_str());
  arguments.error_record.message[ORBITE_NIXL_MESSAGE_BYTES - 1] = '!';
  EXPECT_EQ(orbite_nixl_request_cancel(arguments.engine, arguments.handle, arguments.error),
            ORBITE_NIXL_ERR_SYSTEM);
  EXPECT_EQ(arguments.error_record.message, fake_engine().failure->message());
  EXPECT_LT(std::strlen(arguments.error_record.message), sizeof(arguments.error_record.message));
}

TEST_F(BridgeTest, NamesAreBounded) {
  const std::string longest(ORBITE_NIXL_NAME_BYTES_MAX, 'n');
  const std::string too_long = longest + "n";
  for (const std::size_t bytes : {std::size_t{0}, too_long.size(), SIZE_MAX / 2}) {
    arguments.options_record.name = too_long.data();
    arguments.options_record.name_bytes = bytes;
    EXPECT_EQ(orbite_nixl_engine_create(arguments.options, arguments.output, arguments.error),
              ORBITE_NIXL_ERR_INVALID_ARGUMENT);
    EXPECT_THAT(arguments.error_record.message, HasSubstr("1..256"));
    EXPECT_EQ(orbite_nixl_peer_import(arguments.engine, too_long.data(), bytes, arguments.input, 1,
                                      arguments.output, arguments.error),
              ORBITE_NIXL_ERR_INVALID_ARGUMENT);
  }
  EXPECT_EQ(fake_engine().calls, 0);
  EXPECT_EQ(orbite_nixl_peer_import(arguments.engine, longest.data(), longest.size(),
                                    arguments.input, 4, arguments.output, arguments.error),
            ORBITE_NIXL_OK);
  EXPECT_EQ(fake_engine().text_seen, longest);
  EXPECT_EQ(fake_engine().bytes_seen.size(), 4U);
}

TEST_F(BridgeTest, InputsThatWrapAreRefused) {
  const std::size_t wraps = SIZE_MAX - 4;
  EXPECT_EQ(orbite_nixl_peer_import(arguments.engine, "a", 1, arguments.input, wraps,
                                    arguments.output, arguments.error),
            ORBITE_NIXL_ERR_INVALID_RANGE);
  EXPECT_EQ(orbite_nixl_range_import(arguments.engine, arguments.handle, arguments.input, wraps,
                                     4096, 1, arguments.output, arguments.error),
            ORBITE_NIXL_ERR_INVALID_RANGE);
  EXPECT_EQ(orbite_nixl_notification_send(arguments.engine, arguments.handle, arguments.input,
                                          wraps, arguments.error),
            ORBITE_NIXL_ERR_INVALID_RANGE);
  arguments.post_record.notification = arguments.input;
  arguments.post_record.notification_bytes = wraps;
  EXPECT_EQ(orbite_nixl_request_post(arguments.engine, arguments.handle, arguments.post,
                                     arguments.result, arguments.error),
            ORBITE_NIXL_ERR_INVALID_RANGE);
  arguments.options_record.config_bytes = wraps;
  EXPECT_EQ(orbite_nixl_engine_create(arguments.options, arguments.output, arguments.error),
            ORBITE_NIXL_ERR_INVALID_RANGE);
  EXPECT_EQ(fake_engine().calls, 0);
}

TEST_F(BridgeTest, RangesAreChecked) {
  struct Case {
    std::uint64_t address;
    std::uint64_t length;
    const char* message;
  };
  for (const Case& bad :
       {Case{0, 8, "address is null"}, Case{4096, 0, "length is 0"},
        Case{~std::uint64_t{0} - 7, 9, "overflows"}, Case{4096, ~std::uint64_t{0}, "overflows"}}) {
    arguments.memory_record.address = bad.address;
    arguments.memory_record.length = bad.length;
    EXPECT_EQ(orbite_nixl_memory_register(arguments.engine, arguments.memory, arguments.output,
                                          arguments.error),
              ORBITE_NIXL_ERR_INVALID_RANGE);
    EXPECT_THAT(arguments.error_record.message, HasSubstr(bad.message));
    EXPECT_EQ(orbite_nixl_range_import(arguments.engine, arguments.handle, arguments.input, 8,
                                       bad.address, bad.length, arguments.output, arguments.error),
              ORBITE_NIXL_ERR_INVALID_RANGE);
    EXPECT_THAT(arguments.error_record.message, HasSubstr(bad.message));
  }
  EXPECT_EQ(fake_engine().calls, 0);
}

TEST_F(BridgeTest, MemoryReachesTheEngineWhole) {
  int retired = 0;
  arguments.memory_record.device_id = 1234567890123;
  arguments.memory_record.access = ORBITE_NIXL_ACCESS_LOCAL | ORBITE_NIXL_ACCESS_REMOTE_READ;
  arguments.memory_record.retired = [](void* context) { ++*static_cast<int*>(context); };
  arguments.memory_record.context = &retired;
  ASSERT_EQ(orbite_nixl_memory_register(arguments.engine, arguments.memory, arguments.output,
                                        arguments.error),
            ORBITE_NIXL_OK);
  EXPECT_EQ(arguments.handle_out, fake_engine().handle.packed());
  EXPECT_EQ(arguments.handle_out, (std::uint64_t{9} << 32) | 7);
  EXPECT_EQ(fake_engine().memory.address, arguments.memory_record.address);
  EXPECT_EQ(fake_engine().memory.length, arguments.memory_record.length);
  EXPECT_EQ(fake_engine().memory.device_id, 1234567890123U);
  EXPECT_EQ(fake_engine().memory.access, kAccessLocal | kAccessRemoteRead);
  ASSERT_TRUE(fake_engine().memory.retired);
  fake_engine().memory.retired();
  EXPECT_EQ(retired, 1);

  arguments.memory_record.retired = nullptr;
  ASSERT_EQ(orbite_nixl_memory_register(arguments.engine, arguments.memory, arguments.output,
                                        arguments.error),
            ORBITE_NIXL_OK);
  EXPECT_FALSE(fake_engine().memory.retired);
}

TEST_F(BridgeTest, WhatARetiredCallbackThrowsStaysInside) {
  arguments.memory_record.retired = [](void*) { throw std::runtime_error("of the host"); };
  ASSERT_EQ(orbite_nixl_memory_register(arguments.engine, arguments.memory, arguments.output,
                                        arguments.error),
            ORBITE_NIXL_OK);
  EXPECT_NO_THROW(fake_engine().memory.retired());
}

TEST_F(BridgeTest, MemoryKindsAndAccessAreChecked) {
  for (const std::uint32_t kind : {1U, 2U, 256U, ~0U}) {
    arguments.memory_record.kind = kind;
    EXPECT_EQ(orbite_nixl_memory_register(arguments.engine, arguments.memory, arguments.output,
                                          arguments.error),
              ORBITE_NIXL_ERR_UNSUPPORTED);
    EXPECT_THAT(arguments.error_record.message, HasSubstr(std::to_string(kind)));
  }
  arguments.memory_record.kind = ORBITE_NIXL_MEMORY_DRAM;
  for (const std::uint32_t access : {0U, 2U, 6U, 8U, 9U, 0x101U, ~0U}) {
    arguments.memory_record.access = access;
    EXPECT_EQ(orbite_nixl_memory_register(arguments.engine, arguments.memory, arguments.output,
                                          arguments.error),
              ORBITE_NIXL_ERR_INVALID_ARGUMENT);
  }
  EXPECT_EQ(fake_engine().calls, 0);
}

TEST_F(BridgeTest, RegistrationStatesCross) {
  for (const RegistrationState state :
       {RegistrationState::kLive, RegistrationState::kFenced, RegistrationState::kRetired,
        RegistrationState::kUnquiesced}) {
    fake_engine().registration_state = state;
    EXPECT_EQ(orbite_nixl_memory_query(arguments.engine, arguments.handle, arguments.state,
                                       arguments.error),
              ORBITE_NIXL_OK);
    EXPECT_EQ(arguments.state_out, static_cast<int>(state));
    arguments.state_out = -1;
    EXPECT_EQ(orbite_nixl_memory_deregister(arguments.engine, arguments.handle, arguments.state,
                                            arguments.error),
              ORBITE_NIXL_OK);
    EXPECT_EQ(arguments.state_out, static_cast<int>(state));
    EXPECT_EQ(fake_engine().handle_seen.packed(), arguments.handle);
  }
  EXPECT_EQ(orbite_nixl_memory_deregister(arguments.engine, arguments.handle, nullptr, nullptr),
            ORBITE_NIXL_OK);
}

TEST_F(BridgeTest, TelemetryTextTellsTheSizeItNeeds) {
  std::size_t bytes = 0;
  EXPECT_EQ(orbite_nixl_telemetry_text(arguments.engine, nullptr, &bytes, arguments.error),
            ORBITE_NIXL_ERR_BUFFER_TOO_SMALL);
  std::string text(bytes, '\0');
  EXPECT_EQ(orbite_nixl_telemetry_text(arguments.engine, text.data(), &bytes, arguments.error),
            ORBITE_NIXL_OK);
  EXPECT_EQ(text, telemetry_text(fake_engine().telemetry));
}

TEST_F(BridgeTest, BuffersTellTheSizeTheyNeed) {
  using Call = std::function<orbite_nixl_status_t(void*, std::size_t*)>;
  const std::vector<Call> calls = {
      [&](void* buffer, std::size_t* bytes) {
        return orbite_nixl_peer_export(arguments.engine, buffer, bytes, arguments.error);
      },
      [&](void* buffer, std::size_t* bytes) {
        return orbite_nixl_memory_export(arguments.engine, arguments.handle, buffer, bytes,
                                         arguments.error);
      },
      [&](void* buffer, std::size_t* bytes) {
        return orbite_nixl_engine_info(arguments.engine, static_cast<char*>(buffer), bytes,
                                       arguments.error);
      }};
  fake_engine().info = std::string("\1\2\3\4\5");
  for (const Call& call : calls) {
    std::array<unsigned char, 8> buffer{};
    std::size_t bytes = 100;
    EXPECT_EQ(call(nullptr, &bytes), ORBITE_NIXL_ERR_BUFFER_TOO_SMALL);
    EXPECT_EQ(bytes, 5U);
    bytes = 4;
    EXPECT_EQ(call(buffer.data(), &bytes), ORBITE_NIXL_ERR_BUFFER_TOO_SMALL);
    EXPECT_EQ(bytes, 5U);
    EXPECT_EQ(buffer[0], 0);
    EXPECT_THAT(arguments.error_record.message, HasSubstr("has 4 bytes; 5 are needed"));
    EXPECT_EQ(call(buffer.data(), &bytes), ORBITE_NIXL_OK);
    EXPECT_EQ(bytes, 5U);
    EXPECT_THAT(buffer, ElementsAre(1, 2, 3, 4, 5, 0, 0, 0));
    bytes = 8;
    EXPECT_EQ(call(buffer.data(), &bytes), ORBITE_NIXL_OK);
    EXPECT_EQ(bytes, 5U);
  }
}

TEST_F(BridgeTest, PeersAndRangesReachTheEngineWhole) {
  EXPECT_EQ(orbite_nixl_peer_self(arguments.engine, arguments.output, arguments.error),
            ORBITE_NIXL_OK);
  EXPECT_EQ(arguments.handle_out, fake_engine().handle.packed());
  EXPECT_EQ(orbite_nixl_peer_connect(arguments.engine, 77, 1234, arguments.error), ORBITE_NIXL_OK);
  EXPECT_EQ(fake_engine().peer_seen.packed(), 77U);
  EXPECT_EQ(fake_engine().number_seen, 1234U);
  EXPECT_EQ(orbite_nixl_range_import(arguments.engine, 78, arguments.input, 3, 4096, 55,
                                     arguments.output, arguments.error),
            ORBITE_NIXL_OK);
  EXPECT_EQ(fake_engine().peer_seen.packed(), 78U);
  EXPECT_EQ(fake_engine().bytes_seen.size(), 3U);
  EXPECT_EQ(fake_engine().address_seen, 4096U);
  EXPECT_EQ(fake_engine().number_seen, 55U);
  // No blob at all is the engine's to judge.
  EXPECT_EQ(orbite_nixl_peer_import(arguments.engine, "a", 1, nullptr, 0, arguments.output,
                                    arguments.error),
            ORBITE_NIXL_OK);
  EXPECT_TRUE(fake_engine().bytes_seen.empty());
}

TEST_F(BridgeTest, TelemetryCrossesWhole) {
  Telemetry& known = fake_engine().telemetry;
  known.counters.lanes_connected = 11;
  known.gauges.quarantined_bytes = 12;
  RouteTelemetry& route = known.routes[1];
  route.transport = "tcp";
  route.operation = Operation::kWrite;
  route.qos = "bulk";
  route.posted = 1;
  route.succeeded = 2;
  route.canceled = 3;
  route.failed = 4;
  route.bytes = 5;
  route.active = 6;
  route.unquiesced = 7;
  route.unquiesced_bytes = 8;
  route.latency_sum_ns = 9;
  route.latency[0] = 10;
  route.latency[kLatencyBounds] = 11;
  route.failures = {{ErrorCode::kPeerSilent, 3}, {ErrorCode::kDeadlineExceeded, 1}};
  known.budgets[0] = {"peers", "limits.peers_max", 13, 14, 15};
  ASSERT_EQ(orbite_nixl_telemetry_read(arguments.engine, arguments.telemetry,
                                       arguments.route_records.data(), arguments.route_count,
                                       arguments.budget_records.data(), arguments.budget_count,
                                       arguments.error),
            ORBITE_NIXL_OK);
  EXPECT_EQ(arguments.telemetry_record.lanes_connected, 11U);
  EXPECT_EQ(arguments.telemetry_record.quarantined_bytes, 12U);
  EXPECT_EQ(arguments.telemetry_record.latency_bounds_ns[51], latency_bound_ns(51));
  const orbite_nixl_route_t& out = arguments.route_records[1];
  EXPECT_STREQ(out.transport, "tcp");
  EXPECT_EQ(out.operation, static_cast<unsigned>(ORBITE_NIXL_WRITE));
  EXPECT_EQ(out.qos, static_cast<unsigned>(ORBITE_NIXL_CLASS_BULK));
  const std::array<std::uint64_t, 9> numbers = {
      out.posted, out.succeeded,  out.canceled,         out.failed,        out.bytes,
      out.active, out.unquiesced, out.unquiesced_bytes, out.latency_sum_ns};
  EXPECT_THAT(numbers, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_EQ(out.latency[0], 10U);
  EXPECT_EQ(out.latency[kLatencyBounds], 11U);
  ASSERT_EQ(out.failure_count, 2U);
  EXPECT_EQ(out.failures[0].status, ORBITE_NIXL_ERR_PEER_SILENT);
  EXPECT_EQ(out.failures[0].count, 3U);
  EXPECT_EQ(out.failures[1].status, ORBITE_NIXL_ERR_DEADLINE_EXCEEDED);
  const orbite_nixl_budget_t& budget = arguments.budget_records[0];
  EXPECT_STREQ(budget.name, "peers");
  EXPECT_STREQ(budget.key, "limits.peers_max");
  EXPECT_EQ(budget.used, 13U);
  EXPECT_EQ(budget.max, 14U);
  EXPECT_EQ(budget.refused, 15U);
}

TEST_F(BridgeTest, UnresolvedWorkCrossesWholeAndFitsOrTellsTheCount) {
  UnresolvedPeer silent{.name = std::string(ORBITE_NIXL_NAME_BYTES_MAX, 'n'),
                        .epoch = {1, 2, 3},
                        .retired = true,
                        .requests = 2,
                        .bytes = 300,
                        .pieces = 4,
                        .code = ErrorCode::kPeerSilent,
                        .native_errno = 5,
                        .address = "127.0.0.1:18500",
                        .duration_ns = 6};
  UnresolvedPeer odd;
  odd.name = std::string("a\0b", 3);
  odd.address = std::string(200, '1');
  fake_engine().unresolved = {silent, odd};
  std::array<orbite_nixl_unresolved_t, 3> records{};
  std::size_t count = 1;
  records[0].record = ORBITE_NIXL_RECORD(orbite_nixl_unresolved_t);
  EXPECT_EQ(orbite_nixl_unresolved_read(arguments.engine, records.data(), &count, nullptr),
            ORBITE_NIXL_ERR_BUFFER_TOO_SMALL);
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(orbite_nixl_unresolved_read(arguments.engine, records.data(), &count, nullptr),
            ORBITE_NIXL_ERR_ABI_MISMATCH)
      << "the second record has no head";
  EXPECT_EQ(records[0].requests, 0U) << "written only on success";
  records[1].record = records[0].record;
  count = records.size();
  ASSERT_EQ(orbite_nixl_unresolved_read(arguments.engine, records.data(), &count, nullptr),
            ORBITE_NIXL_OK);
  ASSERT_EQ(count, 2U);
  const orbite_nixl_unresolved_t& first = records[0];
  EXPECT_EQ(std::string(first.name, first.name_bytes), silent.name);
  EXPECT_EQ(first.epoch[2], 3);
  EXPECT_EQ(first.status, ORBITE_NIXL_ERR_PEER_SILENT);
  EXPECT_EQ(first.native_errno, 5);
  EXPECT_EQ(first.retired, 1U);
  EXPECT_EQ(first.requests, 2U);
  EXPECT_EQ(first.bytes, 300U);
  EXPECT_EQ(first.pieces, 4U);
  EXPECT_EQ(first.duration_ns, 6U);
  EXPECT_STREQ(first.address, "127.0.0.1:18500");
  EXPECT_EQ(std::string(records[1].name, records[1].name_bytes), odd.name);
  EXPECT_EQ(std::strlen(records[1].address), sizeof(records[1].address) - 1) << "cut and ended";
}

TEST_F(BridgeTest, AnOperatorsWordReachesTheEngineWhole) {
  ASSERT_EQ(orbite_nixl_epoch_confirm_fenced(arguments.engine, arguments.bytes.data(), nullptr),
            ORBITE_NIXL_OK);
  EXPECT_EQ(fake_engine().bytes_seen,
            std::vector<std::uint8_t>(arguments.bytes.begin(), arguments.bytes.begin() + 16));
}

TEST_F(BridgeTest, DescriptorListsReachTheEngineWhole) {
  const std::array<orbite_nixl_descriptor_t, 2> local = {
      {{4096, 16, (std::uint64_t{3} << 32) | 1}, {8192, 32, (std::uint64_t{4} << 32) | 2}}};
  const std::array<orbite_nixl_descriptor_t, 2> remote = {{{1, 16, 5}, {2, 32, 6}}};
  arguments.prepare_record.operation = ORBITE_NIXL_READ;
  arguments.prepare_record.peer = 99;
  arguments.prepare_record.local = local.data();
  arguments.prepare_record.remote = remote.data();
  arguments.prepare_record.count = 2;
  ASSERT_EQ(orbite_nixl_request_prepare(arguments.engine, arguments.prepare, arguments.output,
                                        arguments.error),
            ORBITE_NIXL_OK);
  EXPECT_EQ(fake_engine().operation_seen, Operation::kRead);
  EXPECT_EQ(fake_engine().peer_seen.packed(), 99U);
  ASSERT_EQ(fake_engine().local_seen.size(), 2U);
  ASSERT_EQ(fake_engine().remote_seen.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(fake_engine().local_seen[i].address, local[i].address);
    EXPECT_EQ(fake_engine().local_seen[i].length, local[i].length);
    EXPECT_EQ(fake_engine().local_seen[i].owner.packed(), local[i].owner);
    EXPECT_EQ(fake_engine().remote_seen[i].owner.packed(), remote[i].owner);
  }
  EXPECT_EQ(fake_engine().local_seen[1].owner, (Handle{.index = 2, .generation = 4}));
}

TEST_F(BridgeTest, PrepareRecordsAreChecked) {
  const auto prepare = [&] {
    return orbite_nixl_request_prepare(arguments.engine, arguments.prepare, arguments.output,
                                       arguments.error);
  };
  for (const std::uint32_t operation : {2U, 256U, 257U, ~0U}) {
    arguments.prepare_record.operation = operation;
    EXPECT_EQ(prepare(), ORBITE_NIXL_ERR_INVALID_ARGUMENT);
    EXPECT_THAT(arguments.error_record.message, HasSubstr("operation"));
  }
  arguments.prepare_record.operation = ORBITE_NIXL_WRITE;
  arguments.prepare_record.reserved = 1;
  EXPECT_EQ(prepare(), ORBITE_NIXL_ERR_INVALID_ARGUMENT);
  EXPECT_THAT(arguments.error_record.message, HasSubstr("reserved"));
  arguments.prepare_record.reserved = 0;
  for (const std::size_t count : {std::size_t{0}, SIZE_MAX, SIZE_MAX / 24, SIZE_MAX / 24 + 2}) {
    arguments.prepare_record.count = count;
    EXPECT_EQ(prepare(), ORBITE_NIXL_ERR_INVALID_ARGUMENT) << count;
  }
  arguments.prepare_record.count = 1;
  arguments.prepare_record.local = reinterpret_cast<const orbite_nixl_descriptor_t*>(
      reinterpret_cast<const unsigned char*>(arguments.local.data()) + 4);
  EXPECT_EQ(prepare(), ORBITE_NIXL_ERR_INVALID_ARGUMENT);
  EXPECT_THAT(arguments.error_record.message, HasSubstr("prepare.local"));
  EXPECT_EQ(fake_engine().calls, 0);
}

TEST_F(BridgeTest, PostsCarryNotificationAndDeadline) {
  const auto post = [&](const orbite_nixl_post_t* record) {
    return orbite_nixl_request_post(arguments.engine, arguments.handle, record, arguments.result,
                                    arguments.error);
  };
  EXPECT_EQ(post(nullptr), ORBITE_NIXL_OK);
  EXPECT_FALSE(fake_engine().notification_seen.has_value());
  EXPECT_EQ(fake_engine().number_seen, 0U);

  arguments.post_record.timeout_ns = 4711;
  EXPECT_EQ(post(arguments.post), ORBITE_NIXL_OK);
  EXPECT_FALSE(fake_engine().notification_seen.has_value());
  EXPECT_EQ(fake_engine().number_seen, 4711U);

  arguments.post_record.notification = "";
  EXPECT_EQ(post(arguments.post), ORBITE_NIXL_OK);
  ASSERT_TRUE(fake_engine().notification_seen.has_value());
  EXPECT_TRUE(fake_engine().notification_seen->empty());

  arguments.post_record.notification = "a\0b";
  arguments.post_record.notification_bytes = 3;
  EXPECT_EQ(post(arguments.post), ORBITE_NIXL_OK);
  EXPECT_THAT(*fake_engine().notification_seen, ElementsAre('a', 0, 'b'));
}

TEST_F(BridgeTest, OutcomesCrossWhole) {
  const Outcome outcome{.logical = Logical::kFailed,
                        .drain = Drain::kUnquiesced,
                        .effect = RemoteEffect::kPrefix,
                        .code = ErrorCode::kShortTransfer,
                        .native_errno = 32,
                        .bytes_prefix = 11,
                        .bytes_total = 22,
                        .route = "a-route-with-a-name-that-is-too-long"};
  fake_engine().outcome = outcome;
  const auto expect = [&](orbite_nixl_status_t status) {
    EXPECT_EQ(status, ORBITE_NIXL_OK);
    EXPECT_EQ(arguments.result_record.terminal, 0);
    EXPECT_EQ(arguments.result_record.logical, ORBITE_NIXL_LOGICAL_FAILED);
    EXPECT_EQ(arguments.result_record.drain, ORBITE_NIXL_DRAIN_UNQUIESCED);
    EXPECT_EQ(arguments.result_record.effect, ORBITE_NIXL_EFFECT_PREFIX);
    EXPECT_EQ(arguments.result_record.status, ORBITE_NIXL_ERR_SHORT_TRANSFER);
    EXPECT_EQ(arguments.result_record.native_errno, 32);
    EXPECT_EQ(arguments.result_record.bytes_prefix, 11U);
    EXPECT_EQ(arguments.result_record.bytes_total, 22U);
    EXPECT_STREQ(arguments.result_record.route, "a-route-with-a-");
    arguments.result_record = make_record<orbite_nixl_result_t>();
  };
  expect(orbite_nixl_request_post(arguments.engine, arguments.handle, nullptr, arguments.result,
                                  arguments.error));
  expect(orbite_nixl_request_check(arguments.engine, arguments.handle, arguments.result,
                                   arguments.error));
  expect(orbite_nixl_request_query(arguments.engine, arguments.handle, arguments.result,
                                   arguments.error));
}

TEST_F(BridgeTest, TerminalNeedsBothFacts) {
  for (const Logical logical :
       {Logical::kNone, Logical::kSuccess, Logical::kCanceled, Logical::kFailed}) {
    for (const Drain drain : {Drain::kIdle, Drain::kPending, Drain::kRetired, Drain::kUnquiesced}) {
      fake_engine().outcome.logical = logical;
      fake_engine().outcome.drain = drain;
      EXPECT_EQ(orbite_nixl_request_check(arguments.engine, arguments.handle, arguments.result,
                                          arguments.error),
                ORBITE_NIXL_OK);
      EXPECT_EQ(arguments.result_record.terminal == 1,
                logical != Logical::kNone && drain == Drain::kRetired);
    }
  }
}

TEST_F(BridgeTest, CloseTellsItsPhase) {
  for (int phase = 0; phase <= ORBITE_NIXL_CLOSE_UNQUIESCED; ++phase) {
    fake_engine().close_status = {static_cast<ClosePhase>(phase), 1, 2, 3};
    EXPECT_EQ(orbite_nixl_engine_close(arguments.engine, 815, arguments.close, arguments.error),
              ORBITE_NIXL_OK);
    EXPECT_EQ(fake_engine().number_seen, 815U);
    EXPECT_EQ(arguments.close_record.phase, phase);
    EXPECT_EQ(arguments.close_record.executions_unresolved, 1U);
    EXPECT_EQ(arguments.close_record.registrations_unresolved, 2U);
    EXPECT_EQ(arguments.close_record.peers_unresolved, 3U);
  }
}

TEST_F(BridgeTest, MessagesStayUntilTheyFit) {
  fake_engine().inbox = {{"sender", {9, 0, 8}}, {"b", {}}};
  std::array<char, 8> name{};
  std::array<unsigned char, 8> message{};
  std::size_t name_bytes = 0;
  std::size_t message_bytes = 0;
  const auto receive = [&](std::size_t name_capacity, std::size_t message_capacity) {
    name_bytes = name_capacity;
    message_bytes = message_capacity;
    return orbite_nixl_notification_receive(arguments.engine, name.data(), &name_bytes,
                                            message.data(), &message_bytes, arguments.error);
  };
  const std::vector<std::pair<std::size_t, std::size_t>> too_small = {
      {5, 8}, {8, 2}, {0, 0}, {5, 2}};
  for (const auto& [names, messages] : too_small) {
    EXPECT_EQ(receive(names, messages), ORBITE_NIXL_ERR_BUFFER_TOO_SMALL);
    EXPECT_EQ(name_bytes, 6U);
    EXPECT_EQ(message_bytes, 3U);
    EXPECT_EQ(name[0], 0);
    EXPECT_EQ(message[0], 0);
  }
  name_bytes = message_bytes = 100;
  EXPECT_EQ(orbite_nixl_notification_receive(arguments.engine, nullptr, &name_bytes, nullptr,
                                             &message_bytes, arguments.error),
            ORBITE_NIXL_ERR_BUFFER_TOO_SMALL);
  EXPECT_EQ(receive(6, 3), ORBITE_NIXL_OK);
  EXPECT_EQ(std::string(name.data(), name_bytes), "sender");
  EXPECT_THAT(std::vector<int>(message.begin(), message.begin() + 3), ElementsAre(9, 0, 8));
  EXPECT_EQ(receive(1, 0), ORBITE_NIXL_OK);
  EXPECT_EQ(name_bytes, 1U);
  EXPECT_EQ(message_bytes, 0U);
  EXPECT_EQ(receive(8, 8), ORBITE_NIXL_ERR_NOT_FOUND);
  EXPECT_EQ(name_bytes, 8U);
  EXPECT_EQ(message_bytes, 8U);
}

TEST_F(BridgeTest, RoutesFitOrAreRefused) {
  std::array<char, 32> buffer{};
  const int length = static_cast<int>(fake_engine().routes.size());
  EXPECT_EQ(orbite_nixl_process_routes(buffer.data(), buffer.size()), length);
  EXPECT_STREQ(buffer.data(), "tcp:12,local:3");
  EXPECT_EQ(orbite_nixl_process_routes(buffer.data(), fake_engine().routes.size() + 1), length);
  EXPECT_EQ(orbite_nixl_process_routes(buffer.data(), fake_engine().routes.size()), -1);
  EXPECT_EQ(orbite_nixl_process_routes(buffer.data(), 0), -1);
  EXPECT_EQ(orbite_nixl_process_routes(nullptr, 100), -1);
  fake_engine().on_call = [](std::string_view) { throw std::bad_alloc(); };
  EXPECT_EQ(orbite_nixl_process_routes(buffer.data(), buffer.size()), -1);
  fake_engine().on_call = nullptr;
}

}  // namespace
}  // namespace orbite::testing
