// SPDX-License-Identifier: Apache-2.0
// The one place where OrbiTE's answers become NIXL's, as whole tables.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "orbite/orbite_status.h"

namespace {

using orbite::nixl::to_nixl;

const std::vector<int32_t> kCodes = {
#define ORBITE_ERROR_CODE(number, name, text) number,
#include "orbite/error_codes.def"
#undef ORBITE_ERROR_CODE
};

const std::map<int32_t, nixl_status_t> kTable = {
    {100, NIXL_ERR_INVALID_PARAM},     {101, NIXL_ERR_INVALID_PARAM}, {102, NIXL_ERR_INVALID_PARAM},
    {103, NIXL_ERR_INVALID_PARAM},     {104, NIXL_ERR_NOT_SUPPORTED}, {105, NIXL_ERR_NOT_ALLOWED},
    {106, NIXL_ERR_INVALID_PARAM},     {107, NIXL_ERR_MISMATCH},      {108, NIXL_ERR_INVALID_PARAM},
    {109, NIXL_ERR_INVALID_PARAM},     {110, NIXL_ERR_BACKEND},       {111, NIXL_ERR_NOT_FOUND},
    {200, NIXL_ERR_BACKEND},           {201, NIXL_ERR_BACKEND},       {300, NIXL_ERR_CANCELED},
    {301, NIXL_ERR_BACKEND},           {302, NIXL_ERR_BACKEND},       {303, NIXL_ERR_BACKEND},
    {304, NIXL_ERR_REPOST_ACTIVE},     {305, NIXL_ERR_NOT_POSTED},    {306, NIXL_ERR_NOT_ALLOWED},
    {307, NIXL_ERR_BACKEND},           {400, NIXL_ERR_NOT_FOUND},     {401, NIXL_ERR_MISMATCH},
    {500, NIXL_ERR_REMOTE_DISCONNECT}, {501, NIXL_ERR_MISMATCH},      {502, NIXL_ERR_NOT_FOUND},
    {503, NIXL_ERR_REMOTE_DISCONNECT}, {504, NIXL_ERR_BACKEND},       {505, NIXL_ERR_BACKEND},
    {506, NIXL_ERR_BACKEND},           {600, NIXL_ERR_BACKEND},       {601, NIXL_ERR_BACKEND},
    {602, NIXL_ERR_BACKEND},           {700, NIXL_ERR_BACKEND},       {701, NIXL_ERR_BACKEND},
    {702, NIXL_ERR_BACKEND},           {703, NIXL_ERR_BACKEND},
};

orbite_nixl_result_t result_of(int32_t terminal, int32_t logical, int32_t drain, int32_t status) {
  orbite_nixl_result_t result{};
  result.terminal = terminal;
  result.logical = logical;
  result.drain = drain;
  result.status = status;
  return result;
}

TEST(StatusTable, EveryCodeHasTheStatusOfTheTable) {
  EXPECT_EQ(kTable.size(), kCodes.size());
  for (const int32_t code : kCodes) {
    ASSERT_TRUE(kTable.contains(code)) << code;
    EXPECT_EQ(to_nixl(code), kTable.at(code)) << code;
  }
}

TEST(StatusTable, OkIsSuccessAndNothingElseIsNotNegative) {
  EXPECT_EQ(to_nixl(ORBITE_NIXL_OK), NIXL_SUCCESS);
  for (int32_t code = -2000; code <= 2000; ++code) {
    if (code != 0) {
      EXPECT_LT(to_nixl(code), 0) << code;
    }
  }
}

// Rows of the table of an execution's two facts; logical down, drain across.
TEST(StatusTable, OutcomeIsShownOnlyWhenTerminalAndRetired) {
  for (const int32_t terminal : {0, 1}) {
    for (int32_t logical = -1; logical <= 4; ++logical) {
      for (int32_t drain = -1; drain <= 4; ++drain) {
        for (const int32_t code : {0, 300, 303, 500}) {
          nixl_status_t expected = NIXL_IN_PROG;
          if (drain == ORBITE_NIXL_DRAIN_IDLE) {
            expected = NIXL_ERR_NOT_POSTED;
          } else if (terminal == 1 && drain == ORBITE_NIXL_DRAIN_RETIRED) {
            if (logical == ORBITE_NIXL_LOGICAL_SUCCESS) {
              expected = NIXL_SUCCESS;
            } else if (logical == ORBITE_NIXL_LOGICAL_CANCELED) {
              expected = NIXL_ERR_CANCELED;
            } else if (logical == ORBITE_NIXL_LOGICAL_FAILED) {
              expected = code == 0 ? NIXL_ERR_BACKEND : kTable.at(code);
            }
          }
          EXPECT_EQ(to_nixl(result_of(terminal, logical, drain, code)), expected)
              << "terminal " << terminal << " logical " << logical << " drain " << drain << " code "
              << code;
        }
      }
    }
  }
}

TEST(StatusTable, FailedExecutionIsNeverShownAsSuccess) {
  for (const int32_t code : kCodes) {
    const nixl_status_t status =
        to_nixl(result_of(1, ORBITE_NIXL_LOGICAL_FAILED, ORBITE_NIXL_DRAIN_RETIRED, code));
    EXPECT_LT(status, 0) << code;
  }
}

TEST(StatusTable, UnquiescedStaysInProgressWhateverIsKnown) {
  for (int32_t logical = 0; logical <= 3; ++logical) {
    EXPECT_EQ(to_nixl(result_of(1, logical, ORBITE_NIXL_DRAIN_UNQUIESCED, 303)), NIXL_IN_PROG);
  }
}

}  // namespace
