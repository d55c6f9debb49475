// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "memory/registry.hpp"
#include "unit/memory/fixture.hpp"

namespace orbite::memory {
namespace {

using testing::range;
using testing::World;

constexpr std::size_t kRegistrations = 48;
constexpr int kRounds = 40;

/// Plain memory on purpose: read under loans, written by `retired`. A retirement that does not come
/// after every access is a data race, and a wrong value.
struct Memory {
  std::uint64_t usable = 1;
  int retired_calls = 0;
};

/// One round: threads borrow and give back while others take the registrations away.
class Round {
 public:
  explicit Round(World& world) : world_(world), memory_(kRegistrations) {
    for (Memory& memory : memory_) {
      MemoryDescriptor descriptor = World::descriptor(0x1000, 64);
      descriptor.retired = [&memory] {
        memory.usable = 0;
        ++memory.retired_calls;
      };
      handles_.push_back(*world_.registry.add(descriptor));
      registrations_.push_back(*world_.registry.find(handles_.back()));
    }
  }

  void run() {
    std::vector<std::thread> threads;
    threads.emplace_back([this] { borrow_until_fenced(1, false); });
    threads.emplace_back([this] { borrow_until_fenced(2, true); });
    threads.emplace_back([this] { borrow_until_fenced(3, false); });
    threads.emplace_back([this] { take_away(0); });
    threads.emplace_back([this] { take_away(1); });
    for (std::thread& thread : threads) {
      thread.join();
    }
    world_.registry.reap();
  }

  [[nodiscard]] bool each_retired_once() const {
    return std::all_of(memory_.begin(), memory_.end(), [](const Memory& memory) {
      return memory.retired_calls == 1 && memory.usable == 0;
    });
  }
  [[nodiscard]] std::uint64_t loans() const { return loans_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool always_usable() const { return !broken_.load(std::memory_order_relaxed); }

 private:
  void borrow_until_fenced(std::uint64_t seed, bool remote) {
    base::SeededRandom random(seed);
    std::vector<bool> gone(kRegistrations);
    for (std::size_t left = kRegistrations; left > 0;) {
      const std::size_t at = random.next_u64() % kRegistrations;
      if (gone[at]) {
        continue;
      }
      const Registration& registration = *registrations_[at];
      auto loan =
          remote ? world_.registry.borrow_remote(handles_[at], registration.key(), Direction::kRead)
                 : world_.registry.borrow(registrations_[at], Direction::kRead, Borrower::kLocal);
      if (!loan) {
        gone[at] = true;
        --left;
        continue;
      }
      // Relaxed, here and below: read after the threads were joined.
      loans_.fetch_add(1, std::memory_order_relaxed);
      // Also one that is handed on before it is given back.
      const RangeLoan moved = std::move(*loan);
      if (memory_[at].usable != 1 || &moved.registration() != &registration) {
        broken_.store(true, std::memory_order_relaxed);
      }
    }
  }

  void take_away(std::size_t first) {
    for (std::size_t i = first; i < kRegistrations; i += 2) {
      static_cast<void>(world_.registry.deregister(handles_[i]));
      // Both threads fence every registration: the second one changes nothing.
      static_cast<void>(world_.registry.deregister(handles_[kRegistrations - 1 - i]));
      static_cast<void>(world_.registry.covering(range(0x1000, 64)));
      static_cast<void>(world_.registry.counts());
    }
  }

  World& world_;
  std::vector<Memory> memory_;
  std::vector<Handle> handles_;
  std::vector<std::shared_ptr<Registration>> registrations_;
  std::atomic<std::uint64_t> loans_{0};
  std::atomic<bool> broken_{false};
};

TEST(RegistryThreads, RetirementComesAfterEveryLoanAndOnce) {
  World world(kRegistrations);
  std::uint64_t loans = 0;
  for (int i = 0; i < kRounds; ++i) {
    Round round(world);
    round.run();
    ASSERT_TRUE(round.always_usable());
    ASSERT_TRUE(round.each_retired_once());
    loans += round.loans();
    const auto counts = world.registry.counts();
    ASSERT_EQ(counts.live + counts.fenced + counts.unquiesced + counts.loans, 0U);
    ASSERT_EQ(counts.bytes_registered, 0U);
  }
  EXPECT_GT(loans, 0U);
  EXPECT_EQ(world.registry.counts().retired_total, kRegistrations * kRounds);
}

TEST(RegistryThreads, ALoanGivenBackElsewhereStillRetires) {
  World world;
  for (int i = 0; i < 200; ++i) {
    Memory memory;
    MemoryDescriptor descriptor = World::descriptor(1, 1);
    descriptor.retired = [&memory] { ++memory.retired_calls; };
    const Handle handle = *world.registry.add(descriptor);
    RangeLoan loan =
        *world.registry.borrow(*world.registry.find(handle), Direction::kWrite, Borrower::kLocal);
    // The return meets the fence and the reaping.
    std::thread other([&world, &memory, mine = std::move(loan)]() mutable {
      ++memory.usable;
      mine = RangeLoan();
      world.registry.reap();
    });
    const auto state = world.registry.deregister(handle);
    EXPECT_TRUE(state.has_value());
    other.join();
    EXPECT_EQ(*world.registry.state(handle), RegistrationState::kRetired);
    EXPECT_EQ(memory.retired_calls, 1);
  }
}

TEST(RegistryThreads, ManyAddAndRemoveAtTheSameTime) {
  World world(64);
  const auto add_and_remove = [&world](std::uint64_t address) {
    for (int i = 0; i < 500; ++i) {
      const auto handle = world.registry.add(World::descriptor(address, 64));
      if (!handle || !world.registry.find(*handle) ||
          world.registry.covering(range(address, 64)).empty() ||
          !world.registry.deregister(*handle)) {
        return false;
      }
    }
    return true;
  };
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      good.fetch_add(add_and_remove(0x1000 * (i + 1)) ? 1 : 0, std::memory_order_relaxed);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  world.registry.reap();
  EXPECT_EQ(good.load(std::memory_order_relaxed), 4);
  EXPECT_EQ(world.registry.counts().live, 0U);
  EXPECT_EQ(world.registry.counts().fenced, 0U);
  EXPECT_EQ(world.registry.counts().retired_total, 2000U);
}

}  // namespace
}  // namespace orbite::memory
