// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>

namespace orbite::platform::testing {

/// Runs `body` in a forked child for at most 20 s. Its answer comes back, "" standing for success;
/// a child that dies or hangs is an answer too.
inline std::string in_child(const std::function<std::string()>& body) {
  int ends[2] = {-1, -1};
  if (::pipe(ends) != 0) {
    return "pipe: " + std::string(std::strerror(errno));
  }
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    const std::string answer = "answer:" + body();
    const ssize_t written = ::write(ends[1], answer.data(), answer.size());
    ::_exit(written == static_cast<ssize_t>(answer.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string answer;
  char piece[512];
  pollfd readable{.fd = ends[0], .events = POLLIN, .revents = 0};
  while (::poll(&readable, 1, 20'000) == 1) {
    const ssize_t got = ::read(ends[0], piece, sizeof(piece));
    if (got <= 0) {
      break;
    }
    answer.append(piece, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  return answer.rfind("answer:", 0) == 0 ? answer.substr(7) : "the child gave no answer";
}

/// As in_child, in a network namespace of its own, with nothing up in it. Without one `body` does
/// not run: it may change what it finds there.
inline std::string in_new_network_namespace(const std::function<std::string()>& body) {
  return in_child([&]() -> std::string {
    constexpr const char* kNamespace = "/proc/self/ns/net";
    struct stat before{};
    struct stat after{};
    if (::stat(kNamespace, &before) != 0 ||
        (::unshare(CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) ||
        ::stat(kNamespace, &after) != 0) {
      return "no network namespace: " + std::string(std::strerror(errno));
    }
    if (before.st_ino == after.st_ino) {
      return "still in the old network namespace";
    }
    return body();
  });
}

/// From now on `number` fails with `native_errno` in this process; only with this argument, the
/// first one or that of `place`, when one is given.
inline std::string deny_system_call(std::uint32_t number, int native_errno,
                                    std::optional<std::uint32_t> argument = std::nullopt,
                                    std::uint32_t place = 0) {
  constexpr std::uint16_t kLoad = BPF_LD | BPF_W | BPF_ABS;
  constexpr std::uint16_t kJumpEqual = BPF_JMP | BPF_JEQ | BPF_K;
  constexpr std::uint16_t kReturn = BPF_RET | BPF_K;
  const std::uint32_t deny =
      SECCOMP_RET_ERRNO | (static_cast<std::uint32_t>(native_errno) & SECCOMP_RET_DATA);
  constexpr std::uint8_t kToAllow = 3;
  const std::uint8_t unmatched = argument ? kToAllow - 2 : 0;
  sock_filter program[] = {
      {kLoad, 0, 0, offsetof(seccomp_data, nr)},
      {kJumpEqual, 0, kToAllow, number},
      // The low half: x86-64 is little-endian.
      {kLoad, 0, 0,
       static_cast<std::uint32_t>(offsetof(seccomp_data, args) + place * sizeof(std::uint64_t))},
      {kJumpEqual, 0, unmatched, argument.value_or(0)},
      {kReturn, 0, 0, deny},
      {kReturn, 0, 0, SECCOMP_RET_ALLOW},
  };
  const sock_fprog filter{.len = sizeof(program) / sizeof(program[0]), .filter = program};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    return "seccomp: " + std::string(std::strerror(errno));
  }
  return "";
}

}  // namespace orbite::platform::testing
