// SPDX-License-Identifier: Apache-2.0
#include "peer/borrow_ledger.hpp"

#include <algorithm>
#include <new>

#include "base/assert.hpp"
#include "base/planted.hpp"

namespace orbite::peer {

using borrowing::DirectAccess;

Result<void> BorrowLedger::reserve() {
  const std::lock_guard lock(mutex_);
  try {
    const std::size_t needed = open_ + held_.size() + 1;
    if (held_.capacity() < needed) {
      held_.reserve(std::max(needed, 2 * held_.capacity()));
    }
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, "%zu registrations are lent", open_);
  }
  ++open_;
  return {};
}

void BorrowLedger::cancel_reservation() noexcept {
  const std::lock_guard lock(mutex_);
  ORBITE_CHECK(open_ > 0);
  --open_;
}

bool BorrowLedger::open(Handle registration) noexcept {
  if (registration.index >= directory_.size()) {
    cancel_reservation();
    return false;
  }
  const std::lock_guard lock(mutex_);
  if (opens_no_more_) {
    ORBITE_CHECK(open_ > 0);
    --open_;
    return false;
  }
  borrowing::open<DirectAccess>(directory_[registration.index], registration);
  return true;
}

void BorrowLedger::open_no_more() noexcept {
  const std::lock_guard lock(mutex_);
  opens_no_more_ = true;
}

void BorrowLedger::close(memory::RangeLoan loan) noexcept {
  const Handle registration = loan.registration().handle();
  if (registration.index >= directory_.size()) {
    return;
  }
  const std::lock_guard lock(mutex_);
  // Relaxed: only we write it, under the mutex.
  borrowing::DirectoryWord& word = directory_[registration.index];
  if (word.load(std::memory_order_relaxed) != registration.generation) {
    return;
  }
  ORBITE_CHECK(open_ > 0);
  borrowing::close<DirectAccess>(word);
  --open_;
  held_.push_back({std::move(loan)});
}

Result<std::uint64_t> BorrowLedger::add_borrower(Seats seats) {
  const std::lock_guard lock(mutex_);
  try {
    borrowers_.push_back({borrower_next_, seats});
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, "a borrower with %zu seats", seats.size());
  }
  return borrower_next_++;
}

void BorrowLedger::remove_borrower(std::uint64_t borrower) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(borrowers_, [&](const Borrower& known) { return known.id == borrower; });
}

bool BorrowLedger::is_inside(const Borrower& borrower, Handle registration) noexcept {
  return std::any_of(borrower.seats.begin(), borrower.seats.end(),
                     [&](const borrowing::Seat& seat) {
                       return borrowing::is_named<DirectAccess>(seat, registration);
                     });
}

void BorrowLedger::look(Held& held) const noexcept {
  const Handle registration = held.loan.registration().handle();
  auto borrower =
      std::lower_bound(borrowers_.begin(), borrowers_.end(), held.borrower,
                       [](const Borrower& known, std::uint64_t id) { return known.id < id; });
  for (; borrower != borrowers_.end(); ++borrower) {
    if (borrower->id != held.borrower) {
      held.borrower = borrower->id;
      held.seat = 0;
    }
    for (; held.seat < borrower->seats.size(); ++held.seat) {
      if (borrowing::is_named<DirectAccess>(borrower->seats[held.seat], registration) &&
          !base::planted(base::Bug::kLedgerForgetsTheInside)) {
        return;
      }
    }
  }
  held.is_free = true;
}

bool BorrowLedger::reconcile() noexcept {
  const std::lock_guard lock(mutex_);
  for (Held& held : held_) {
    look(held);
  }
  std::erase_if(held_, [](const Held& held) { return held.is_free; });
  return !held_.empty();
}

std::size_t BorrowLedger::held() const {
  const std::lock_guard lock(mutex_);
  return held_.size();
}

std::size_t BorrowLedger::held_by(std::uint64_t borrower) const {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const Borrower& known : borrowers_) {
    if (known.id == borrower) {
      count +=
          static_cast<std::size_t>(std::count_if(held_.begin(), held_.end(), [&](const Held& held) {
            return is_inside(known, held.loan.registration().handle());
          }));
    }
  }
  return count;
}

BorrowSeats::BorrowSeats(std::span<const borrowing::DirectoryWord> directory,
                         std::span<borrowing::Seat> seats) noexcept
    : directory_(directory),
      seats_(seats),
      free_(seats.size() == kSeatsMax ? ~std::uint64_t{0}
                                      : (std::uint64_t{1} << seats.size()) - 1) {
  ORBITE_CHECK(!seats.empty() && seats.size() <= kSeatsMax);
}

BorrowSeats::~BorrowSeats() {
  // Relaxed: whoever destroys it has made sure that nobody uses it.
  const auto free = static_cast<std::size_t>(std::popcount(free_.load(std::memory_order_relaxed)));
  ORBITE_CHECK(free == seats_.size());
}

Result<BorrowSeats::Stay> BorrowSeats::enter(std::span<const Handle> registrations) noexcept {
  ORBITE_CHECK(registrations.size() <= kNamesMax);
  std::uint64_t free = free_.load(std::memory_order_relaxed);
  do {
    if (free == 0) {
      return fail(ErrorCode::kBudgetExhausted, "all %zu seats are taken", seats_.size());
    }
  } while (!free_.compare_exchange_weak(free, free & (free - 1), std::memory_order_acquire,
                                        std::memory_order_relaxed));
  const auto index = static_cast<std::size_t>(std::countr_zero(free));
  Stay stay(*this, index);
  if (!borrowing::enter<DirectAccess>(directory_, seats_[index], registrations)) {
    return fail(ErrorCode::kRegistrationFenced, "the owner has deregistered it");
  }
  return stay;
}

void BorrowSeats::give_back(std::size_t index) noexcept {
  borrowing::leave<DirectAccess>(seats_[index]);
  free_.fetch_or(std::uint64_t{1} << index, std::memory_order_release);
}

}  // namespace orbite::peer
