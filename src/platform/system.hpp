// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/ids.hpp"
#include "base/random.hpp"
#include "base/result.hpp"
#include "platform/network.hpp"

namespace orbite::platform {

/// CLOCK_MONOTONIC.
class SystemClock final : public base::Clock {
 public:
  [[nodiscard]] base::Nanoseconds now_ns() const noexcept override;
};

/// getrandom(2). Aborts when the system cannot give any: a guessable epoch or secret is worse.
class SystemRandom final : public base::RandomSource {
 public:
  void fill(std::span<std::uint8_t> bytes) noexcept override;
};

/// Boot id of the kernel and our network namespace. kSystem when the files cannot be read.
Result<base::HostIdentity> host_identity();

/// The addresses (without port) of the interface of the default route, IPv4 first, link-local left
/// out; from the kernel's tables, no traffic. Empty when there is no default route.
std::vector<SocketAddress> default_route_addresses();

/// Another number in a child made by fork() than in its parent, and the same for the life of a
/// process: what an object read when it was made tells whose it is. One atomic load.
std::uint32_t process_generation() noexcept;

/// One system call: yields the processor.
void yield_processor() noexcept;

/// A named thread (the first 15 bytes of `name`) that takes no asynchronous signals: a handler of
/// the host must not run on it. `body` must not throw. Throws std::system_error when the system has
/// no thread to give.
std::thread start_thread(const char* name, std::function<void()> body);

/// Asks that this thread be `steps` of niceness ahead of what it is now. Returns by how many it is:
/// 0 where the system does not permit it.
std::uint32_t boost_thread_priority(std::uint32_t steps) noexcept;

/// Keeps the shared object that holds this code in memory for the rest of the process.
void pin_library() noexcept;

/// The value of ORBITE_CONFIG or of the log level's variable ORBITE_LOG, if it is set and not
/// empty; no other is ever read.
std::optional<std::string> environment_config();
std::optional<std::string> environment_log_level();

}  // namespace orbite::platform
