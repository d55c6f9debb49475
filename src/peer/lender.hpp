// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>

#include "peer/borrow_ledger.hpp"
#include "peer/link_environment.hpp"
#include "wire/link.hpp"

namespace orbite::peer {

/// Our memory for the neighbours: who may borrow it, and the ledger of what they do. The worker's,
/// but where it says otherwise.
class Lender {
 public:
  /// Waits for borrowers from here on. kAddressInUse, kOutOfMemory, kSystem.
  static Result<std::unique_ptr<Lender>> create(LinkEnvironment environment);
  Lender(const Lender&) = delete;
  Lender& operator=(const Lender&) = delete;
  /// Nobody may be inside of anything: held() is 0.
  ~Lender();

  // From any thread.
  /// Room for one more registration, before it is made. kOutOfMemory.
  Result<void> reserve() { return ledger_.reserve(); }
  void cancel_reservation() noexcept { ledger_.cancel_reservation(); }
  /// With room reserved, before the registration's blob is given to anybody.
  void open(Handle registration) noexcept;
  /// Nobody enters it any more; `loan`, taken before it was fenced, goes back when nobody is
  /// inside. Does nothing where it was closed before.
  void close(memory::RangeLoan loan) noexcept;
  /// All that are open, before the registry fences them. Nothing is opened any more.
  void close_all(memory::Registry& registry) noexcept;
  /// Closed, and somebody may be inside.
  [[nodiscard]] std::size_t held() const { return ledger_.held(); }
  /// Engines that have proved themselves.
  [[nodiscard]] std::uint32_t borrowers() const noexcept {
    return borrowers_.load(std::memory_order_relaxed);
  }

  void on_event(std::uint64_t token);
  /// Returns how long the worker may sleep.
  base::Nanoseconds on_tick(base::Nanoseconds now_ns);
  /// Nobody new is let in.
  void stop_accepting();
  /// At borrowers, so far. For whoever counts what a turn costs.
  [[nodiscard]] std::uint64_t looks() const noexcept { return looks_; }

 private:
  enum class Stage : std::uint8_t {
    kHello,  ///< theirs is due
    kProof,  ///< theirs is due
    kServed,
    kMuted  ///< it broke the rules, or we had no memory for it: nothing is answered, but its seats
            ///< count until its end. It is not polled: whatever it sends, and whatever its socket
            ///< reports, costs the look of a second
  };
  struct Borrower {
    platform::Socket socket = platform::kNoSocket;
    Stage stage = Stage::kHello;
    base::Nanoseconds since_ns = 0;
    wire::ClientHello hello;
    wire::ServerHello answer;
    std::unique_ptr<platform::Process> process;  ///< nullptr where the system cannot tell it
    std::unique_ptr<platform::PageMapping> seats;
    std::uint64_t in_ledger = 0;               ///< once it is served
    std::set<std::uint64_t>::node_type place;  ///< for muted_, once it is served
  };

  Lender(LinkEnvironment environment, std::shared_ptr<const platform::PageFile> directory,
         std::unique_ptr<platform::PageMapping> pages);
  Result<void> listen();
  void accept_waiting();
  void make_room();
  void on_message(std::uint64_t id, Borrower& borrower, std::span<const std::uint8_t> message,
                  bool has_files);
  Result<void> take(std::uint64_t id, Borrower& borrower, std::span<const std::uint8_t> message);
  Result<void> take_hello(Borrower& borrower, std::span<const std::uint8_t> message);
  Result<void> take_proof(std::uint64_t id, Borrower& borrower,
                          std::span<const std::uint8_t> message);
  Result<void> take_fetch(Borrower& borrower, std::span<const std::uint8_t> message);
  Result<void> welcome(std::uint64_t id, Borrower& borrower);
  void mute(std::uint64_t id, Borrower& borrower, const Error& error);
  void look_at_muted(std::uint64_t id);
  void end(std::uint64_t id, const char* why) noexcept;

  const LinkEnvironment environment_;
  const std::shared_ptr<const platform::PageFile> directory_;
  const std::unique_ptr<platform::PageMapping> pages_;  ///< of the directory
  BorrowLedger ledger_;
  std::atomic<std::uint32_t> highest_{0};  ///< index that was ever open
  std::atomic<std::uint32_t> borrowers_{0};

  platform::Socket listener_ = platform::kNoSocket;
  base::Nanoseconds rests_until_ns_ = 0;  ///< the listener; 0: it does not
  std::uint64_t next_id_ = 1;
  std::unordered_map<std::uint64_t, Borrower> all_;
  std::set<std::uint64_t> unproved_;  ///< of all_; who came first has the lowest id
  std::set<std::uint64_t> muted_;     ///< of all_
  base::Nanoseconds muted_look_ns_ = 0;
  std::uint64_t looks_ = 0;
};

}  // namespace orbite::peer
