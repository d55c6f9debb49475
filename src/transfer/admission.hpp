// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/assert.hpp"
#include "base/planted.hpp"
#include "base/result.hpp"
#include "base/share.hpp"

namespace orbite::transfer {

class Budget;

/// What one holder, a peer, has of one budget. It outlives every charge that was taken with it.
class Share {
 public:
  Share() = default;
  Share(const Share&) = delete;
  Share& operator=(const Share&) = delete;
  [[nodiscard]] std::uint64_t held() const noexcept {
    return held_.load(std::memory_order_relaxed);
  }

 private:
  friend class Budget;
  std::atomic<std::uint64_t> held_{0};  ///< relaxed: a sum that publishes nothing
};

/// Budget taken before work. Its destructor gives it back and does nothing else.
class Charge {
 public:
  Charge() = default;
  Charge(Charge&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)),
        share_(std::exchange(other.share_, nullptr)),
        amount_(std::exchange(other.amount_, 0)) {}
  Charge& operator=(Charge&& other) noexcept {
    if (this != &other) {
      give_back();
      budget_ = std::exchange(other.budget_, nullptr);
      share_ = std::exchange(other.share_, nullptr);
      amount_ = std::exchange(other.amount_, 0);
    }
    return *this;
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  ~Charge() { give_back(); }

  [[nodiscard]] std::uint64_t amount() const noexcept { return amount_; }

 private:
  friend class Budget;
  Charge(Budget* budget, Share* share, std::uint64_t amount)
      : budget_(budget), share_(share), amount_(amount) {}
  inline void give_back() noexcept;

  Budget* budget_ = nullptr;
  Share* share_ = nullptr;
  std::uint64_t amount_ = 0;
};

/// A pool of one kind. Invariant: 0 <= used <= max, and used is the sum of all live charges.
class Budget {
 public:
  /// `key` of the configuration sets `max`. Both texts have static storage.
  Budget(const char* name, const char* key, std::uint64_t max)
      : name_(name), key_(key), max_(max) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  /// kBudgetExhausted names the pool, what is asked, in use and allowed, and the key. With a share:
  /// within what share_allows() leaves its holder.
  Result<Charge> take(std::uint64_t amount, Share* share = nullptr) {
    // Relaxed: the sums alone matter, they publish nothing. The share is counted up first, so two
    // charges of one holder see each other.
    const std::uint64_t held =
        share == nullptr ? 0 : share->held_.fetch_add(amount, std::memory_order_relaxed);
    std::uint64_t used = used_.load(std::memory_order_relaxed);
    do {
      if (!base::share_allows(held, amount, used, max_)) {
        return refuse(amount, share, held, used);
      }
    } while (!used_.compare_exchange_weak(used, used + amount, std::memory_order_relaxed,
                                          std::memory_order_relaxed));
    return Charge(this, share, amount);
  }

  [[nodiscard]] const char* name() const noexcept { return name_; }
  [[nodiscard]] const char* key() const noexcept { return key_; }
  [[nodiscard]] std::uint64_t used() const noexcept {
    return used_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t max() const noexcept { return max_; }
  /// How often take() failed.
  [[nodiscard]] std::uint64_t refused() const noexcept {
    return refused_.load(std::memory_order_relaxed);
  }

 private:
  friend class Charge;
  tl::unexpected<Error> refuse(std::uint64_t amount, Share* share, std::uint64_t held,
                               std::uint64_t used) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    if (share == nullptr) {
      return fail(ErrorCode::kBudgetExhausted, "%s: %llu asked, %llu of %llu in use (%s)", name_,
                  ull(amount), ull(used), ull(max_), key_);
    }
    share->held_.fetch_sub(amount, std::memory_order_relaxed);
    return fail(ErrorCode::kBudgetExhausted,
                "%s: %llu asked, %llu of %llu in use, %llu of them for this peer, which may have "
                "half of what the others leave (%s)",
                name_, ull(amount), ull(used), ull(max_), ull(held), key_);
  }
  void give_back(std::uint64_t amount, Share* share) noexcept {
    const std::uint64_t before = used_.fetch_sub(amount, std::memory_order_relaxed);
    ORBITE_CHECK(before >= amount);
    if (share != nullptr) {
      const std::uint64_t held = share->held_.fetch_sub(amount, std::memory_order_relaxed);
      ORBITE_CHECK(held >= amount);
    }
  }
  static unsigned long long ull(std::uint64_t value) { return value; }

  const char* name_;
  const char* key_;
  std::uint64_t max_;
  std::atomic<std::uint64_t> used_{0};
  std::atomic<std::uint64_t> refused_{0};
};

inline void Charge::give_back() noexcept {
  if (budget_ != nullptr) {
    budget_->give_back(base::planted(base::Bug::kLeakCredit) ? 0 : amount_, share_);
    budget_ = nullptr;
    share_ = nullptr;
    amount_ = 0;
  }
}

/// The pools that a request is charged to.
struct Admission {
  Budget requests;         ///< prepared requests
  Budget descriptors;      ///< descriptors of prepared requests
  Budget bytes_in_flight;  ///< of posted executions, shared by peers
  Budget outbox_bytes;     ///< of notifications not yet delivered, shared by peers
};

/// What one peer has of the pools that peers share.
struct PeerShares {
  Share bytes_in_flight;
  Share outbox_bytes;
};

}  // namespace orbite::transfer
