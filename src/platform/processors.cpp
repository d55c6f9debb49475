// SPDX-License-Identifier: Apache-2.0
#include "platform/processors.hpp"

#include <fcntl.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <thread>

namespace orbite::platform {
namespace {

/// The first bytes of a file of the kernel; empty when it cannot be read.
struct KernelText {
  explicit KernelText(const char* path) noexcept {
    const int descriptor = ::open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
      return;
    }
    const ssize_t got = ::read(descriptor, bytes, sizeof(bytes));
    size = got > 0 ? static_cast<std::size_t>(got) : 0;
    ::close(descriptor);
  }
  [[nodiscard]] std::string_view view() const noexcept { return {bytes, size}; }

  char bytes[128] = {};
  std::size_t size = 0;
};

template <typename Number>
std::optional<Number> parse_number(std::string_view& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) {
    return std::nullopt;
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

/// Processors less the threads that want one, the calling one among them.
std::optional<long> spare_processors() {
  // Asked once: the answer costs more than all the rest, and processors seldom come and go.
  // Relaxed: all who ask find the same.
  static constinit std::atomic<long> known{0};
  long online = known.load(std::memory_order_relaxed);
  if (online == 0) {
    online = ::sysconf(_SC_NPROCESSORS_ONLN);
    known.store(online, std::memory_order_relaxed);
  }
  const auto running = parse_running_threads(KernelText("/proc/loadavg").view());
  if (!running || online <= 0) {
    return std::nullopt;
  }
  return online - static_cast<long>(*running);
}

}  // namespace

std::optional<std::uint64_t> parse_cache_size(std::string_view text) {
  const auto value = parse_number<std::uint32_t>(text);
  if (!value || text.empty()) {
    return std::nullopt;
  }
  const unsigned shift = text.front() == 'K' ? 10 : text.front() == 'M' ? 20 : 0;
  text.remove_prefix(1);
  if (shift == 0 || !(text.empty() || text == "\n")) {
    return std::nullopt;
  }
  return std::uint64_t{*value} << shift;
}

std::optional<std::uint32_t> parse_running_threads(std::string_view text) {
  // "0.20 0.18 0.12 1/80 11206"
  for (int field = 0; field < 3; ++field) {
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos) {
      return std::nullopt;
    }
    text.remove_prefix(space + 1);
  }
  const auto running = parse_number<std::uint32_t>(text);
  if (!running || text.empty() || text.front() != '/') {
    return std::nullopt;
  }
  return running;
}

std::uint64_t last_level_cache_bytes() {
  std::uint64_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    char path[96] = {};
    std::snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
    largest = std::max(largest, parse_cache_size(KernelText(path).view()).value_or(0));
  }
#if defined(_SC_LEVEL3_CACHE_SIZE)
  for (const int name : {_SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    if (largest == 0) {
      largest = static_cast<std::uint64_t>(std::max(0L, ::sysconf(name)));
    }
  }
#endif
  return largest;
}

std::uint32_t usable_processors() {
  // More processors than the set has room for make the call fail.
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) {
    return static_cast<std::uint32_t>(std::max(1, CPU_COUNT(&set)));
  }
  return std::max(1U, std::thread::hardware_concurrency());
}

std::uint32_t idle_processors() {
  return static_cast<std::uint32_t>(std::max(0L, spare_processors().value_or(0)));
}

bool processors_are_short() { return spare_processors().value_or(0) < 0; }

base::Nanoseconds thread_time_ns() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<base::Nanoseconds>(time.tv_sec) * base::kSecond +
         static_cast<base::Nanoseconds>(time.tv_nsec);
}

}  // namespace orbite::platform
