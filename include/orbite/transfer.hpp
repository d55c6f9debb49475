// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "orbite/error.hpp"
#include "orbite/handle.hpp"

namespace orbite {

enum class Operation : std::uint8_t {
  kRead = 0 /* remote to local */,
  kWrite = 1 /* local to remote */
};

/// What came of an execution. Set once.
enum class Logical : std::uint8_t { kNone, kSuccess, kCanceled, kFailed };

/// What is known of the destination of an execution.
enum class RemoteEffect : std::uint8_t {
  kNone,      ///< nothing was written
  kPrefix,    ///< exactly bytes_prefix bytes, in list order, and no others
  kComplete,  ///< all
  kUnknown    ///< at least bytes_prefix, perhaps others
};

/// What may still touch the buffers. Never derived from Logical.
enum class Drain : std::uint8_t {
  kIdle,       ///< never posted
  kPending,    ///< something may
  kRetired,    ///< nothing, neither here nor at the peer
  kUnquiesced  ///< the proof cannot be had
};

struct Outcome {
  Logical logical = Logical::kNone;
  Drain drain = Drain::kIdle;
  RemoteEffect effect = RemoteEffect::kNone;
  ErrorCode code = ErrorCode::kOk;
  std::int32_t native_errno = 0;
  std::uint64_t bytes_prefix = 0;
  std::uint64_t bytes_total = 0;
  const char* route = "";  ///< transport used, static storage; "" before the first post

  /// Only then may the buffers be reused.
  [[nodiscard]] bool terminal() const noexcept {
    return logical != Logical::kNone && drain == Drain::kRetired;
  }
};

/// One range of a list. `owner` is a registration in the local list, an imported range in the
/// remote one.
struct Descriptor {
  std::uint64_t address = 0;
  std::uint64_t length = 0;  ///< bytes, not 0; equal on both sides of a pair
  Handle owner;
};

struct PrepareOptions {
  Operation operation = Operation::kRead;
  Handle peer;
  std::span<const Descriptor> local;  ///< copied
  std::span<const Descriptor> remote;
};

struct PostOptions {
  /// Delivered to the peer after the bytes and before success; copied. An engaged empty span is a
  /// notification of no bytes.
  std::optional<std::span<const std::uint8_t>> notification;
  std::uint64_t timeout_ns = 0;  ///< from now to the logical outcome; 0: the configured default
};

}  // namespace orbite
