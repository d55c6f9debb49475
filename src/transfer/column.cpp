// SPDX-License-Identifier: Apache-2.0
#include "transfer/column.hpp"

namespace orbite::transfer {
namespace {

constexpr std::uint64_t kRunWords = 3;
/// A run takes kRunWords and perhaps the head of one more list behind it: from here on that is no
/// more than its values take.
constexpr std::uint64_t kRunMin = kRunWords + 1;

}  // namespace

void ColumnWriter::push_other(std::uint64_t value) {
  if (count_ >= kRunMin) {
    put_run(words_);
    first_ = next_ = value;
    step_ = 0;
    count_ = 1;
    return;
  }
  if (count_ == 0) {
    first_ = next_ = value;
    count_ = 1;
    return;
  }
  // Too short for a run. Its last value may be the first of the next one.
  const std::uint64_t last = next_ - step_;
  put_values(words_, count_ - 1);
  first_ = last;
  step_ = value - last;
  next_ = value + step_;
  count_ = 2;
}

void ColumnWriter::put_run(std::vector<std::uint64_t>& words) {
  words.insert(words.end(), {2 * count_ + 1, first_, step_});
  list_at_ = kNoList;
}

void ColumnWriter::put_values(std::vector<std::uint64_t>& words, std::uint64_t count) {
  if (count == 0) {
    return;
  }
  if (list_at_ == kNoList) {
    list_at_ = words.size();
    words.push_back(0);
  }
  std::uint64_t value = first_;
  for (std::uint64_t i = 0; i < count; ++i, value += step_) {
    words.push_back(value);
  }
  words[list_at_] += 2 * count;
}

std::size_t ColumnWriter::words() const noexcept {
  if (count_ >= kRunMin) {
    return words_.size() + kRunWords;
  }
  return words_.size() + count_ + (list_at_ == kNoList && count_ > 0 ? 1 : 0);
}

void ColumnWriter::append_to(std::vector<std::uint64_t>& words) {
  // A short column is written to its place at once and allocates nothing of its own.
  std::vector<std::uint64_t>& last = words_.empty() ? words : words_;
  if (count_ >= kRunMin) {
    put_run(last);
  } else {
    put_values(last, count_);
  }
  words.insert(words.end(), words_.begin(), words_.end());
  words_ = {};
}

}  // namespace orbite::transfer
