// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/assert.hpp"
#include "base/planted.hpp"
#include "base/result.hpp"

namespace orbite::transfer {

class Budget;

/// Budget taken before work. Its destructor gives it back and does nothing else.
class Charge {
 public:
  Charge() = default;
  Charge(Charge&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), amount_(std::exchange(other.amount_, 0)) {}
  Charge& operator=(Charge&& other) noexcept {
    if (this != &other) {
      give_back();
      budget_ = std::exchange(other.budget_, nullptr);
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
  Charge(Budget* budget, std::uint64_t amount) : budget_(budget), amount_(amount) {}
  inline void give_back() noexcept;

  Budget* budget_ = nullptr;
  std::uint64_t amount_ = 0;
};

/// A pool of one kind. Invariant: 0 <= used <= max, and used is the sum of all live charges.
class Budget {
 public:
  Budget(const char* name, std::uint64_t max) : name_(name), max_(max) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  /// kBudgetExhausted names the pool, what is asked, in use and allowed.
  Result<Charge> take(std::uint64_t amount) {
    // Relaxed: the sum alone matters, it publishes nothing.
    std::uint64_t used = used_.load(std::memory_order_relaxed);
    do {
      if (amount > max_ - used) {
        return fail(ErrorCode::kBudgetExhausted, "%s: %llu asked, %llu of %llu in use", name_,
                    static_cast<unsigned long long>(amount), static_cast<unsigned long long>(used),
                    static_cast<unsigned long long>(max_));
      }
    } while (!used_.compare_exchange_weak(used, used + amount, std::memory_order_relaxed,
                                          std::memory_order_relaxed));
    return Charge(this, amount);
  }

  [[nodiscard]] const char* name() const noexcept { return name_; }
  [[nodiscard]] std::uint64_t used() const noexcept {
    return used_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t max() const noexcept { return max_; }

 private:
  friend class Charge;
  void give_back(std::uint64_t amount) noexcept {
    const std::uint64_t before = used_.fetch_sub(amount, std::memory_order_relaxed);
    ORBITE_CHECK(before >= amount);
  }

  const char* name_;
  std::uint64_t max_;
  std::atomic<std::uint64_t> used_{0};
};

inline void Charge::give_back() noexcept {
  if (budget_ != nullptr) {
    budget_->give_back(base::planted(base::Bug::kLeakCredit) ? 0 : amount_);
    budget_ = nullptr;
    amount_ = 0;
  }
}

/// The pools that a request is charged to.
struct Admission {
  Budget requests;         ///< prepared requests
  Budget descriptors;      ///< descriptors of prepared requests
  Budget bytes_in_flight;  ///< of posted executions
  Budget outbox_bytes;     ///< of notifications not yet delivered
};

}  // namespace orbite::transfer
