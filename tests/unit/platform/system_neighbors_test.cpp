// SPDX-License-Identifier: Apache-2.0
#include "platform/system_neighbors.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
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
#include <filesystem>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/at_exit.hpp"
#include "platform/system.hpp"
#include "unit/platform/child_process.hpp"

namespace orbite::platform {
namespace {

using testing::in_child;
using Access = Neighbors::PageAccess;
using Fork = Neighbors::AfterFork;

constexpr base::Nanoseconds kLong = 20 * base::kSecond;
constexpr std::size_t kPage = 4096;

/// Not the same in two tests of two processes, nor twice in one.
std::string fresh_name() {
  static int count = 0;
  return "orbite-test-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

/// What `socket` has to say, within a bound.
bool wait_for(SystemNetwork& network, Socket socket) {
  const Socket poller = *network.make_poller();
  PollEvent event;
  const bool added = network.poller_add(poller, socket, kPollIn, 1).has_value();
  const std::size_t found = network.poller_wait(poller, {&event, 1}, kLong);
  network.close(poller);
  return added && found == 1 && (event.events & kPollIn) != 0;
}

std::vector<std::uint8_t> bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

class SystemNeighborsTest : public ::testing::Test {
 protected:
  SystemNeighborsTest() {
    listener_ = *neighbors_.listen(name_);
    client_ = *neighbors_.connect(name_);
    server_ = *neighbors_.accept(listener_);
  }
  ~SystemNeighborsTest() override {
    for (const Socket socket : {server_, client_, listener_}) {
      if (socket != kNoSocket) {
        network_.close(socket);
      }
    }
  }
  void close(Socket& socket) { network_.close(std::exchange(socket, kNoSocket)); }

  /// "kFailed 90", or the text of the message.
  std::string next(std::size_t room = 256) {
    std::vector<std::uint8_t> buffer(room);
    const IoResult result = neighbors_.receive(server_, buffer, files_);
    switch (result.kind) {
      case IoResult::Kind::kBytes:
        return {buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(result.bytes)};
      case IoResult::Kind::kWouldBlock:
        return "kWouldBlock";
      case IoResult::Kind::kEnded:
        return "kEnded";
      case IoResult::Kind::kFailed:
        return "kFailed " + std::to_string(result.native_errno);
    }
    return "";
  }
  IoResult say(std::string_view text, const Neighbors::Files& files = {}) {
    return neighbors_.send(client_, bytes_of(text), files);
  }

  SystemNetwork network_;
  SystemNeighbors neighbors_;
  std::string name_ = fresh_name();
  Socket listener_ = kNoSocket;
  Socket client_ = kNoSocket;
  Socket server_ = kNoSocket;
  Neighbors::Files files_;
};

std::string failed_with(int native_errno) { return "kFailed " + std::to_string(native_errno); }

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

TEST(SystemPages, HaveASizeThatStays) {
  SystemNeighbors neighbors;
  const std::size_t before = open_descriptors();
  {
    const auto file = *neighbors.make_pages("fixed", 3 * kPage, {});
    EXPECT_EQ(file->bytes(), 3 * kPage);
    int fd = -1;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      if (std::filesystem::read_symlink(entry, gone).string().starts_with("/memfd:fixed")) {
        fd = std::stoi(entry.path().filename());
      }
    }
    ASSERT_GE(fd, 0);
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_EQ(::ftruncate(fd, kPage), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(::ftruncate(fd, 4 * kPage), -1);
    EXPECT_EQ(errno, EPERM);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(SystemPages, ImpossibleSizesAreRefusedByName) {
  SystemNeighbors neighbors;
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1} << 63}) {
    const auto file = neighbors.make_pages("pages", bytes, {});
    ASSERT_FALSE(file.has_value());
    EXPECT_EQ(file.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(file.error().message().find(std::to_string(bytes)), std::string::npos);
  }
}

TEST(SystemPages, MoreThanThereAreAddressesIsOutOfMemory) {
  SystemNeighbors neighbors;
  const auto file = neighbors.make_pages("pages", std::uint64_t{1} << 60, {});
  ASSERT_TRUE(file.has_value()) << file.error().message();
  const auto mapping = neighbors.map(**file, Access::kRead, Fork::kInherited);
  ASSERT_FALSE(mapping.has_value());
  EXPECT_EQ(mapping.error().code(), ErrorCode::kOutOfMemory);
}

TEST(SystemPages, AMappingOutlivesItsFile) {
  SystemNeighbors neighbors;
  auto file = *neighbors.make_pages("pages", kPage, {});
  const auto mapping = *neighbors.map(*file, Access::kReadWrite, Fork::kInherited);
  file.reset();
  mapping->pages()[7] = std::byte{7};
  EXPECT_EQ(mapping->pages()[7], std::byte{7});
}

TEST(SystemPages, ForbiddenWritesStayWithTheMappingsThatAreThere) {
  SystemNeighbors neighbors;
  const auto file = *neighbors.make_pages("pages", kPage, {});
  const auto writer = *neighbors.map(*file, Access::kReadWrite, Fork::kInherited);
  ASSERT_TRUE(neighbors.forbid_writes(*file).has_value());
  const auto second = neighbors.map(*file, Access::kReadWrite, Fork::kInherited);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), ErrorCode::kNotAllowed);
  const auto reader = *neighbors.map(*file, Access::kRead, Fork::kInherited);
  writer->pages()[7] = std::byte{7};
  EXPECT_EQ(reader->pages()[7], std::byte{7});
  EXPECT_EQ(::mprotect(reader->pages().data(), kPage, PROT_READ | PROT_WRITE), -1);
  EXPECT_EQ(errno, EACCES);
}

TEST(SystemPages, AMappingToReadCannotBeWritten) {
  const std::string answer = in_child([]() -> std::string {
    SystemNeighbors neighbors;
    const auto file = *neighbors.make_pages("pages", kPage, {});
    const auto reader = *neighbors.map(*file, Access::kRead, Fork::kInherited);
    int ends[2] = {-1, -1};
    if (::pipe(ends) != 0 || ::write(ends[1], "x", 1) != 1) {
      return "no pipe";
    }
    const ssize_t got = ::read(ends[0], reader->pages().data(), 1);
    return got == -1 && errno == EFAULT ? "" : "written";
  });
  EXPECT_EQ(answer, "");
}

TEST(SystemPages, HugeOnesWorkOrAreNotSupported) {
  SystemNeighbors neighbors;
  const std::size_t before = open_descriptors();
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 30;
  const auto file = neighbors.make_pages("huge", kHuge, {.huge = true});
  if (file) {
    const auto mapping = *neighbors.map(**file, Access::kReadWrite, Fork::kInherited);
    mapping->pages().back() = std::byte{1};
    EXPECT_EQ(mapping->pages().front(), std::byte{});
  } else {
    EXPECT_EQ(file.error().code(), ErrorCode::kUnsupported);
    EXPECT_NE(file.error().native_errno(), 0);
    EXPECT_EQ(open_descriptors(), before);
  }
  const auto odd = neighbors.make_pages("huge", kPage, {.huge = true});
  ASSERT_FALSE(odd.has_value());
  EXPECT_TRUE(odd.error().code() == ErrorCode::kInvalidArgument ||
              odd.error().code() == ErrorCode::kUnsupported);
}

// Children made by fork().

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
