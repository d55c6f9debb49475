// SPDX-License-Identifier: Apache-2.0
// Every entry of the C ABI over an engine double: what is refused before the engine is asked, what
// the engine is asked, and what becomes of its answers and of what it throws.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "bridge/bridge_test.hpp"
#include "codes.hpp"

namespace orbite::testing {
namespace {

using ::testing::HasSubstr;

class BridgeEntry : public BridgeTest, public ::testing::WithParamInterface<Entry> {
 protected:
  orbite_nixl_status_t call() {
    const orbite_nixl_status_t status = GetParam().call(arguments);
    if (GetParam().name == "EngineCreate" && status == ORBITE_NIXL_OK) {
      EXPECT_EQ(orbite_nixl_engine_release(arguments.handle_out, nullptr), ORBITE_NIXL_OK);
    }
    return status;
  }
  // No output was written.
  void expect_untouched() {
    EXPECT_EQ(arguments.handle_out, 0U);
    EXPECT_EQ(arguments.state_out, -1);
    EXPECT_EQ(arguments.size_out, 4096U);
    EXPECT_EQ(arguments.name_size_out, 256U);
    EXPECT_EQ(arguments.result_record.bytes_total, 0U);
    EXPECT_EQ(arguments.abi_record.wire_version, 0U);
    EXPECT_EQ(arguments.address_out, 0U);
  }
};

INSTANTIATE_TEST_SUITE_P(All, BridgeEntry, ::testing::ValuesIn(entries()),
                         [](const auto& entry) { return entry.param.name; });

TEST_P(BridgeEntry, AcceptsValidArguments) {
  EXPECT_EQ(call(), ORBITE_NIXL_OK) << arguments.error_record.message;
}

TEST_P(BridgeEntry, WorksWithoutAnErrorRecord) {
  arguments.error = nullptr;
  EXPECT_EQ(call(), ORBITE_NIXL_OK);
  arguments.engine ^= std::uint64_t{1} << 40;
  if (GetParam().takes_engine) {
    EXPECT_EQ(call(), ORBITE_NIXL_ERR_STALE_HANDLE);
  }
  arguments.engine ^= std::uint64_t{1} << 40;
}

TEST_P(BridgeEntry, LeavesTheErrorRecordAloneOnSuccess) {
  arguments.error_record.status = 77;
  EXPECT_EQ(call(), ORBITE_NIXL_OK);
  EXPECT_EQ(arguments.error_record.status, 77);
  EXPECT_STREQ(arguments.error_record.message, "");
}

TEST_P(BridgeEntry, RefusesAnErrorRecordOfAnotherSize) {
  arguments.error_record.record.size -= 8;
  EXPECT_EQ(call(), ORBITE_NIXL_ERR_ABI_MISMATCH);
  EXPECT_EQ(arguments.error_record.status, 0);
  EXPECT_STREQ(arguments.error_record.message, "");
  EXPECT_EQ(fake_engine().calls, 0);
  expect_untouched();
}

TEST_P(BridgeEntry, RefusesAnErrorRecordOfAnotherMajorVersion) {
  arguments.error_record.record.abi_major += 1;
  if (GetParam().name == "AbiQuery") {
    EXPECT_EQ(call(), ORBITE_NIXL_OK);
    return;
  }
  EXPECT_EQ(call(), ORBITE_NIXL_ERR_ABI_MISMATCH);
  EXPECT_STREQ(arguments.error_record.message, "");
  EXPECT_EQ(fake_engine().calls, 0);
  expect_untouched();
}

TEST_P(BridgeEntry, RefusesAMisalignedErrorRecord) {
  alignas(8) std::array<unsigned char, sizeof(orbite_nixl_error_t) + 8> storage{};
  arguments.error = reinterpret_cast<orbite_nixl_error_t*>(storage.data() + 1);
  EXPECT_EQ(call(), ORBITE_NIXL_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(fake_engine().calls, 0);
}

TEST_P(BridgeEntry, RefusesRecordsOfAnotherSizeOrMajorVersion) {
  for (const auto& head : GetParam().heads) {
    orbite_nixl_record_t& record = *head(arguments);
    const orbite_nixl_record_t good = record;
    for (const std::uint32_t size : {0U, good.size - 1, good.size + 8, ~0U}) {
      record.size = size;
      EXPECT_EQ(call(), ORBITE_NIXL_ERR_ABI_MISMATCH);
      EXPECT_THAT(arguments.error_record.message, HasSubstr(std::to_string(size)));
      EXPECT_THAT(arguments.error_record.message, HasSubstr(std::to_string(good.size)));
    }
    record = good;
    record.abi_major = 4711;
    EXPECT_EQ(call(), ORBITE_NIXL_ERR_ABI_MISMATCH);
    EXPECT_THAT(arguments.error_record.message, HasSubstr("4711"));
    record = good;
  }
  EXPECT_EQ(fake_engine().calls, 0);
  expect_untouched();
}

TEST_P(BridgeEntry, AcceptsRecordsOfALaterMinorVersion) {
  arguments.error_record.record.abi_minor = 99;
  for (const auto& head : GetParam().heads) {
    head(arguments)->abi_minor = 99;
  }
  EXPECT_EQ(call(), ORBITE_NIXL_OK);
}

TEST_P(BridgeEntry, RefusesNullPointers) {
  for (std::size_t i = 0; i < GetParam().nulls.size(); ++i) {
    Arguments fresh;
    fresh.engine = arguments.engine;
    GetParam().nulls[i](fresh);
    EXPECT_EQ(GetParam().call(fresh), ORBITE_NIXL_ERR_INVALID_ARGUMENT) << i;
    EXPECT_EQ(fresh.error_record.status, ORBITE_NIXL_ERR_INVALID_ARGUMENT);
    EXPECT_THAT(fresh.error_record.message, HasSubstr("NULL")) << i;
  }
  EXPECT_EQ(fake_engine().calls, 0);
}

TEST_P(BridgeEntry, RefusesHandlesThatAreNoEngine) {
  if (!GetParam().takes_engine) {
    EXPECT_EQ(call(), ORBITE_NIXL_OK) << "takes no engine";
    return;
  }
  const orbite_nixl_engine_t good = arguments.engine;
  const std::uint64_t generation = std::uint64_t{1} << 32;
  for (const orbite_nixl_engine_t bad :
       {orbite_nixl_engine_t{0}, good + 1, good + generation, good - generation, good | 0xFFFF'FFFF,
        ~orbite_nixl_engine_t{0}, good & 0xFFFF'FFFF}) {
    arguments.engine = bad;
    EXPECT_EQ(call(), ORBITE_NIXL_ERR_STALE_HANDLE) << std::hex << bad;
    EXPECT_EQ(arguments.error_record.status, ORBITE_NIXL_ERR_STALE_HANDLE);
  }
  arguments.engine = good;
  EXPECT_EQ(fake_engine().calls, 0);
  expect_untouched();
}

TEST_P(BridgeEntry, RefusesAReleasedEngine) {
  if (!GetParam().takes_engine) {
    EXPECT_EQ(call(), ORBITE_NIXL_OK) << "takes no engine";
    return;
  }
  ASSERT_EQ(orbite_nixl_engine_release(arguments.engine, nullptr), ORBITE_NIXL_OK);
  EXPECT_EQ(fake_engine().alive, 0);
  Arguments next;
  ASSERT_EQ(orbite_nixl_engine_create(next.options, &next.engine, next.error), ORBITE_NIXL_OK);
  fake_engine().calls = 0;
  EXPECT_EQ(call(), ORBITE_NIXL_ERR_STALE_HANDLE);
  EXPECT_EQ(fake_engine().calls, 0);
  EXPECT_EQ(orbite_nixl_engine_release(next.engine, nullptr), ORBITE_NIXL_OK);
}

TEST_P(BridgeEntry, PassesOnEveryErrorOfTheEngine) {
  if (!GetParam().can_fail) {
    EXPECT_EQ(call(), ORBITE_NIXL_OK) << "asks nothing that fails";
    return;
  }
  for (const bridge::CodePair& pair : bridge::kCodePairs) {
    if (pair.code == ErrorCode::kOk) {
      continue;
    }
    fake_engine().failure = Error::make_native(pair.code, 98, "value %d, allowed 5", 3);
    EXPECT_EQ(call(), pair.status);
    EXPECT_EQ(arguments.error_record.status, pair.status);
    EXPECT_EQ(arguments.error_record.native_errno, 98);
    EXPECT_EQ(arguments.error_record.message, fake_engine().failure->message());
    EXPECT_THAT(arguments.error_record.message, HasSubstr(": value 3, allowed 5 (Address already"));
    expect_untouched();
  }
}

TEST_P(BridgeEntry, LetsNoExceptionOut) {
  if (!GetParam().can_throw) {
    EXPECT_EQ(call(), ORBITE_NIXL_OK) << "calls nothing that throws";
    return;
  }
  const std::vector<std::pair<std::function<void()>, orbite_nixl_status_t>> faults = {
      {[] { throw std::bad_alloc(); }, ORBITE_NIXL_ERR_OUT_OF_MEMORY},
      {[] { throw std::bad_array_new_length(); }, ORBITE_NIXL_ERR_OUT_OF_MEMORY},
      {[] { throw std::runtime_error("planted fault"); }, ORBITE_NIXL_ERR_INTERNAL},
      {[] { throw 42; }, ORBITE_NIXL_ERR_INTERNAL}};
  for (const auto& [fault, status] : faults) {
    fake_engine().on_call = [&fault = fault](std::string_view) { fault(); };
    EXPECT_EQ(call(), status);
    EXPECT_EQ(arguments.error_record.status, status);
    EXPECT_STRNE(arguments.error_record.message, "");
    expect_untouched();
    arguments.error = nullptr;
    EXPECT_EQ(call(), status);
    arguments.error = &arguments.error_record;
  }
  fake_engine().on_call = [](std::string_view) { throw std::runtime_error("planted fault"); };
  EXPECT_EQ(call(), ORBITE_NIXL_ERR_INTERNAL);
  EXPECT_THAT(arguments.error_record.message, HasSubstr("planted fault"));
  // The engine is as good as before.
  fake_engine().on_call = nullptr;
  EXPECT_EQ(call(), ORBITE_NIXL_OK);
}

}  // namespace
}  // namespace orbite::testing
