// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "memory/registry.hpp"
#include "orbite/handle.hpp"
#include "peer/borrow_protocol.hpp"

namespace orbite::peer {

/// The owner's part: which registrations neighbours may touch without asking, and when the last of
/// them is out of one. Never waits. Any thread.
///
/// Invariant: a registration that was opened and closed has a loan here until every seat was seen
/// not to name it, so it cannot retire before.
class BorrowLedger {
 public:
  using Directory = std::span<borrowing::DirectoryWord>;
  using Seats = std::span<const borrowing::Seat>;

  /// The directory outlives the ledger, holds zeros, and has a word for every slot that the
  /// registry may use.
  explicit BorrowLedger(Directory directory) noexcept : directory_(directory) {}
  BorrowLedger(const BorrowLedger&) = delete;
  BorrowLedger& operator=(const BorrowLedger&) = delete;

  /// Room for one more, so that it can be opened and closed. kOutOfMemory.
  Result<void> reserve();
  /// The room is not needed.
  void cancel_reservation() noexcept;
  /// With room reserved, before its blob is given to anybody. False, and the room is given back:
  /// the directory has no word for it, or nothing is opened any more, so nobody enters it.
  bool open(Handle registration) noexcept;
  /// From its return on; what was opened before has its word in the directory.
  void open_no_more() noexcept;
  /// Nobody enters it any more. Keeps `loan`, taken before the registration was fenced, until
  /// reconcile() finds that nobody is inside. One that is not open is left as it is: of several who
  /// close it, one is the first. Cannot fail.
  void close(memory::RangeLoan loan) noexcept;

  /// Before the borrower is told of its seats, which outlive its removal. kOutOfMemory.
  Result<std::uint64_t> add_borrower(Seats seats);
  /// It was proved that the borrower is gone: what its seats name, it does not touch any more.
  void remove_borrower(std::uint64_t borrower) noexcept;

  /// Gives the loans back of what nobody is inside of. True while some are left: of each of these
  /// one look at the seat that kept it.
  bool reconcile() noexcept;

  /// Closed, and somebody may be inside.
  [[nodiscard]] std::size_t held() const;
  /// Of these, how many that borrower names.
  [[nodiscard]] std::size_t held_by(std::uint64_t borrower) const;

 private:
  struct Borrower {
    std::uint64_t id = 0;
    Seats seats;
  };
  struct Held {
    memory::RangeLoan loan;
    /// The first seat that may name it: who was not inside when it was closed never will be, so a
    /// seat that was seen not to name it is done with.
    std::uint64_t borrower = 0;
    std::size_t seat = 0;
    bool is_free = false;  ///< there is none
  };
  static bool is_inside(const Borrower& borrower, Handle registration) noexcept;
  void look(Held& held) const noexcept;

  const Directory directory_;
  mutable std::mutex mutex_;
  std::vector<Borrower> borrowers_;  ///< by id
  std::vector<Held> held_;           ///< has room for all that are open
  std::size_t open_ = 0;             ///< and reserved
  bool opens_no_more_ = false;
  std::uint64_t borrower_next_ = 1;
};

/// The borrower's part, for one owner. Any thread.
class BorrowSeats {
 public:
  static constexpr std::size_t kSeatsMax = 64;
  static constexpr std::size_t kNamesMax = borrowing::Seat::kNamesMax;

  /// A copy under way. Its end must not come before the last access.
  class Stay {
   public:
    Stay(Stay&& other) noexcept
        : seats_(std::exchange(other.seats_, nullptr)), index_(other.index_) {}
    Stay& operator=(Stay&&) = delete;
    Stay(const Stay&) = delete;
    Stay& operator=(const Stay&) = delete;
    ~Stay() {
      if (seats_ != nullptr) {
        seats_->give_back(index_);
      }
    }

   private:
    friend class BorrowSeats;
    Stay(BorrowSeats& seats, std::size_t index) noexcept : seats_(&seats), index_(index) {}
    BorrowSeats* seats_;
    std::size_t index_;
  };

  /// Both outlive it. At most kSeatsMax seats, all empty, used by nobody else.
  BorrowSeats(std::span<const borrowing::DirectoryWord> directory,
              std::span<borrowing::Seat> seats) noexcept;
  BorrowSeats(const BorrowSeats&) = delete;
  BorrowSeats& operator=(const BorrowSeats&) = delete;
  ~BorrowSeats();

  /// While the result lives, these registrations of the owner (at most kNamesMax, different ones)
  /// stay registered. kRegistrationFenced: one of them is not live; kBudgetExhausted: all seats are
  /// taken, so try again.
  Result<Stay> enter(std::span<const Handle> registrations) noexcept;

 private:
  void give_back(std::size_t index) noexcept;

  const std::span<const borrowing::DirectoryWord> directory_;
  const std::span<borrowing::Seat> seats_;
  /// A bit for each seat that is free. Acquire and release: whoever takes a seat finds it empty.
  std::atomic<std::uint64_t> free_;
};

}  // namespace orbite::peer
