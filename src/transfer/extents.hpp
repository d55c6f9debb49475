// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "transfer/column.hpp"

namespace orbite::transfer {

/// A pair of physical ranges of equal length, inside one registration on each side.
struct Extent {
  std::uint64_t local_address;
  std::uint64_t remote_address;
  std::uint64_t length;
  std::uint32_t local_index;   ///< into the registrations of the request
  std::uint32_t remote_index;  ///< into its remote ranges
  friend bool operator==(const Extent&, const Extent&) = default;
};

/// The extents of a request, in order, as four columns: docs/design/descriptors.md. Never changed
/// once it is made. Read with an ExtentCursor.
class ExtentList {
 public:
  ExtentList() = default;

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// Of all extents.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// That it keeps.
  [[nodiscard]] std::size_t memory_bytes() const noexcept {
    return words_.capacity() * sizeof(words_[0]);
  }

 private:
  friend class ExtentListWriter;
  friend class ExtentCursor;
  enum Column : std::uint8_t { kLocalAddresses, kRemoteAddresses, kLengths, kOwners, kColumns };

  std::vector<std::uint64_t> words_;  ///< column after column
  std::array<std::size_t, kColumns> begins_{};
  std::uint64_t size_ = 0;
  std::uint64_t bytes_ = 0;
};

/// Makes an ExtentList. Neighbours on both sides, inside the same registrations, become one extent.
class ExtentListWriter {
 public:
  /// Not empty. The sum of all lengths must not overflow.
  void add(const Extent& extent) {
    ORBITE_DCHECK(extent.length > 0 && extent.length <= UINT64_MAX - bytes_);
    bytes_ += extent.length;
    if (size_ > 0) {
      if (last_.local_index == extent.local_index && last_.remote_index == extent.remote_index &&
          last_.local_address + last_.length == extent.local_address &&
          last_.remote_address + last_.length == extent.remote_address) {
        last_.length += extent.length;
        return;
      }
      push_last();
    }
    last_ = extent;
    ++size_;
  }

  /// The writer is spent.
  ExtentList finish();

 private:
  void push_last() {
    columns_[ExtentList::kLocalAddresses].push(last_.local_address);
    columns_[ExtentList::kRemoteAddresses].push(last_.remote_address);
    columns_[ExtentList::kLengths].push(last_.length);
    columns_[ExtentList::kOwners].push(std::uint64_t{last_.local_index} << 32 | last_.remote_index);
  }

  std::array<ColumnWriter, ExtentList::kColumns> columns_;  ///< without last_
  Extent last_{};                                           ///< may grow yet
  std::uint64_t size_ = 0;
  std::uint64_t bytes_ = 0;
};

/// A place in an ExtentList and how far to go from there, in bytes. A copy is a place of its own.
/// The list outlives it.
class ExtentCursor {
 public:
  /// At the end of nothing.
  ExtentCursor() = default;
  /// From the first to the last byte.
  explicit ExtentCursor(const ExtentList& list)
      : columns_{reader(list, 0), reader(list, 1), reader(list, 2), reader(list, 3)},
        bytes_left_(list.bytes_) {
    if (bytes_left_ > 0) {
      enter_next();
    }
  }

  [[nodiscard]] std::uint64_t bytes_left() const noexcept { return bytes_left_; }
  [[nodiscard]] bool at_end() const noexcept { return bytes_left_ == 0; }
  /// It ends after so many bytes, which are not more than are left.
  void end_after(std::uint64_t bytes) noexcept {
    ORBITE_CHECK(bytes <= bytes_left_);
    bytes_left_ = bytes;
  }

  /// Of what take() gives next. Not at the end.
  [[nodiscard]] std::uint32_t remote_index() const noexcept { return here_.remote_index; }

  /// What is left of the extent that it stands in, or the first `bytes_max` bytes of that; the rest
  /// comes next. Not at the end, and not for 0 bytes: it gives at least one.
  Extent take(std::uint64_t bytes_max = UINT64_MAX) noexcept {
    Extent taken = here_;
    taken.length = std::min({here_.length, bytes_max, bytes_left_});
    ORBITE_CHECK(taken.length > 0);
    bytes_left_ -= taken.length;
    if (taken.length < here_.length) {
      here_.local_address += taken.length;
      here_.remote_address += taken.length;
      here_.length -= taken.length;
    } else if (bytes_left_ > 0) {
      enter_next();
    }
    return taken;
  }

 private:
  static_assert(ExtentList::kColumns == 4);
  static ColumnReader reader(const ExtentList& list, std::size_t column) noexcept {
    return ColumnReader(list.words_.data() + list.begins_[column]);
  }
  void enter_next() noexcept {
    here_.local_address = columns_[ExtentList::kLocalAddresses].next();
    here_.remote_address = columns_[ExtentList::kRemoteAddresses].next();
    here_.length = columns_[ExtentList::kLengths].next();
    const std::uint64_t owners = columns_[ExtentList::kOwners].next();
    here_.local_index = static_cast<std::uint32_t>(owners >> 32);
    here_.remote_index = static_cast<std::uint32_t>(owners);
  }

  // Invariant: while bytes_left_ > 0, here_ is not empty, and the columns hold what follows it.
  std::array<ColumnReader, ExtentList::kColumns> columns_;
  Extent here_{};
  std::uint64_t bytes_left_ = 0;
};

}  // namespace orbite::transfer
