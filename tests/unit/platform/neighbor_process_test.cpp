// SPDX-License-Identifier: Apache-2.0
// The process at the other end of a connection by name, and copies to and from it.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/at_exit.hpp"
#include "unit/platform/child_process.hpp"
#include "unit/platform/system_neighbors_rig.hpp"

namespace orbite::platform {
namespace {

using testing::in_child;

/// A child with some pages of its own, at addresses that we know because it was forked from us. It
/// connects, says "ready" and waits to be killed.
class NeighborProcess : public SystemNeighborsTest {
 protected:
  static constexpr std::size_t kPages = 6;

  NeighborProcess() {
    void* const start =
        ::mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    theirs_ = {static_cast<std::byte*>(start), kPages * kPage};
    const std::string name = fresh_name();
    Socket listener = *neighbors_.listen(name);
    child_ = ::fork();
    if (child_ == 0) {
      live(name);
      ::_exit(1);
    }
    EXPECT_TRUE(wait_for(network_, listener));
    to_child_ = *neighbors_.accept(listener);
    EXPECT_TRUE(wait_for(network_, to_child_));
    std::array<std::uint8_t, 8> buffer{};
    EXPECT_EQ(neighbors_.receive(to_child_, buffer, files_).bytes, 5U);
    process_ = *neighbors_.process_of(to_child_);
    close(listener);
  }
  ~NeighborProcess() override {
    kill();
    ::munmap(theirs_.data(), theirs_.size());
    network_.close(to_child_);
  }

  void kill() {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(std::exchange(child_, -1), nullptr, 0);
    }
  }

  void live(const std::string& name) {
    for (std::size_t i = 0; i < theirs_.size(); ++i) {
      theirs_[i] = pattern(i);
    }
    // The fifth page is a hole.
    ::munmap(theirs_.data() + 4 * kPage, kPage);
    SystemNeighbors own;
    const auto socket = own.connect(name);
    if (socket && own.send(*socket, bytes_of("ready"), {}).bytes == 5) {
      while (true) {
        ::pause();
      }
    }
  }
  static std::byte pattern(std::size_t i) { return static_cast<std::byte>(i * 7 + i / 256); }
  [[nodiscard]] iovec their(std::size_t offset, std::size_t bytes) const {
    return {theirs_.data() + offset, bytes};
  }

  std::span<std::byte> theirs_;
  pid_t child_ = -1;
  Socket to_child_ = kNoSocket;
  std::unique_ptr<Process> process_;
};

TEST_F(NeighborProcess, IsTheOneWhoConnected) {
  EXPECT_EQ(process_->number(), child_);
  EXPECT_NE(process_->number(), ::getpid());
  EXPECT_FALSE(process_->ended());
}

TEST_F(SystemNeighborsTest, WhoListensIsKnownToWhoConnects) {
  const pid_t parent = ::getpid();
  const std::string answer = in_child([&]() -> std::string {
    SystemNeighbors own;
    const auto socket = own.connect(name_);
    const auto process = own.process_of(*socket);
    return process && (*process)->number() == parent && !(*process)->ended() ? "" : "another";
  });
  EXPECT_EQ(answer, "");
  const auto self = *neighbors_.process_of(client_);
  EXPECT_EQ(self->number(), parent);
}

TEST_F(NeighborProcess, CopiesGoBetweenListsOfDifferentShape) {
  std::vector<std::byte> mine(3 * kPage, std::byte{0xEE});
  const std::array local{iovec{mine.data(), 100}, iovec{mine.data() + 100, 0},
                         iovec{mine.data() + 100, 2 * kPage + 7}};
  const std::array remote{their(50, 2 * kPage), their(3 * kPage, 107)};
  ProcessCopy done = process_->read(local, remote);
  EXPECT_EQ(done.bytes, 2 * kPage + 107);
  EXPECT_EQ(done.native_errno, 0);
  for (std::size_t i = 0; i < 2 * kPage; ++i) {
    ASSERT_EQ(mine[i], pattern(50 + i)) << i;
  }
  for (std::size_t i = 0; i < 107; ++i) {
    ASSERT_EQ(mine[2 * kPage + i], pattern(3 * kPage + i)) << i;
  }
  EXPECT_EQ(mine[2 * kPage + 107], std::byte{0xEE});
  EXPECT_EQ(process_->read({}, {}).native_errno, 0);

  std::iota(reinterpret_cast<std::uint8_t*>(mine.data()),
            reinterpret_cast<std::uint8_t*>(mine.data()) + 2 * kPage + 107, std::uint8_t{3});
  done = process_->write(local, remote);
  EXPECT_EQ(done.bytes, 2 * kPage + 107);
  EXPECT_EQ(done.native_errno, 0);
  std::vector<std::byte> again(2 * kPage + 107);
  const iovec all{again.data(), again.size()};
  EXPECT_EQ(process_->read({&all, 1}, remote).bytes, again.size());
  EXPECT_TRUE(std::equal(again.begin(), again.end(), mine.begin()));
}

TEST_F(NeighborProcess, ACopyEndsExactlyBeforeAnUnmappedPage) {
  std::vector<std::byte> mine(2 * kPage, std::byte{0xEE});
  const iovec local{mine.data(), mine.size()};
  const iovec remote = their(3 * kPage + 96, 2 * kPage);
  ProcessCopy done = process_->read({&local, 1}, {&remote, 1});
  EXPECT_EQ(done.bytes, kPage - 96);
  EXPECT_EQ(done.native_errno, EFAULT);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    ASSERT_EQ(mine[i], i < done.bytes ? pattern(3 * kPage + 96 + i) : std::byte{0xEE}) << i;
  }
  std::ranges::fill(mine, std::byte{0x11});
  done = process_->write({&local, 1}, {&remote, 1});
  EXPECT_EQ(done.bytes, kPage - 96);
  EXPECT_EQ(done.native_errno, EFAULT);
  // Behind the hole nothing was written.
  std::byte behind{};
  const iovec one{&behind, 1};
  const iovec first_behind = their(5 * kPage, 1);
  EXPECT_EQ(process_->read({&one, 1}, {&first_behind, 1}).bytes, 1U);
  EXPECT_EQ(behind, pattern(5 * kPage));
}

TEST_F(NeighborProcess, APartBehindAHoleIsNotTouched) {
  std::vector<std::byte> mine(3 * 64, std::byte{0xEE});
  const std::array local{iovec{mine.data(), 64}, iovec{mine.data() + 64, 64},
                         iovec{mine.data() + 128, 64}};
  const std::array remote{their(0, 64), their(4 * kPage, 64), their(5 * kPage, 64)};
  const ProcessCopy done = process_->read(local, remote);
  EXPECT_EQ(done.bytes, 64U);
  EXPECT_EQ(done.native_errno, EFAULT);
  EXPECT_EQ(mine[63], pattern(63));
  EXPECT_TRUE(
      std::all_of(mine.begin() + 64, mine.end(), [](std::byte b) { return b == std::byte{0xEE}; }));
}

TEST_F(NeighborProcess, AHoleOfOurOwnEndsACopyToo) {
  void* const start =
      ::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(start, MAP_FAILED);
  ASSERT_EQ(::munmap(static_cast<std::byte*>(start) + kPage, kPage), 0);
  const iovec local{start, 2 * kPage};
  const iovec remote = their(0, 2 * kPage);
  for (const ProcessCopy done :
       {process_->read({&local, 1}, {&remote, 1}), process_->write({&local, 1}, {&remote, 1})}) {
    EXPECT_EQ(done.bytes, kPage);
    EXPECT_EQ(done.native_errno, EFAULT);
  }
  ::munmap(start, kPage);
}

TEST_F(NeighborProcess, AsManyPartsAsTheCallTakes) {
  std::vector<std::byte> mine(Process::kPartsMax * 3);
  std::vector<iovec> local;
  std::vector<iovec> remote;
  for (std::size_t i = 0; i < Process::kPartsMax; ++i) {
    local.push_back({mine.data() + 3 * i, 3});
    remote.push_back(their(4 * (Process::kPartsMax - 1 - i), 3));
  }
  // The last part ends in the hole: what is left after a short call are lists as well.
  remote.back() = their(4 * kPage - 1, 3);
  const ProcessCopy done = process_->read(local, remote);
  EXPECT_EQ(done.bytes, 3 * Process::kPartsMax - 2);
  EXPECT_EQ(done.native_errno, EFAULT);
  for (std::size_t i = 0; i + 1 < Process::kPartsMax; ++i) {
    ASSERT_EQ(mine[3 * i + 2], pattern(4 * (Process::kPartsMax - 1 - i) + 2)) << i;
  }
  EXPECT_EQ(mine[3 * (Process::kPartsMax - 1)], pattern(4 * kPage - 1));
}

TEST_F(NeighborProcess, ItsDeathIsPolledAndEndsCopies) {
  const Socket poller = *network_.make_poller();
  ASSERT_TRUE(network_.poller_add(poller, process_->end(), kPollIn, 5).has_value());
  std::array<PollEvent, 2> events;
  EXPECT_EQ(network_.poller_wait(poller, events, 0), 0U);
  ::kill(child_, SIGKILL);
  ASSERT_EQ(network_.poller_wait(poller, events, kLong), 1U);
  EXPECT_EQ(events[0].token, 5U);
  EXPECT_NE(events[0].events & kPollIn, 0U);
  std::byte byte{};
  const iovec local{&byte, 1};
  const iovec remote = their(0, 1);
  // Not waited for yet, and gone for good.
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(process_->ended());
    EXPECT_EQ(process_->read({&local, 1}, {&remote, 1}).native_errno, ESRCH);
    EXPECT_EQ(process_->write({&local, 1}, {&remote, 1}).native_errno, ESRCH);
    kill();
  }
  // Its connection is still there; whoever asks now learns that it is gone, one way or the other.
  const auto late = neighbors_.process_of(to_child_);
  EXPECT_TRUE(late ? (*late)->ended() : late.error().code() == ErrorCode::kPeerDisconnected);
  network_.poller_remove(poller, process_->end());
  network_.close(poller);
}

TEST_F(NeighborProcess, GivesItsDescriptorBack) {
  const std::size_t before = open_descriptors();
  process_.reset();
  EXPECT_EQ(open_descriptors(), before - 1);
}

TEST_F(SystemNeighborsTest, WithoutTheRightACopyIsEperm) {
  // A process that does not let itself be looked at, and one without privileges.
  const int dumpable = ::prctl(PR_GET_DUMPABLE);
  ASSERT_EQ(::prctl(PR_SET_DUMPABLE, 0), 0);
  const base::AtExit restore([dumpable] { ::prctl(PR_SET_DUMPABLE, dumpable); });
  std::byte byte{};
  const std::string answer = in_child([&]() -> std::string {
    if (::geteuid() == 0 &&
        (::setresgid(65534, 65534, 65534) != 0 || ::setresuid(65534, 65534, 65534) != 0)) {
      return "root that cannot give itself up";
    }
    SystemNeighbors own;
    const auto socket = own.connect(name_);
    const auto process = own.process_of(*socket);
    if (!process) {
      return process.error().message();
    }
    std::byte mine{};
    const iovec local{&mine, 1};
    const iovec remote{&byte, 1};
    const int read = (*process)->read({&local, 1}, {&remote, 1}).native_errno;
    const int written = (*process)->write({&local, 1}, {&remote, 1}).native_errno;
    return read == EPERM && written == EPERM ? "" : "errno " + std::to_string(read);
  });
  EXPECT_EQ(answer, "");
}

TEST_F(SystemNeighborsTest, AProcessOfAnotherPidNamespaceIsNotSupported) {
  const std::string answer = in_child([&]() -> std::string {
    if (::unshare(CLONE_NEWPID) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
      return "no PID namespace";
    }
    return in_child([&]() -> std::string {
      SystemNeighbors own;
      const auto socket = own.connect(name_);
      const auto process = own.process_of(*socket);
      return !process && process.error().code() == ErrorCode::kUnsupported &&
                     process.error().message().find("PID namespace") != std::string::npos
                 ? ""
                 : "another answer";
    });
  });
  EXPECT_EQ(answer, "");
}

TEST_F(SystemNeighborsTest, NobodyIsBehindWhatIsNoConnection) {
  const Socket wakeup = *network_.make_wakeup();
  const auto process = neighbors_.process_of(wakeup);
  ASSERT_FALSE(process.has_value());
  EXPECT_EQ(process.error().code(), ErrorCode::kSystem);
  network_.close(wakeup);
}

TEST_F(SystemNeighborsTest, AnOldKernelsHandleIsTakenByNumber) {
  const std::string answer = in_child([&]() -> std::string {
    SystemNeighbors own;
    const auto socket = own.connect(name_);
    // SO_PEERPIDFD is the only option asked for at this number.
    const std::string denied = testing::deny_system_call(SYS_getsockopt, ENOPROTOOPT, 77, 2);
    if (!denied.empty()) {
      return denied;
    }
    const auto process = own.process_of(*socket);
    return process && (*process)->number() == ::getppid() && !(*process)->ended() ? ""
                                                                                  : "no process";
  });
  EXPECT_EQ(answer, "");
}

}  // namespace
}  // namespace orbite::platform
