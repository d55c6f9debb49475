// SPDX-License-Identifier: Apache-2.0
#include "platform/system.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>

#include "base/assert.hpp"
#include "platform/at_fork.hpp"

namespace orbite::platform {
namespace {

// Relaxed on both sides: the handler runs in the child's only thread, and fork() orders it.
constinit std::atomic<std::uint32_t> generation{1};
const AtFork count_forks([] { generation.fetch_add(1, std::memory_order_relaxed); });
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

struct CloseFile {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};

std::optional<std::uint8_t> digit(char c) {
  if (c >= '0' && c <= '9') {
    return static_cast<std::uint8_t>(c - '0');
  }
  if (c >= 'a' && c <= 'f') {
    return static_cast<std::uint8_t>(c - 'a' + 10);
  }
  return std::nullopt;
}

/// 32 lower-case hexadecimal digits, with dashes anywhere.
bool parse_uuid(std::string_view text, std::array<std::uint8_t, 16>& bytes) {
  std::size_t digits = 0;
  for (const char c : text) {
    if (c == '-') {
      continue;
    }
    const auto value = digit(c);
    if (!value || digits == 32) {
      return false;
    }
    std::uint8_t& byte = bytes[digits / 2];
    byte = static_cast<std::uint8_t>((byte << 4) | *value);
    ++digits;
  }
  return digits == 32;
}

/// splitmix64's finisher: a bijection.
std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

std::optional<std::string> environment(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr || *value == '\0') {
    return std::nullopt;
  }
  return std::string(value);
}

/// Blocks asynchronous signals while in scope; a thread that starts meanwhile keeps them blocked.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t blocked;
    sigfillset(&blocked);
    // Those that the thread raises by what it does, and the one that samples it.
    for (const int kept : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF}) {
      sigdelset(&blocked, kept);
    }
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

}  // namespace

base::Nanoseconds SystemClock::now_ns() const noexcept {
  timespec now{};
  ORBITE_CHECK(::clock_gettime(CLOCK_MONOTONIC, &now) == 0);
  return static_cast<base::Nanoseconds>(now.tv_sec) * base::kSecond +
         static_cast<base::Nanoseconds>(now.tv_nsec);
}

void SystemRandom::fill(std::span<std::uint8_t> bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t drawn = ::getrandom(bytes.data(), bytes.size(), 0);
    if (drawn > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(drawn));
    } else {
      ORBITE_CHECK(drawn < 0 && errno == EINTR);
    }
  }
}

Result<base::HostIdentity> host_identity() {
  constexpr const char* kBootId = "/proc/sys/kernel/random/boot_id";
  constexpr const char* kNamespace = "/proc/thread-self/ns/net";
  base::HostIdentity identity;
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(kBootId, "re"));
  if (file == nullptr) {
    return fail(Error::make_native(ErrorCode::kSystem, errno, "cannot open %s", kBootId));
  }
  char line[64] = {};
  const std::string_view text =
      std::fgets(line, sizeof(line), file.get()) == nullptr ? std::string_view() : line;
  if (!parse_uuid(text.substr(0, text.find('\n')), identity.boot_id)) {
    return fail(ErrorCode::kSystem, "%s holds no boot id", kBootId);
  }
  struct stat status{};
  if (::stat(kNamespace, &status) != 0) {
    return fail(Error::make_native(ErrorCode::kSystem, errno, "cannot stat %s", kNamespace));
  }
  identity.network_namespace = mix(status.st_ino + mix(status.st_dev + 1));
  return identity;
}

std::uint32_t process_generation() noexcept { return generation.load(std::memory_order_relaxed); }

void yield_processor() noexcept { ::sched_yield(); }

std::thread start_thread(const char* name, std::function<void()> body) {
  char shown[16] = {};
  std::strncpy(shown, name, sizeof(shown) - 1);
  const BlockedSignals blocked;
  std::thread thread(std::move(body));
  static_cast<void>(::pthread_setname_np(thread.native_handle(), shown));
  return thread;
}

std::uint32_t boost_thread_priority(std::uint32_t steps) noexcept {
  // Of the thread: Linux keeps the niceness of each apart, and 0 names the caller.
  errno = 0;
  const int before = ::getpriority(PRIO_PROCESS, 0);
  if (errno != 0 || ::setpriority(PRIO_PROCESS, 0, before - static_cast<int>(steps)) != 0) {
    return 0;
  }
  const int after = ::getpriority(PRIO_PROCESS, 0);
  return after < before ? static_cast<std::uint32_t>(before - after) : 0;
}

void pin_library() noexcept {
  Dl_info info{};
  // SAFETY: any address inside this object's code names the object.
  if (::dladdr(reinterpret_cast<const void*>(&pin_library), &info) == 0 ||
      info.dli_fname == nullptr) {
    return;
  }
  // NOLOAD: answers nullptr for the executable itself, which nobody can unload.
  static_cast<void>(::dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE));
}

std::optional<std::string> environment_config() { return environment("ORBITE_CONFIG"); }

std::optional<std::string> environment_log_level() { return environment("ORBITE_LOG"); }

}  // namespace orbite::platform
