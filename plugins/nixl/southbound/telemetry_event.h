// SPDX-License-Identifier: Apache-2.0
// An entry of the queue that every backend engine carries. NIXL's event types speak of the agent
// only, so a backend has none to add: the type stands here for the layout of the engine.
#pragma once

#include <cstdint>

enum class nixl_telemetry_event_type_t : uint32_t {};

struct nixlTelemetryEvent {
  nixl_telemetry_event_type_t eventType_;
  uint64_t value_;
};

static_assert(sizeof(nixlTelemetryEvent) == 16);
