// SPDX-License-Identifier: Apache-2.0
// The protocol of owner and borrowers under every order of their accesses. Each party is a context
// of its own that stops before each access until it is told to make it; a run is told one order,
// and the runs go through all orders there are.
#include <gtest/gtest.h>
#include <ucontext.h>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "peer/borrow_protocol.hpp"

namespace orbite::peer {
namespace {

/// One party of a run, on a stack of its own.
class Party {
 public:
  explicit Party(std::function<void()> body) : body_(std::move(body)) {
    getcontext(&own_);
    own_.uc_stack.ss_sp = stack_.get();
    own_.uc_stack.ss_size = kStackBytes;
    own_.uc_link = &caller_;
    makecontext(&own_, &Party::run, 0);
    go_on();  // it stands before its first access
  }

  /// Before each access. Outside a run it is free.
  static void step() {
    if (current != nullptr) {
      swapcontext(&current->own_, &current->caller_);
    }
  }
  void go_on() {
    current = this;
    swapcontext(&caller_, &own_);
    current = nullptr;
  }
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  static constexpr std::size_t kStackBytes = std::size_t{256} << 10;
  static void run() {
    Party& self = *current;
    self.body_();
    self.ended_ = true;
  }

  static Party* current;
  std::function<void()> body_;
  std::unique_ptr<std::byte[]> stack_ = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
  ucontext_t own_{};
  ucontext_t caller_{};
  bool ended_ = false;
};

Party* Party::current = nullptr;

/// Relaxed accesses are to words that nobody else writes: no point of decision.
struct StepAccess {
  template <typename Word, typename Value>
  static void store(Word& word, Value value, std::memory_order memory_order) {
    Party::step();
    word.store(value, memory_order);
  }
  template <typename Word>
  static auto load(const Word& word, std::memory_order memory_order) {
    if (memory_order != std::memory_order_relaxed) {
      Party::step();
    }
    return word.load(memory_order);
  }
};

/// Owner and seats with `kNames` entries each.
template <std::size_t kNames>
struct World {
  static constexpr std::size_t kRegistrations = 2;
  explicit World(std::size_t seat_count) : seats(seat_count) {
    for (std::uint32_t i = 0; i < kRegistrations; ++i) {
      borrowing::open<borrowing::DirectAccess>(directory[i], Handle{i, 1});
      registered[i] = 1;
    }
  }
  void copy(const std::vector<Handle>& handles, std::size_t seat) {
    if (!borrowing::enter<StepAccess>(directory, seats[seat], handles)) {
      ++refused;
      return;
    }
    Party::step();
    for (const Handle touched : handles) {
      broken = broken || registered[touched.index] != touched.generation;
    }
    ++copied;
    borrowing::leave<StepAccess>(seats[seat]);
  }
  /// Looks once and goes away: whatever retires is decided by one look at every seat.
  bool deregister(Handle registration) {
    borrowing::close<StepAccess>(directory[registration.index]);
    for (const auto& seat : seats) {
      if (borrowing::is_named<StepAccess>(seat, registration)) {
        ++delayed;
        return false;
      }
    }
    registered[registration.index] = 0;
    ++retired;
    return true;
  }

  std::array<borrowing::DirectoryWord, kRegistrations> directory{};
  std::vector<borrowing::BasicSeat<kNames>> seats;
  std::array<std::uint32_t, kRegistrations> registered{};  ///< the generation, until it retires
  bool broken = false;                                     ///< touched after it had retired
  int copied = 0;
  int refused = 0;
  int delayed = 0;
  int retired = 0;
};

struct Seen {
  std::uint64_t orders = 0;
  std::uint64_t broken = 0;
  std::uint64_t copied = 0;
  std::uint64_t refused = 0;
  std::uint64_t delayed = 0;
  std::uint64_t retired = 0;
};

template <typename AnyWorld>
using Bodies = std::vector<std::function<void(AnyWorld&)>>;

/// Runs `bodies` in the order that begins with `choices` and goes on with the first party that can;
/// appends what it chose. `open[i]`: the next party that could have been chosen there instead, or
/// the number of parties.
template <typename AnyWorld>
void run_once(AnyWorld& world, const Bodies<AnyWorld>& bodies, std::vector<std::size_t>& choices,
              std::vector<std::size_t>& open) {
  std::vector<std::unique_ptr<Party>> parties;
  for (const auto& body : bodies) {
    parties.push_back(std::make_unique<Party>([&world, &body] { body(world); }));
  }
  const auto next_able = [&](std::size_t from) {
    while (from < parties.size() && parties[from]->ended()) {
      ++from;
    }
    return from;
  };
  open.clear();
  for (std::size_t step = 0;; ++step) {
    const std::size_t first = next_able(0);
    if (first == parties.size()) {
      return;
    }
    if (step == choices.size()) {
      choices.push_back(first);
    }
    open.push_back(next_able(choices[step] + 1));
    parties[choices[step]]->go_on();
  }
}

template <std::size_t kNames>
Seen explore(const Bodies<World<kNames>>& bodies, std::size_t seats = 1) {
  Seen seen;
  std::vector<std::size_t> choices;
  std::vector<std::size_t> open;
  while (true) {
    World<kNames> world(seats);
    run_once(world, bodies, choices, open);
    ++seen.orders;
    seen.broken += world.broken ? 1 : 0;
    seen.copied += static_cast<std::uint64_t>(world.copied);
    seen.refused += static_cast<std::uint64_t>(world.refused);
    seen.delayed += static_cast<std::uint64_t>(world.delayed);
    seen.retired += static_cast<std::uint64_t>(world.retired);
    // The next order: the last decision that can still be another one.
    while (!choices.empty() && open[choices.size() - 1] == bodies.size()) {
      choices.pop_back();
    }
    if (choices.empty()) {
      return seen;
    }
    choices.back() = open[choices.size() - 1];
  }
}

void expect_all_happened(const Seen& seen, std::uint64_t orders_min) {
  EXPECT_EQ(seen.broken, 0U) << "of " << seen.orders << " orders";
  EXPECT_GE(seen.orders, orders_min);
  EXPECT_GT(seen.copied, 0U);
  EXPECT_GT(seen.refused, 0U);
  EXPECT_GT(seen.delayed, 0U);
  EXPECT_GT(seen.retired, 0U);
}

constexpr Handle kFirst{0, 1};
constexpr Handle kSecond{1, 1};

TEST(BorrowOrders, OneBorrowerAndTheOwner) {
  expect_all_happened(explore<2>({[](auto& world) { world.copy({kFirst}, 0); },
                                  [](auto& world) { world.deregister(kFirst); }}),
                      15);
}

TEST(BorrowOrders, TwoRegistrationsOfWhichOneGoes) {
  for (const Handle gone : {kFirst, kSecond}) {
    expect_all_happened(explore<2>({[](auto& world) { world.copy({kFirst, kSecond}, 0); },
                                    [gone](auto& world) { world.deregister(gone); }}),
                        40);
  }
}

TEST(BorrowOrders, ABorrowerThatComesAgain) {
  expect_all_happened(explore<2>({[](auto& world) {
                                    world.copy({kFirst}, 0);
                                    world.copy({kFirst}, 0);
                                  },
                                  [](auto& world) { world.deregister(kFirst); }}),
                      50);
}

TEST(BorrowOrders, TwoBorrowersAndTheOwner) {
  expect_all_happened(explore<1>({[](auto& world) { world.copy({kFirst}, 0); },
                                  [](auto& world) { world.copy({kFirst}, 1); },
                                  [](auto& world) { world.deregister(kFirst); }},
                                 2),
                      1'000);
}

/// The slot's next generation is another registration, which is not touched under the old name.
TEST(BorrowOrders, TheSlotIsTakenAgain) {
  expect_all_happened(explore<2>({[](auto& world) { world.copy({kFirst}, 0); },
                                  [](auto& world) {
                                    if (world.deregister(kFirst)) {
                                      world.registered[0] = 2;
                                      borrowing::open<StepAccess>(world.directory[0], Handle{0, 2});
                                    }
                                  }}),
                      20);
}

/// That the exploration finds what is wrong: here the borrower looks first and names afterwards.
TEST(BorrowOrders, FindAProtocolThatDoesNotHold) {
  const Seen seen = explore<2>(
      {[](auto& world) {
         const bool live = StepAccess::load(world.directory[0], std::memory_order_seq_cst) == 1;
         StepAccess::store(world.seats[0].names[0], kFirst.packed(), std::memory_order_seq_cst);
         Party::step();
         world.broken = world.broken || (live && world.registered[0] != 1);
       },
       [](auto& world) { world.deregister(kFirst); }});
  EXPECT_GT(seen.broken, 0U);
}

}  // namespace
}  // namespace orbite::peer
