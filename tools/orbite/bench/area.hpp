// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "orbite/error.hpp"
#include "orbite/shared_memory.hpp"

namespace orbite::tool::bench {

enum class Pages : std::uint8_t {
  kOrdinary,
  kShared  ///< that other processes of this host can map
};

/// Memory straight from the system, in whole pages. Given back by its owner's end, unless the owner
/// says that something may still touch it.
class Area {
 public:
  Area() = default;
  static Result<Area> map(std::uint64_t bytes, Pages pages = Pages::kOrdinary);
  Area(Area&& other) noexcept;
  Area& operator=(Area&& other) noexcept;
  ~Area();

  [[nodiscard]] std::span<std::uint8_t> bytes() const { return {data_, bytes_}; }
  [[nodiscard]] std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(data_); }
  /// Stays mapped for the rest of the process. Shared pages stay by themselves for as long as a
  /// registration of them does.
  void keep() { data_ = nullptr; }

 private:
  std::optional<SharedMemory> shared_;
  std::uint8_t* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace orbite::tool::bench
