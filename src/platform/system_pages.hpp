// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/result.hpp"
#include "platform/descriptor.hpp"
#include "platform/neighbors.hpp"

namespace orbite::platform {

/// A memfd sealed against shrinking and growing. A child made by fork() does not have it.
class SystemPageFile final : public PageFile {
 public:
  SystemPageFile(Descriptor descriptor, std::uint64_t bytes) noexcept
      : descriptor_(std::move(descriptor)), bytes_(bytes) {}

  [[nodiscard]] std::uint64_t bytes() const noexcept override { return bytes_; }
  /// -1 in a child that was forked since.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }

 private:
  Descriptor descriptor_;
  std::uint64_t bytes_;
};

/// One made by SystemNeighbors; anything else aborts.
const SystemPageFile& system_file(const PageFile& file) noexcept;

/// The size of an open memfd that is sealed against shrinking and growing and not empty; nothing
/// for any other descriptor.
std::optional<std::uint64_t> sealed_bytes(int fd) noexcept;

/// Of the ordinary pages.
std::uint64_t page_bytes() noexcept;
/// Of the system's huge pages; kUnsupported with the errno where it knows none.
Result<std::uint64_t> huge_page_bytes();

/// As Neighbors::make_pages. May throw std::bad_alloc.
Result<std::shared_ptr<const PageFile>> make_page_file(std::string_view name, std::uint64_t bytes,
                                                       bool huge);
/// As Neighbors::map. May throw std::bad_alloc.
Result<std::unique_ptr<PageMapping>> map_page_file(const SystemPageFile& file,
                                                   Neighbors::PageAccess access,
                                                   Neighbors::AfterFork after_fork);
/// As Neighbors::forbid_writes.
Result<void> seal_against_writes(const SystemPageFile& file);

}  // namespace orbite::platform
