// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/planted.hpp"
#include "orbite/handle.hpp"

/// The words through which an owner of memory and a neighbour who copies it himself agree, and the
/// only code that reads or writes them. docs/design/same-host.md has the protocol and why it holds.
namespace orbite::peer::borrowing {

// Both sides read and write them, in two processes.
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// Of the owner's directory, one for each slot of its registry: the generation that is live, or 0.
using DirectoryWord = std::atomic<std::uint32_t>;

/// Before the words of a directory, on a line of its own.
struct alignas(64) DirectoryHead {
  std::array<std::uint8_t, 16> probe;  ///< what a neighbour must find in the owner's memory
  /// 1: the owner's engine closes, and with it every word. Release, before the words; acquire,
  /// after a look at one.
  std::atomic<std::uint32_t> closes;
};
static_assert(sizeof(DirectoryHead) == 64);

/// What one copy of a borrower touches, as Handle::packed(). 0 is an empty entry: generations begin
/// with 1.
template <std::size_t kNames>
struct BasicSeat {
  static constexpr std::size_t kNamesMax = kNames;
  std::array<std::atomic<std::uint64_t>, kNames> names{};
};
/// One cache line, so that threads of the borrower do not disturb each other.
struct alignas(64) Seat : BasicSeat<8> {};
static_assert(sizeof(Seat) == 64);

/// The accesses themselves, so that a test can stand between any two of them.
struct DirectAccess {
  template <typename Word, typename Value>
  static void store(Word& word, Value value, std::memory_order memory_order) noexcept {
    word.store(value, memory_order);
  }
  template <typename Word>
  static auto load(const Word& word, std::memory_order memory_order) noexcept {
    return word.load(memory_order);
  }
};

template <typename Access, typename AnySeat>
void leave(AnySeat& seat) noexcept {
  for (auto& name : seat.names) {
    // Relaxed: only the borrower writes it. Release: with is_named(), what was copied is in place
    // for the owner who sees the seat empty.
    if (Access::load(name, std::memory_order_relaxed) != 0) {
      Access::store(name, std::uint64_t{0}, std::memory_order_release);
    }
  }
}

/// True: until leave(), none of the registrations retires. False: one of them is not live, or not
/// in the directory, and the seat is empty. `registrations` are at most kNamesMax, the seat is the
/// caller's and empty.
template <typename Access, typename AnySeat>
bool enter(std::span<const DirectoryWord> directory, AnySeat& seat,
           std::span<const Handle> registrations) noexcept {
  for (std::size_t i = 0; i < registrations.size(); ++i) {
    if (registrations[i].generation == 0 || registrations[i].index >= directory.size()) {
      leave<Access>(seat);
      return false;
    }
    // Sequentially consistent, as are the looks below and both accesses of the owner's: of "we name
    // it, then look" and "it closes the word, then looks" one sees the other.
    Access::store(seat.names[i], registrations[i].packed(), std::memory_order_seq_cst);
  }
  for (const Handle registration : registrations) {
    if (Access::load(directory[registration.index], std::memory_order_seq_cst) !=
            registration.generation &&
        !base::planted(base::Bug::kBorrowerSkipsTheLook)) {
      leave<Access>(seat);
      return false;
    }
  }
  return true;
}

/// Before any borrower learns of the registration.
template <typename Access>
void open(DirectoryWord& word, Handle registration) noexcept {
  Access::store(word, registration.generation, std::memory_order_seq_cst);
}

/// From now on nobody enters; who has entered may still be inside.
template <typename Access>
void close(DirectoryWord& word) noexcept {
  Access::store(word, std::uint32_t{0}, std::memory_order_seq_cst);
}

/// After close(), for every seat: false once means that nobody is inside by that seat, nor will be.
template <typename Access, typename AnySeat>
bool is_named(const AnySeat& seat, Handle registration) noexcept {
  bool named = false;
  for (const auto& name : seat.names) {
    named = named || Access::load(name, std::memory_order_seq_cst) == registration.packed();
  }
  return named;
}

}  // namespace orbite::peer::borrowing
