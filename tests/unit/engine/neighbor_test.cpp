// SPDX-License-Identifier: Apache-2.0
// Engines of one host that copy to and from each other's memory themselves.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>

#include "base/clock.hpp"
#include "orbite/shared_memory.hpp"
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

/// Its registrations are gone, but because it is: that is what a caller must learn.
TEST_F(Neighbors, ThatCloseAreDisconnected) {
  const Handle request = test::prepare(a_, b_, Operation::kWrite, {{0, 0, 4096}}).value();
  EXPECT_EQ(b_.engine->close(base::kSecond).phase, ClosePhase::kClosed);
  ASSERT_TRUE(a_.engine->post(request, {}).has_value());
  const Outcome outcome = test::wait_terminal(*a_.engine, request);
  EXPECT_EQ(outcome.code, ErrorCode::kPeerDisconnected) << error_text(outcome.code);
  EXPECT_EQ(outcome.effect, RemoteEffect::kNone);
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

/// An engine and registered memory of either kind.
struct Owner {
  explicit Owner(const std::string& name, bool is_shared, std::size_t size = kSlice,
                 Config config = neighbor_config())
      : engine(TransferEngine::create({name, std::move(config)}).value()) {
    if (is_shared) {
      shared.emplace(allocate_shm_memory(size).value());
      bytes = {reinterpret_cast<std::uint8_t*>(shared->data()), size};
    } else {
      ordinary.resize(size);
      bytes = ordinary;
    }
    MemoryDescriptor memory;
    memory.address = address();
    memory.length = size;
    registration = engine->register_memory(memory).value();
    blob = engine->export_memory(registration).value();
  }

  [[nodiscard]] std::uint64_t address() const {
    return reinterpret_cast<std::uint64_t>(bytes.data());
  }
  [[nodiscard]] bool is_retired() const {
    const auto state = engine->registration_state(registration);
    return state && *state == RegistrationState::kRetired;
  }
  [[nodiscard]] nlohmann::json info() const { return nlohmann::json::parse(engine->info_json()); }

  std::optional<SharedMemory> shared;  ///< outlives the engine, whose registrations use it
  std::vector<std::uint8_t> ordinary;
  std::span<std::uint8_t> bytes;
  std::unique_ptr<TransferEngine> engine;
  Handle registration;
  std::vector<std::uint8_t> blob;
};

/// What `node` posts into these ranges of `owner` goes by that route.
Outcome write_into(Node& node, Handle peer, const std::vector<Descriptor>& remotes) {
  std::vector<Descriptor> locals;
  std::uint64_t offset = 0;
  for (const Descriptor& remote : remotes) {
    locals.push_back({node.address(offset), remote.length, node.registration});
    offset += remote.length;
  }
  const Handle request = node.engine->prepare({Operation::kWrite, peer, locals, remotes}).value();
  EXPECT_TRUE(node.engine->post(request, {}).has_value());
  const Outcome outcome = test::wait_terminal(*node.engine, request);
  EXPECT_TRUE(node.engine->release(request).has_value());
  return outcome;
}

class SharedNeighbors : public ::testing::Test {
 protected:
  SharedNeighbors() {
    peer_ = node_.engine->import_peer("owner", owner_.engine->connection_blob()).value();
    range_ = node_.engine->import_range(peer_, owner_.blob, owner_.address(), kSlice).value();
    EXPECT_TRUE(node_.engine->connect_peer(peer_, 0).has_value());
    node_.fill(1);
  }

  Owner owner_{"owner", true};
  Node node_{"a", kLarge, neighbor_config()};
  Handle peer_;
  Handle range_;
};

TEST_F(SharedNeighbors, CopyThroughTheSamePages) {
  const Outcome written = write_into(node_, peer_, {{owner_.address(), kSlice, range_}});
  EXPECT_EQ(written.logical, Logical::kSuccess);
  EXPECT_STREQ(written.route, "shm");
  EXPECT_EQ(std::memcmp(owner_.bytes.data(), node_.buffer.data(), kSlice), 0);
  std::fill(owner_.bytes.begin(), owner_.bytes.end(), 0x5A);
  const Descriptor local{node_.address(), kSlice - 100, node_.registration};
  const Descriptor remote{owner_.address() + 100, kSlice - 100, range_};
  const Handle request =
      node_.engine->prepare({Operation::kRead, peer_, {&local, 1}, {&remote, 1}}).value();
  ASSERT_TRUE(node_.engine->post(request, {}).has_value());
  const Outcome read = test::wait_terminal(*node_.engine, request);
  EXPECT_EQ(read.logical, Logical::kSuccess);
  EXPECT_STREQ(read.route, "shm");
  EXPECT_TRUE(std::all_of(node_.buffer.begin(), node_.buffer.begin() + kSlice - 100,
                          [](std::uint8_t byte) { return byte == 0x5A; }));
}

TEST_F(SharedNeighbors, AreNamedAsSuch) {
  const auto peers_of = [](const TransferEngine& engine) {
    return nlohmann::json::parse(engine.info_json())["peers"];
  };
  const nlohmann::json neighbor = peers_of(*node_.engine)[0]["neighbor"];
  EXPECT_EQ(neighbor["state"], "ready");
  EXPECT_EQ(neighbor["reason"], "");
  EXPECT_EQ(neighbor["ordinary_memory"], true);
  EXPECT_EQ(neighbor["ordinary_memory_reason"], "");
  EXPECT_EQ(neighbor["shared_memory_reason"], "");

  Config apart = neighbor_config();
  apart.shm.enabled = false;
  apart.cma.enabled = false;
  const Node stranger{"b", kLarge, apart};
  ASSERT_TRUE(stranger.engine->import_peer("owner", owner_.engine->connection_blob()).has_value());
  EXPECT_TRUE(peers_of(*stranger.engine)[0]["neighbor"].is_null());
}

/// A range in the middle of an allocation is found in the middle of its pages.
TEST_F(SharedNeighbors, FindAPartOfAnAllocation) {
  MemoryDescriptor memory;
  memory.address = owner_.address() + 12'345;
  memory.length = 1'000;
  const Handle registration = owner_.engine->register_memory(memory).value();
  const auto blob = owner_.engine->export_memory(registration).value();
  const Handle range = node_.engine->import_range(peer_, blob, memory.address, 1'000).value();
  ASSERT_TRUE(node_.engine->connect_peer(peer_, 0).has_value());
  const Outcome outcome = write_into(node_, peer_, {{memory.address + 10, 500, range}});
  EXPECT_STREQ(outcome.route, "shm");
  EXPECT_EQ(std::memcmp(owner_.bytes.data() + 12'355, node_.buffer.data(), 500), 0);
}

/// Ordinary memory never goes by it, nor does a request of which a part is ordinary memory.
TEST_F(SharedNeighbors, NeverReachOrdinaryMemoryThatWay) {
  std::vector<std::uint8_t> ordinary(4096);
  MemoryDescriptor memory;
  memory.address = reinterpret_cast<std::uint64_t>(ordinary.data());
  memory.length = ordinary.size();
  const Handle registration = owner_.engine->register_memory(memory).value();
  const auto blob = owner_.engine->export_memory(registration).value();
  const Handle range = node_.engine->import_range(peer_, blob, memory.address, 4096).value();
  ASSERT_TRUE(node_.engine->connect_peer(peer_, 0).has_value());
  EXPECT_STREQ(write_into(node_, peer_, {{memory.address, 4096, range}}).route, "cma");
  EXPECT_STREQ(
      write_into(node_, peer_, {{owner_.address(), 4096, range_}, {memory.address, 4096, range}})
          .route,
      "cma");
  EXPECT_EQ(std::memcmp(ordinary.data(), node_.buffer.data() + 4096, 4096), 0);
  ASSERT_TRUE(owner_.engine->deregister_memory(registration).has_value());
}

/// Memory that is partly shared and partly not is ordinary memory.
TEST_F(SharedNeighbors, NeedTheWholeRegistrationInOneAllocation) {
  const auto other = allocate_shm_memory(4096).value();
  const std::uint64_t first =
      std::min(owner_.address(), reinterpret_cast<std::uint64_t>(other.data()));
  const std::uint64_t last =
      std::max(owner_.address(), reinterpret_cast<std::uint64_t>(other.data()));
  MemoryDescriptor memory;
  memory.address = first;
  memory.length = last - first + 4096;
  const Handle registration = owner_.engine->register_memory(memory).value();
  const auto blob = owner_.engine->export_memory(registration).value();
  const Handle range = node_.engine->import_range(peer_, blob, memory.address, 4096).value();
  ASSERT_TRUE(node_.engine->connect_peer(peer_, 0).has_value());
  EXPECT_STREQ(write_into(node_, peer_, {{memory.address, 4096, range}}).route, "cma");
}

TEST_F(SharedNeighbors, ReturnEverythingAfterTheDrain) {
  static_cast<void>(write_into(node_, peer_, {{owner_.address(), kSlice, range_}}));
  ASSERT_TRUE(node_.engine->release_range(range_).has_value());
  EXPECT_EQ(owner_.engine->deregister_memory(owner_.registration).value(),
            RegistrationState::kRetired);
  EXPECT_TRUE(owner_.shared->end_if_unused());
  const nlohmann::json left = owner_.info();
  EXPECT_EQ(left["registrations"]["loans"], 0);
  EXPECT_EQ(left["lends"]["held"], 0);
  EXPECT_EQ(nlohmann::json::parse(node_.engine->info_json())["slices_out"], 0);
}

/// The pages stay as long as a registration of them does, whatever becomes of the object.
TEST_F(SharedNeighbors, OutliveTheObjectThatTheyCameFrom) {
  owner_.shared.reset();
  const Outcome outcome = write_into(node_, peer_, {{owner_.address(), kSlice, range_}});
  EXPECT_STREQ(outcome.route, "shm");
  EXPECT_EQ(std::memcmp(owner_.bytes.data(), node_.buffer.data(), kSlice), 0);
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
  // Where its end was seen before the post it went by TCP, whose socket may have taken the bytes.
  if (std::string_view(outcome.route) == "cma") {
    EXPECT_EQ(outcome.effect, RemoteEffect::kNone);
  }
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
  void begin(const Owner& owner) const {
    const std::uint64_t address = owner.address();
    const char* const route = owner.shared.has_value() ? "shm" : "cma";
    tell(sockets_[0], owner.engine->connection_blob());
    tell(sockets_[0], owner.blob);
    ASSERT_EQ(write(sockets_[0], &address, sizeof(address)), 8);
    ASSERT_EQ(write(sockets_[0], route, 4), 4);
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
    const std::vector<std::uint8_t> route = hear(fd);
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
      if (!posted || std::memcmp(posted->route, route.data(), 4) != 0) {
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

/// The memory is the owner's again, who uses it: a copy that still goes on, from its start to its
/// end, meets what is written from the end to the start.
void use_again(const Owner& owner) {
  for (std::size_t end = owner.bytes.size(); end > 0; end -= 4096) {
    std::memset(owner.bytes.data() + end - 4096, 0xEE, 4096);
  }
}

void expect_untouched_since(const Owner& owner) {
  EXPECT_TRUE(std::all_of(owner.bytes.begin(), owner.bytes.end(), [](std::uint8_t byte) {
    return byte == 0xEE;
  })) << "written after its retirement";
}

/// Of ordinary memory, and of shared.
class NeighborDeath : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Memory, NeighborDeath, ::testing::Bool(), [](const auto& chosen) {
  return chosen.param ? std::string("Shared") : std::string("Ordinary");
});

/// A borrower that is killed while it copies does not keep the owner from deregistering, and what
/// the owner has retired is not written afterwards.
TEST_P(NeighborDeath, FreesWhatTheBorrowerWasInside) {
  for (int round = 0; round < test::repeats(50); ++round) {
    BorrowerProcess borrower;
    Owner owner("owner", GetParam());
    borrower.begin(owner);
    // By turns: fenced before it is killed, and after.
    if (round % 2 == 0) {
      ASSERT_TRUE(owner.engine->deregister_memory(owner.registration).has_value());
      borrower.begin_kill();
    } else {
      borrower.begin_kill();
      ASSERT_TRUE(owner.engine->deregister_memory(owner.registration).has_value());
    }
    ASSERT_TRUE(eventually([&] { return owner.is_retired(); }));
    use_again(owner);
    borrower.kill();
    expect_untouched_since(owner);
    ASSERT_TRUE(eventually([&] { return owner.info()["lends"]["borrowers"] == 0; }));
    EXPECT_EQ(owner.engine->close(base::kSecond).phase, ClosePhase::kClosed);
  }
}

/// An owner that deregisters while a living borrower copies never sees a late write.
TEST_P(NeighborDeath, IsNotNeededForALateWriteNeverToCome) {
  for (int round = 0; round < test::repeats(50); ++round) {
    BorrowerProcess borrower;
    Owner owner("owner", GetParam());
    borrower.begin(owner);
    ASSERT_TRUE(owner.engine->deregister_memory(owner.registration).has_value());
    ASSERT_TRUE(eventually([&] { return owner.is_retired(); }));
    use_again(owner);
    // Its next post tells it that it may not, and it ends.
    borrower.wait_end();
    expect_untouched_since(owner);
  }
}

/// One that stands still inside a copy keeps that registration until it is dead, and nobody waits
/// for it.
TEST_P(NeighborDeath, AStoppedBorrowerKeepsOnlyWhatItIsInside) {
  for (int round = 0; round < test::repeats(20); ++round) {
    BorrowerProcess borrower;
    Owner owner("owner", GetParam());
    borrower.begin(owner);
    borrower.stop();
    const auto state = owner.engine->deregister_memory(owner.registration);
    ASSERT_TRUE(state.has_value());
    if (*state == RegistrationState::kFenced) {
      EXPECT_EQ(owner.info()["lends"]["held"], 1);
      EXPECT_FALSE(owner.is_retired());
    }
    borrower.kill();
    ASSERT_TRUE(eventually([&] { return owner.is_retired(); }));
    use_again(owner);
    expect_untouched_since(owner);
  }
}

}  // namespace
}  // namespace orbite
