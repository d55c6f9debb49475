// SPDX-License-Identifier: Apache-2.0
#include "orbite_status.h"

namespace orbite::nixl {

nixl_status_t to_nixl(int32_t status) noexcept {
  // No default: a code that nixl.h gains without a line here is a compiler warning.
  switch (static_cast<orbite_nixl_status_t>(status)) {
    case ORBITE_NIXL_OK:
      return NIXL_SUCCESS;

    case ORBITE_NIXL_ERR_INVALID_ARGUMENT:
    case ORBITE_NIXL_ERR_INVALID_RANGE:
    case ORBITE_NIXL_ERR_LENGTH_MISMATCH:
    case ORBITE_NIXL_ERR_STALE_HANDLE:
    case ORBITE_NIXL_ERR_BAD_METADATA:
    case ORBITE_NIXL_ERR_BAD_CONFIG:
    case ORBITE_NIXL_ERR_BUFFER_TOO_SMALL:
      return NIXL_ERR_INVALID_PARAM;
    case ORBITE_NIXL_ERR_UNSUPPORTED:
      return NIXL_ERR_NOT_SUPPORTED;
    case ORBITE_NIXL_ERR_NOT_ALLOWED:
    case ORBITE_NIXL_ERR_NOT_REPOSTABLE:
      return NIXL_ERR_NOT_ALLOWED;
    case ORBITE_NIXL_ERR_INCOMPATIBLE:
    case ORBITE_NIXL_ERR_REGISTRATION_CHANGED:
    case ORBITE_NIXL_ERR_PEER_EPOCH_CHANGED:
      return NIXL_ERR_MISMATCH;
    case ORBITE_NIXL_ERR_NOT_FOUND:
    case ORBITE_NIXL_ERR_REGISTRATION_FENCED:
    // We removed the peer ourselves, so its metadata is gone, as NIXL itself says for a handle of
    // a removed agent. REMOTE_DISCONNECT would make NIXL remove the agent of that name once more,
    // and by then it may be the next one.
    case ORBITE_NIXL_ERR_PEER_RETIRED:
      return NIXL_ERR_NOT_FOUND;

    case ORBITE_NIXL_ERR_CANCELED:
      return NIXL_ERR_CANCELED;
    case ORBITE_NIXL_ERR_ACTIVE:
      return NIXL_ERR_REPOST_ACTIVE;
    case ORBITE_NIXL_ERR_NOT_POSTED:
      return NIXL_ERR_NOT_POSTED;

    case ORBITE_NIXL_ERR_PEER_DISCONNECTED:
    case ORBITE_NIXL_ERR_PEER_UNREACHABLE:
      return NIXL_ERR_REMOTE_DISCONNECT;

    // NIXL has no word for these; the typed detail is in the log.
    case ORBITE_NIXL_ERR_ABI_MISMATCH:
    case ORBITE_NIXL_ERR_BUDGET_EXHAUSTED:
    case ORBITE_NIXL_ERR_OUT_OF_MEMORY:
    case ORBITE_NIXL_ERR_DEADLINE_EXCEEDED:
    case ORBITE_NIXL_ERR_SHORT_TRANSFER:
    case ORBITE_NIXL_ERR_IO_FAILED:
    case ORBITE_NIXL_ERR_NOTIFICATION_FAILED:
    case ORBITE_NIXL_ERR_HANDSHAKE_REJECTED:
    case ORBITE_NIXL_ERR_PROTOCOL_VIOLATION:
    case ORBITE_NIXL_ERR_PEER_SILENT:
    case ORBITE_NIXL_ERR_TRANSPORT_UNAVAILABLE:
    case ORBITE_NIXL_ERR_ADDRESS_IN_USE:
    case ORBITE_NIXL_ERR_ADDRESS_NOT_LOCAL:
    case ORBITE_NIXL_ERR_ENGINE_CLOSING:
    case ORBITE_NIXL_ERR_FORKED:
    case ORBITE_NIXL_ERR_INTERNAL:
    case ORBITE_NIXL_ERR_SYSTEM:
      return NIXL_ERR_BACKEND;
  }
  return NIXL_ERR_BACKEND;
}

namespace {

nixl_status_t outcome_to_nixl(const orbite_nixl_result_t& result) noexcept {
  switch (static_cast<orbite_nixl_logical_t>(result.logical)) {
    case ORBITE_NIXL_LOGICAL_SUCCESS:
      return NIXL_SUCCESS;
    case ORBITE_NIXL_LOGICAL_CANCELED:
      return NIXL_ERR_CANCELED;
    case ORBITE_NIXL_LOGICAL_FAILED: {
      const nixl_status_t status = to_nixl(result.status);
      return status < 0 ? status : NIXL_ERR_BACKEND;
    }
    case ORBITE_NIXL_LOGICAL_NONE:
      break;
  }
  return NIXL_IN_PROG;
}

}  // namespace

nixl_status_t to_nixl(const orbite_nixl_result_t& result) noexcept {
  switch (static_cast<orbite_nixl_drain_t>(result.drain)) {
    case ORBITE_NIXL_DRAIN_IDLE:
      return NIXL_ERR_NOT_POSTED;
    case ORBITE_NIXL_DRAIN_RETIRED:
      return result.terminal == 1 ? outcome_to_nixl(result) : NIXL_IN_PROG;
    case ORBITE_NIXL_DRAIN_PENDING:
    case ORBITE_NIXL_DRAIN_UNQUIESCED:
      break;
  }
  return NIXL_IN_PROG;
}

}  // namespace orbite::nixl
