// SPDX-License-Identifier: Apache-2.0
// The link between engines of one host, both ends of it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <new>
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
  host_.clock.advance(kTimeout);
  borrower_.links->connect(*link, 1);
  EXPECT_TRUE(link->ready());
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
  host_.clock.advance(kTimeout);
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

/// Who broke the rules, or for whom the owner had no memory, borrows as before, but whoever
/// connects the peer must not wait for answers that never come.
TEST_F(Links, AreNotWaitedForByWhoIsNotAnsweredAnyMore) {
  const auto link = connect();
  owner_.share = [](const wire::RegistrationRef&) -> Result<SharedRange> {
    throw std::bad_alloc();
  };
  const auto range = range_of(1);
  for (int i = 0; i < 2; ++i) {
    borrower_.links->fetch(*link, range);
    borrower_.links->connect_and_fetch(*link, kTimeout);
    EXPECT_EQ(host_.waiter.ran_out, 0);
  }
  EXPECT_TRUE(link->ready());
  EXPECT_EQ(range->mapped_at(), 0U);
  const Handle handle = owner_.add();
  EXPECT_TRUE(link->seats().enter({&handle, 1}).has_value());
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

/// Many links with nothing to do, at both ends.
class ManyLinks : public Links {
 protected:
  static constexpr int kRefused = 1'000;
  static constexpr int kReady = 100;

  ManyLinks() {
    // Each has its own link to the same owner.
    for (wire::ConnectionBlob blob = owner_.blob; blob.port < kReady; ++blob.port) {
      held_.push_back(borrower_.links->want(blob).value());
      EXPECT_TRUE(until([&] { return held_.back()->ready(); }));
    }
    wire::ConnectionBlob nobody = owner_.blob;
    for (int i = 0; i < kRefused; ++i) {
      platform::SystemRandom().fill(nobody.epoch.bytes);
      held_.push_back(borrower_.links->want(nobody).value());
    }
    borrower_.turn();
    EXPECT_EQ(held_.back()->state(), State::kRefused);
  }
  static std::uint64_t looks_of_turn(test::Node& node) {
    const std::uint64_t before = node.links->looks() + node.lender->looks();
    node.turn();
    return node.links->looks() + node.lender->looks() - before;
  }

  std::vector<std::shared_ptr<BorrowLink>> held_;
};

TEST_F(ManyLinks, CostATickNothing) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(looks_of_turn(borrower_), 0U);
    EXPECT_EQ(looks_of_turn(owner_), 0U);
    host_.clock.advance(10 * kTimeout);
  }
}

TEST_F(ManyLinks, CostAnEventALookAtOneOfThem) {
  const auto range = range_of(1);
  borrower_.links->fetch(*held_[kReady / 2], range);
  EXPECT_EQ(looks_of_turn(borrower_), 1U) << "it is asked";
  EXPECT_EQ(looks_of_turn(owner_), 1U) << "it answers";
  EXPECT_EQ(looks_of_turn(borrower_), 1U) << "the answer comes";
  EXPECT_EQ(looks_of_turn(borrower_), 0U);
}

TEST_F(ManyLinks, CostNothingWhileAStrangerIsInItsHandshake) {
  const platform::Socket stranger = host_.neighbors.connect(link_name(owner_.blob.epoch)).value();
  EXPECT_LE(looks_of_turn(owner_), 2U);
  EXPECT_EQ(looks_of_turn(owner_), 1U);
  host_.clock.advance(kTimeout);
  EXPECT_EQ(looks_of_turn(owner_), 1U);
  EXPECT_EQ(looks_of_turn(owner_), 0U);
  host_.network.close(stranger);
}

TEST_F(ManyLinks, ALinkThatIsLetGoOfCostsALookAtIt) {
  held_.erase(held_.begin());
  EXPECT_EQ(looks_of_turn(borrower_), 1U);
  EXPECT_TRUE(until([&] { return owner_.lender->borrowers() == kReady - 1; }));
  EXPECT_EQ(looks_of_turn(borrower_), 0U);
}

/// Its last holder may be another thread than the worker, which is about to drop it.
TEST_F(Links, ThatAreWantedAgainAfterTheirLastHoldAreTheSame) {
  auto link = connect();
  const BorrowLink* const first = link.get();
  link.reset();
  link = borrower_.links->want(owner_.blob).value();
  EXPECT_EQ(link.get(), first);
  borrower_.turn();
  EXPECT_TRUE(link->ready());
  EXPECT_EQ(owner_.lender->borrowers(), 1U);
}

TEST_F(Links, MayBeHeldForLongerThanTheirEngineLives) {
  const auto link = connect();
  auto late = borrower_.links->want(owner_.blob).value();
  borrower_.links.reset();
  EXPECT_EQ(link->state(), State::kEnded);
  late.reset();
  owner_.turn();
  EXPECT_EQ(owner_.lender->borrowers(), 0U);
}

}  // namespace
}  // namespace orbite::peer
