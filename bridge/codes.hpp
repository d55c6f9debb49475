// SPDX-License-Identifier: Apache-2.0
#pragma once

// The numbers of the C ABI are those of the C++ API, so values cross by a cast. This header is the
// proof.

#include <bit>
#include <cstddef>

#include "orbite/engine.hpp"
#include "orbite/nixl.h"

namespace orbite::bridge {

struct CodePair {
  ErrorCode code;
  orbite_nixl_status_t status;
};

inline constexpr CodePair kCodePairs[] = {
    {ErrorCode::kOk, ORBITE_NIXL_OK},
    {ErrorCode::kInvalidArgument, ORBITE_NIXL_ERR_INVALID_ARGUMENT},
    {ErrorCode::kInvalidRange, ORBITE_NIXL_ERR_INVALID_RANGE},
    {ErrorCode::kLengthMismatch, ORBITE_NIXL_ERR_LENGTH_MISMATCH},
    {ErrorCode::kStaleHandle, ORBITE_NIXL_ERR_STALE_HANDLE},
    {ErrorCode::kUnsupported, ORBITE_NIXL_ERR_UNSUPPORTED},
    {ErrorCode::kNotAllowed, ORBITE_NIXL_ERR_NOT_ALLOWED},
    {ErrorCode::kBadMetadata, ORBITE_NIXL_ERR_BAD_METADATA},
    {ErrorCode::kIncompatible, ORBITE_NIXL_ERR_INCOMPATIBLE},
    {ErrorCode::kBadConfig, ORBITE_NIXL_ERR_BAD_CONFIG},
    {ErrorCode::kBufferTooSmall, ORBITE_NIXL_ERR_BUFFER_TOO_SMALL},
    {ErrorCode::kAbiMismatch, ORBITE_NIXL_ERR_ABI_MISMATCH},
    {ErrorCode::kNotFound, ORBITE_NIXL_ERR_NOT_FOUND},
    {ErrorCode::kBudgetExhausted, ORBITE_NIXL_ERR_BUDGET_EXHAUSTED},
    {ErrorCode::kOutOfMemory, ORBITE_NIXL_ERR_OUT_OF_MEMORY},
    {ErrorCode::kCanceled, ORBITE_NIXL_ERR_CANCELED},
    {ErrorCode::kDeadlineExceeded, ORBITE_NIXL_ERR_DEADLINE_EXCEEDED},
    {ErrorCode::kShortTransfer, ORBITE_NIXL_ERR_SHORT_TRANSFER},
    {ErrorCode::kIoFailed, ORBITE_NIXL_ERR_IO_FAILED},
    {ErrorCode::kActive, ORBITE_NIXL_ERR_ACTIVE},
    {ErrorCode::kNotPosted, ORBITE_NIXL_ERR_NOT_POSTED},
    {ErrorCode::kNotRepostable, ORBITE_NIXL_ERR_NOT_REPOSTABLE},
    {ErrorCode::kNotificationFailed, ORBITE_NIXL_ERR_NOTIFICATION_FAILED},
    {ErrorCode::kRegistrationFenced, ORBITE_NIXL_ERR_REGISTRATION_FENCED},
    {ErrorCode::kRegistrationChanged, ORBITE_NIXL_ERR_REGISTRATION_CHANGED},
    {ErrorCode::kPeerDisconnected, ORBITE_NIXL_ERR_PEER_DISCONNECTED},
    {ErrorCode::kPeerEpochChanged, ORBITE_NIXL_ERR_PEER_EPOCH_CHANGED},
    {ErrorCode::kPeerRetired, ORBITE_NIXL_ERR_PEER_RETIRED},
    {ErrorCode::kPeerUnreachable, ORBITE_NIXL_ERR_PEER_UNREACHABLE},
    {ErrorCode::kHandshakeRejected, ORBITE_NIXL_ERR_HANDSHAKE_REJECTED},
    {ErrorCode::kProtocolViolation, ORBITE_NIXL_ERR_PROTOCOL_VIOLATION},
    {ErrorCode::kPeerSilent, ORBITE_NIXL_ERR_PEER_SILENT},
    {ErrorCode::kTransportUnavailable, ORBITE_NIXL_ERR_TRANSPORT_UNAVAILABLE},
    {ErrorCode::kAddressInUse, ORBITE_NIXL_ERR_ADDRESS_IN_USE},
    {ErrorCode::kAddressNotLocal, ORBITE_NIXL_ERR_ADDRESS_NOT_LOCAL},
    {ErrorCode::kEngineClosing, ORBITE_NIXL_ERR_ENGINE_CLOSING},
    {ErrorCode::kForked, ORBITE_NIXL_ERR_FORKED},
    {ErrorCode::kInternal, ORBITE_NIXL_ERR_INTERNAL},
    {ErrorCode::kSystem, ORBITE_NIXL_ERR_SYSTEM},
};

constexpr bool pairs_agree() {
  for (const CodePair& pair : kCodePairs) {
    if (static_cast<int>(pair.code) != static_cast<int>(pair.status)) {
      return false;
    }
  }
  return true;
}

constexpr bool has_pair(ErrorCode code) {
  for (const CodePair& pair : kCodePairs) {
    if (pair.code == code) {
      return true;
    }
  }
  return false;
}

static_assert(pairs_agree());
#define ORBITE_ERROR_CODE(number, name, text) \
  static_assert(has_pair(ErrorCode::name), "orbite/nixl.h lacks a status for " #name);
#include "orbite/error_codes.def"
#undef ORBITE_ERROR_CODE

template <typename Left, typename Right>
constexpr bool same(Left left, Right right) {
  return static_cast<long>(left) == static_cast<long>(right);
}

static_assert(same(ClosePhase::kOpen, ORBITE_NIXL_CLOSE_OPEN));
static_assert(same(ClosePhase::kDrainingServed, ORBITE_NIXL_CLOSE_DRAINING_SERVED));
static_assert(same(ClosePhase::kDrainingPosted, ORBITE_NIXL_CLOSE_DRAINING_POSTED));
static_assert(same(ClosePhase::kRetiring, ORBITE_NIXL_CLOSE_RETIRING));
static_assert(same(ClosePhase::kClosed, ORBITE_NIXL_CLOSE_CLOSED));
static_assert(same(ClosePhase::kUnquiesced, ORBITE_NIXL_CLOSE_UNQUIESCED));

static_assert(same(MemoryKind::kDram, ORBITE_NIXL_MEMORY_DRAM));
static_assert(same(kAccessLocal, ORBITE_NIXL_ACCESS_LOCAL));
static_assert(same(kAccessRemoteRead, ORBITE_NIXL_ACCESS_REMOTE_READ));
static_assert(same(kAccessRemoteWrite, ORBITE_NIXL_ACCESS_REMOTE_WRITE));
static_assert(same(kAccessAll, ORBITE_NIXL_ACCESS_ALL));

static_assert(same(RegistrationState::kLive, ORBITE_NIXL_REGISTRATION_LIVE));
static_assert(same(RegistrationState::kFenced, ORBITE_NIXL_REGISTRATION_FENCED));
static_assert(same(RegistrationState::kRetired, ORBITE_NIXL_REGISTRATION_RETIRED));
static_assert(same(RegistrationState::kUnquiesced, ORBITE_NIXL_REGISTRATION_UNQUIESCED));

static_assert(same(Operation::kRead, ORBITE_NIXL_READ));
static_assert(same(Operation::kWrite, ORBITE_NIXL_WRITE));

static_assert(same(Logical::kNone, ORBITE_NIXL_LOGICAL_NONE));
static_assert(same(Logical::kSuccess, ORBITE_NIXL_LOGICAL_SUCCESS));
static_assert(same(Logical::kCanceled, ORBITE_NIXL_LOGICAL_CANCELED));
static_assert(same(Logical::kFailed, ORBITE_NIXL_LOGICAL_FAILED));

static_assert(same(RemoteEffect::kNone, ORBITE_NIXL_EFFECT_NONE));
static_assert(same(RemoteEffect::kPrefix, ORBITE_NIXL_EFFECT_PREFIX));
static_assert(same(RemoteEffect::kComplete, ORBITE_NIXL_EFFECT_COMPLETE));
static_assert(same(RemoteEffect::kUnknown, ORBITE_NIXL_EFFECT_UNKNOWN));

static_assert(same(Drain::kIdle, ORBITE_NIXL_DRAIN_IDLE));
static_assert(same(Drain::kPending, ORBITE_NIXL_DRAIN_PENDING));
static_assert(same(Drain::kRetired, ORBITE_NIXL_DRAIN_RETIRED));
static_assert(same(Drain::kUnquiesced, ORBITE_NIXL_DRAIN_UNQUIESCED));

// A descriptor list crosses without a copy: same size, same offsets, and an owner whose index
// stands in its low half.
static_assert(sizeof(Descriptor) == sizeof(orbite_nixl_descriptor_t));
static_assert(alignof(Descriptor) == alignof(orbite_nixl_descriptor_t));
static_assert(offsetof(Descriptor, address) == offsetof(orbite_nixl_descriptor_t, address));
static_assert(offsetof(Descriptor, length) == offsetof(orbite_nixl_descriptor_t, length));
static_assert(offsetof(Descriptor, owner) == offsetof(orbite_nixl_descriptor_t, owner));
static_assert(sizeof(Handle) == sizeof(std::uint64_t) && offsetof(Handle, index) == 0);
static_assert(std::endian::native == std::endian::little);

}  // namespace orbite::bridge
