// SPDX-License-Identifier: Apache-2.0
// The owner's end of a link, against a borrower that lies.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "unit/peer/link_rig.hpp"
#include "wire/record.hpp"

namespace orbite::peer {
namespace {

using platform::IoResult;
using platform::Neighbors;
using test::kHandshakesMax;
using test::kRegistrationsMax;
using test::kTimeout;
using test::Links;

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
  host_.clock.advance(base::kSecond);
  EXPECT_TRUE(until([&] { return owner_.lender->held() == 0; }));
  EXPECT_EQ(owner_.registry.state(handle).value(), RegistrationState::kRetired);
  socket_ = host_.neighbors.connect(link_name(owner_.blob.epoch)).value();
}

TEST_F(RawBorrower, ThatBreaksTheRulesIsToldThatNothingIsAnsweredAnyMore) {
  be_let_in();
  send(wire::ClientProof());  // out of turn
  Neighbors::Files files;
  ASSERT_EQ(receive(files).bytes, sizeof(wire::LinkAllocation));
  wire::LinkAllocation last;
  std::memcpy(static_cast<void*>(&last), received_.data(), sizeof(last));
  EXPECT_TRUE(wire::check_link_allocation(last).has_value());
  EXPECT_EQ(last.status, static_cast<std::uint16_t>(ErrorCode::kProtocolViolation));
  EXPECT_EQ(last.registration.generation, 0U);
  send(wire::LinkFetch());
  for (int i = 0; i < 20; ++i) {
    owner_.turn();
  }
  EXPECT_EQ(host_.neighbors.receive(socket_, received_, files).kind, IoResult::Kind::kWouldBlock);
}

/// Its end is the only thing that still counts, and is looked for once a second.
TEST_F(RawBorrower, ThatWasMutedCostsNoTurnAnything) {
  be_let_in();
  host_.neighbors.fails_with = EIO;  // what it sends stays readable
  send(wire::LinkFetch());
  owner_.turn();
  const int events = owner_.events_seen;
  const int receives = host_.neighbors.receives;
  for (int i = 0; i < 50; ++i) {
    send(wire::LinkFetch());
    owner_.turn();
  }
  EXPECT_EQ(owner_.events_seen, events);
  EXPECT_EQ(host_.neighbors.receives, receives);
  host_.neighbors.fails_with = 0;
  host_.network.close(std::exchange(socket_, platform::kNoSocket));
  owner_.turn();
  EXPECT_EQ(owner_.events_seen, events);
  EXPECT_EQ(owner_.lender->borrowers(), 1U);
  host_.clock.advance(base::kSecond);
  owner_.turn();
  EXPECT_EQ(owner_.lender->borrowers(), 0U);
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

}  // namespace
}  // namespace orbite::peer
