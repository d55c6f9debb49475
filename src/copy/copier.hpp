// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "copy/kernels.hpp"
#include "orbite/config.hpp"

namespace orbite::copy {

/// Source and target may overlap: what one call copies of a part is then moved as by memmove.
struct Part {
  std::byte* target;
  const std::byte* source;
  std::size_t bytes;
};

/// How far a list of parts is copied. The list outlives it.
class PartCursor {
 public:
  explicit PartCursor(std::span<const Part> parts, std::size_t skip_bytes = 0)
      : parts_(parts), offset_(skip_bytes) {}

  [[nodiscard]] bool at_end() const noexcept { return parts_.empty(); }

 private:
  friend class Copier;

  std::span<const Part> parts_;  ///< those that are not finished
  std::size_t offset_ = 0;       ///< what is done of the first of them
};

/// From where on a copy goes past the caches; never, by default. Measured: docs/design/copy.md.
struct Thresholds {
  /// Bytes of the whole transfer. Less fits the caches, where std::memcpy is faster.
  std::uint64_t non_temporal_min_bytes = UINT64_MAX;
  /// Bytes of one part. Shorter ones have too few whole lines.
  std::uint64_t non_temporal_part_min_bytes = 0;

  /// As configured, for a processor with that much last-level cache.
  static Thresholds make(const Config::Copy& config, std::uint64_t last_level_cache_bytes);
};

/// Copies lists of parts within the process's address space. Stateless; any thread, any number at a
/// time.
class Copier {
 public:
  explicit Copier(Thresholds thresholds,
                  const StreamingKernel& kernel = best_streaming_kernel()) noexcept
      : thresholds_(thresholds), kernel_(&kernel) {}

  /// Copies what is next, at most `bytes_max`, part after part in the order of the list. Returns
  /// how many bytes that were. `transfer_bytes`: how many the caller copies altogether, in this
  /// call and others, before it comes back to the same bytes.
  ///
  /// When it returns, the bytes are in place for every thread that learns of it.
  std::uint64_t copy(PartCursor& cursor, std::uint64_t bytes_max,
                     std::uint64_t transfer_bytes) const noexcept;

  [[nodiscard]] const Thresholds& thresholds() const noexcept { return thresholds_; }
  [[nodiscard]] const StreamingKernel& kernel() const noexcept { return *kernel_; }

 private:
  bool copy_block(const Part& block, bool streams) const noexcept;

  Thresholds thresholds_;
  const StreamingKernel* kernel_;
};

}  // namespace orbite::copy
