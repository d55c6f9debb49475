// SPDX-License-Identifier: Apache-2.0
// An engine double behind the C ABI.
#pragma once

#include <gtest/gtest.h>

#include "bridge/entries.hpp"
#include "bridge/fake_engine.hpp"

namespace orbite::testing {

class BridgeTest : public ::testing::Test {
 protected:
  BridgeTest() {
    reset_fake_engine();
    Arguments made;
    EXPECT_EQ(orbite_nixl_engine_create(made.options, &arguments.engine, made.error),
              ORBITE_NIXL_OK);
    fake_engine().calls = 0;
    // So that receive has something to take.
    fake_engine().inbox.push_back({"sender", {1, 2, 3}});
  }
  ~BridgeTest() override {
    reset_fake_engine();
    const orbite_nixl_status_t status = orbite_nixl_engine_release(arguments.engine, nullptr);
    EXPECT_TRUE(status == ORBITE_NIXL_OK || status == ORBITE_NIXL_ERR_STALE_HANDLE);
    EXPECT_EQ(fake_engine().alive, 0);
  }

  Arguments arguments;
};

}  // namespace orbite::testing
