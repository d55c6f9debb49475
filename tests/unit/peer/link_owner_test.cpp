// SPDX-License-Identifier: Apache-2.0
// The borrower's end of a link, against an owner that lies.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "unit/peer/link_rig.hpp"
#include "wire/record.hpp"

namespace orbite::peer {
namespace {

using platform::IoResult;
using platform::Neighbors;
using test::kTimeout;
using test::Links;
using State = BorrowLink::State;

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
  void let_in() {
    greet();
    send(welcome(), {pages(4096), pages(4096)});
    ASSERT_TRUE(until([&] { return link_->ready(); }));
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
  let_in();
  send(wire::LinkAllocation(), {pages(4096)});
  EXPECT_TRUE(until([&] { return link_->state() == State::kEnded; }));
}

/// It takes the end of the connection for the end of our copies.
TEST_F(RawOwner, IsLeftOnlyWhenNobodyCopiesAnyMore) {
  let_in();
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
  let_in();
  const auto range = range_of(1);
  borrower_.links->fetch(*link_, range);
  borrower_.turn();
  send(wire::LinkAllocation(), {pages(4096)});
  EXPECT_TRUE(until([&] { return link_->state() == State::kEnded; }));
  EXPECT_EQ(range->mapped_at(), 0U);
}

/// Whoever connects the peer has waited for it once.
TEST_F(RawOwner, ThatIsSilentIsLeftAloneForAWhileLongerEachTime) {
  host_.clock.advance(kTimeout);
  for (base::Nanoseconds rest_ns = kTimeout; rest_ns <= 4 * kTimeout; rest_ns *= 2) {
    borrower_.turn();
    ASSERT_EQ(link_->state(), State::kRefused);
    EXPECT_EQ(link_->refusal().code(), ErrorCode::kPeerSilent);
    const int before = host_.waiter.ran_out;
    host_.clock.advance(rest_ns - 1);
    borrower_.links->connect(*link_, kTimeout);
    borrower_.links->connect_and_fetch(*link_, kTimeout);
    EXPECT_EQ(host_.waiter.ran_out, before);
    EXPECT_EQ(link_->state(), State::kRefused);
    host_.clock.advance(1);
    borrower_.links->connect(*link_, kTimeout);
    EXPECT_EQ(host_.waiter.ran_out, before + 1);
    EXPECT_EQ(link_->state(), State::kConnecting);
    host_.clock.advance(kTimeout);
  }
}

TEST_F(RawOwner, ThatIsLateWithAnAnswerIsNotWaitedForUntilItAnswers) {
  let_in();
  const std::array ranges{range_of(1), range_of(2), range_of(3)};
  borrower_.links->fetch(*link_, ranges[0]);
  borrower_.links->fetch(*link_, ranges[1]);
  borrower_.links->connect_and_fetch(*link_, kTimeout);
  EXPECT_EQ(host_.waiter.ran_out, 1);
  host_.clock.advance(kTimeout);
  borrower_.links->connect_and_fetch(*link_, kTimeout);
  EXPECT_EQ(host_.waiter.ran_out, 1);
  EXPECT_TRUE(link_->ready());
  // One of the two: the other one has its time from here on.
  wire::LinkAllocation answer;
  answer.registration.index = 1;
  answer.registration.generation = 1;
  send(answer, {pages(4096)});
  EXPECT_TRUE(until([&] { return ranges[0]->mapped_at() != 0; }));
  borrower_.links->connect_and_fetch(*link_, kTimeout);
  EXPECT_EQ(host_.waiter.ran_out, 2);
  host_.clock.advance(kTimeout - 1);
  borrower_.links->connect_and_fetch(*link_, kTimeout);
  EXPECT_EQ(host_.waiter.ran_out, 3);
}

TEST_F(RawOwner, ThatAnswersNothingAnyMoreIsNotAskedAgain) {
  let_in();
  const auto range = range_of(1);
  borrower_.links->fetch(*link_, range);
  borrower_.turn();
  std::array<std::uint8_t, 512> received{};
  Neighbors::Files files;
  ASSERT_EQ(host_.neighbors.receive(socket_, received, files).bytes, sizeof(wire::ClientProof));
  ASSERT_EQ(host_.neighbors.receive(socket_, received, files).bytes, sizeof(wire::LinkFetch));
  wire::LinkAllocation last;
  last.status = static_cast<std::uint16_t>(ErrorCode::kBudgetExhausted);
  send(last);
  borrower_.links->connect_and_fetch(*link_, kTimeout);
  borrower_.links->fetch(*link_, range);
  borrower_.links->connect_and_fetch(*link_, kTimeout);
  EXPECT_EQ(host_.waiter.ran_out, 0);
  EXPECT_EQ(host_.neighbors.receive(socket_, received, files).kind, IoResult::Kind::kWouldBlock);
  EXPECT_TRUE(link_->ready());
}

/// An answer for which there is no memory is lost, but there are no more of these than questions.
TEST_F(RawOwner, WhoseSocketFailsAgainAndAgainIsEnded) {
  let_in();
  const std::array ranges{range_of(1), range_of(2)};
  for (const auto& range : ranges) {
    borrower_.links->fetch(*link_, range);
  }
  borrower_.turn();
  send(wire::LinkAllocation(), {pages(4096)});
  host_.neighbors.fails_with = ENOMEM;
  const int receives = host_.neighbors.receives;
  for (int i = 0; i < 50; ++i) {
    borrower_.turn();
  }
  EXPECT_EQ(link_->state(), State::kEnded);
  EXPECT_EQ(host_.neighbors.receives, receives + 3);
  host_.neighbors.fails_with = 0;
}

}  // namespace
}  // namespace orbite::peer
