// SPDX-License-Identifier: Apache-2.0
#include "platform/system.hpp"

extern "C" __attribute__((visibility("default"))) void pin_probe_pin() {
  orbite::platform::pin_library();
}
