// SPDX-License-Identifier: Apache-2.0
#include "bench/child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

namespace orbite::tool::bench {
namespace {

constexpr int kEndTimeoutMs = 10'000;

/// Until the process ends, at most that long. Without pidfds (before Linux 5.3) not at all.
void await_end(pid_t pid, int timeout_ms) {
  const FileDescriptor process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (process.get() >= 0) {
    pollfd entry{process.get(), POLLIN, 0};
    (void)::poll(&entry, 1, timeout_ms);
  }
}

}  // namespace

Result<Child> Child::start(const std::vector<std::string>& arguments) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return fail(Error::make_native(ErrorCode::kSystem, errno, "socketpair"));
  }
  FileDescriptor ours(ends[0]);
  const FileDescriptor theirs(ends[1]);
  std::vector<std::string> owned = {"orbite"};
  owned.insert(owned.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  pointers.reserve(owned.size() + 1);
  for (std::string& argument : owned) {
    pointers.push_back(argument.data());
  }
  pointers.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  // Also takes close-on-exec away, when it is that number already.
  ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), kChildDescriptor);
  pid_t pid = -1;
  const int code =
      ::posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, pointers.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (code != 0) {
    return fail(Error::make_native(ErrorCode::kSystem, code, "a second process of this program"));
  }
  return Child(pid, std::move(ours));
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), socket_(std::move(other.socket_)) {}

Child::~Child() {
  if (pid_ <= 0) {
    return;
  }
  await_end(pid_, kEndTimeoutMs);
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

}  // namespace orbite::tool::bench
