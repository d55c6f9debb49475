// SPDX-License-Identifier: Apache-2.0
#include "engine_table.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <utility>

#include "base/assert.hpp"
#include "orbite/handle.hpp"
#include "platform/system.hpp"

namespace orbite::bridge {
namespace {

struct EngineCell {
  std::unique_ptr<TransferEngine> engine;
  std::uint64_t close_timeout_ms = 0;
  // Only for the way out: who leaves a closing engine tells who waits for it.
  std::mutex mutex;
  std::condition_variable left;
};

// The word of a slot: generation (32 bits), state (2), calls inside (30). One word, so that a call
// enters only if the engine of its own handle is still live.
enum class SlotState : std::uint8_t {
  kFree = 0,
  kReserved = 1,  // an engine is being made
  kLive = 2,
  kClosing = 3  // the handle is stale; destroyed by the last one inside
};

constexpr std::uint64_t kStateShift = 30;
constexpr std::uint64_t kUsersMask = (std::uint64_t{1} << kStateShift) - 1;

constexpr std::uint64_t make_word(std::uint32_t generation, SlotState state) {
  return (std::uint64_t{generation} << 32) | (static_cast<std::uint64_t>(state) << kStateShift);
}
constexpr std::uint32_t generation_of(std::uint64_t word) {
  return static_cast<std::uint32_t>(word >> 32);
}
constexpr SlotState state_of(std::uint64_t word) {
  return static_cast<SlotState>((word >> kStateShift) & 3);
}
constexpr std::uint64_t users_of(std::uint64_t word) { return word & kUsersMask; }

}  // namespace

struct EngineSlot {
  std::atomic<std::uint64_t> word{0};
  // Of the process that made the engine. Atomic because a call with an old handle may read it while
  // the slot is reserved anew; within one process the value is always the same.
  std::atomic<std::uint32_t> process_generation{0};
  // Written while the slot is reserved or by the last one inside, read while a call is inside.
  EngineCell* cell = nullptr;
};

namespace {

// Plain storage, never destroyed: threads may be inside a call when the process ends. A slot that a
// forked child inherits in use stays so, which keeps the parent's handles apart from the child's.
constinit std::array<EngineSlot, kEnginesMax> slots{};

void destroy(EngineSlot& slot) noexcept {
  // Relaxed: nobody else can change the word of a closing slot without users.
  const std::uint32_t generation = generation_of(slot.word.load(std::memory_order_relaxed));
  delete std::exchange(slot.cell, nullptr);
  // Release: pairs with the acquire of EngineReservation::make, which then owns `cell`.
  slot.word.store(make_word(generation, SlotState::kFree), std::memory_order_release);
}

void leave_closing(EngineSlot& slot) noexcept {
  std::uint64_t users = 0;
  {
    // Under the mutex, so that who waits in release_engine cannot miss the last leave, nor destroy
    // the cell while it is told of it.
    const std::lock_guard lock(slot.cell->mutex);
    // Acquire and release: the last one sees what everybody did inside before it destroys.
    users = users_of(slot.word.fetch_sub(1, std::memory_order_acq_rel) - 1);
    slot.cell->left.notify_all();
  }
  if (users == 0) {
    destroy(slot);
  }
}

void leave(EngineSlot& slot) noexcept {
  std::uint64_t word = slot.word.load(std::memory_order_relaxed);
  while (state_of(word) == SlotState::kLive) {
    // Release: pairs with the acquire of whoever destroys the engine.
    if (slot.word.compare_exchange_weak(word, word - 1, std::memory_order_release,
                                        std::memory_order_relaxed)) {
      return;
    }
  }
  leave_closing(slot);
}

tl::unexpected<Error> stale(std::uint64_t handle) noexcept {
  return fail(ErrorCode::kStaleHandle, "engine 0x%llx is not open",
              static_cast<unsigned long long>(handle));
}

}  // namespace

Result<EngineLease> EngineLease::enter(std::uint64_t handle) noexcept {
  const Handle parts = Handle::unpack(handle);
  if (parts.index >= kEnginesMax || parts.generation == 0) {
    return stale(handle);
  }
  EngineSlot& slot = slots[parts.index];
  // Acquire: pairs with the release of publish, here and in the exchange below.
  std::uint64_t word = slot.word.load(std::memory_order_acquire);
  do {
    if (generation_of(word) != parts.generation || state_of(word) == SlotState::kFree) {
      return stale(handle);
    }
    // Relaxed: ordered by the acquire of `word`.
    if (slot.process_generation.load(std::memory_order_relaxed) != platform::process_generation()) {
      return fail(ErrorCode::kForked, "engine 0x%llx belongs to the parent of this process",
                  static_cast<unsigned long long>(handle));
    }
    if (state_of(word) != SlotState::kLive) {
      return stale(handle);
    }
  } while (!slot.word.compare_exchange_weak(word, word + 1, std::memory_order_acquire,
                                            std::memory_order_acquire));
  return EngineLease(slot);
}

EngineLease::EngineLease(EngineLease&& other) noexcept
    : slot_(std::exchange(other.slot_, nullptr)) {}

EngineLease::~EngineLease() {
  if (slot_ != nullptr) {
    leave(*slot_);
  }
}

TransferEngine* EngineLease::operator->() const noexcept { return slot_->cell->engine.get(); }

Result<EngineReservation> EngineReservation::make() {
  auto cell = std::make_unique<EngineCell>();
  for (EngineSlot& slot : slots) {
    // Relaxed: the exchange acquires.
    std::uint64_t word = slot.word.load(std::memory_order_relaxed);
    const std::uint32_t generation = generation_of(word);
    // A slot whose generation would wrap is never used again.
    if (state_of(word) != SlotState::kFree ||
        generation == std::numeric_limits<std::uint32_t>::max()) {
      continue;
    }
    // Acquire: pairs with the release of destroy.
    if (slot.word.compare_exchange_strong(word, make_word(generation + 1, SlotState::kReserved),
                                          std::memory_order_acquire, std::memory_order_relaxed)) {
      slot.cell = cell.release();
      // Relaxed: published with the word.
      slot.process_generation.store(platform::process_generation(), std::memory_order_relaxed);
      return EngineReservation(slot);
    }
  }
  return fail(ErrorCode::kBudgetExhausted, "%u engines exist in this process, as many as may",
              kEnginesMax);
}

EngineReservation::EngineReservation(EngineReservation&& other) noexcept
    : slot_(std::exchange(other.slot_, nullptr)) {}

EngineReservation::~EngineReservation() {
  if (slot_ != nullptr) {
    destroy(*slot_);
  }
}

std::uint64_t EngineReservation::publish(std::unique_ptr<TransferEngine> engine,
                                         std::uint64_t close_timeout_ms) noexcept {
  EngineSlot& slot = *std::exchange(slot_, nullptr);
  slot.cell->engine = std::move(engine);
  slot.cell->close_timeout_ms = close_timeout_ms;
  // Relaxed: only this thread can change the word of a reserved slot.
  const std::uint32_t generation = generation_of(slot.word.load(std::memory_order_relaxed));
  // Release: pairs with the acquire of EngineLease::enter.
  slot.word.store(make_word(generation, SlotState::kLive), std::memory_order_release);
  const auto index = static_cast<std::uint32_t>(&slot - slots.data());
  return Handle{index, generation}.packed();
}

Result<void> release_engine(std::uint64_t handle) {
  ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(handle));
  EngineSlot& slot = *lease.slot_;
  std::uint64_t word = slot.word.load(std::memory_order_relaxed);
  do {
    if (state_of(word) != SlotState::kLive) {
      return stale(handle);
    }
    ORBITE_CHECK(generation_of(word) == Handle::unpack(handle).generation);
    // Acquire: pairs with the release of every call that has left, whose work the destructor of the
    // engine may touch. Setting bits turns kLive into kClosing.
  } while (!slot.word.compare_exchange_weak(word, word | make_word(0, SlotState::kClosing),
                                            std::memory_order_acq_rel, std::memory_order_relaxed));
  if (users_of(word) > 1) {
    // The fence makes the calls inside come back. The destructor does the bounded close.
    lease->close(0);
    EngineCell& cell = *slot.cell;
    std::unique_lock lock(cell.mutex);
    // Acquire: pairs with the decrement in leave_closing. A timeout leaves the engine to the calls
    // that are still inside.
    cell.left.wait_for(lock, std::chrono::milliseconds(cell.close_timeout_ms), [&slot] {
      return users_of(slot.word.load(std::memory_order_acquire)) == 1;
    });
  }
  return {};
}

}  // namespace orbite::bridge
