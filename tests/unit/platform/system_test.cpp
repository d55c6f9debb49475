// SPDX-License-Identifier: Apache-2.0
#include "platform/system.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "unit/platform/child_process.hpp"

namespace orbite::platform {
namespace {

using testing::in_child;
using testing::in_new_network_namespace;

TEST(SystemClock, IsTheMonotonicClock) {
  const SystemClock clock;
  timespec before{};
  ASSERT_EQ(::clock_gettime(CLOCK_MONOTONIC, &before), 0);
  const auto now_ns = clock.now_ns();
  timespec after{};
  ASSERT_EQ(::clock_gettime(CLOCK_MONOTONIC, &after), 0);
  const auto as_ns = [](const timespec& time) {
    return static_cast<base::Nanoseconds>(time.tv_sec) * 1'000'000'000U +
           static_cast<base::Nanoseconds>(time.tv_nsec);
  };
  EXPECT_GE(now_ns, as_ns(before));
  EXPECT_LE(now_ns, as_ns(after));
}

TEST(SystemRandom, FillsEveryByteAndNeverRepeats) {
  SystemRandom random;
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 100; ++i) {
    seen.insert(random.next_u64());
  }
  EXPECT_EQ(seen.size(), 100U);
  // More than one call of getrandom() gives.
  std::vector<std::uint8_t> many(300'000);
  random.fill(many);
  for (std::size_t start = 0; start + 32 <= many.size(); start += 32) {
    const auto first = many.begin() + static_cast<std::ptrdiff_t>(start);
    ASSERT_TRUE(std::any_of(first, first + 32, [](auto byte) { return byte != 0; })) << start;
  }
  random.fill({});
}

TEST(HostIdentity, IsTheSameInEveryProcessOfTheNamespace) {
  const auto mine = host_identity();
  ASSERT_TRUE(mine) << mine.error().message();
  EXPECT_NE(mine->boot_id, (std::array<std::uint8_t, 16>{}));
  EXPECT_NE(mine->network_namespace, 0U);
  EXPECT_EQ(in_child([&] {
              const auto its = host_identity();
              return its && *its == *mine ? std::string() : std::string("another identity");
            }),
            "");
}

TEST(HostIdentity, TellsNamespacesOfOneBootApart) {
  const auto mine = host_identity();
  ASSERT_TRUE(mine);
  EXPECT_EQ(in_new_network_namespace([&]() -> std::string {
              const auto its = host_identity();
              if (!its || its->boot_id != mine->boot_id) {
                return "another boot";
              }
              return its->network_namespace == mine->network_namespace ? "the same namespace" : "";
            }),
            "");
}

std::string joined(const std::vector<SocketAddress>& addresses) {
  std::string text;
  for (const auto& address : addresses) {
    text += address.text() + " ";
  }
  return text;
}

TEST(DefaultRouteAddresses, AreNoneInAnEmptyNamespace) {
  EXPECT_EQ(in_new_network_namespace([] { return joined(default_route_addresses()); }), "");
}

/// Runs each command of iproute2 in the namespace of the caller; "" or those that failed.
std::string ip(std::initializer_list<const char*> commands) {
  std::string failed;
  for (const char* command : commands) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): a child of one thread
    if (std::system((std::string("ip ") + command).c_str()) != 0) {
      failed += std::string(command) + " failed; ";
    }
  }
  return failed;
}

bool kernel_has_ipv6() { return ::access("/proc/net/if_inet6", R_OK) == 0; }

std::string addresses_as_routes_come() {
  std::string seen =
      ip({"link add ethA type veth peer name ethB", "link set ethA up", "link set ethB up",
          "addr add 10.1.2.3/24 dev ethA", "addr add 10.1.3.4/24 dev ethA label ethA:1",
          "addr add 169.254.7.7/16 dev ethA", "addr add 10.9.9.9/24 dev ethB"});
  seen += "before: " + joined(default_route_addresses());
  seen += ip({"route add default via 10.9.9.1 dev ethB metric 9",
              "route add default via 10.1.2.1 dev ethA metric 5"});
  seen += "| ipv4: " + joined(default_route_addresses());
  if (kernel_has_ipv6()) {
    seen += ip({"addr add fd00::7/64 dev ethA nodad", "addr add fd01::9/64 dev ethB nodad",
                "-6 route add default dev ethB metric 5"});
    seen += "| both: " + joined(default_route_addresses());
  }
  return seen;
}

TEST(DefaultRouteAddresses, AreThoseOfItsInterfaceIpv4First) {
  std::string expected = "before: | ipv4: 10.1.2.3:0 10.1.3.4:0 ";
  if (kernel_has_ipv6()) {
    expected += "| both: 10.1.2.3:0 10.1.3.4:0 [fd01::9]:0 ";
  }
  EXPECT_EQ(in_new_network_namespace(addresses_as_routes_come), expected);
}

TEST(DefaultRouteAddresses, HaveNoPortAndNoLinkLocal) {
  for (const auto& address : default_route_addresses()) {
    EXPECT_EQ(address.port(), 0) << address.text();
    EXPECT_NE(address.family(), 0) << address.text();
    EXPECT_FALSE(address.is_any()) << address.text();
    EXPECT_EQ(address.text().find("[fe8"), std::string::npos) << address.text();
    EXPECT_NE(address.text().rfind("169.254.", 0), 0U) << address.text();
  }
}

TEST(ProcessGeneration, IsAnotherInEachGenerationOfChildren) {
  const auto mine = process_generation();
  EXPECT_EQ(in_child([&]() -> std::string {
              const auto of_child = process_generation();
              if (of_child == mine || of_child != process_generation()) {
                return "the child has its parent's, or none of its own";
              }
              return in_child([&]() -> std::string {
                const auto grandchilds = process_generation();
                return grandchilds == mine || grandchilds == of_child ? "the grandchild's is old"
                                                                      : "";
              });
            }),
            "");
  EXPECT_EQ(process_generation(), mine);
}

TEST(StartThread, NamesTheThreadAndKeepsSignalsAway) {
  sigset_t before{};
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &before), 0);
  sigset_t inside{};
  std::atomic<bool> named{false};
  std::thread thread = start_thread("orbite-0123456789abcdef", [&] {
    pthread_sigmask(SIG_SETMASK, nullptr, &inside);
    // The name comes from the starting thread.
    char name[16] = {};
    for (int i = 0; i < 1'000'000 && std::strcmp(name, "orbite-01234567") != 0; ++i) {
      pthread_getname_np(pthread_self(), name, sizeof(name));
      yield_processor();
    }
    named.store(std::strcmp(name, "orbite-01234567") == 0, std::memory_order_relaxed);
  });
  thread.join();
  EXPECT_TRUE(named.load(std::memory_order_relaxed));
  for (const int blocked : {SIGTERM, SIGINT, SIGUSR1, SIGALRM, SIGCHLD}) {
    EXPECT_EQ(sigismember(&inside, blocked), 1) << blocked;
  }
  for (const int taken : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGPROF}) {
    EXPECT_EQ(sigismember(&inside, taken), 0) << taken;
  }
  sigset_t after{};
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &after), 0);
  for (int signal = 1; signal < 32; ++signal) {
    EXPECT_EQ(sigismember(&after, signal), sigismember(&before, signal)) << signal;
  }
}

/// Whether the probe's library is still mapped after it was loaded and given up.
std::string stays_loaded(bool pinned) {
  void* const library = ::dlopen(ORBITE_PIN_PROBE, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return ::dlerror();
  }
  if (pinned) {
    // SAFETY: POSIX: dlsym() of a function gives its address.
    const auto pin = reinterpret_cast<void (*)()>(::dlsym(library, "pin_probe_pin"));
    if (pin == nullptr) {
      return "no pin_probe_pin";
    }
    pin();
    pin();
  }
  ::dlclose(library);
  return ::dlopen(ORBITE_PIN_PROBE, RTLD_NOW | RTLD_NOLOAD) == nullptr ? "gone" : "loaded";
}

TEST(PinLibrary, KeepsTheLibraryAfterItsLastClose) {
  EXPECT_EQ(in_child([] { return stays_loaded(false); }), "gone");
  EXPECT_EQ(in_child([] { return stays_loaded(true); }), "loaded");
}

TEST(PinLibrary, IsHarmlessInAnExecutable) {
  pin_library();
  EXPECT_EQ(in_child([] {
              pin_library();
              return std::string();
            }),
            "");
}

TEST(Environment, ReadsItsTwoVariables) {
  EXPECT_EQ(in_child([]() -> std::string {
              ::unsetenv("ORBITE_CONFIG");
              ::unsetenv("ORBITE_LOG");
              if (environment_config() || environment_log_level()) {
                return "a value that is not set";
              }
              ::setenv("ORBITE_CONFIG", "", 1);
              ::setenv("ORBITE_LOG", "", 1);
              if (environment_config() || environment_log_level()) {
                return "an empty value";
              }
              ::setenv("ORBITE_CONFIG", "/a b.json", 1);
              ::setenv("ORBITE_LOG", "debug", 1);
              return environment_config() == "/a b.json" && environment_log_level() == "debug"
                         ? ""
                         : "another value";
            }),
            "");
}

// A thread may lower its own priority without a privilege, so the base is lowered first; whether it
// may be raised again is the system's to say, and both answers are checked.
TEST(ThreadPriority, BoostIsWhatTheSystemGrantedAndOfTheCallingThreadAlone) {
  errno = 0;
  const int of_process = ::getpriority(PRIO_PROCESS, 0);
  ASSERT_EQ(errno, 0);
  std::thread([of_process] {
    ASSERT_EQ(::setpriority(PRIO_PROCESS, 0, of_process + 3), 0);
    EXPECT_EQ(boost_thread_priority(0), 0u);
    const std::uint32_t granted = boost_thread_priority(2);
    EXPECT_TRUE(granted == 0 || granted == 2) << granted;
    EXPECT_EQ(::getpriority(PRIO_PROCESS, 0), of_process + 3 - static_cast<int>(granted));
  }).join();
  EXPECT_EQ(::getpriority(PRIO_PROCESS, 0), of_process);
}

}  // namespace
}  // namespace orbite::platform
