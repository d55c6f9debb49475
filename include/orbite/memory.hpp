// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

namespace orbite {

enum class MemoryKind : std::uint8_t { kDram = 0 };

/// Bits of an access mask.
inline constexpr std::uint8_t kAccessLocal = 1;
inline constexpr std::uint8_t kAccessRemoteRead = 2;
inline constexpr std::uint8_t kAccessRemoteWrite = 4;
inline constexpr std::uint8_t kAccessAll = 7;

/// A range to register. The memory stays the caller's and must stay mapped until the registration
/// is retired.
struct MemoryDescriptor {
  std::uint64_t address = 0;    ///< not 0
  std::uint64_t length = 0;     ///< bytes, not 0; address + length must not overflow
  std::uint64_t device_id = 0;  ///< kept and reported, not interpreted for DRAM
  MemoryKind kind = MemoryKind::kDram;
  std::uint8_t access = kAccessAll;  ///< kAccessLocal is always needed
  /// Called once, when nothing can touch the range any more; from a thread of the engine or of a
  /// caller of it, never with a lock held. Must not call into the engine, must not throw.
  std::function<void()> retired;
};

/// Live -> Fenced -> Retired, or Unquiesced when the proof of retirement cannot be had.
enum class RegistrationState : std::uint8_t { kLive, kFenced, kRetired, kUnquiesced };

}  // namespace orbite
