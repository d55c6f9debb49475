// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "platform/neighbors.hpp"

namespace orbite::sim {

/// Pages of the machine that runs the world: each mapping of them has an address of its own, and
/// one for reading cannot be written.
class SimPageFile final : public platform::PageFile,
                          public std::enable_shared_from_this<SimPageFile> {
 public:
  explicit SimPageFile(std::uint64_t bytes);
  ~SimPageFile() override;

  [[nodiscard]] std::uint64_t bytes() const noexcept override { return bytes_; }
  /// The world's own mapping.
  [[nodiscard]] std::byte* memory() const noexcept { return memory_; }
  /// Another one.
  [[nodiscard]] std::byte* map(bool writable) const;
  void unmap(std::byte* mapping) const noexcept;

  [[nodiscard]] bool writes_forbidden() const noexcept { return writes_forbidden_; }
  void forbid_writes() const noexcept { writes_forbidden_ = true; }

 private:
  const std::uint64_t bytes_;
  int descriptor_ = -1;
  std::byte* memory_ = nullptr;
  mutable bool writes_forbidden_ = false;
};

}  // namespace orbite::sim
