// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "memory/registry.hpp"

namespace orbite::memory {

/// The loans of one execution. One alone, which is what most have, takes no memory of its own.
class RangeLoans {
 public:
  /// For so many in all.
  void reserve(std::size_t count) {
    if (count > 1) {
      others_.reserve(count - 1);
    }
  }
  void push_back(RangeLoan loan) {
    if (!first_) {
      first_ = std::move(loan);
    } else {
      others_.push_back(std::move(loan));
    }
  }
  /// Gives them back.
  void clear() noexcept {
    first_ = RangeLoan();
    others_.clear();
  }

 private:
  RangeLoan first_;
  std::vector<RangeLoan> others_;
};

}  // namespace orbite::memory
