// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "transfer/execution.hpp"

namespace orbite::transfer {

/// Slices in the order in which they came, linked through Slice::next, so that nothing of it can
/// fail. Has no lock of its own.
class SliceQueue {
 public:
  void push_back(Slice& slice) noexcept {
    slice.next = nullptr;
    (tail_ == nullptr ? head_ : tail_->next) = &slice;
    tail_ = &slice;
    bytes_ += slice.bytes;
    ++count_;
  }

  void push_front(Slice& slice) noexcept {
    slice.next = head_;
    head_ = &slice;
    tail_ = tail_ == nullptr ? &slice : tail_;
    bytes_ += slice.bytes;
    ++count_;
  }

  [[nodiscard]] Slice* front() const noexcept { return head_; }

  Slice* pop_front() noexcept {
    Slice* const slice = head_;
    if (slice == nullptr) {
      return nullptr;
    }
    head_ = slice->next;
    if (head_ == nullptr) {
      tail_ = nullptr;
    }
    slice->next = nullptr;
    bytes_ -= slice->bytes;
    --count_;
    return slice;
  }

  /// Unlinks every slice that `matches` and links them into the list that is returned, in reverse.
  template <typename Predicate>
  Slice* extract(Predicate matches) noexcept {
    Slice* taken = nullptr;
    SliceQueue kept;
    while (Slice* const slice = pop_front()) {
      if (matches(*slice)) {
        slice->next = taken;
        taken = slice;
      } else {
        kept.push_back(*slice);
      }
    }
    *this = kept;
    return taken;
  }

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }

 private:
  Slice* head_ = nullptr;
  Slice* tail_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::uint32_t count_ = 0;
};

}  // namespace orbite::transfer
