// SPDX-License-Identifier: Apache-2.0
// Engines of one host that copy to and from each other's memory themselves.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "engine/access.hpp"
#include "support/repeats.hpp"
#include "unit/engine/engine_pair.hpp"
#include "unit/engine/remote_process.hpp"

namespace orbite {
namespace {

using test::Block;
using test::eventually;
using test::Node;

constexpr std::size_t kSmall = std::size_t{64} << 10;
constexpr std::size_t kLarge = std::size_t{8} << 20;
/// The longest piece that is copied with one entry into the ledger.
constexpr std::size_t kSlice = std::size_t{1} << 20;

Config neighbor_config() {
  Config config;
  config.listen.address = "127.0.0.1";
  return config;
}

nlohmann::json info_of(const Node& node) { return nlohmann::json::parse(node.engine->info_json()); }

/// Two engines of this process, connected, so that what they post goes by CMA.
class Neighbors : public ::testing::Test {
 protected:
  Neighbors() {
    a_.know("b", b_);
    EXPECT_TRUE(a_.engine->connect_peer(a_.peer, 0).has_value());
  }

  Node a_{"a", kLarge, neighbor_config()};
  Node b_{"b", kLarge, neighbor_config()};
};

TEST_F(Neighbors, WritesAndReadsByCma) {
  for (const auto operation : {Operation::kWrite, Operation::kRead}) {
    a_.fill(1);
    b_.fill(2);
    const Handle request = test::prepare(a_, b_, operation, {{0, 4096, kLarge - 4096}}).value();
    ASSERT_TRUE(a_.engine->post(request, {}).has_value());
    const Outcome outcome = test::wait_terminal(*a_.engine, request);
    EXPECT_EQ(outcome.logical, Logical::kSuccess);
    EXPECT_EQ(outcome.effect, RemoteEffect::kComplete);
    EXPECT_STREQ(outcome.route, "cma");
    EXPECT_EQ(std::memcmp(a_.buffer.data(), b_.buffer.data() + 4096, kLarge - 4096), 0);
    ASSERT_TRUE(a_.engine->release(request).has_value());
  }
}

TEST_F(Neighbors, ASmallTransferIsDoneWhenItsPostReturns) {
  const Handle request = test::prepare(a_, b_, Operation::kWrite, {{0, 0, 4096}}).value();
  const auto posted = a_.engine->post(request, {});
  ASSERT_TRUE(posted.has_value());
  EXPECT_TRUE(posted->terminal());
  EXPECT_EQ(posted->logical, Logical::kSuccess);
}

TEST_F(Neighbors, ANotificationComesAfterTheBytes) {
  a_.fill(7);
  const Handle request = test::prepare(a_, b_, Operation::kWrite, {{0, 0, kLarge}}).value();
  const std::vector<std::uint8_t> message{1, 2, 3};
  PostOptions options;
  options.notification = message;
  ASSERT_TRUE(a_.engine->post(request, options).has_value());
  std::optional<Notification> received;
  ASSERT_TRUE(eventually([&] {
    static_cast<void>(a_.engine->check(request));
    received = b_.engine->receive_notification();
    return received.has_value();
  }));
  EXPECT_EQ(received->message, message);
  EXPECT_EQ(std::memcmp(a_.buffer.data(), b_.buffer.data(), kLarge), 0);
  EXPECT_EQ(test::wait_terminal(*a_.engine, request).logical, Logical::kSuccess);
}

TEST_F(Neighbors, LargeWorkGoesOnWithoutItsCaller) {
  a_.fill(9);
  const Handle request = test::prepare(a_, b_, Operation::kWrite, {{0, 0, kLarge}}).value();
  ASSERT_TRUE(a_.engine->post(request, {}).has_value());
  ASSERT_TRUE(eventually([&] { return a_.engine->query(request)->terminal(); }));
  EXPECT_EQ(a_.engine->query(request)->logical, Logical::kSuccess);
}

TEST_F(Neighbors, ARegistrationThatIsGoneIsNotTouched) {
  const Handle request = test::prepare(a_, b_, Operation::kWrite, {{0, 0, 4096}}).value();
  EXPECT_EQ(b_.engine->deregister_memory(b_.registration).value(), RegistrationState::kRetired);
  const std::vector<std::uint8_t> before = b_.buffer;
  a_.fill(3);
  ASSERT_TRUE(a_.engine->post(request, {}).has_value());
  const Outcome outcome = test::wait_terminal(*a_.engine, request);
  EXPECT_EQ(outcome.logical, Logical::kFailed);
  EXPECT_EQ(outcome.code, ErrorCode::kRegistrationFenced);
  EXPECT_EQ(outcome.effect, RemoteEffect::kNone);
  EXPECT_EQ(outcome.bytes_prefix, 0U);
  EXPECT_EQ(b_.buffer, before);
}

TEST_F(Neighbors, CloseInAnyOrderLeavesNothing) {
  EXPECT_EQ(b_.engine->close(base::kSecond).phase, ClosePhase::kClosed);
  EXPECT_EQ(a_.engine->close(base::kSecond).phase, ClosePhase::kClosed);
}

/// Memory whose last page is missing at the owner: what is copied ends there, and the prefix says
/// so.
TEST_F(Neighbors, TellTheExactPrefixWhereMemoryEnds) {
  constexpr std::size_t kPage = 4096;
  void* const pages =
      mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  MemoryDescriptor memory;
  memory.address = reinterpret_cast<std::uint64_t>(pages);
  memory.length = 4 * kPage;
  const Handle registration = b_.engine->register_memory(memory).value();
  const auto blob = b_.engine->export_memory(registration).value();
  ASSERT_EQ(munmap(static_cast<char*>(pages) + 3 * kPage, kPage), 0);
  const Handle range =
      a_.engine->import_range(a_.peer, blob, memory.address, memory.length).value();
  const Descriptor local{a_.address(), 4 * kPage, a_.registration};
  const Descriptor remote{memory.address, 4 * kPage, range};
  const Handle request =
      a_.engine->prepare({Operation::kWrite, a_.peer, {&local, 1}, {&remote, 1}}).value();
  ASSERT_TRUE(a_.engine->post(request, {}).has_value());
  const Outcome outcome = test::wait_terminal(*a_.engine, request);
  EXPECT_EQ(outcome.logical, Logical::kFailed);
  EXPECT_EQ(outcome.code, ErrorCode::kIoFailed);
  EXPECT_EQ(outcome.native_errno, EFAULT);
  EXPECT_EQ(outcome.bytes_prefix, 3 * kPage);
  EXPECT_EQ(outcome.effect, RemoteEffect::kPrefix);
  EXPECT_EQ(std::memcmp(pages, a_.buffer.data(), 3 * kPage), 0);
  munmap(pages, 3 * kPage);
}

TEST(NeighborRoutes, ArePartOfTheConfiguration) {
  for (const bool by_switch : {true, false}) {
    Config config = neighbor_config();
    if (by_switch) {
      config.cma.enabled = false;
      config.shm.enabled = false;
    } else {
      config.transfer.routes = {"local", "tcp"};
    }
    Node a("a", kSmall, config);
    Node b("b", kSmall, neighbor_config());
    a.know("b", b);
    ASSERT_TRUE(a.engine->connect_peer(a.peer, 0).has_value());
    const Handle request = test::prepare(a, b, Operation::kWrite, {{0, 0, 4096}}).value();
    ASSERT_TRUE(a.engine->post(request, {}).has_value());
    const Outcome outcome = test::wait_terminal(*a.engine, request);
    EXPECT_EQ(outcome.logical, Logical::kSuccess);
    EXPECT_STREQ(outcome.route, "tcp");
  }
}

/// An owner that lends nothing is reached over TCP.
TEST(NeighborRoutes, AnOwnerWithoutThemIsReachedOverTcp) {
  Node a("a", kSmall, neighbor_config());
  Node b("b", kSmall, test::loopback_config());
  a.know("b", b);
  ASSERT_TRUE(a.engine->connect_peer(a.peer, 0).has_value());
  const Handle request = test::prepare(a, b, Operation::kWrite, {{0, 0, 4096}}).value();
  ASSERT_TRUE(a.engine->post(request, {}).has_value());
  EXPECT_STREQ(test::wait_terminal(*a.engine, request).route, "tcp");
}

class NeighborProcess : public ::testing::Test {
 protected:
  void introduce(Node& node) {
    remote_.introduce_to(node);
    ASSERT_TRUE(node.engine->connect_peer(node.peer, 0).has_value());
  }

  test::RemoteProcess remote_{kLarge, neighbor_config()};
};

TEST_F(NeighborProcess, IsWrittenAndReadAlsoWhileItStandsStill) {
  Node node("a", kLarge, neighbor_config());
  introduce(node);
  node.fill(5);
  const std::vector<std::uint8_t> written = node.buffer;
  remote_.stop();
  for (const auto operation : {Operation::kWrite, Operation::kRead}) {
    const Handle request = remote_.prepare(node, operation, kLarge).value();
    ASSERT_TRUE(node.engine->post(request, {}).has_value());
    const Outcome outcome = test::wait_terminal(*node.engine, request);
    EXPECT_EQ(outcome.logical, Logical::kSuccess);
    EXPECT_STREQ(outcome.route, "cma");
    node.fill(6);
  }
  remote_.go_on();
  node.fill(6);
  const Handle request = remote_.prepare(node, Operation::kRead, kLarge).value();
  ASSERT_TRUE(node.engine->post(request, {}).has_value());
  EXPECT_EQ(test::wait_terminal(*node.engine, request).logical, Logical::kSuccess);
  EXPECT_EQ(node.buffer, written);
}

TEST_F(NeighborProcess, ThatDiesIsAnErrorAndNotTouchedAnyMore) {
  Node node("a", kLarge, neighbor_config());
  introduce(node);
  remote_.kill();
  const Handle request = remote_.prepare(node, Operation::kWrite, 4096).value();
  ASSERT_TRUE(node.engine->post(request, {}).has_value());
  const Outcome outcome = test::wait_terminal(*node.engine, request);
  EXPECT_EQ(outcome.logical, Logical::kFailed);
  EXPECT_EQ(outcome.effect, RemoteEffect::kNone);
}

/// A borrower in a process of its own, which writes without end into what it is told of. Made while
/// this process has no other thread.
class BorrowerProcess {
 public:
  BorrowerProcess() {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets_), 0);
    pid_ = fork();
    if (pid_ == 0) {
      borrow(sockets_[1]);
    }
    close(sockets_[1]);
  }
  BorrowerProcess(const BorrowerProcess&) = delete;
  BorrowerProcess& operator=(const BorrowerProcess&) = delete;
  ~BorrowerProcess() {
    kill();
    close(sockets_[0]);
  }

  /// Returns while it writes.
  void begin(const Node& owner) const {
    const std::uint64_t address = owner.address();
    tell(sockets_[0], owner.engine->connection_blob());
    tell(sockets_[0], owner.blob);
    ASSERT_EQ(write(sockets_[0], &address, sizeof(address)), 8);
    char byte = 0;
    ASSERT_EQ(read(sockets_[0], &byte, 1), 1);
  }
  void stop() const {
    ASSERT_EQ(::kill(pid_, SIGSTOP), 0);
    int status = 0;
    ASSERT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
    ASSERT_TRUE(WIFSTOPPED(status));
  }
  void begin_kill() const { ASSERT_EQ(::kill(pid_, SIGKILL), 0); }
  void kill() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      wait_end();
    }
  }
  void wait_end() {
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  static void tell(int fd, const std::vector<std::uint8_t>& bytes) {
    ASSERT_EQ(write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  static std::vector<std::uint8_t> hear(int fd) {
    std::vector<std::uint8_t> bytes(4096);
    const ssize_t got = read(fd, bytes.data(), bytes.size());
    if (got <= 0) {
      _exit(1);
    }
    bytes.resize(static_cast<std::size_t>(got));
    return bytes;
  }
  [[noreturn]] static void borrow(int fd) {
    const std::vector<std::uint8_t> connection = hear(fd);
    const std::vector<std::uint8_t> blob = hear(fd);
    const std::vector<std::uint8_t> last = hear(fd);
    std::uint64_t address = 0;
    std::memcpy(&address, last.data(), sizeof(address));
    Node node("borrower", kSlice, neighbor_config());
    const Handle peer = node.engine->import_peer("owner", connection).value();
    const Handle range = node.engine->import_range(peer, blob, address, kSlice).value();
    if (!node.engine->connect_peer(peer, 0)) {
      _exit(2);
    }
    node.fill(1);
    const Descriptor local{node.address(), kSlice, node.registration};
    const Descriptor remote{address, kSlice, range};
    const Handle request =
        node.engine->prepare({Operation::kWrite, peer, {&local, 1}, {&remote, 1}}).value();
    for (int round = 0;; ++round) {
      const auto posted = node.engine->post(request, {});
      if (!posted || std::strcmp(posted->route, "cma") != 0) {
        _exit(3);
      }
      if (round == 2 && ::write(fd, "x", 1) != 1) {
        _exit(4);
      }
      while (!node.engine->check(request)->terminal()) {
      }
    }
  }

  int sockets_[2] = {-1, -1};
  pid_t pid_ = -1;
};

bool is_retired(const Node& owner) {
  const auto state = owner.engine->registration_state(owner.registration);
  return state && *state == RegistrationState::kRetired;
}

/// The memory is the owner's again, who uses it: a copy that still goes on, from its start to its
/// end, meets what is written from the end to the start.
void use_again(Node& owner) {
  for (std::size_t end = owner.buffer.size(); end > 0; end -= 4096) {
    std::memset(owner.buffer.data() + end - 4096, 0xEE, 4096);
  }
}

void expect_untouched_since(const Node& owner) {
  EXPECT_EQ(owner.buffer, std::vector<std::uint8_t>(owner.buffer.size(), 0xEE))
      << "written after its retirement";
}

/// A borrower that is killed while it copies does not keep the owner from deregistering, and what
/// the owner has retired is not written afterwards.
TEST(NeighborDeath, FreesWhatTheBorrowerWasInside) {
  for (int round = 0; round < test::repeats(50); ++round) {
    BorrowerProcess borrower;
    Node owner("owner", kSlice, neighbor_config());
    borrower.begin(owner);
    // By turns: fenced before it is killed, and after.
    if (round % 2 == 0) {
      ASSERT_TRUE(owner.engine->deregister_memory(owner.registration).has_value());
      borrower.begin_kill();
    } else {
      borrower.begin_kill();
      ASSERT_TRUE(owner.engine->deregister_memory(owner.registration).has_value());
    }
    ASSERT_TRUE(eventually([&] { return is_retired(owner); }));
    use_again(owner);
    borrower.kill();
    expect_untouched_since(owner);
    ASSERT_TRUE(eventually([&] { return info_of(owner)["lends"]["borrowers"] == 0; }));
    EXPECT_EQ(owner.engine->close(base::kSecond).phase, ClosePhase::kClosed);
  }
}

/// An owner that deregisters while a living borrower copies never sees a late write.
TEST(NeighborDeath, IsNotNeededForALateWriteNeverToCome) {
  for (int round = 0; round < test::repeats(50); ++round) {
    BorrowerProcess borrower;
    Node owner("owner", kSlice, neighbor_config());
    borrower.begin(owner);
    ASSERT_TRUE(owner.engine->deregister_memory(owner.registration).has_value());
    ASSERT_TRUE(eventually([&] { return is_retired(owner); }));
    use_again(owner);
    // Its next post tells it that it may not, and it ends.
    borrower.wait_end();
    expect_untouched_since(owner);
  }
}

/// One that stands still inside a copy keeps that registration until it is dead, and nobody waits
/// for it.
TEST(NeighborDeath, AStoppedBorrowerKeepsOnlyWhatItIsInside) {
  for (int round = 0; round < test::repeats(20); ++round) {
    BorrowerProcess borrower;
    Node owner("owner", kSlice, neighbor_config());
    borrower.begin(owner);
    borrower.stop();
    const auto state = owner.engine->deregister_memory(owner.registration);
    ASSERT_TRUE(state.has_value());
    if (*state == RegistrationState::kFenced) {
      EXPECT_EQ(info_of(owner)["lends"]["held"], 1);
      EXPECT_FALSE(is_retired(owner));
    }
    borrower.kill();
    ASSERT_TRUE(eventually([&] { return is_retired(owner); }));
    use_again(owner);
    expect_untouched_since(owner);
  }
}

}  // namespace
}  // namespace orbite
