// SPDX-License-Identifier: Apache-2.0
// The link between engines of one host, both ends of it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <vector>

#include "unit/peer/link_rig.hpp"

namespace orbite::peer {
namespace {

using platform::Neighbors;
using test::kTimeout;
using test::Links;
using State = BorrowLink::State;

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

}  // namespace
}  // namespace orbite::peer
