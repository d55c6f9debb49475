// SPDX-License-Identifier: Apache-2.0
// What becomes of a shared range that was imported, whenever that was.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "base/at_exit.hpp"
#include "unit/peer/link_rig.hpp"

namespace orbite::peer {
namespace {

using test::kTimeout;
using test::Links;
using State = BorrowLink::State;

/// At every question of either worker to the system it is looked at who waits for what.
class Fetches : public Links {
 protected:
  Fetches() {
    // Each registration lies in an allocation of its own, which has to be mapped.
    owner_.share = [this](const wire::RegistrationRef& asked) -> Result<SharedRange> {
      return SharedRange{file_, asked.index + std::uint64_t{1}, 0};
    };
    host_.neighbors.at_each_step = [this] { look(); };
  }
  ~Fetches() override { host_.neighbors.at_each_step = nullptr; }

  void import_by(const std::shared_ptr<BorrowLink>& link) {
    imported_.push_back({link, range_of(next_index_++)});
    borrower_.links->fetch(*link, imported_.back().range);
    look();
  }
  [[nodiscard]] std::shared_ptr<BorrowLink> want() { return borrower_.links->want(blob_).value(); }
  /// A turn of either, whose turn it is.
  void step(int number) {
    number % 2 == 0 ? borrower_.turn() : owner_.turn();
    look();
  }
  /// Whoever connects the peer has what he imported. Then it is forgotten.
  void expect_mapped() {
    for (std::size_t i = 0; i < imported_.size(); ++i) {
      const Import import = imported_[i];
      borrower_.links->connect_and_fetch(*import.link, kTimeout);
      EXPECT_NE(import.range->mapped_at(), 0U);
    }
    imported_.clear();
    EXPECT_EQ(host_.waiter.ran_out, 0);
  }
  void expect_refused(ErrorCode why) {
    for (const Import& import : imported_) {
      borrower_.links->connect_and_fetch(*import.link, kTimeout);
      EXPECT_EQ(import.range->mapped_at(), 0U);
      EXPECT_EQ(refusal_of(*import.link), why);
    }
    imported_.clear();
    EXPECT_EQ(host_.waiter.ran_out, 0);
  }
  static ErrorCode refusal_of(const BorrowLink& link) {
    const State state = link.state();
    if (state == State::kRefused || state == State::kEnded) {
      return link.refusal().code();
    }
    return link.shared_refusal().value_or(Error(ErrorCode::kOk)).code();
  }

  int looks_ = 0;
  wire::ConnectionBlob blob_ = owner_.blob;

 private:
  struct Import {
    std::shared_ptr<BorrowLink> link;
    std::shared_ptr<RemoteRange> range;
  };

  /// The invariant of BorrowLinks.
  void look() {
    if (std::exchange(is_looking_, true)) {
      return;
    }
    const base::AtExit ends([this] { is_looking_ = false; });
    for (std::size_t i = 0; i < imported_.size(); ++i) {
      const Import import = imported_[i];
      ++looks_;
      EXPECT_TRUE(import.range->mapped_at() != 0 || refusal_of(*import.link) != ErrorCode::kOk ||
                  is_waited_for(*import.link))
          << "range " << i << " in state " << static_cast<int>(import.link->state());
    }
  }
  /// Nobody does anything meanwhile.
  bool is_waited_for(BorrowLink& link) {
    const auto turn = std::exchange(host_.waiter.turn, [] {});
    const int before = host_.waiter.ran_out;
    borrower_.links->connect_and_fetch(link, kTimeout);
    host_.waiter.turn = turn;
    return std::exchange(host_.waiter.ran_out, before) != before;
  }

  const std::shared_ptr<const platform::PageFile> file_ =
      host_.neighbors.make_pages("test", 8192, {}).value();
  std::vector<Import> imported_;
  std::uint32_t next_index_ = 0;
  bool is_looking_ = false;
};

TEST_F(Fetches, AreOwedFromBeforeTheLinkIsAskedFor) {
  const auto link = want();
  import_by(link);
  ASSERT_EQ(link->state(), State::kIdle);
  expect_mapped();
  EXPECT_GT(looks_, 5);
}

/// Whatever its state is: idle, asked for, in its handshake, ready, answered.
TEST_F(Fetches, AreOwedAtEachStepOfALinkThatIsMade) {
  int while_made = 0;
  for (int steps = 0; steps < 12; ++steps) {
    ++blob_.port;  // a link of its own
    const auto link = want();
    import_by(link);
    for (int number = 0; number < steps; ++number) {
      step(number);
    }
    while_made += link->state() == State::kConnecting ? 1 : 0;
    import_by(link);
    expect_mapped();
  }
  EXPECT_GE(while_made, 2);
}

TEST_F(Fetches, AreOwedByALinkThatHasAnswered) {
  const auto link = want();
  for (int i = 0; i < 3; ++i) {
    import_by(link);
    expect_mapped();
  }
}

/// More of them than are asked for at a time, and another one in the middle of each.
TEST_F(Fetches, AreOwedWhileAnEarlierOneIsUnderWay) {
  const auto link = want();
  for (int i = 0; i < 40; ++i) {
    import_by(link);
  }
  int more = 40;
  host_.neighbors.at_each_map = [&] {
    if (link->ready() && more > 0) {
      --more;
      import_by(link);
    }
  };
  expect_mapped();
  host_.neighbors.at_each_map = nullptr;
  EXPECT_EQ(more, 0);
}

TEST_F(Fetches, AreOwedByALinkThatWasRefused) {
  const auto link = want();
  import_by(link);
  borrower_.turn();
  host_.clock.advance(kTimeout + 1);
  borrower_.turn();
  ASSERT_EQ(link->state(), State::kRefused);
  EXPECT_EQ(refusal_of(*link), ErrorCode::kPeerSilent);
  import_by(link);
  host_.clock.advance(kTimeout);
  expect_mapped();
}

/// The end of a handshake is taken, and then there is no memory for a look at what comes after it.
TEST_F(Fetches, AreAskedForWhenThereIsMemoryAgain) {
  const auto link = want();
  import_by(link);
  bool fails = true;
  host_.neighbors.at_each_step = [&] {
    if (link->ready() && std::exchange(fails, false)) {
      throw std::bad_alloc();
    }
  };
  EXPECT_THROW(borrower_.links->connect_and_fetch(*link, kTimeout), std::bad_alloc);
  EXPECT_TRUE(link->ready());
  expect_mapped();
}

/// Its range may be the last that holds whatever its peer holds, whose end takes locks of its own.
TEST_F(Fetches, OfARangeThatIsReleasedMeanwhileHoldNoLockAtItsEnd) {
  class Flows final : public Link {
   public:
    explicit Flows(std::function<void()> at_end) : at_end_(std::move(at_end)) {}
    ~Flows() override { at_end_(); }

   private:
    const std::function<void()> at_end_;
  };
  const auto link = want();
  borrower_.links->connect(*link, kTimeout);
  std::future<Error> asked;
  bool in_time = false;
  auto peer = std::make_shared<Peer>("owner", owner_.blob, false);
  peer->set_link(std::make_shared<Flows>([&] {
    asked = std::async(std::launch::async, [&] { return link->refusal(); });
    in_time = asked.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
  }));
  auto range = std::make_shared<RemoteRange>(std::move(peer), range_of(1)->blob(),
                                             base::ByteRange::make(0x10000, 1024).value());
  borrower_.links->fetch(*link, range);
  host_.neighbors.at_each_send = [&] { range.reset(); };
  borrower_.turn();
  host_.neighbors.at_each_send = nullptr;
  ASSERT_TRUE(asked.valid());
  EXPECT_TRUE(in_time);
}

TEST_F(Fetches, AreRefusedByTheOwnerWithItsReason) {
  owner_.share = [](const wire::RegistrationRef&) -> Result<SharedRange> {
    return fail(ErrorCode::kRegistrationFenced, "test");
  };
  const auto link = want();
  import_by(link);
  expect_refused(ErrorCode::kRegistrationFenced);
}

TEST_F(Fetches, OfPagesThatCannotBeMappedAreRefused) {
  const auto link = want();
  borrower_.links->connect(*link, kTimeout);
  host_.neighbors.at_each_map = [] { throw std::bad_alloc(); };
  import_by(link);
  expect_refused(ErrorCode::kOutOfMemory);
  host_.neighbors.at_each_map = nullptr;
  EXPECT_TRUE(link->ready());
  import_by(link);
  expect_mapped();
}

TEST_F(Fetches, WhoseAnswerIsLostAreRefused) {
  const auto link = want();
  borrower_.links->connect(*link, kTimeout);
  host_.neighbors.loses_next = true;
  import_by(link);
  expect_refused(ErrorCode::kSystem);
  EXPECT_TRUE(link->ready());
}

/// The owner answers nothing on that link any more, and everything on the next one.
TEST_F(Fetches, OfWhoIsMutedAreRefusedUntilItHasAnotherLink) {
  const auto share = std::exchange(owner_.share, [](const wire::RegistrationRef&) {
    throw std::bad_alloc();
    return Result<SharedRange>();
  });
  auto link = want();
  import_by(link);
  expect_refused(ErrorCode::kOutOfMemory);
  EXPECT_TRUE(link->ready());
  owner_.share = share;
  import_by(link);
  expect_refused(ErrorCode::kOutOfMemory);
  link.reset();
  borrower_.turn();
  link = want();
  import_by(link);
  expect_mapped();
}

TEST_F(Fetches, AreRefusedByALinkThatHasEndedUntilItIsMadeAgain) {
  auto link = want();
  import_by(link);
  expect_mapped();
  constexpr std::uint64_t kFirst = 1;
  import_by(link);
  borrower_.links->on_event(kTokenLinkProcess | kFirst);
  ASSERT_EQ(link->state(), State::kEnded);
  expect_refused(ErrorCode::kPeerDisconnected);
  import_by(link);
  expect_refused(ErrorCode::kPeerDisconnected);
  link.reset();
  borrower_.turn();
  link = want();
  import_by(link);
  expect_mapped();
}

}  // namespace
}  // namespace orbite::peer
