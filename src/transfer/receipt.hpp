// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

namespace orbite::transfer {

struct Slice;

/// Proof that no native operation, here or at the peer, can still touch the bytes of one slice.
/// Only a CompletionPath makes one, at the place that has the proof.
class RetirementReceipt {
 public:
  class Passkey {
    friend class CompletionPath;
    Passkey() = default;
  };

  RetirementReceipt(Passkey /*key*/, Slice& slice) noexcept : slice_(&slice) {}
  RetirementReceipt(RetirementReceipt&& other) noexcept
      : slice_(std::exchange(other.slice_, nullptr)) {}
  RetirementReceipt(const RetirementReceipt&) = delete;
  RetirementReceipt& operator=(const RetirementReceipt&) = delete;
  RetirementReceipt& operator=(RetirementReceipt&&) = delete;
  ~RetirementReceipt() = default;

  /// The slice that it proves retired; nullptr once moved from.
  [[nodiscard]] Slice* slice() const noexcept { return slice_; }

 private:
  Slice* slice_;
};

}  // namespace orbite::transfer
