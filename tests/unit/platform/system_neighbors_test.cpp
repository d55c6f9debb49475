// SPDX-License-Identifier: Apache-2.0
#include "platform/system_neighbors.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "unit/platform/child_process.hpp"
#include "unit/platform/system_neighbors_rig.hpp"

namespace orbite::platform {
namespace {

using testing::in_child;
using Access = Neighbors::PageAccess;
using Fork = Neighbors::AfterFork;

/// Descriptors that Neighbors would not send.
void send_raw(Socket socket, const std::vector<int>& descriptors) {
  std::uint8_t byte = 'x';
  iovec part{&byte, 1};
  std::vector<std::byte> control(CMSG_SPACE(descriptors.size() * sizeof(int)));
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  cmsghdr* const rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
  std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size() * sizeof(int));
  ASSERT_EQ(::sendmsg(socket, &header, MSG_NOSIGNAL), 1);
}

// Sockets.

TEST_F(SystemNeighborsTest, ANameInUseIsAnErrorThatNamesItUntilItIsClosed) {
  const auto second = neighbors_.listen(name_);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), ErrorCode::kAddressInUse);
  EXPECT_NE(second.error().message().find(name_), std::string::npos);
  close(listener_);
  const auto again = neighbors_.listen(name_);
  ASSERT_TRUE(again.has_value()) << again.error().message();
  network_.close(*again);
}

TEST_F(SystemNeighborsTest, NobodyThereIsUnreachableAndNamed) {
  const std::size_t before = open_descriptors();
  const std::string nobody = fresh_name();
  const auto socket = neighbors_.connect(nobody);
  ASSERT_FALSE(socket.has_value());
  EXPECT_EQ(socket.error().code(), ErrorCode::kPeerUnreachable);
  EXPECT_EQ(socket.error().native_errno(), ECONNREFUSED);
  EXPECT_NE(socket.error().message().find(nobody), std::string::npos);
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(SystemNeighborsTest, AListenerWithoutRoomIsUnreachable) {
  const std::string name = fresh_name();
  Socket full = *neighbors_.listen(name);
  ASSERT_EQ(::listen(full, 0), 0);
  std::vector<Socket> waiting;
  auto socket = neighbors_.connect(name);
  for (int i = 0; socket && i < 4; ++i) {
    waiting.push_back(*socket);
    socket = neighbors_.connect(name);
  }
  ASSERT_FALSE(socket.has_value());
  EXPECT_EQ(socket.error().code(), ErrorCode::kPeerUnreachable);
  EXPECT_EQ(socket.error().native_errno(), EAGAIN);
  for (const Socket one : waiting) {
    network_.close(one);
  }
  close(full);
}

TEST_F(SystemNeighborsTest, NamesHaveOneToAHundredBytesNoneOfThem0) {
  using std::string_literals::operator""s;
  for (const std::string& name : {""s, std::string(101, 'n'), "a\0b"s}) {
    const auto listener = neighbors_.listen(name);
    const auto socket = neighbors_.connect(name);
    ASSERT_FALSE(listener.has_value() || socket.has_value());
    EXPECT_EQ(listener.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(socket.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(listener.error().message().find(std::to_string(name.size()) + " bytes"),
              std::string::npos);
  }
  std::string longest = fresh_name();
  longest.resize(100, 'n');
  Socket listener = *neighbors_.listen(longest);
  EXPECT_FALSE(neighbors_.connect(longest.substr(0, 99)).has_value());
  const auto socket = neighbors_.connect(longest);
  ASSERT_TRUE(socket.has_value());
  network_.close(*socket);
  close(listener);
}

TEST_F(SystemNeighborsTest, NobodyWaitingIsNotFoundAndNoListenerASystemError) {
  const auto nobody = neighbors_.accept(listener_);
  ASSERT_FALSE(nobody.has_value());
  EXPECT_EQ(nobody.error().code(), ErrorCode::kNotFound);
  const auto none = neighbors_.accept(client_);
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code(), ErrorCode::kSystem);
}

TEST_F(SystemNeighborsTest, WithoutDescriptorsTheListenerStaysReadable) {
  const std::string answer = in_child([&]() -> std::string {
    SystemNetwork network;
    SystemNeighbors neighbors;
    const std::string name = fresh_name();
    const Socket listener = *neighbors.listen(name);
    const Socket client = *neighbors.connect(name);
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    const rlimit before = limit;
    const Socket poller = *network.make_poller();
    limit.rlim_cur = static_cast<rlim_t>(poller) + 1;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    std::vector<int> fillers;
    for (int fd = ::dup(client); fd >= 0; fd = ::dup(client)) {
      fillers.push_back(fd);
    }
    const auto refused = neighbors.accept(listener);
    if (refused || refused.error().code() != ErrorCode::kSystem) {
      return "accepted, or another error";
    }
    ::setrlimit(RLIMIT_NOFILE, &before);
    return neighbors.accept(listener) ? "" : "the connection is lost";
  });
  EXPECT_EQ(answer, "");
}

TEST_F(SystemNeighborsTest, EverySocketIsNonBlockingAndCloseOnExec) {
  for (const Socket socket : {listener_, client_, server_}) {
    EXPECT_NE(::fcntl(socket, F_GETFL) & O_NONBLOCK, 0);
    EXPECT_NE(::fcntl(socket, F_GETFD) & FD_CLOEXEC, 0);
  }
}

// Messages.

TEST_F(SystemNeighborsTest, MessagesComeWholeAndInOrder) {
  EXPECT_EQ(next(), "kWouldBlock");
  EXPECT_EQ(say("first").bytes, 5U);
  EXPECT_EQ(say("2").bytes, 1U);
  EXPECT_EQ(say("the third").bytes, 9U);
  ASSERT_TRUE(wait_for(network_, server_));
  EXPECT_EQ(next(), "first");
  EXPECT_EQ(next(1), "2");
  EXPECT_EQ(next(9), "the third");
  EXPECT_EQ(next(), "kWouldBlock");
}

TEST_F(SystemNeighborsTest, AMessageLongerThanTheBufferIsLostAndTheNextOneIsNot) {
  say("0123456789");
  say("next");
  EXPECT_EQ(next(9), failed_with(EMSGSIZE));
  EXPECT_EQ(next(9), "next");
}

TEST_F(SystemNeighborsTest, AMessageThatNeverFitsIsRefusedWhole) {
  const std::vector<std::uint8_t> huge(64U << 20);
  const IoResult result = neighbors_.send(client_, huge, {});
  EXPECT_EQ(result.kind, IoResult::Kind::kFailed);
  EXPECT_EQ(result.native_errno, EMSGSIZE);
  EXPECT_EQ(next(), "kWouldBlock");
}

TEST_F(SystemNeighborsTest, AFullSocketTakesNothing) {
  const std::vector<std::uint8_t> message(1000, 7);
  std::size_t sent = 0;
  while (neighbors_.send(client_, message, {}).kind == IoResult::Kind::kBytes && sent < 100'000) {
    ++sent;
  }
  EXPECT_EQ(neighbors_.send(client_, message, {}).kind, IoResult::Kind::kWouldBlock);
  std::size_t received = 0;
  while (next(1000) == std::string(1000, 7)) {
    ++received;
  }
  EXPECT_EQ(received, sent);
  EXPECT_GT(sent, 0U);
}

TEST_F(SystemNeighborsTest, AClosedEndIsTheEndAfterWhatItSaid) {
  say("last words");
  close(client_);
  ASSERT_TRUE(wait_for(network_, server_));
  EXPECT_EQ(next(), "last words");
  EXPECT_EQ(next(), "kEnded");
  const IoResult result = neighbors_.send(server_, bytes_of("x"), {});
  EXPECT_EQ(result.kind, IoResult::Kind::kFailed);
  EXPECT_EQ(result.native_errno, EPIPE);
}

TEST_F(SystemNeighborsTest, AnEmptyMessageIsNotSentAndCountsAsTheEnd) {
  EXPECT_EQ(say("").native_errno, EINVAL);
  ASSERT_EQ(::send(client_, "", 0, 0), 0);
  EXPECT_EQ(next(), "kEnded");
}

// Files.

TEST_F(SystemNeighborsTest, FilesArriveAsTheSamePages) {
  const std::size_t before = open_descriptors();
  {
    Neighbors::Files sent;
    std::vector<std::unique_ptr<PageMapping>> here;
    for (std::size_t i = 0; i < Neighbors::kFilesMax; ++i) {
      sent.push_back(*neighbors_.make_pages("pages", (i + 1) * kPage, {}));
      here.push_back(*neighbors_.map(*sent[i], Access::kReadWrite, Fork::kInherited));
      EXPECT_EQ(here[i]->pages().size(), (i + 1) * kPage);
      EXPECT_TRUE(
          std::ranges::all_of(here[i]->pages(), [](std::byte b) { return b == std::byte{}; }));
    }
    say("four", sent);
    say("none");
    EXPECT_EQ(next(), "four");
    const Neighbors::Files received = files_;
    EXPECT_EQ(next(), "none");
    EXPECT_TRUE(files_.empty());
    ASSERT_EQ(received.size(), sent.size());
    for (std::size_t i = 0; i < received.size(); ++i) {
      ASSERT_EQ(received[i]->bytes(), (i + 1) * kPage);
      const auto there = *neighbors_.map(*received[i], Access::kReadWrite, Fork::kAbsent);
      here[i]->pages().back() = std::byte{17};
      EXPECT_EQ(there->pages().back(), std::byte{17});
      there->pages().front() = static_cast<std::byte>(i + 1);
      EXPECT_EQ(here[i]->pages().front(), static_cast<std::byte>(i + 1));
    }
    EXPECT_EQ(open_descriptors(), before + 2 * sent.size());
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(SystemNeighborsTest, AReceivedFileIsCloseOnExecAndOutlivesItsSender) {
  say("pages", {*neighbors_.make_pages("pages", kPage, {})});
  close(client_);
  const std::size_t before = open_descriptors();
  ASSERT_EQ(next(), "pages");
  ASSERT_EQ(open_descriptors(), before + 1);
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry, gone).string().starts_with("/memfd:pages")) {
      EXPECT_NE(::fcntl(std::stoi(entry.path().filename()), F_GETFD) & FD_CLOEXEC, 0);
    }
  }
  const auto mapping = *neighbors_.map(*files_.at(0), Access::kRead, Fork::kInherited);
  files_.clear();
  EXPECT_EQ(mapping->pages()[kPage - 1], std::byte{});
}

TEST_F(SystemNeighborsTest, AFileThatMayChangeItsSizeIsRefusedWithAllThatCameWithIt) {
  const int unsealed = ::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const int half = ::memfd_create("half", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const int empty = ::memfd_create("empty", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const int sealed = ::memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const int ordinary = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  for (const int fd : {unsealed, half, sealed}) {
    ASSERT_EQ(::ftruncate(fd, kPage), 0);
  }
  ASSERT_EQ(::fcntl(half, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  ASSERT_EQ(::fcntl(empty, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  ASSERT_EQ(::fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  const std::size_t before = open_descriptors();
  for (const int fd : {unsealed, half, empty, ordinary, client_}) {
    send_raw(client_, {sealed, fd, sealed});
    EXPECT_EQ(next(), failed_with(EBADF));
    EXPECT_TRUE(files_.empty());
    EXPECT_EQ(open_descriptors(), before);
  }
  send_raw(client_, {sealed});
  EXPECT_EQ(next(), "x");
  EXPECT_EQ(files_.size(), 1U);
  for (const int fd : {unsealed, half, empty, sealed, ordinary}) {
    ::close(fd);
  }
}

TEST_F(SystemNeighborsTest, TooManyFilesAreRefusedAndClosed) {
  const auto file = *neighbors_.make_pages("pages", kPage, {});
  EXPECT_EQ(say("five", Neighbors::Files(Neighbors::kFilesMax + 1, file)).native_errno, EINVAL);
  const int sealed = ::memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(sealed, kPage), 0);
  ASSERT_EQ(::fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  const std::size_t before = open_descriptors();
  for (const std::size_t count : {5U, 6U, 100U}) {
    send_raw(client_, std::vector<int>(count, sealed));
    EXPECT_EQ(next(), failed_with(EMSGSIZE));
    EXPECT_TRUE(files_.empty());
    EXPECT_EQ(open_descriptors(), before);
  }
  say("next");
  EXPECT_EQ(next(), "next");
  ::close(sealed);
}

TEST_F(SystemNeighborsTest, FilesOfAMessageThatIsTooLongAreClosed) {
  const auto file = *neighbors_.make_pages("pages", kPage, {});
  const std::size_t before = open_descriptors();
  say("0123456789", {file, file});
  EXPECT_EQ(next(9), failed_with(EMSGSIZE));
  EXPECT_TRUE(files_.empty());
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(SystemNeighborsTest, WithoutADescriptorForAFileTheMessageIsLost) {
  const std::string answer = in_child([&]() -> std::string {
    SystemNeighbors neighbors;
    const std::string name = fresh_name();
    const Socket listener = *neighbors.listen(name);
    const Socket client = *neighbors.connect(name);
    const Socket server = *neighbors.accept(listener);
    const auto file = *neighbors.make_pages("pages", kPage, {});
    neighbors.send(client, bytes_of("two"), {file, file});
    neighbors.send(client, bytes_of("one"), {file});
    std::vector<int> fillers;
    rlimit limit{.rlim_cur = 64, .rlim_max = 64};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    for (int fd = ::dup(client); fd >= 0; fd = ::dup(client)) {
      fillers.push_back(fd);
    }
    if (fillers.empty()) {
      return "no room to fill";
    }
    ::close(fillers.back());
    fillers.pop_back();
    std::array<std::uint8_t, 16> buffer{};
    Neighbors::Files files;
    const IoResult lost = neighbors.receive(server, buffer, files);
    if (lost.kind != IoResult::Kind::kFailed || lost.native_errno != EMFILE || !files.empty()) {
      return "errno " + std::to_string(lost.native_errno);
    }
    const IoResult after = neighbors.receive(server, buffer, files);
    // A sanitizer needs some to look at what ends here.
    for (const int filler : fillers) {
      ::close(filler);
    }
    return after.bytes == 3 && files.size() == 1 ? "" : "the next message is lost";
  });
  EXPECT_EQ(answer, "");
}

// Pages.

TEST_F(SystemNeighborsTest, AForkedChildHasNoSocketNoFileNoProcessAndNoAbsentMapping) {
  const auto file = *neighbors_.make_pages("pages", kPage, {});
  auto absent = *neighbors_.map(*file, Access::kReadWrite, Fork::kAbsent);
  const auto inherited = *neighbors_.map(*file, Access::kReadWrite, Fork::kInherited);
  auto process = *neighbors_.process_of(server_);
  inherited->pages()[0] = std::byte{9};
  const std::string answer = in_child([&]() -> std::string {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const std::string target = std::filesystem::read_symlink(entry, gone).string();
      if (target.starts_with("/memfd:pages") || target.find("pidfd") != std::string::npos) {
        return target + " is open";
      }
    }
    for (const Socket socket : {listener_, client_, server_}) {
      if (::fcntl(socket, F_GETFD) != -1) {
        return "socket " + std::to_string(socket) + " is open";
      }
    }
    unsigned char there = 0;
    if (::mincore(absent->pages().data(), kPage, &there) != -1 || errno != ENOMEM) {
      return "the absent mapping is there";
    }
    if (inherited->pages()[0] != std::byte{9}) {
      return "the inherited mapping is not";
    }
    // What dies here must not end what has the same number or address by now.
    const int number = ::open("/dev/null", O_RDONLY);
    void* const page = ::mmap(absent->pages().data(), kPage, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (page != absent->pages().data() || process->end() != kNoSocket || !process->ended()) {
      return "not as expected";
    }
    absent.reset();
    process.reset();
    if (neighbors_.map(*file, Access::kRead, Fork::kInherited)) {
      return "a file of the parent was mapped";
    }
    return ::mincore(page, kPage, &there) == 0 && ::fcntl(number, F_GETFD) != -1
               ? ""
               : "something of the child's own is gone";
  });
  EXPECT_EQ(answer, "");
  EXPECT_FALSE(process->ended());
  say("still here");
  EXPECT_EQ(next(), "still here");
}

// Processes.

}  // namespace
}  // namespace orbite::platform
