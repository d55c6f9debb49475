// SPDX-License-Identifier: Apache-2.0
#include "memory/registry.hpp"

#include <sodium/utils.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <new>

#include "base/log.hpp"
#include "base/planted.hpp"
#include "memory/interval_index.hpp"

namespace orbite::memory {
namespace {

unsigned long long ull(std::uint64_t value) { return value; }

Result<base::ByteRange> check_descriptor(const MemoryDescriptor& descriptor) {
  if (descriptor.kind != MemoryKind::kDram) {
    return fail(ErrorCode::kInvalidArgument, "memory kind %u; allowed: %u (DRAM)",
                static_cast<unsigned>(descriptor.kind), static_cast<unsigned>(MemoryKind::kDram));
  }
  if ((descriptor.access & ~kAccessAll) != 0 || (descriptor.access & kAccessLocal) == 0) {
    return fail(ErrorCode::kInvalidArgument,
                "access mask 0x%x; allowed: 0x%x (local), with 0x%x (remote read) and 0x%x (remote "
                "write) added",
                descriptor.access, kAccessLocal, kAccessRemoteRead, kAccessRemoteWrite);
  }
  return base::ByteRange::make(descriptor.address, descriptor.length);
}

tl::unexpected<Error> fail_fenced(Handle handle) {
  return fail(ErrorCode::kRegistrationFenced, "registration %u, generation %u", handle.index,
              handle.generation);
}

tl::unexpected<Error> fail_stale(Handle handle) {
  return fail(ErrorCode::kStaleHandle, "registration %u, generation %u", handle.index,
              handle.generation);
}

Result<void> check_access(const Registration& registration, Direction direction,
                          Borrower borrower) {
  if (borrower == Borrower::kLocal) {
    return {};
  }
  const bool reads = direction == Direction::kRead;
  if ((registration.access() & (reads ? kAccessRemoteRead : kAccessRemoteWrite)) == 0) {
    return fail(ErrorCode::kNotAllowed, "registration %u has access 0x%x: no remote %s",
                registration.handle().index, registration.access(), reads ? "read" : "write");
  }
  return {};
}

}  // namespace

/// The registry's state. Apart from Registry, because loans outlive that one: a core with anything
/// unresolved is never freed.
class RegistryCore {
 public:
  RegistryCore(RegistryLimits limits, base::RandomSource& random)
      : limits_(limits), random_(random) {
    ORBITE_CHECK(limits.generation_max > 0);
  }

  Result<Handle> add(const MemoryDescriptor& descriptor, SharedPart shared);
  Result<RegistrationState> deregister(Handle handle);
  Result<RegistrationState> state(Handle handle);
  Result<std::shared_ptr<Registration>> find(Handle handle);
  Result<RangeLoan> borrow(Registration& registration, Direction direction, Borrower borrower);
  Result<RangeLoan> borrow_remote(Handle handle, const base::RegistrationKey& key,
                                  Direction direction);
  std::vector<Handle> covering(const base::ByteRange& range);
  void reap();
  void fence_all();
  void quarantine_all();
  Registry::Counts counts();

  /// Of whoever made the registration's word {fenced, 0}; once for each registration.
  void push_retirable(Registration& registration) noexcept;
  /// Keeps `core`, and everything in it, for the rest of the process.
  static void abandon(std::unique_ptr<RegistryCore> core) noexcept;

 private:
  struct Slot {
    std::shared_ptr<Registration> registration;  ///< from add to the end of retirement
    std::uint32_t generation = 0;                ///< of the newest registration here; 0: none yet
    std::uint32_t free_next = kNoSlot;
    RegistrationState state = RegistrationState::kRetired;
    bool retiring = false;  ///< `retired` is being called
  };
  static constexpr std::uint32_t kNoSlot = std::numeric_limits<std::uint32_t>::max();

  // All of these with mutex_ held.
  Result<void> check_budget(const base::ByteRange& range) const;
  void reserve_slot();
  std::uint32_t take_slot() noexcept;
  Slot* slot_of(Handle handle) noexcept;
  void fence(Slot& slot) noexcept;
  void finish_retirement(Registration& registration) noexcept;

  Registration* take_retirable() noexcept;

  const RegistryLimits limits_;
  base::RandomSource& random_;

  std::mutex mutex_;
  std::vector<Slot> slots_;
  IntervalIndex index_;  ///< the live ones
  std::uint32_t free_first_ = kNoSlot;
  std::uint32_t free_last_ = kNoSlot;
  std::uint64_t live_ = 0;
  std::uint64_t fenced_ = 0;
  std::uint64_t unquiesced_ = 0;
  std::uint64_t retired_total_ = 0;
  std::uint64_t bytes_registered_ = 0;
  std::uint64_t bytes_unquiesced_ = 0;
  std::uint64_t refused_total_ = 0;
  bool closed_ = false;

  /// Registrations with the word {fenced, 0} that reap() has not seen, chained by reap_next_.
  std::atomic<Registration*> retirable_{nullptr};
  RegistryCore* abandoned_next_ = nullptr;
};

Registration::Registration(Passkey, RegistryCore& core, const base::ByteRange& range,
                           const MemoryDescriptor& descriptor, SharedPart shared)
    : core_(core),
      range_(range),
      device_id_(descriptor.device_id),
      kind_(descriptor.kind),
      access_(descriptor.access),
      retired_(descriptor.retired),
      shared_(std::move(shared)) {}

bool Registration::fenced() const noexcept {
  // Relaxed: a hint, which orders nothing.
  return (word_.load(std::memory_order_relaxed) & kFencedBit) != 0;
}

std::uint64_t Registration::loans() const noexcept {
  // Relaxed: for counters.
  return word_.load(std::memory_order_relaxed) & kLoansMask;
}

bool Registration::try_count_up() noexcept {
  // Relaxed: the facts were published with the pointer that the caller holds, and what the loan's
  // holder does to the memory is ordered before retirement by count_down(). In the order of this
  // word's changes the fence stands either before this step, which then fails, or after it, and
  // then whoever retires has to see this loan's count_down().
  std::uint64_t seen = word_.load(std::memory_order_relaxed);
  do {
    const bool ignores_fence =
        base::planted(base::Bug::kSkipFenceOnDeregister) && (seen & kLoansMask) != 0;
    if ((seen & kFencedBit) != 0 && !ignores_fence) {
      return false;
    }
    ORBITE_CHECK((seen & kLoansMask) != kLoansMask);
  } while (!word_.compare_exchange_weak(seen, seen + 1, std::memory_order_relaxed,
                                        std::memory_order_relaxed));
  return true;
}

void Registration::count_down() noexcept {
  // Release: accesses under this loan come before retirement. Acquire: those under all other loans
  // do too, when this is the step that makes the word {fenced, 0}; it pairs with the release of
  // their count_down(). The push then carries them to reap().
  const std::uint64_t before = word_.fetch_sub(1, std::memory_order_acq_rel);
  ORBITE_CHECK((before & kLoansMask) != 0);
  if (before == (kFencedBit | 1)) {
    core_.push_retirable(*this);
  }
}

void RegistryCore::push_retirable(Registration& registration) noexcept {
  // Release on success: pairs with the acquire in take_retirable(). After it the object and, once
  // nothing else is unresolved, the core may be gone.
  Registration* first = retirable_.load(std::memory_order_relaxed);
  do {
    registration.reap_next_ = first;
  } while (!retirable_.compare_exchange_weak(first, &registration, std::memory_order_release,
                                             std::memory_order_relaxed));
}

Registration* RegistryCore::take_retirable() noexcept {
  // Relaxed: a look that spares the exchange. Acquire: pairs with the release of every push.
  if (retirable_.load(std::memory_order_relaxed) == nullptr) {
    return nullptr;
  }
  return retirable_.exchange(nullptr, std::memory_order_acquire);
}

void RegistryCore::abandon(std::unique_ptr<RegistryCore> core) noexcept {
  static constinit std::mutex mutex;
  static constinit RegistryCore* first = nullptr;
  const std::lock_guard lock(mutex);
  core->abandoned_next_ = first;
  first = core.release();
}

Result<void> RegistryCore::check_budget(const base::ByteRange& range) const {
  if (closed_) {
    return fail(ErrorCode::kEngineClosing, "no registration is added any more");
  }
  const std::uint64_t held = live_ + fenced_ + unquiesced_;
  const std::uint64_t held_max = std::min<std::uint64_t>(limits_.registrations_max, kNoSlot);
  if (held >= held_max) {
    return fail(ErrorCode::kBudgetExhausted,
                "registrations: %llu of %llu held, %llu live, %llu fenced, %llu unquiesced "
                "(limits.registrations_max)",
                ull(held), ull(held_max), ull(live_), ull(fenced_), ull(unquiesced_));
  }
  if (free_first_ == kNoSlot && slots_.size() >= kNoSlot) {
    return fail(ErrorCode::kBudgetExhausted, "%zu slots used up, limit %llu", slots_.size(),
                ull(kNoSlot));
  }
  if (range.length() > std::numeric_limits<std::uint64_t>::max() - bytes_registered_) {
    return fail(ErrorCode::kBudgetExhausted, "%llu bytes registered and %llu more, limit 2^64 - 1",
                ull(bytes_registered_), ull(range.length()));
  }
  return {};
}

void RegistryCore::reserve_slot() {
  if (free_first_ == kNoSlot && slots_.size() == slots_.capacity()) {
    slots_.reserve(std::max<std::size_t>(16, slots_.capacity() * 2));
  }
}

std::uint32_t RegistryCore::take_slot() noexcept {
  if (free_first_ == kNoSlot) {
    slots_.emplace_back();
    return static_cast<std::uint32_t>(slots_.size() - 1);
  }
  const std::uint32_t slot = free_first_;
  free_first_ = slots_[slot].free_next;
  if (free_first_ == kNoSlot) {
    free_last_ = kNoSlot;
  }
  return slot;
}

Result<Handle> RegistryCore::add(const MemoryDescriptor& descriptor, SharedPart shared) try {
  ORBITE_ASSIGN_OR_RETURN(const base::ByteRange range, check_descriptor(descriptor));
  auto registration = std::make_shared<Registration>(Registration::Passkey{}, *this, range,
                                                     descriptor, std::move(shared));
  const std::lock_guard lock(mutex_);
  if (auto room = check_budget(range); !room) {
    refused_total_ += room.error().code() == ErrorCode::kBudgetExhausted ? 1 : 0;
    return fail(room.error());
  }
  reserve_slot();
  index_.reserve_one();
  // Nothing below can fail.
  const std::uint32_t slot_index = take_slot();
  Slot& slot = slots_[slot_index];
  slot.state = RegistrationState::kLive;
  registration->handle_ = {slot_index, ++slot.generation};
  random_.fill(registration->key_.bytes);
  index_.insert(range, registration->handle_);
  ++live_;
  bytes_registered_ += range.length();
  slot.registration = std::move(registration);
  return slot.registration->handle();
} catch (const std::bad_alloc&) {
  return fail(ErrorCode::kOutOfMemory, "registering %llu bytes at 0x%llx", ull(descriptor.length),
              ull(descriptor.address));
}

RegistryCore::Slot* RegistryCore::slot_of(Handle handle) noexcept {
  if (handle.generation == 0 || handle.index >= slots_.size()) {
    return nullptr;
  }
  Slot& slot = slots_[handle.index];
  return slot.generation == handle.generation ? &slot : nullptr;
}

void RegistryCore::fence(Slot& slot) noexcept {
  ORBITE_CHECK(slot.state == RegistrationState::kLive);
  Registration& registration = *slot.registration;
  slot.state = RegistrationState::kFenced;
  index_.erase(registration.range(), registration.handle());
  --live_;
  ++fenced_;
  // Acquire: when no loan is out, this step makes the word {fenced, 0} and stands in for the last
  // count_down(); it pairs with the release of all of them. No release: a borrower that sees the
  // fence only turns away.
  const std::uint64_t before =
      registration.word_.fetch_or(Registration::kFencedBit, std::memory_order_acquire);
  ORBITE_CHECK((before & Registration::kFencedBit) == 0);
  if (before == 0) {
    push_retirable(registration);
  }
}

Result<RegistrationState> RegistryCore::deregister(Handle handle) {
  {
    const std::lock_guard lock(mutex_);
    Slot* const slot = slot_of(handle);
    if (slot == nullptr) {
      return fail_stale(handle);
    }
    if (slot->state == RegistrationState::kLive) {
      fence(*slot);
    }
  }
  reap();
  const std::lock_guard lock(mutex_);
  const Slot* const slot = slot_of(handle);
  // Another owner already: then this one has retired.
  const bool retired = slot == nullptr || base::planted(base::Bug::kDeregisterWithoutWaiting);
  return retired ? RegistrationState::kRetired : slot->state;
}

Result<RegistrationState> RegistryCore::state(Handle handle) {
  reap();
  const std::lock_guard lock(mutex_);
  const Slot* const slot = slot_of(handle);
  if (slot == nullptr) {
    return fail_stale(handle);
  }
  return slot->state;
}

Result<std::shared_ptr<Registration>> RegistryCore::find(Handle handle) {
  const std::lock_guard lock(mutex_);
  const Slot* const slot = slot_of(handle);
  if (slot == nullptr || slot->state == RegistrationState::kRetired) {
    return fail_stale(handle);
  }
  if (slot->state != RegistrationState::kLive) {
    return fail_fenced(handle);
  }
  return slot->registration;
}

Result<RangeLoan> RegistryCore::borrow(Registration& registration, Direction direction,
                                       Borrower borrower) {
  ORBITE_DCHECK(&registration.core_ == this);
  ORBITE_TRY(check_access(registration, direction, borrower));
  if (!registration.try_count_up()) {
    return fail_fenced(registration.handle());
  }
  return RangeLoan(registration, direction);
}

Result<RangeLoan> RegistryCore::borrow_remote(Handle handle, const base::RegistrationKey& key,
                                              Direction direction) {
  const std::lock_guard lock(mutex_);
  if (handle.index >= slots_.size()) {
    return fail_fenced(handle);
  }
  const Slot& slot = slots_[handle.index];
  if (slot.generation != handle.generation) {
    return fail(ErrorCode::kRegistrationChanged, "registration %u, generation %u: it is %u now",
                handle.index, handle.generation, slot.generation);
  }
  if (slot.registration == nullptr) {
    return fail_fenced(handle);
  }
  Registration& registration = *slot.registration;
  if (sodium_memcmp(registration.key().bytes.data(), key.bytes.data(), key.bytes.size()) != 0) {
    return fail(ErrorCode::kNotAllowed, "registration %u: wrong key", handle.index);
  }
  return borrow(registration, direction, Borrower::kRemote);
}

std::vector<Handle> RegistryCore::covering(const base::ByteRange& range) {
  std::vector<Handle> found;
  const std::lock_guard lock(mutex_);
  index_.for_each_covering(range, [&found](Handle handle) { found.push_back(handle); });
  return found;
}

void RegistryCore::reap() {
  Registration* pushed = take_retirable();
  if (pushed == nullptr) {
    return;
  }
  Registration* retiring = nullptr;
  {
    const std::lock_guard lock(mutex_);
    while (pushed != nullptr) {
      Registration* const registration = std::exchange(pushed, pushed->reap_next_);
      Slot& slot = slots_[registration->handle().index];
      ORBITE_CHECK(slot.registration.get() == registration);
      if (slot.state == RegistrationState::kFenced) {
        slot.retiring = true;
        registration->reap_next_ = std::exchange(retiring, registration);
      }
    }
  }
  for (Registration* it = retiring; it != nullptr; it = it->reap_next_) {
    // Its captures go here too, not under the lock.
    const std::function<void()> retired = std::exchange(it->retired_, nullptr);
    // Before its user is told, who may end the allocation then.
    it->shared_ = {};
    if (!retired) {
      continue;
    }
    try {
      retired();
      if (base::planted(base::Bug::kDestroyTwice)) {
        retired();
      }
    } catch (const std::exception& exception) {
      base::log(base::LogLevel::kError, "the retired callback of registration %u threw: %s",
                it->handle().index, exception.what());
    } catch (...) {
      base::log(base::LogLevel::kError, "the retired callback of registration %u threw",
                it->handle().index);
    }
  }
  {
    const std::lock_guard lock(mutex_);
    for (Registration* it = retiring; it != nullptr; it = it->reap_next_) {
      finish_retirement(*it);
    }
  }
  while (retiring != nullptr) {
    const std::shared_ptr<Registration> last = std::move(retiring->retiring_self_);
    retiring = last->reap_next_;
  }
}

void RegistryCore::finish_retirement(Registration& registration) noexcept {
  ORBITE_CHECK(registration.word_.load(std::memory_order_relaxed) == Registration::kFencedBit);
  const std::uint32_t slot_index = registration.handle().index;
  Slot& slot = slots_[slot_index];
  ORBITE_CHECK(slot.retiring && slot.state == RegistrationState::kFenced);
  slot.state = RegistrationState::kRetired;
  slot.retiring = false;
  registration.retiring_self_ = std::move(slot.registration);
  --fenced_;
  ++retired_total_;
  ORBITE_CHECK(bytes_registered_ >= registration.range().length());
  bytes_registered_ -= registration.range().length();
  if (slot.generation >= limits_.generation_max) {
    return;  // withdrawn: its next generation would be one that somebody may still hold
  }
  // At the end of the queue, so that a generation lasts as long as it can.
  slot.free_next = kNoSlot;
  if (free_last_ == kNoSlot) {
    free_first_ = slot_index;
  } else {
    slots_[free_last_].free_next = slot_index;
  }
  free_last_ = slot_index;
}

void RegistryCore::fence_all() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (Slot& slot : slots_) {
      if (slot.state == RegistrationState::kLive) {
        fence(slot);
      }
    }
  }
  reap();
}

void RegistryCore::quarantine_all() {
  const std::lock_guard lock(mutex_);
  for (Slot& slot : slots_) {
    if (slot.state == RegistrationState::kLive) {
      fence(slot);
    }
    // A registration that is being retired had its proof.
    if (slot.state == RegistrationState::kFenced && !slot.retiring) {
      slot.state = RegistrationState::kUnquiesced;
      --fenced_;
      ++unquiesced_;
      bytes_unquiesced_ += slot.registration->range().length();
    }
  }
}

Registry::Counts RegistryCore::counts() {
  const std::lock_guard lock(mutex_);
  Registry::Counts counts{.live = live_,
                          .fenced = fenced_,
                          .unquiesced = unquiesced_,
                          .retired_total = retired_total_,
                          .bytes_registered = bytes_registered_,
                          .bytes_unquiesced = bytes_unquiesced_,
                          .refused_total = refused_total_,
                          .loans = 0};
  for (const Slot& slot : slots_) {
    if (slot.registration != nullptr) {
      counts.loans += slot.registration->loans();
    }
  }
  return counts;
}

Registry::Registry(RegistryLimits limits, base::RandomSource& random)
    : core_(std::make_unique<RegistryCore>(limits, random)) {}

Registry::~Registry() {
  core_->fence_all();
  const Counts counts = core_->counts();
  if (counts.fenced + counts.unquiesced == 0) {
    return;
  }
  base::log(base::LogLevel::kWarn,
            "registry closed with %llu registrations fenced (%llu loans out) and %llu unquiesced; "
            "they stay in memory",
            ull(counts.fenced), ull(counts.loans), ull(counts.unquiesced));
  RegistryCore::abandon(std::move(core_));
}

Result<Handle> Registry::add(const MemoryDescriptor& descriptor, SharedPart shared) {
  return core_->add(descriptor, std::move(shared));
}

Result<RegistrationState> Registry::deregister(Handle handle) { return core_->deregister(handle); }

Result<RegistrationState> Registry::state(Handle handle) const { return core_->state(handle); }

Result<std::shared_ptr<Registration>> Registry::find(Handle handle) const {
  return core_->find(handle);
}

Result<RangeLoan> Registry::borrow(const std::shared_ptr<Registration>& registration,
                                   Direction direction, Borrower borrower) const {
  ORBITE_CHECK(registration != nullptr);
  return core_->borrow(*registration, direction, borrower);
}

Result<RangeLoan> Registry::borrow_remote(Handle handle, const base::RegistrationKey& key,
                                          Direction direction) const {
  return core_->borrow_remote(handle, key, direction);
}

std::vector<Handle> Registry::covering(const base::ByteRange& range) const {
  return core_->covering(range);
}

void Registry::reap() const { core_->reap(); }

void Registry::fence_all() { core_->fence_all(); }

void Registry::quarantine_all() { core_->quarantine_all(); }

Registry::Counts Registry::counts() const { return core_->counts(); }

}  // namespace orbite::memory
