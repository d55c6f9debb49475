// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "memory/registry.hpp"
#include "unit/memory/fixture.hpp"

namespace orbite::memory {
namespace {

using testing::range;
using testing::World;

/// What should be: every registration that ever was, and the rules in their plainest form.
struct Expected {
  Handle handle;
  base::ByteRange range;
  std::uint8_t access;
  RegistrationState state = RegistrationState::kLive;
  bool reused = false;
  std::shared_ptr<int> retired_calls;
  std::shared_ptr<Registration> registration;
  std::vector<RangeLoan> loans;

  [[nodiscard]] bool held() const { return state != RegistrationState::kRetired; }
};

class Machine {
 public:
  Machine(std::uint64_t registrations_max, std::uint32_t generation_max)
      : registrations_max_(registrations_max), world_(registrations_max, generation_max) {}

  void step(const std::array<std::uint8_t, 4>& choice) {
    const auto [what, which, a, b] = choice;
    if (what % 8 == 0 || all_.empty()) {
      add(1 + a % 16, 1 + b % 8, static_cast<std::uint8_t>(kAccessLocal | ((a ^ b) & 6)));
      return;
    }
    Expected& it = all_[which % all_.size()];
    const Direction direction = (a & 1) != 0 ? Direction::kRead : Direction::kWrite;
    switch (what % 8) {
      case 1:
        deregister(it);
        break;
      case 2:
      case 3:
        borrow(it, direction, (a & 2) != 0 ? Borrower::kRemote : Borrower::kLocal);
        break;
      case 4:
        borrow_remote(it, direction, (b & 3) != 0);
        break;
      case 5:
        if (!it.loans.empty()) {
          it.loans.erase(it.loans.begin() + static_cast<std::ptrdiff_t>(b % it.loans.size()));
        }
        break;
      case 6:
        world_.registry.reap();
        retire_what_is_free();
        break;
      default:
        if (b % 32 == 0) {
          quarantine_all();
        }
        break;
    }
  }

  void check() {
    const auto counts = world_.registry.counts();
    Registry::Counts expected;
    for (const Expected& it : all_) {
      RC_ASSERT(*it.retired_calls == (it.held() ? 0 : 1));
      expected.live += it.state == RegistrationState::kLive ? 1 : 0;
      expected.fenced += it.state == RegistrationState::kFenced ? 1 : 0;
      expected.unquiesced += it.state == RegistrationState::kUnquiesced ? 1 : 0;
      expected.retired_total += it.held() ? 0 : 1;
      expected.bytes_registered += it.held() ? it.range.length() : 0;
      expected.loans += it.loans.size();
      const auto found = world_.registry.find(it.handle);
      const auto code = !it.held() ? ErrorCode::kStaleHandle : ErrorCode::kRegistrationFenced;
      RC_ASSERT(found.has_value() == (it.state == RegistrationState::kLive));
      RC_ASSERT(found.has_value() || found.error().code() == code);
    }
    RC_ASSERT(counts.live == expected.live);
    RC_ASSERT(counts.fenced == expected.fenced);
    RC_ASSERT(counts.unquiesced == expected.unquiesced);
    RC_ASSERT(counts.retired_total == expected.retired_total);
    RC_ASSERT(counts.bytes_registered == expected.bytes_registered);
    RC_ASSERT(counts.loans == expected.loans);
  }

  void check_covering() {
    for (std::uint64_t address = 1; address < 25; ++address) {
      for (const std::uint64_t length : {1, 3, 8}) {
        std::vector<std::pair<std::uint64_t, std::uint64_t>> expected;
        for (const Expected& it : all_) {
          if (it.state == RegistrationState::kLive && it.range.covers(range(address, length))) {
            expected.emplace_back(it.range.address(), it.handle.packed());
          }
        }
        std::sort(expected.begin(), expected.end());
        const auto found = world_.registry.covering(range(address, length));
        RC_ASSERT(found.size() == expected.size());
        for (std::size_t i = 0; i < found.size(); ++i) {
          RC_ASSERT(found[i].packed() == expected[i].second);
        }
      }
    }
  }

  void finish() {
    world_.registry.fence_all();
    for (Expected& it : all_) {
      it.state = it.state == RegistrationState::kLive ? RegistrationState::kFenced : it.state;
    }
    retire_what_is_free();
    check();
    for (Expected& it : all_) {
      it.loans.clear();
    }
    world_.registry.reap();
    retire_what_is_free();
    check();
    RC_ASSERT(world_.registry.counts().fenced == 0U);
  }

 private:
  void add(std::uint64_t address, std::uint64_t length, std::uint8_t access) {
    const auto calls = std::make_shared<int>(0);
    const auto held = static_cast<std::uint64_t>(
        std::count_if(all_.begin(), all_.end(), [](const Expected& it) { return it.held(); }));
    const auto handle = world_.registry.add(World::counting(address, length, calls, access));
    RC_ASSERT(handle.has_value() == (held < registrations_max_));
    if (!handle) {
      RC_ASSERT(handle.error().code() == ErrorCode::kBudgetExhausted);
      return;
    }
    for (Expected& it : all_) {
      RC_ASSERT(!(it.handle == *handle));
      if (it.handle.index == handle->index) {
        RC_ASSERT(!it.held());
        it.reused = true;
      }
    }
    all_.push_back({.handle = *handle,
                    .range = range(address, length),
                    .access = access,
                    .retired_calls = calls,
                    .registration = *world_.registry.find(*handle),
                    .loans = {}});
  }

  void deregister(Expected& it) {
    const auto state = world_.registry.deregister(it.handle);
    if (it.reused) {
      RC_ASSERT(state.error().code() == ErrorCode::kStaleHandle);
      return;
    }
    if (it.state == RegistrationState::kLive) {
      it.state = RegistrationState::kFenced;
    }
    retire_what_is_free();
    RC_ASSERT(state.has_value());
    RC_ASSERT(*state == it.state);
  }

  void borrow(Expected& it, Direction direction, Borrower borrower) {
    auto loan = world_.registry.borrow(it.registration, direction, borrower);
    const bool allowed = borrower == Borrower::kLocal || may(it, direction);
    take(it, std::move(loan),
         !allowed                               ? ErrorCode::kNotAllowed
         : it.state != RegistrationState::kLive ? ErrorCode::kRegistrationFenced
                                                : ErrorCode::kOk);
  }

  void borrow_remote(Expected& it, Direction direction, bool right_key) {
    base::RegistrationKey key = it.registration->key();
    key.bytes[3] = static_cast<std::uint8_t>(key.bytes[3] ^ (right_key ? 0 : 1));
    auto loan = world_.registry.borrow_remote(it.handle, key, direction);
    ErrorCode code = ErrorCode::kOk;
    if (it.reused) {
      code = ErrorCode::kRegistrationChanged;
    } else if (!it.held()) {
      code = ErrorCode::kRegistrationFenced;
    } else if (!right_key || !may(it, direction)) {
      code = ErrorCode::kNotAllowed;
    } else if (it.state != RegistrationState::kLive) {
      code = ErrorCode::kRegistrationFenced;
    }
    take(it, std::move(loan), code);
  }

  static bool may(const Expected& it, Direction direction) {
    return (it.access & (direction == Direction::kRead ? kAccessRemoteRead : kAccessRemoteWrite)) !=
           0;
  }

  static void take(Expected& it, Result<RangeLoan> loan, ErrorCode code) {
    RC_ASSERT(loan.has_value() == (code == ErrorCode::kOk));
    if (loan) {
      RC_ASSERT(&loan->registration() == it.registration.get());
      it.loans.push_back(std::move(*loan));
    } else {
      RC_ASSERT(loan.error().code() == code);
    }
  }

  void quarantine_all() {
    world_.registry.quarantine_all();
    for (Expected& it : all_) {
      if (it.held()) {
        it.state = RegistrationState::kUnquiesced;
      }
    }
  }

  void retire_what_is_free() {
    for (Expected& it : all_) {
      if (it.state == RegistrationState::kFenced && it.loans.empty()) {
        it.state = RegistrationState::kRetired;
      }
    }
  }

  std::uint64_t registrations_max_;
  World world_;
  std::vector<Expected> all_;
};

RC_GTEST_PROP(RegistryProperty, EqualsTheModel,
              (const std::vector<std::array<std::uint8_t, 4>>& steps)) {
  const auto registrations_max = *rc::gen::inRange<std::uint64_t>(1, 12);
  const auto generation_max = *rc::gen::inRange<std::uint32_t>(1, 4);
  Machine machine(registrations_max, generation_max);
  for (const auto& step : steps) {
    machine.step(step);
    machine.check();
  }
  machine.check_covering();
  machine.finish();
}

}  // namespace
}  // namespace orbite::memory
