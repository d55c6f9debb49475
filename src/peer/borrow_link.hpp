// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/assert.hpp"
#include "base/backoff.hpp"
#include "peer/borrow_ledger.hpp"
#include "peer/link_environment.hpp"
#include "peer/peer.hpp"
#include "wire/link.hpp"

namespace orbite::peer {

/// Our way into the memory of one neighbour. `Idle -> Connecting -> Ready -> Ended`, or Refused
/// from where it may be tried again: at once, but after a silence only when it has rested.
class BorrowLink {
 public:
  enum class State : std::uint8_t { kIdle, kConnecting, kReady, kRefused, kEnded };

  BorrowLink(wire::ConnectionBlob owner, base::Backoff silence_rests)
      : owner_(std::move(owner)), silence_rests_(silence_rests) {}
  BorrowLink(const BorrowLink&) = delete;
  BorrowLink& operator=(const BorrowLink&) = delete;

  /// Acquire: who sees true may use seats(), process() and process_refusal().
  [[nodiscard]] bool ready() const noexcept {
    return state_.load(std::memory_order_acquire) == State::kReady;
  }
  [[nodiscard]] State state() const noexcept { return state_.load(std::memory_order_acquire); }
  /// Why it is kRefused or kEnded.
  [[nodiscard]] Error refusal() const;
  /// Of one that is kReady: why a shared range that nobody waits for is not mapped. The last such
  /// reason, if there was one.
  [[nodiscard]] std::optional<Error> shared_refusal() const;

  // Once it was ready, for as long as the link lives: a copy may outlast the end of its owner.
  [[nodiscard]] BorrowSeats& seats() noexcept {
    ORBITE_CHECK(seats_.has_value());
    return *seats_;
  }
  /// Of the owner. nullptr: process_refusal() says why its ordinary memory is out of reach.
  [[nodiscard]] platform::Process* process() const noexcept { return process_.get(); }
  [[nodiscard]] const std::optional<Error>& process_refusal() const noexcept {
    return process_refusal_;
  }
  /// Its engine closes: what was registered there is gone because it is.
  [[nodiscard]] bool owner_closes() const noexcept {
    // SAFETY: the file begins with one. Written by the owner at any time.
    const auto* const head = reinterpret_cast<const borrowing::DirectoryHead*>(  // NOLINT
        directory_pages_->pages().data());
    return head->closes.load(std::memory_order_acquire) != 0;
  }

 private:
  friend class BorrowLinks;
  enum class Stage : std::uint8_t { kServerHello, kWelcome, kReady };
  /// Events of its socket and of its owner's process are looked at.
  [[nodiscard]] bool is_watched() const noexcept {
    return state() == State::kConnecting || state() == State::kReady;
  }
  /// Nothing of it is awaited.
  [[nodiscard]] bool is_decided() const noexcept {
    return state() != State::kIdle && state() != State::kConnecting;
  }

  /// Shared by all who hold it outside; the desk is told of its end.
  struct Hold;

  const wire::ConnectionBlob owner_;
  std::atomic<State> state_{State::kIdle};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_.
  std::optional<Error> refusal_;
  base::Backoff silence_rests_;
  base::Nanoseconds rests_until_ns_ = 0;

  // The worker's, until the link is ready; then unchanged but for the socket.
  std::uint64_t id_ = 0;
  Stage stage_ = Stage::kServerHello;
  base::Nanoseconds since_ns_ = 0;
  /// Of one that was ready, open until nobody holds the link: the owner takes its end for the end
  /// of our copies.
  platform::Socket socket_ = platform::kNoSocket;
  wire::ClientHello hello_;
  std::unique_ptr<platform::Process> process_;
  std::optional<Error> process_refusal_;
  std::unique_ptr<platform::PageMapping> directory_pages_;
  std::unique_ptr<platform::PageMapping> seat_pages_;
  std::optional<BorrowSeats> seats_;  ///< goes first

  // Shared allocations: ranges whose place in one is not asked for yet, and is. Under mutex_. One
  // whose answer has come stays in asked_ until it is mapped, or there is a refusal.
  std::deque<std::weak_ptr<RemoteRange>> to_ask_;
  std::deque<std::weak_ptr<RemoteRange>> asked_;
  std::optional<Error> shared_refusal_;
  bool is_answered_ = true;              ///< the owner has not said otherwise
  bool is_late_ = false;                 ///< the next answer: nobody waits for it any more
  base::Nanoseconds answer_due_ns_ = 0;  ///< while there is something in asked_
  /// The worker's; by the owner's numbers, while a range lies in one.
  std::unordered_map<std::uint64_t, std::weak_ptr<platform::PageMapping>> mappings_;
  base::Nanoseconds due_ns_ = 0;  ///< the worker's; 0: nothing of it is due

  // Under the desk's mutex.
  std::weak_ptr<Hold> hold_;
  bool is_known_ = false;   ///< to the desk
  bool is_listed_ = false;  ///< there
  BorrowLink* next_listed_ = nullptr;
};

/// All of them. The worker's, but where it says otherwise. An event costs the look at one link, and
/// a tick those at links of which something is due or wanted, however many there are.
///
/// Invariant: a range that was given to fetch(), while somebody holds it, is mapped, or its link
/// says why it is not, or its fetch is owed: then it is on one of its link's lists, and
/// connect_and_fetch() waits for it, but where its owner is late.
class BorrowLinks {
 public:
  explicit BorrowLinks(LinkEnvironment environment);
  BorrowLinks(const BorrowLinks&) = delete;
  BorrowLinks& operator=(const BorrowLinks&) = delete;
  /// Nobody copies any more.
  ~BorrowLinks();

  // From any thread.
  /// The same one for the same connection blob, while somebody holds it. The worker connects it, or
  /// tries again where it was refused. kUnsupported: that engine is not of our host.
  Result<std::shared_ptr<BorrowLink>> want(const wire::ConnectionBlob& owner);
  /// Tries again where it was refused, and waits at most `timeout_ns` until it is ready, refused or
  /// ended.
  void connect(BorrowLink& link, base::Nanoseconds timeout_ns);
  /// And, once it is ready, for the answers to what was to be fetched before, unless its owner
  /// answers nothing any more, or is late with them.
  void connect_and_fetch(BorrowLink& link, base::Nanoseconds timeout_ns);
  /// Gets what `range`, which says that it lies in a shared allocation, needs to be reached; where
  /// the link was refused, once it is ready after all.
  void fetch(BorrowLink& link, const std::shared_ptr<RemoteRange>& range);

  void on_event(std::uint64_t token);
  /// Returns how long the worker may sleep.
  base::Nanoseconds on_tick(base::Nanoseconds now_ns);
  /// At links, so far. For whoever counts what a turn costs.
  [[nodiscard]] std::uint64_t looks() const noexcept { return looks_; }

 private:
  friend class BorrowLink;
  /// Which links there are, and which of them somebody wants the worker to look at. What a holder
  /// lets go of may outlive the rest of it.
  class Desk;

  void want_again(BorrowLink& link);
  void begin(BorrowLink& link);
  Result<void> greet(BorrowLink& link);
  void on_message(BorrowLink& link, std::span<const std::uint8_t> message,
                  const platform::Neighbors::Files& files);
  Result<void> take(BorrowLink& link, std::span<const std::uint8_t> message,
                    const platform::Neighbors::Files& files);
  Result<void> take_server_hello(BorrowLink& link, std::span<const std::uint8_t> message);
  Result<void> take_welcome(BorrowLink& link, std::span<const std::uint8_t> message,
                            const platform::Neighbors::Files& files);
  Result<void> take_allocation(BorrowLink& link, std::span<const std::uint8_t> message,
                               const platform::Neighbors::Files& files);
  Result<void> map_shared(BorrowLink& link, const wire::LinkAllocation& answer,
                          const platform::PageFile& file, RemoteRange& range);
  void reach_process(BorrowLink& link, const wire::LinkWelcome& welcome);
  static bool may_ask(const BorrowLink& link);
  void ask(BorrowLink& link);
  bool ask_next(BorrowLink& link);
  bool lose_answer(BorrowLink& link, const Error& error);
  bool settle(BorrowLink& link, const std::optional<Error>& refusal);
  void stop_asking(BorrowLink& link, ErrorCode why);
  void await_answer(BorrowLink& link);
  static base::Nanoseconds next_due(BorrowLink& link, base::Nanoseconds now_ns);
  void receive(BorrowLink& link);
  void look_after(BorrowLink& link, base::Nanoseconds now_ns);
  void do_what_is_due(BorrowLink& link, base::Nanoseconds now_ns);
  void set_due(BorrowLink& link, base::Nanoseconds due_ns);
  void end(BorrowLink& link, const Error& error);
  void drop(BorrowLink& link, const Error& error);
  void set_state(BorrowLink& link, BorrowLink::State state);
  static void store_state(BorrowLink& link, BorrowLink::State state);

  const LinkEnvironment environment_;
  const std::shared_ptr<Desk> desk_;
  std::uint64_t next_id_ = 1;
  std::uint64_t looks_ = 0;
  std::unordered_map<std::uint64_t, BorrowLink*> watched_;     ///< by id
  std::set<std::pair<base::Nanoseconds, std::uint64_t>> due_;  ///< when, and the id
};

}  // namespace orbite::peer
