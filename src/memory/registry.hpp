// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "base/byte_range.hpp"
#include "base/ids.hpp"
#include "base/random.hpp"
#include "base/result.hpp"
#include "memory/shared_allocations.hpp"
#include "orbite/memory.hpp"

namespace orbite::memory {

/// What a borrower does with the bytes of the range.
enum class Direction : std::uint8_t {
  kRead,  ///< bytes leave the range
  kWrite  ///< bytes land in it
};

/// On whose behalf. A remote borrower needs the access bit of its direction.
enum class Borrower : std::uint8_t { kLocal, kRemote };

struct RegistryLimits {
  /// Registrations held at one time: live, fenced and unquiesced ones together.
  /// limits.registrations_max of the configuration.
  std::uint64_t registrations_max = 0;
  /// A slot that has had this generation is withdrawn when it retires. Not 0.
  std::uint32_t generation_max = std::numeric_limits<std::uint32_t>::max();
};

class RegistryCore;

/// One registered range. Its facts never change and it never moves. Holding a std::shared_ptr to
/// one keeps these facts readable and nothing more: only a loan keeps the memory itself registered.
class Registration {
 public:
  class Passkey {
    friend class RegistryCore;
    Passkey() = default;
  };
  Registration(Passkey, RegistryCore& core, const base::ByteRange& range,
               const MemoryDescriptor& descriptor, SharedPart shared);
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  ~Registration() = default;

  [[nodiscard]] Handle handle() const noexcept { return handle_; }
  [[nodiscard]] const base::ByteRange& range() const noexcept { return range_; }
  [[nodiscard]] std::uint64_t device_id() const noexcept { return device_id_; }
  [[nodiscard]] MemoryKind kind() const noexcept { return kind_; }
  [[nodiscard]] std::uint8_t access() const noexcept { return access_; }
  [[nodiscard]] const base::RegistrationKey& key() const noexcept { return key_; }

  /// What it lies in, with no allocation for ordinary memory. Only while a loan is out: it is held
  /// until the registration retires.
  [[nodiscard]] const SharedPart& shared() const noexcept { return shared_; }

  /// True from deregistration on, for ever. False may be old by the time it is read: only a
  /// successful borrow is proof that the range stays registered.
  [[nodiscard]] bool fenced() const noexcept;

 private:
  friend class RegistryCore;
  friend class RangeLoan;

  static constexpr std::uint64_t kFencedBit = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kLoansMask = kFencedBit - 1;

  [[nodiscard]] bool try_count_up() noexcept;
  void count_down() noexcept;
  [[nodiscard]] std::uint64_t loans() const noexcept;

  /// Fence bit and loan count in one word, so that "not fenced, and counted" is one atomic step
  /// and a fenced count only falls: exactly one step makes it {fenced, 0}.
  std::atomic<std::uint64_t> word_{0};
  RegistryCore& core_;  ///< outlives every loan
  Handle handle_;
  const base::ByteRange range_;
  const std::uint64_t device_id_;
  base::RegistrationKey key_;
  const MemoryKind kind_;
  const std::uint8_t access_;

  // Of whoever made the word {fenced, 0}, until the push on the reap list; then of reap().
  Registration* reap_next_ = nullptr;
  std::shared_ptr<Registration> retiring_self_;
  std::function<void()> retired_;
  SharedPart shared_;
};

/// A borrow of a registered range in one direction. The range stays registered while one is out.
/// The destructor gives it back and does nothing else: no callback, no allocation, no lock.
class RangeLoan {
 public:
  RangeLoan() noexcept = default;  ///< empty
  RangeLoan(RangeLoan&& other) noexcept
      : registration_(std::exchange(other.registration_, nullptr)), direction_(other.direction_) {}
  RangeLoan& operator=(RangeLoan&& other) noexcept {
    if (this != &other) {
      give_back();
      registration_ = std::exchange(other.registration_, nullptr);
      direction_ = other.direction_;
    }
    return *this;
  }
  RangeLoan(const RangeLoan&) = delete;
  RangeLoan& operator=(const RangeLoan&) = delete;
  ~RangeLoan() { give_back(); }

  [[nodiscard]] explicit operator bool() const noexcept { return registration_ != nullptr; }
  /// Not of an empty loan.
  [[nodiscard]] const Registration& registration() const noexcept {
    ORBITE_CHECK(registration_ != nullptr);
    return *registration_;
  }
  [[nodiscard]] Direction direction() const noexcept { return direction_; }

 private:
  friend class RegistryCore;
  RangeLoan(Registration& registration, Direction direction) noexcept
      : registration_(&registration), direction_(direction) {}
  void give_back() noexcept {
    if (registration_ != nullptr) {
      std::exchange(registration_, nullptr)->count_down();
    }
  }

  // The registry holds the object while the count is not 0, so the loan needs no reference.
  Registration* registration_ = nullptr;
  Direction direction_ = Direction::kRead;
};

/// Owns every registration. Safe from any thread; no member waits for a loan.
class Registry {
 public:
  /// `random` gives the registration keys; it must outlive the registry and is called by one
  /// thread at a time.
  Registry(RegistryLimits limits, base::RandomSource& random);
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;
  /// Fences everything. What has not retired then stays in memory for good, and its `retired` is
  /// never called: a loan may outlive the registry.
  ~Registry();

  /// kInvalidRange; kInvalidArgument (kind, access without kAccessLocal, unknown access bits);
  /// kBudgetExhausted; kEngineClosing after fence_all; kOutOfMemory. A failure leaves nothing.
  /// `shared`: what the range lies in, held until it has retired.
  Result<Handle> add(const MemoryDescriptor& descriptor, SharedPart shared = {});

  /// Fences at once and reaps. Answers the state then: kRetired when no loan was out. A second call
  /// answers the state, or kStaleHandle when the slot has another owner.
  Result<RegistrationState> deregister(Handle handle);
  /// Reaps first. kRetired is answered only after `retired` has returned, and only until the slot
  /// has another owner: kStaleHandle from then on, and for a handle that never was.
  Result<RegistrationState> state(Handle handle) const;

  /// kStaleHandle (retired ones too); kRegistrationFenced.
  Result<std::shared_ptr<Registration>> find(Handle handle) const;

  /// `registration` not null, of this registry. Lock-free. kRegistrationFenced, kNotAllowed.
  Result<RangeLoan> borrow(const std::shared_ptr<Registration>& registration, Direction direction,
                           Borrower borrower) const;
  /// For a peer's frame. A slot that never was or holds nothing: kRegistrationFenced; one with
  /// another generation: kRegistrationChanged; a wrong key (compared in constant time) or a missing
  /// access bit: kNotAllowed; then as borrow().
  Result<RangeLoan> borrow_remote(Handle handle, const base::RegistrationKey& key,
                                  Direction direction) const;

  /// The live registrations that cover `range`, by address, then by handle. O((1 + found) log n).
  [[nodiscard]] std::vector<Handle> covering(const base::ByteRange& range) const;

  /// Retires every fenced registration whose loans are back: calls `retired` once, with no lock
  /// held, then gives back the slot and the charge. One atomic load when there is none.
  void reap() const;
  /// Fences everything that is live, and refuses add() from then on. Reaps.
  void fence_all();
  /// The proof of retirement cannot be had: all that are live or fenced are kUnquiesced for ever,
  /// slot and charge kept, `retired` never called.
  void quarantine_all();

  struct Counts {
    std::uint64_t live = 0;
    std::uint64_t fenced = 0;
    std::uint64_t unquiesced = 0;
    std::uint64_t retired_total = 0;
    std::uint64_t bytes_registered = 0;  ///< of live, fenced and unquiesced ones
    std::uint64_t bytes_unquiesced = 0;  ///< of these, of unquiesced ones
    std::uint64_t refused_total = 0;     ///< for want of room
    std::uint64_t loans = 0;             ///< out now, of the same ones
  };
  [[nodiscard]] Counts counts() const;

 private:
  std::unique_ptr<RegistryCore> core_;
};

}  // namespace orbite::memory
