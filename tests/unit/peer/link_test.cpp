// SPDX-License-Identifier: Apache-2.0
// The link between engines of one host, both ends of it, and either end against one that lies.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "memory/registry.hpp"
#include "peer/borrow_link.hpp"
#include "peer/lender.hpp"
#include "platform/system.hpp"
#include "platform/system_neighbors.hpp"
#include "wire/record.hpp"

namespace orbite::peer {
namespace {

using platform::IoResult;
using platform::Neighbors;
using State = BorrowLink::State;

constexpr base::Nanoseconds kTimeout = 5 * base::kSecond;
constexpr std::uint64_t kHandshakesMax = 4;
constexpr std::uint64_t kRegistrationsMax = 64;

/// The system's, which may have no descriptor for the files of one message.
class ShortOfDescriptors final : public Neighbors {
 public:
  using Socket = platform::Socket;

  bool loses_next = false;

  Result<Socket> listen(std::string_view name) override { return system_.listen(name); }
  Result<Socket> accept(Socket listener) override { return system_.accept(listener); }
  Result<Socket> connect(std::string_view name) override { return system_.connect(name); }
  Result<std::unique_ptr<platform::Process>> process_of(Socket socket) override {
    return system_.process_of(socket);
  }
  IoResult send(Socket socket, std::span<const std::uint8_t> message, const Files& files) override {
    return system_.send(socket, message, files);
  }
  IoResult receive(Socket socket, std::span<std::uint8_t> buffer, Files& files) override {
    const IoResult got = system_.receive(socket, buffer, files);
    if (got.kind != IoResult::Kind::kBytes || files.empty() || !std::exchange(loses_next, false)) {
      return got;
    }
    files.clear();
    return {IoResult::Kind::kFailed, 0, EMFILE};
  }
  Result<std::shared_ptr<const platform::PageFile>> make_pages(std::string_view name,
                                                               std::uint64_t bytes,
                                                               PageOptions options) override {
    return system_.make_pages(name, bytes, options);
  }
  Result<std::unique_ptr<platform::PageMapping>> map(const platform::PageFile& file,
                                                     PageAccess access,
                                                     AfterFork after_fork) override {
    return system_.map(file, access, after_fork);
  }
  Result<void> forbid_writes(const platform::PageFile& file) override {
    return system_.forbid_writes(file);
  }

 private:
  platform::SystemNeighbors system_;
};

/// What all ends of a test have in common.
struct Host {
  platform::SystemNetwork network;
  ShortOfDescriptors neighbors;
  base::ManualClock clock;
  base::SeededRandom random{1};
  base::ThreadWaiter waiter;
};

/// An engine as far as its links go. One thread is its worker and its caller.
class Node {
  Host& host_;  // goes last: what is below uses it
  platform::Socket poller_;

 public:
  Node(Host& host, const std::string& name)
      : host_(host), poller_(host.network.make_poller().value()) {
    // Its name is known to every process of this host.
    platform::SystemRandom().fill(blob.epoch.bytes);
    host.random.fill(blob.secret);
    blob.host.network_namespace = 7;
    LinkEnvironment environment{host.network,
                                host.neighbors,
                                host.clock,
                                host.random,
                                host.waiter,
                                name,
                                blob.epoch,
                                blob.secret,
                                blob.host,
                                poller_,
                                kTimeout,
                                kHandshakesMax,
                                16,
                                kRegistrationsMax,
                                [this](const wire::RegistrationRef& asked) { return share(asked); },
                                [] {}};
    lender = Lender::create(environment).value();
    links = std::make_unique<BorrowLinks>(std::move(environment));
  }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node() {
    links.reset();
    lender.reset();
    host_.network.close(poller_);
  }

  /// Whatever its worker has to do now.
  void turn() {
    std::array<platform::PollEvent, 16> events;
    const std::size_t count = host_.network.poller_wait(poller_, events, 0);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t kind = events[i].token & kTokenKinds;
      if (kind == kTokenLink || kind == kTokenLinkProcess) {
        links->on_event(events[i].token);
      } else {
        lender->on_event(events[i].token);
      }
    }
    static_cast<void>(lender->on_tick(host_.clock.now_ns()));
    static_cast<void>(links->on_tick(host_.clock.now_ns()));
  }

  Handle add() {
    MemoryDescriptor memory;
    memory.address = reinterpret_cast<std::uint64_t>(bytes.data());
    memory.length = bytes.size();
    const Handle handle = registry.add(memory).value();
    EXPECT_TRUE(lender->reserve().has_value());
    lender->open(handle);
    return handle;
  }
  RegistrationState deregister(Handle handle) {
    const auto registration = registry.find(handle).value();
    lender->close(
        registry.borrow(registration, memory::Direction::kRead, memory::Borrower::kLocal).value());
    return registry.deregister(handle).value();
  }

  wire::ConnectionBlob blob;
  std::vector<std::uint8_t> bytes = std::vector<std::uint8_t>(4096);
  memory::Registry registry{{.registrations_max = kRegistrationsMax}, host_.random};
  std::function<Result<SharedRange>(const wire::RegistrationRef&)> share =
      [](const wire::RegistrationRef&) -> Result<SharedRange> {
    return fail(ErrorCode::kUnsupported, "ordinary memory");
  };
  std::unique_ptr<Lender> lender;
  std::unique_ptr<BorrowLinks> links;
};

class Links : public ::testing::Test {
 protected:
  /// Turns of both until it is so; local sockets need few.
  template <typename Condition>
  bool until(Condition condition) {
    for (int i = 0; i < 1'000; ++i) {
      if (condition()) {
        return true;
      }
      owner_.turn();
      borrower_.turn();
    }
    return false;
  }
  std::shared_ptr<BorrowLink> connect() {
    auto link = borrower_.links->want(owner_.blob).value();
    EXPECT_TRUE(until([&] { return link->ready(); }));
    return link;
  }
  /// As the owner describes a registration.
  [[nodiscard]] std::shared_ptr<RemoteRange> range_of(std::uint32_t index) const {
    wire::RangeBlob blob;
    blob.index = index;
    blob.generation = 1;
    blob.address = 0x10000;
    blob.length = 1024;
    return std::make_shared<RemoteRange>(std::make_shared<Peer>("owner", owner_.blob, false), blob,
                                         base::ByteRange::make(blob.address, blob.length).value());
  }

  Host host_;
  Node owner_{host_, "owner"};
  Node borrower_{host_, "borrower"};
};

TEST_F(Links, AreReadyWhenBothHaveProvedThemselves) {
  const auto link = connect();
  EXPECT_EQ(owner_.lender->borrowers(), 1U);
  ASSERT_NE(link->process(), nullptr);
  EXPECT_EQ(link->process()->number(), ::getpid());
  EXPECT_EQ(borrower_.links->want(owner_.blob).value(), link) << "the same one while it lives";
}

TEST_F(Links, LetTheBorrowerInToWhatIsRegisteredOnly) {
  const auto link = connect();
  const Handle handle = owner_.add();
  {
    const auto stay = link->seats().enter({&handle, 1});
    ASSERT_TRUE(stay.has_value());
    EXPECT_EQ(owner_.deregister(handle), RegistrationState::kFenced);
    EXPECT_EQ(owner_.lender->held(), 1U);
  }
  owner_.turn();
  EXPECT_EQ(owner_.registry.state(handle).value(), RegistrationState::kRetired);
  EXPECT_EQ(link->seats().enter({&handle, 1}).error().code(), ErrorCode::kRegistrationFenced);
}

TEST_F(Links, EndWithTheBorrowersLastHold) {
  auto link = connect();
  const Handle handle = owner_.add();
  EXPECT_TRUE(link->seats().enter({&handle, 1}).has_value());
  link.reset();
  host_.clock.advance(2 * base::kSecond);
  EXPECT_TRUE(until([&] { return owner_.lender->borrowers() == 0; }));
}

TEST_F(Links, AreRefusedToWhoDoesNotKnowTheSecret) {
  wire::ConnectionBlob guessed = owner_.blob;
  guessed.secret[5] ^= 1;
  const auto link = borrower_.links->want(guessed).value();
  ASSERT_TRUE(until([&] { return link->state() == State::kRefused; }));
  EXPECT_EQ(link->refusal().code(), ErrorCode::kHandshakeRejected);
  EXPECT_EQ(owner_.lender->borrowers(), 0U);
}

TEST_F(Links, AreOfOneHost) {
  wire::ConnectionBlob elsewhere = owner_.blob;
  elsewhere.host.network_namespace = 8;
  EXPECT_EQ(borrower_.links->want(elsewhere).error().code(), ErrorCode::kUnsupported);
}

TEST_F(Links, ToNobodyAreRefusedAndTriedAgainWhenTheyAreWantedAgain) {
  wire::ConnectionBlob nobody = owner_.blob;
  nobody.epoch.bytes[0] ^= 1;
  const auto link = borrower_.links->want(nobody).value();
  ASSERT_TRUE(until([&] { return link->state() == State::kRefused; }));
  EXPECT_EQ(link->refusal().code(), ErrorCode::kPeerUnreachable);
  const platform::Socket late = host_.neighbors.listen(link_name(nobody.epoch)).value();
  EXPECT_EQ(borrower_.links->want(nobody).value(), link);
  ASSERT_TRUE(until([&] { return link->state() == State::kConnecting; }));
  // Who never answers.
  host_.clock.advance(kTimeout + 1);
  ASSERT_TRUE(until([&] { return link->state() == State::kRefused; }));
  EXPECT_EQ(link->refusal().code(), ErrorCode::kPeerSilent);
  host_.network.close(late);
}

/// Both ends of it are seen in one look where the owner is killed.
TEST_F(Links, EndOnceForTwoReasonsAtATime) {
  const auto link = connect();
  const platform::Process* const process = link->process();
  ASSERT_NE(process, nullptr);
  constexpr std::uint64_t kFirst = 1;
  borrower_.links->on_event(kTokenLinkProcess | kFirst);
  EXPECT_EQ(link->state(), State::kEnded);
  borrower_.links->on_event(kTokenLinkProcess | kFirst);
  borrower_.links->on_event(kTokenLink | kFirst);
  EXPECT_EQ(link->state(), State::kEnded) << "never to be tried again: copies may be under way";
  EXPECT_EQ(link->process(), process) << "a copy may use it";
}

TEST_F(Links, ThatWereRefusedAreTriedAgainWhoeverWaitsForThem) {
  const auto link = borrower_.links->want(owner_.blob).value();
  borrower_.turn();
  host_.clock.advance(kTimeout + 1);
  borrower_.turn();
  ASSERT_EQ(link->state(), State::kRefused);
  borrower_.links->connect(*link, 1);
  EXPECT_TRUE(until([&] { return link->ready(); }));
}

TEST_F(Links, FetchWhatWasWantedBeforeTheyWereRefused) {
  const auto file = host_.neighbors.make_pages("test", 8192, {}).value();
  owner_.share = [&](const wire::RegistrationRef&) -> Result<SharedRange> {
    return SharedRange{file, 5, 0};
  };
  const auto link = borrower_.links->want(owner_.blob).value();
  const auto early = range_of(1);
  borrower_.links->fetch(*link, early);
  borrower_.turn();
  host_.clock.advance(kTimeout + 1);
  borrower_.turn();
  ASSERT_EQ(link->state(), State::kRefused);
  const auto late = range_of(2);
  borrower_.links->fetch(*link, late);
  static_cast<void>(connect());
  EXPECT_TRUE(until([&] { return early->mapped_at() != 0 && late->mapped_at() != 0; }));
}

TEST_F(Links, AnAnswerWithoutADescriptorForItsPagesIsLostAndNothingElse) {
  const auto file = host_.neighbors.make_pages("test", 8192, {}).value();
  owner_.share = [&](const wire::RegistrationRef&) -> Result<SharedRange> {
    return SharedRange{file, 5, 0};
  };
  const auto link = connect();
  const auto lost = range_of(1);
  borrower_.links->fetch(*link, lost);
  borrower_.turn();
  owner_.turn();
  host_.neighbors.loses_next = true;
  borrower_.turn();
  EXPECT_FALSE(host_.neighbors.loses_next);
  EXPECT_TRUE(link->ready());
  const auto next = range_of(2);
  borrower_.links->fetch(*link, next);
  EXPECT_TRUE(until([&] { return next->mapped_at() != 0; }));
  EXPECT_EQ(lost->mapped_at(), 0U);
}

TEST_F(Links, HaveAWordForNothingThatIsRegisteredBehindAClose) {
  const auto link = connect();
  owner_.lender->close_all(owner_.registry);
  const Handle late = owner_.add();
  EXPECT_FALSE(link->seats().enter({&late, 1}).has_value());
  owner_.registry.fence_all();
}

TEST_F(Links, SharedAllocationsAreMappedOnceForAllTheirRanges) {
  const auto file = host_.neighbors.make_pages("test", 8192, {}).value();
  const auto ours =
      host_.neighbors.map(*file, Neighbors::PageAccess::kReadWrite, Neighbors::AfterFork::kAbsent)
          .value();
  owner_.share = [&](const wire::RegistrationRef& asked) -> Result<SharedRange> {
    if (asked.index == 3) {
      return fail(ErrorCode::kUnsupported, "ordinary memory");
    }
    return SharedRange{file, 5, asked.index * std::uint64_t{1024}};
  };
  const auto link = connect();
  const auto peer = std::make_shared<Peer>("owner", owner_.blob, false);
  std::vector<std::shared_ptr<RemoteRange>> ranges;
  for (std::uint32_t index = 0; index < 40; ++index) {
    wire::RangeBlob blob;
    blob.index = index % 8;
    blob.generation = 1;
    blob.address = 0x10000 + index;
    blob.length = 1024;
    ranges.push_back(std::make_shared<RemoteRange>(
        peer, blob, base::ByteRange::make(blob.address, blob.length).value()));
    borrower_.links->fetch(*link, ranges.back());
  }
  ASSERT_TRUE(until([&] { return ranges.back()->mapped_at() != 0; }));
  const std::uint64_t first = ranges[0]->mapped_at();
  for (std::uint32_t index = 0; index < 40; ++index) {
    const std::uint64_t expected = index % 8 == 3 ? 0 : first + index % 8 * 1024;
    EXPECT_EQ(ranges[index]->mapped_at(), expected) << index;
  }
  std::memset(ours->pages().data() + 1024, 0x3C, 1024);
  EXPECT_EQ(*reinterpret_cast<const std::uint8_t*>(ranges[1]->mapped_at()), 0x3C);
}

TEST_F(Links, AnAllocationThatIsTooShortIsNotReached) {
  const auto file = host_.neighbors.make_pages("test", 4096, {}).value();
  owner_.share = [&](const wire::RegistrationRef& asked) -> Result<SharedRange> {
    return SharedRange{file, 1, asked.index == 0 ? 4096 - 1023 : UINT64_MAX};
  };
  const auto link = connect();
  const auto peer = std::make_shared<Peer>("owner", owner_.blob, false);
  for (std::uint32_t index = 0; index < 2; ++index) {
    wire::RangeBlob blob;
    blob.index = index;
    blob.generation = 1;
    blob.address = 0x10000;
    blob.length = 1024;
    const auto range = std::make_shared<RemoteRange>(
        peer, blob, base::ByteRange::make(blob.address, blob.length).value());
    borrower_.links->fetch(*link, range);
    for (int i = 0; i < 50; ++i) {
      owner_.turn();
      borrower_.turn();
    }
    EXPECT_EQ(range->mapped_at(), 0U);
  }
  EXPECT_TRUE(link->ready());
}

// ---- A borrower that lies

/// The client's side of a handshake, by hand.
class RawBorrower : public Links {
 protected:
  void SetUp() override {
    socket_ = host_.neighbors.connect(link_name(owner_.blob.epoch)).value();
    hello_.client_epoch = borrower_.blob.epoch;
    hello_.expected_epoch = owner_.blob.epoch;
    hello_.host = owner_.blob.host;
    hello_.lane_class = static_cast<std::uint8_t>(wire::LaneClass::kLink);
  }
  void TearDown() override { host_.network.close(socket_); }

  template <typename Record>
  void send(const Record& record) {
    EXPECT_EQ(host_.neighbors.send(socket_, wire::bytes_of(record), {}).kind,
              IoResult::Kind::kBytes);
  }
  /// The next message, or how it ended.
  IoResult receive(Neighbors::Files& files) {
    IoResult got;
    EXPECT_TRUE(until([&] {
      got = host_.neighbors.receive(socket_, received_, files);
      return got.kind != IoResult::Kind::kWouldBlock;
    }));
    return got;
  }
  bool is_ended() {
    Neighbors::Files files;
    IoResult got;
    do {
      got = receive(files);
    } while (got.kind == IoResult::Kind::kBytes);
    return got.kind != IoResult::Kind::kWouldBlock;
  }
  /// As far as the welcome.
  void be_let_in() {
    send(hello_);
    Neighbors::Files files;
    ASSERT_EQ(receive(files).kind, IoResult::Kind::kBytes);
    wire::ServerHello answer;
    std::memcpy(static_cast<void*>(&answer), received_.data(), sizeof(answer));
    ASSERT_EQ(answer.status, 0);
    wire::ClientProof proof;
    wire::sign_client(owner_.blob.secret, hello_, answer, proof);
    send(proof);
    ASSERT_EQ(receive(files_).kind, IoResult::Kind::kBytes);
    ASSERT_EQ(files_.size(), 2U);
  }

  platform::Socket socket_ = platform::kNoSocket;
  wire::ClientHello hello_;
  std::array<std::uint8_t, 512> received_{};
  Neighbors::Files files_;
};

TEST_F(RawBorrower, IsEndedForWhatIsNoHello) {
  hello_.lane_class = static_cast<std::uint8_t>(wire::LaneClass::kBulk);
  send(hello_);
  EXPECT_TRUE(is_ended());
}

TEST_F(RawBorrower, IsEndedForAMessageOfAnotherSize) {
  const std::array<std::uint8_t, 7> bytes{};
  EXPECT_EQ(host_.neighbors.send(socket_, bytes, {}).kind, IoResult::Kind::kBytes);
  EXPECT_TRUE(is_ended());
}

TEST_F(RawBorrower, IsEndedForAProofThatIsNone) {
  send(hello_);
  Neighbors::Files files;
  ASSERT_EQ(receive(files).kind, IoResult::Kind::kBytes);
  send(wire::ClientProof());
  EXPECT_TRUE(is_ended());
  EXPECT_EQ(owner_.lender->borrowers(), 0U);
}

TEST_F(RawBorrower, IsToldWhyItIsRefused) {
  hello_.expected_epoch.bytes[3] ^= 1;
  send(hello_);
  Neighbors::Files files;
  ASSERT_EQ(receive(files).kind, IoResult::Kind::kBytes);
  wire::ServerHello answer;
  std::memcpy(static_cast<void*>(&answer), received_.data(), sizeof(answer));
  EXPECT_EQ(answer.status, static_cast<std::uint16_t>(ErrorCode::kPeerEpochChanged));
  EXPECT_TRUE(is_ended());
}

TEST_F(RawBorrower, ThatSaysNothingIsEndedInTime) {
  owner_.turn();
  host_.clock.advance(kTimeout + 1);
  EXPECT_TRUE(is_ended());
}

TEST_F(RawBorrower, StrangersKeepNoNeighbourOut) {
  std::vector<platform::Socket> strangers;
  for (std::uint64_t i = 0; i < 3 * kHandshakesMax; ++i) {
    strangers.push_back(host_.neighbors.connect(link_name(owner_.blob.epoch)).value());
    owner_.turn();
  }
  static_cast<void>(connect());
  for (const platform::Socket stranger : strangers) {
    host_.network.close(stranger);
  }
}

TEST_F(RawBorrower, MakesNoRoomForNobody) {
  std::vector<platform::Socket> all{socket_};
  while (all.size() < kHandshakesMax) {
    all.push_back(host_.neighbors.connect(link_name(owner_.blob.epoch)).value());
  }
  owner_.turn();
  Neighbors::Files files;
  for (const platform::Socket one : all) {
    EXPECT_EQ(host_.neighbors.receive(one, received_, files).kind, IoResult::Kind::kWouldBlock);
  }
  for (const platform::Socket one : std::span(all).subspan(1)) {
    host_.network.close(one);
  }
}

/// Its connection is no end of what it does: only the end of it is.
TEST_F(RawBorrower, ThatBreaksTheRulesStaysInTheLedger) {
  be_let_in();
  const Handle handle = owner_.add();
  const auto words =
      host_.neighbors.map(*files_[0], Neighbors::PageAccess::kRead, Neighbors::AfterFork::kAbsent)
          .value();
  const auto seat_pages =
      host_.neighbors
          .map(*files_[1], Neighbors::PageAccess::kReadWrite, Neighbors::AfterFork::kAbsent)
          .value();
  auto& seat = *reinterpret_cast<borrowing::Seat*>(seat_pages->pages().data());
  const std::span directory(reinterpret_cast<const borrowing::DirectoryWord*>(
                                words->pages().data() + sizeof(borrowing::DirectoryHead)),
                            kRegistrationsMax);
  ASSERT_TRUE(borrowing::enter<borrowing::DirectAccess>(directory, seat, {&handle, 1}));
  send(wire::ClientProof());  // out of turn
  send(wire::LinkFetch());
  EXPECT_EQ(owner_.deregister(handle), RegistrationState::kFenced);
  for (int i = 0; i < 20; ++i) {
    owner_.turn();
  }
  EXPECT_EQ(owner_.lender->held(), 1U);
  EXPECT_EQ(owner_.registry.state(handle).value(), RegistrationState::kFenced);
  host_.network.close(std::exchange(socket_, platform::kNoSocket));
  EXPECT_TRUE(until([&] { return owner_.lender->held() == 0; }));
  EXPECT_EQ(owner_.registry.state(handle).value(), RegistrationState::kRetired);
  socket_ = host_.neighbors.connect(link_name(owner_.blob.epoch)).value();
}

TEST_F(RawBorrower, CannotWriteTheDirectory) {
  be_let_in();
  EXPECT_EQ(host_.neighbors
                .map(*files_[0], Neighbors::PageAccess::kReadWrite, Neighbors::AfterFork::kAbsent)
                .error()
                .code(),
            ErrorCode::kNotAllowed);
}

TEST_F(RawBorrower, MayAskForMoreThanItListensTo) {
  be_let_in();
  wire::LinkFetch fetch;
  fetch.registration.generation = 1;
  int asked = 0;
  while (asked < 100'000 &&
         host_.neighbors.send(socket_, wire::bytes_of(fetch), {}).kind == IoResult::Kind::kBytes) {
    ++asked;
    owner_.turn();
  }
  // It is not answered any more, and others are.
  static_cast<void>(connect());
}

// ---- An owner that lies

class RawOwner : public Links {
 protected:
  void SetUp() override {
    blob_ = owner_.blob;
    platform::SystemRandom().fill(blob_.epoch.bytes);
    listener_ = host_.neighbors.listen(link_name(blob_.epoch)).value();
    link_ = borrower_.links->want(blob_).value();
    borrower_.turn();
    socket_ = host_.neighbors.accept(listener_).value();
    std::array<std::uint8_t, 512> received{};
    Neighbors::Files files;
    ASSERT_EQ(host_.neighbors.receive(socket_, received, files).bytes, sizeof(hello_));
    std::memcpy(static_cast<void*>(&hello_), received.data(), sizeof(hello_));
  }
  void TearDown() override {
    host_.network.close(socket_);
    host_.network.close(listener_);
  }

  template <typename Record>
  void send(const Record& record, const Neighbors::Files& files = {}) {
    EXPECT_EQ(host_.neighbors.send(socket_, wire::bytes_of(record), files).kind,
              IoResult::Kind::kBytes);
  }
  void greet() {
    wire::ServerHello answer;
    answer.server_epoch = blob_.epoch;
    wire::sign_server(blob_.secret, hello_, answer);
    send(answer);
  }
  [[nodiscard]] std::shared_ptr<const platform::PageFile> pages(std::uint64_t bytes) {
    return host_.neighbors.make_pages("test", bytes, {}).value();
  }
  [[nodiscard]] static wire::LinkWelcome welcome() {
    wire::LinkWelcome record;
    record.seats = 64;
    record.directory_words = 16;
    record.probe_address = 4096;
    return record;
  }
  void expect_refused() {
    EXPECT_TRUE(until([&] { return link_->state() == State::kRefused; }));
    EXPECT_NE(link_->refusal().code(), ErrorCode::kOk);
    EXPECT_FALSE(link_->ready());
  }

  wire::ConnectionBlob blob_;
  platform::Socket listener_ = platform::kNoSocket;
  platform::Socket socket_ = platform::kNoSocket;
  wire::ClientHello hello_;
  std::shared_ptr<BorrowLink> link_;
};

TEST_F(RawOwner, WithoutTheSecretIsRefused) {
  wire::ServerHello answer;
  answer.server_epoch = blob_.epoch;
  send(answer);
  expect_refused();
}

TEST_F(RawOwner, ThatEndsIsRefused) {
  greet();
  host_.network.close(std::exchange(socket_, platform::kNoSocket));
  expect_refused();
  socket_ = host_.neighbors.connect(link_name(blob_.epoch)).value();
}

TEST_F(RawOwner, WithFilesThatAreNotWhatItSaysIsRefused) {
  greet();
  wire::LinkWelcome record = welcome();
  record.directory_words = 100'000;
  send(record, {pages(4096), pages(4096)});
  expect_refused();
}

TEST_F(RawOwner, WithoutFilesIsRefused) {
  greet();
  send(welcome());
  expect_refused();
}

TEST_F(RawOwner, WithoutSeatsIsRefused) {
  greet();
  wire::LinkWelcome record = welcome();
  record.seats = 0;
  send(record, {pages(4096), pages(4096)});
  expect_refused();
}

/// Shared pages can be had of it; its ordinary memory is not where it says.
TEST_F(RawOwner, ThatLiesAboutItsMemoryIsNotReachedThere) {
  greet();
  std::array<std::uint8_t, 16> other{1};
  wire::LinkWelcome record = welcome();
  record.probe_address = reinterpret_cast<std::uint64_t>(other.data());
  send(record, {pages(4096), pages(4096)});
  ASSERT_TRUE(until([&] { return link_->ready(); }));
  EXPECT_EQ(link_->process(), nullptr);
  EXPECT_EQ(link_->process_refusal()->code(), ErrorCode::kProtocolViolation);
}

TEST_F(RawOwner, ThatAnswersWhatNobodyAskedIsEnded) {
  greet();
  send(welcome(), {pages(4096), pages(4096)});
  ASSERT_TRUE(until([&] { return link_->ready(); }));
  send(wire::LinkAllocation(), {pages(4096)});
  EXPECT_TRUE(until([&] { return link_->state() == State::kEnded; }));
}

/// It takes the end of the connection for the end of our copies.
TEST_F(RawOwner, IsLeftOnlyWhenNobodyCopiesAnyMore) {
  greet();
  send(welcome(), {pages(4096), pages(4096)});
  ASSERT_TRUE(until([&] { return link_->ready(); }));
  send(wire::LinkAllocation(), {pages(4096)});
  ASSERT_TRUE(until([&] { return link_->state() == State::kEnded; }));
  std::array<std::uint8_t, 512> received{};
  Neighbors::Files files;
  ASSERT_EQ(host_.neighbors.receive(socket_, received, files).bytes, sizeof(wire::ClientProof));
  EXPECT_EQ(host_.neighbors.receive(socket_, received, files).kind, IoResult::Kind::kWouldBlock);
  link_.reset();
  host_.clock.advance(2 * base::kSecond);
  EXPECT_TRUE(until([&] {
    return host_.neighbors.receive(socket_, received, files).kind == IoResult::Kind::kEnded;
  }));
}

TEST_F(RawOwner, ThatAnswersAnotherQuestionIsEnded) {
  greet();
  send(welcome(), {pages(4096), pages(4096)});
  ASSERT_TRUE(until([&] { return link_->ready(); }));
  const auto peer = std::make_shared<Peer>("owner", blob_, false);
  wire::RangeBlob blob;
  blob.index = 1;
  blob.generation = 2;
  blob.address = 4096;
  blob.length = 10;
  const auto range =
      std::make_shared<RemoteRange>(peer, blob, base::ByteRange::make(4096, 10).value());
  borrower_.links->fetch(*link_, range);
  borrower_.turn();
  send(wire::LinkAllocation(), {pages(4096)});
  EXPECT_TRUE(until([&] { return link_->state() == State::kEnded; }));
  EXPECT_EQ(range->mapped_at(), 0U);
}

}  // namespace
}  // namespace orbite::peer
