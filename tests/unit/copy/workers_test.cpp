// SPDX-License-Identifier: Apache-2.0
#include "copy/workers.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "platform/system.hpp"
#include "unit/platform/child_process.hpp"

namespace orbite::copy {
namespace {

/// Time that stands until it is moved: an offer is followed by a look only when it says so.
class SteppedClock final : public base::Clock {
 public:
  [[nodiscard]] base::Nanoseconds now_ns() const noexcept override {
    return now_ns_.load(std::memory_order_relaxed);
  }
  void advance(base::Nanoseconds by_ns) { now_ns_.fetch_add(by_ns, std::memory_order_relaxed); }

 private:
  std::atomic<base::Nanoseconds> now_ns_{1};
};

/// Never gives up before it is told to, so that a worker ends only when the test wants it.
class PatientWaiter final : public base::Waiter {
 public:
  bool wait_for(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                base::Nanoseconds /*timeout_ns*/, const std::function<bool()>& ready) override {
    waiting_.fetch_add(1, std::memory_order_relaxed);
    // The short wait is how often it looks whether it is told.
    while (!ready() && patient_.load(std::memory_order_relaxed)) {
      changed.wait_for(lock, std::chrono::milliseconds(1));
    }
    waiting_.fetch_sub(1, std::memory_order_relaxed);
    return ready();
  }
  [[nodiscard]] int waiting() const { return waiting_.load(std::memory_order_relaxed); }
  void lose_patience() { patient_.store(false, std::memory_order_relaxed); }

 private:
  std::atomic<int> waiting_{0};
  std::atomic<bool> patient_{true};
};

/// As many pieces as it is given; each is done once, or the test sees it.
class Pieces final : public SharedWork {
 public:
  explicit Pieces(std::size_t count) : done_(count) {}

  bool do_piece() noexcept override {
    const std::size_t piece = next_.fetch_add(1, std::memory_order_relaxed);
    if (piece >= done_.size()) {
      return false;
    }
    if (on_piece) {
      on_piece(piece);
    }
    // Release: pairs with finished().
    done_[piece].fetch_add(1, std::memory_order_release);
    return true;
  }
  [[nodiscard]] bool finished() const {
    for (const auto& done : done_) {
      if (done.load(std::memory_order_acquire) != 1) {
        return false;
      }
    }
    return true;
  }
  std::function<void(std::size_t)> on_piece;

 private:
  std::atomic<std::size_t> next_{0};
  std::vector<std::atomic<int>> done_;
};

/// Always has another piece.
class EndlessWork final : public SharedWork {
 public:
  bool do_piece() noexcept override {
    pieces.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  std::atomic<std::uint64_t> pieces{0};
};

void wait_until(const std::function<bool()>& ready) {
  while (!ready()) {
    std::this_thread::yield();
  }
}

class CopyWorkers : public ::testing::Test {
 protected:
  std::unique_ptr<Workers> make(std::uint32_t workers_max) {
    return std::make_unique<Workers>(
        workers_max,
        Workers::System{
            clock_, waiter_,
            [this](const char* name, std::function<void()> body) {
              if (refuse_threads_.load(std::memory_order_relaxed)) {
                throw std::system_error(
                    std::make_error_code(std::errc::resource_unavailable_try_again));
              }
              started_.fetch_add(1, std::memory_order_relaxed);
              return platform::start_thread(name, std::move(body));
            },
            [this] {
              looks_.fetch_add(1, std::memory_order_relaxed);
              return idle_.load(std::memory_order_relaxed);
            },
            [this] { return clock_.now_ns() - lost_ns_.load(std::memory_order_relaxed); }});
  }
  /// An offer that is not too soon after the last one.
  void offer(Workers& workers, SharedWork& work, std::size_t pieces) {
    clock_.advance(base::kSecond);
    workers.offer(work, pieces);
  }

  void lose(base::Nanoseconds time_ns) {
    lost_ns_.fetch_add(time_ns, std::memory_order_relaxed);
    clock_.advance(time_ns);
  }

  SteppedClock clock_;
  PatientWaiter waiter_;
  std::atomic<std::uint32_t> idle_{8};
  /// Of the time that passes, what the workers have no processor.
  std::atomic<base::Nanoseconds> lost_ns_{0};
  std::atomic<bool> refuse_threads_{false};
  std::atomic<int> started_{0};
  std::atomic<int> looks_{0};
};

TEST_F(CopyWorkers, DoEveryPieceOnceWithoutTheirCaller) {
  Pieces work(1'000);
  const auto workers = make(3);
  EXPECT_EQ(workers->counts().threads, 0u);
  workers->enroll(work);
  offer(*workers, work, 1'000);
  EXPECT_EQ(started_.load(), 3);
  wait_until([&] { return work.finished(); });
  workers->withdraw(work);
  EXPECT_EQ(workers->counts().pieces, 1'000u);
}

TEST_F(CopyWorkers, AreNotMoreThanPiecesNorIdleProcessors) {
  Pieces work(0);
  const auto workers = make(8);
  workers->enroll(work);
  idle_.store(0);
  offer(*workers, work, 100);
  EXPECT_EQ(started_.load(), 0);
  idle_.store(2);
  offer(*workers, work, 100);
  EXPECT_EQ(started_.load(), 2);
  wait_until([&] { return workers->counts().active == 0; });
  idle_.store(8);
  offer(*workers, work, 3);
  EXPECT_LE(started_.load(), 3);
  workers->withdraw(work);
}

TEST_F(CopyWorkers, AreNotLookedForAgainAtOnce) {
  Pieces work(0);
  const auto workers = make(8);
  workers->enroll(work);
  idle_.store(0);
  offer(*workers, work, 100);
  workers->offer(work, 100);
  workers->offer(work, 100);
  EXPECT_EQ(looks_.load(), 1);
  offer(*workers, work, 100);
  EXPECT_EQ(looks_.load(), 2);
  workers->withdraw(work);
}

TEST_F(CopyWorkers, AreLookedForMoreSeldomWhileNoProcessorIsIdle) {
  Pieces work(0);
  const auto workers = make(8);
  workers->enroll(work);
  idle_.store(0);
  constexpr int kSteps = 10'000;
  for (int step = 0; step < kSteps; ++step) {
    clock_.advance(100 * base::kMicrosecond);
    workers->offer(work, 100);
  }
  // A second of it: one in 10 ms, but for the first few.
  EXPECT_GE(looks_.load(), 100);
  EXPECT_LE(looks_.load(), 106);
  workers->withdraw(work);
}

TEST_F(CopyWorkers, AreNotLookedForWhileSomeHelp) {
  EndlessWork work;
  EndlessWork other;
  const auto workers = make(1);
  workers->enroll(work);
  workers->enroll(other);
  offer(*workers, work, 100);
  offer(*workers, work, 100);
  // The one that helps takes from this one, too.
  offer(*workers, other, 100);
  wait_until([&] { return work.pieces.load() > 0 && other.pieces.load() > 0; });
  EXPECT_EQ(looks_.load(), 1);
  workers->withdraw(work);
  workers->withdraw(other);
}

TEST_F(CopyWorkers, NoneIsEverLookedForWhereNoneIsAllowed) {
  Pieces work(1);
  const auto workers = make(0);
  workers->enroll(work);
  offer(*workers, work, 100);
  EXPECT_EQ(looks_.load(), 0);
  workers->withdraw(work);
}

TEST_F(CopyWorkers, LeaveWhenOthersWantTheirProcessorAndAreNotCalledForAWhile) {
  Pieces work(1'000);
  work.on_piece = [&](std::size_t piece) {
    clock_.advance(100 * base::kMicrosecond);
    if (piece == 10) {
      lose(3 * base::kMillisecond);
    }
  };
  const auto workers = make(1);
  workers->enroll(work);
  offer(*workers, work, 1'000);
  wait_until([&] { return workers->counts().active == 0; });
  EXPECT_EQ(workers->counts().pieces, 11u);
  const int looks = looks_.load();
  clock_.advance(9 * base::kMillisecond);
  workers->offer(work, 100);
  EXPECT_EQ(looks_.load(), looks);
  clock_.advance(base::kMillisecond);
  workers->offer(work, 100);
  EXPECT_EQ(looks_.load(), looks + 1);
  wait_until([&] { return work.finished(); });
  workers->withdraw(work);
}

/// As the engine's own worker does, to look whether the caller is still there.
TEST_F(CopyWorkers, StayWhileOthersOnlyVisitTheirProcessor) {
  Pieces work(1'000);
  work.on_piece = [&](std::size_t) {
    clock_.advance(100 * base::kMicrosecond);
    lose(10 * base::kMicrosecond);
  };
  const auto workers = make(1);
  workers->enroll(work);
  offer(*workers, work, 1'000);
  wait_until([&] { return workers->counts().active == 0; });
  EXPECT_EQ(workers->counts().pieces, 1'000u);
  workers->withdraw(work);
}

/// However long the processor was theirs before.
TEST_F(CopyWorkers, LeaveSoonAfterALongTimeAlone) {
  constexpr std::size_t kAlone = 10'000;
  Pieces work(2 * kAlone);
  work.on_piece = [&](std::size_t piece) {
    clock_.advance(100 * base::kMicrosecond);
    if (piece >= kAlone) {
      lose(100 * base::kMicrosecond);
    }
  };
  const auto workers = make(1);
  workers->enroll(work);
  offer(*workers, work, 2 * kAlone);
  wait_until([&] { return workers->counts().active == 0; });
  EXPECT_GT(workers->counts().pieces, kAlone);
  EXPECT_LT(workers->counts().pieces, kAlone + 200);
  workers->withdraw(work);
}

TEST_F(CopyWorkers, EndWhenThereIsNothingToDoAndStartAgain) {
  Pieces first(10);
  Pieces second(10);
  const auto workers = make(2);
  workers->enroll(first);
  workers->enroll(second);
  waiter_.lose_patience();
  offer(*workers, first, 10);
  wait_until([&] { return first.finished() && workers->counts().threads == 0; });
  const int before = started_.load();
  offer(*workers, second, 10);
  EXPECT_GT(started_.load(), before);
  wait_until([&] { return second.finished() && workers->counts().threads == 0; });
  workers->withdraw(first);
  workers->withdraw(second);
}

TEST_F(CopyWorkers, AThreadThatCannotStartLeavesTheWorkToItsOwner) {
  Pieces work(5);
  const auto workers = make(4);
  workers->enroll(work);
  refuse_threads_.store(true);
  offer(*workers, work, 5);
  EXPECT_EQ(workers->counts().active, 0u);
  EXPECT_EQ(workers->counts().threads, 0u);
  while (work.do_piece()) {
  }
  EXPECT_TRUE(work.finished());
  refuse_threads_.store(false);
  offer(*workers, work, 5);
  EXPECT_EQ(workers->counts().threads, 4u);
  workers->withdraw(work);
}

TEST_F(CopyWorkers, ALogThatBlocksHoldsUpNobodyElse) {
  std::promise<void> done;
  const std::shared_future<void> end = done.get_future().share();
  std::atomic<bool> is_inside{false};
  std::atomic<bool> was_in_time{false};
  base::set_log_sink([&](base::LogLevel, std::string_view) {
    is_inside.store(true, std::memory_order_relaxed);
    was_in_time.store(end.wait_for(std::chrono::seconds(10)) == std::future_status::ready,
                      std::memory_order_relaxed);
  });
  Pieces work(5);
  Pieces other(5);
  const auto workers = make(4);
  workers->enroll(work);
  refuse_threads_.store(true);
  std::thread offers([&] { offer(*workers, work, 5); });
  wait_until([&] { return is_inside.load(std::memory_order_relaxed); });
  workers->enroll(other);
  done.set_value();
  offers.join();
  base::set_log_sink(nullptr);
  EXPECT_TRUE(was_in_time.load(std::memory_order_relaxed));
  workers->withdraw(other);
  workers->withdraw(work);
}

TEST_F(CopyWorkers, WithdrawingWaitsForThePieceUnderWay) {
  std::atomic<bool> inside{false};
  std::atomic<bool> may_leave{false};
  std::atomic<bool> left{false};
  Pieces work(100);
  work.on_piece = [&](std::size_t) {
    inside.store(true, std::memory_order_relaxed);
    wait_until([&] { return may_leave.load(std::memory_order_relaxed); });
    left.store(true, std::memory_order_relaxed);
  };
  const auto workers = make(1);
  workers->enroll(work);
  offer(*workers, work, 100);
  wait_until([&] { return inside.load(); });
  std::atomic<bool> withdrawn{false};
  std::thread withdraws([&] {
    workers->withdraw(work);
    EXPECT_TRUE(left.load());
    withdrawn.store(true);
  });
  // The worker is inside its piece, so it is withdraw() that waits.
  wait_until([&] { return waiter_.waiting() == 1; });
  EXPECT_FALSE(withdrawn.load());
  may_leave.store(true);
  withdraws.join();
  EXPECT_FALSE(work.finished());
  const std::uint64_t pieces = workers->counts().pieces;
  offer(*workers, work, 100);
  wait_until([&] { return workers->counts().active == 0; });
  EXPECT_EQ(workers->counts().pieces, pieces);
}

TEST_F(CopyWorkers, EndAlthoughWorkIsLeft) {
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    EndlessWork work;
    EndlessWork other;
    auto workers = make(3);
    workers->enroll(work);
    workers->enroll(other);
    offer(*workers, work, 1'000);
    offer(*workers, other, 1'000);
    wait_until([&] { return work.pieces.load() > 0 && other.pieces.load() > 0; });
    workers->withdraw(work);
    const std::uint64_t pieces = work.pieces.load();
    const std::uint64_t others = other.pieces.load();
    wait_until([&] { return other.pieces.load() > others; });
    EXPECT_EQ(work.pieces.load(), pieces);
    workers->withdraw(other);
    workers.reset();
  }
}

TEST_F(CopyWorkers, ServeManyOwnersAtATime) {
  constexpr int kOwners = 4;
  constexpr int kRounds = 50;
  const auto workers = make(3);
  std::vector<std::thread> owners;
  std::array<int, kOwners> finished{};
  for (int owner = 0; owner < kOwners; ++owner) {
    owners.emplace_back([&, owner] {
      for (int round = 0; round < kRounds; ++round) {
        // Plain memory: ThreadSanitizer sees whether what a worker wrote is there when it is done.
        std::vector<int> bytes(200);
        Pieces work(bytes.size());
        work.on_piece = [&](std::size_t piece) { bytes[piece] = round; };
        workers->enroll(work);
        offer(*workers, work, bytes.size());
        while (work.do_piece()) {
        }
        wait_until([&] { return work.finished(); });
        finished[static_cast<std::size_t>(owner)] +=
            std::all_of(bytes.begin(), bytes.end(), [&](int byte) { return byte == round; });
        workers->withdraw(work);
      }
    });
  }
  for (std::thread& owner : owners) {
    owner.join();
  }
  for (const int count : finished) {
    EXPECT_EQ(count, kRounds);
  }
}

TEST_F(CopyWorkers, AreNotThereInAChildAndDoNotHoldItUp) {
  Pieces work(10);
  auto workers = make(2);
  workers->enroll(work);
  offer(*workers, work, 10);
  wait_until([&] { return work.finished(); });
  const std::string answer = platform::testing::in_child([&]() -> std::string {
    Pieces own(3);
    workers->enroll(own);
    offer(*workers, own, 3);
    if (workers->counts().threads != 0) {
      return "the child has workers";
    }
    while (own.do_piece()) {
    }
    workers->withdraw(own);
    workers->withdraw(work);
    workers.reset();
    return own.finished() ? "" : "pieces are left";
  });
  EXPECT_EQ(answer, "");
  EXPECT_EQ(workers->counts().threads, 2u);
  workers->withdraw(work);
}

/// With the real system's answers, whatever they are: the work is done, and nobody hangs.
TEST(CopyWorkersOfTheSystem, HelpOrDoNot) {
  const platform::SystemClock clock;
  base::ThreadWaiter waiter;
  Workers workers(4, Workers::system(clock, waiter));
  Pieces work(2'000);
  workers.enroll(work);
  bool more = true;
  while (more) {
    workers.offer(work, 100);
    more = work.do_piece();
  }
  wait_until([&] { return work.finished(); });
  workers.withdraw(work);
}

}  // namespace
}  // namespace orbite::copy
