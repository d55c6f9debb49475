// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace orbite::transfer {

// A column is a list of numbers in segments: a run (first, step, how many) or a list of values one
// by one. In memory each is a few words: a head, which is twice the count and one more for a run,
// then first and step, or the values. Steps are modulo 2^64, so a run may go down.

/// Writes a column. Never more than one word for each value and one for the whole.
class ColumnWriter {
 public:
  void push(std::uint64_t value) {
    if (value == next_) {
      ++count_;
      next_ += step_;
    } else {
      push_other(value);
    }
  }

  /// What append_to() appends.
  [[nodiscard]] std::size_t words() const noexcept;
  /// The whole column; the writer is spent.
  void append_to(std::vector<std::uint64_t>& words);

 private:
  static constexpr std::size_t kNoList = std::numeric_limits<std::size_t>::max();

  void push_other(std::uint64_t value);
  void put_run(std::vector<std::uint64_t>& words);
  void put_values(std::vector<std::uint64_t>& words, std::uint64_t count);

  // The values at the end that make a run so far. One of none or of one value has step 0, and none
  // continues with 0: then the first rule of push() holds for them, too.
  std::uint64_t first_ = 0;
  std::uint64_t step_ = 0;
  std::uint64_t count_ = 0;
  std::uint64_t next_ = 0;  ///< what would continue it

  std::vector<std::uint64_t> words_;  ///< everything before them
  std::size_t list_at_ = kNoList;     ///< the head of the last segment, if that is a list
};

/// Reads a column, as often as there are values in it.
class ColumnReader {
 public:
  ColumnReader() = default;
  /// The words outlive it.
  explicit ColumnReader(const std::uint64_t* words) : at_(words) {}

  std::uint64_t next() noexcept {
    if (left_ == 0) {
      open_segment();
    }
    --left_;
    if (is_run_) {
      const std::uint64_t value = value_;
      value_ += step_;
      return value;
    }
    return *at_++;
  }

 private:
  void open_segment() noexcept {
    const std::uint64_t head = *at_++;
    left_ = head / 2;
    is_run_ = head % 2 != 0;
    if (is_run_) {
      value_ = *at_++;
      step_ = *at_++;
    }
  }

  const std::uint64_t* at_ = nullptr;  ///< the next word
  std::uint64_t value_ = 0;            ///< of a run
  std::uint64_t step_ = 0;
  std::uint64_t left_ = 0;  ///< values of the segment
  bool is_run_ = false;
};

}  // namespace orbite::transfer
