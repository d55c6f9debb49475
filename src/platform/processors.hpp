// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/clock.hpp"

namespace orbite::platform {

/// Of the largest cache that this machine's first processor uses, 0 where the system does not tell.
std::uint64_t last_level_cache_bytes();

/// Processors that this process may run on, at least 1.
std::uint32_t usable_processors();

/// Processors of the machine that run nothing at this moment. 0 also where the system does not
/// tell. A few microseconds.
std::uint32_t idle_processors();

/// More threads run or wait for a processor than there are. False where the system does not tell. A
/// few microseconds.
bool processors_are_short();

/// Processor time of the calling thread.
base::Nanoseconds thread_time_ns() noexcept;

/// "512K", "32768K", "1M": bytes. nullopt for anything else.
std::optional<std::uint64_t> parse_cache_size(std::string_view text);
/// The threads that run or wait for a processor, from the text of /proc/loadavg.
std::optional<std::uint32_t> parse_running_threads(std::string_view text);

}  // namespace orbite::platform
