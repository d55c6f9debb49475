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
  /// The first `bytes` of the pages of another one, as who has cut it short hands it over.
  SimPageFile(std::shared_ptr<const SimPageFile> whole, std::uint64_t bytes);
  ~SimPageFile() override;

  [[nodiscard]] std::uint64_t bytes() const noexcept override { return bytes_; }
  /// The world's own mapping.
  [[nodiscard]] std::byte* memory() const noexcept { return memory_; }
  /// Another one.
  [[nodiscard]] std::byte* map(bool writable) const;
  void unmap(std::byte* mapping) const noexcept;
  /// In the place of what is mapped there.
  void map_at(void* address, std::uint64_t offset, std::uint64_t length) const;

  /// That this one is the beginning of, or itself.
  [[nodiscard]] const SimPageFile& whole() const noexcept {
    return whole_ != nullptr ? *whole_ : *this;
  }

  [[nodiscard]] bool writes_forbidden() const noexcept { return writes_forbidden_; }
  void forbid_writes() const noexcept { writes_forbidden_ = true; }

 private:
  const std::shared_ptr<const SimPageFile> whole_;
  const std::uint64_t bytes_;
  int descriptor_ = -1;  ///< of the whole, where there is one
  std::byte* memory_ = nullptr;
  mutable bool writes_forbidden_ = false;
};

}  // namespace orbite::sim
