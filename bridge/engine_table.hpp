// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.hpp"
#include "orbite/engine.hpp"

namespace orbite::bridge {

/// Engines of this process that exist at a time.
inline constexpr std::uint32_t kEnginesMax = 1024;

struct EngineSlot;

/// One call inside an engine. The engine lives at least as long.
class EngineLease {
 public:
  /// kStaleHandle, or kForked in a child of the process that made the engine; no lock is taken.
  static Result<EngineLease> enter(std::uint64_t handle) noexcept;
  EngineLease(EngineLease&& other) noexcept;
  EngineLease(const EngineLease&) = delete;
  EngineLease& operator=(const EngineLease&) = delete;
  EngineLease& operator=(EngineLease&&) = delete;
  ~EngineLease();

  TransferEngine* operator->() const noexcept;

 private:
  explicit EngineLease(EngineSlot& slot) noexcept : slot_(&slot) {}
  friend Result<void> release_engine(std::uint64_t handle);

  EngineSlot* slot_;
};

/// A slot taken before the engine is made, so that a full table refuses before it costs anything.
class EngineReservation {
 public:
  /// kBudgetExhausted.
  static Result<EngineReservation> make();
  EngineReservation(EngineReservation&& other) noexcept;
  EngineReservation(const EngineReservation&) = delete;
  EngineReservation& operator=(const EngineReservation&) = delete;
  EngineReservation& operator=(EngineReservation&&) = delete;
  ~EngineReservation();

  /// Hands the engine over; returns its handle. Once.
  std::uint64_t publish(std::unique_ptr<TransferEngine> engine,
                        std::uint64_t close_timeout_ms) noexcept;

 private:
  explicit EngineReservation(EngineSlot& slot) noexcept : slot_(&slot) {}

  EngineSlot* slot_;
};

/// Ends the handle at once, fences the engine, waits for the calls inside it (at most its close
/// timeout) and destroys it. A call that stays longer destroys it when it leaves.
Result<void> release_engine(std::uint64_t handle);

}  // namespace orbite::bridge
