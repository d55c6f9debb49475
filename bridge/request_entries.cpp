// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <limits>

#include "codes.hpp"
#include "engine_table.hpp"
#include "entry.hpp"

namespace orbite::bridge {
namespace {

Result<std::span<const Descriptor>> descriptors_of(const orbite_nixl_descriptor_t* list,
                                                   std::size_t count, const char* name) {
  if (count >
      (std::numeric_limits<std::uintptr_t>::max() - reinterpret_cast<std::uintptr_t>(list)) /
          sizeof(*list)) {
    return fail(ErrorCode::kInvalidArgument, "%s at %p with %zu descriptors ends past 2^64", name,
                static_cast<const void*>(list), count);
  }
  // SAFETY: the list was written outside this library; both types are aggregates of implicit
  // lifetime with the same members at the same offsets (codes.hpp), and the list is aligned. The
  // engine copies it before the call returns.
  return std::span(reinterpret_cast<const Descriptor*>(list), count);
}

Result<PrepareOptions> options_of(const orbite_nixl_prepare_t& prepare) {
  if (prepare.operation != ORBITE_NIXL_READ && prepare.operation != ORBITE_NIXL_WRITE) {
    return fail(ErrorCode::kInvalidArgument, "operation %u; allowed: %d (READ), %d (WRITE)",
                prepare.operation, static_cast<int>(ORBITE_NIXL_READ),
                static_cast<int>(ORBITE_NIXL_WRITE));
  }
  if (prepare.reserved != 0) {
    return fail(ErrorCode::kInvalidArgument, "reserved is %u; allowed: 0", prepare.reserved);
  }
  if (prepare.count == 0) {
    return fail(ErrorCode::kInvalidArgument, "count is 0; a request needs a descriptor");
  }
  PrepareOptions options;
  options.operation = static_cast<Operation>(prepare.operation);
  options.peer = Handle::unpack(prepare.peer);
  ORBITE_ASSIGN_OR_RETURN(options.local, descriptors_of(prepare.local, prepare.count, "local"));
  ORBITE_ASSIGN_OR_RETURN(options.remote, descriptors_of(prepare.remote, prepare.count, "remote"));
  return options;
}

Result<PostOptions> options_of(const orbite_nixl_post_t* post) {
  PostOptions options;
  if (post == nullptr) {
    return options;
  }
  ORBITE_ASSIGN_OR_RETURN(
      const auto message,
      input_bytes(post->notification, post->notification_bytes, "notification"));
  if (post->notification != nullptr) {
    options.notification = message;
  }
  options.timeout_ns = post->timeout_ns;
  return options;
}

void write_outcome(const Outcome& outcome, orbite_nixl_result_t& result) noexcept {
  result.terminal = outcome.terminal() ? 1 : 0;
  result.logical = static_cast<int32_t>(outcome.logical);
  result.drain = static_cast<int32_t>(outcome.drain);
  result.effect = static_cast<int32_t>(outcome.effect);
  result.status = static_cast<int32_t>(outcome.code);
  result.native_errno = outcome.native_errno;
  result.bytes_prefix = outcome.bytes_prefix;
  result.bytes_total = outcome.bytes_total;
  std::memset(result.route, 0, sizeof(result.route));
  std::strncpy(result.route, outcome.route, sizeof(result.route) - 1);
}

}  // namespace
}  // namespace orbite::bridge

using orbite::Handle;
using orbite::Outcome;
using orbite::Result;
using orbite::bridge::check_pointer;
using orbite::bridge::check_record;
using orbite::bridge::EngineLease;
using orbite::bridge::guarded;
using orbite::bridge::options_of;
using orbite::bridge::write_outcome;

orbite_nixl_status_t orbite_nixl_request_prepare(orbite_nixl_engine_t engine,
                                                 const orbite_nixl_prepare_t* prepare,
                                                 orbite_nixl_request_t* request,
                                                 orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_TRY(check_record(prepare, "prepare"));
    ORBITE_TRY(check_pointer(request, "request"));
    ORBITE_TRY(check_pointer(prepare->local, "prepare.local"));
    ORBITE_TRY(check_pointer(prepare->remote, "prepare.remote"));
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    ORBITE_ASSIGN_OR_RETURN(const orbite::PrepareOptions options, options_of(*prepare));
    ORBITE_ASSIGN_OR_RETURN(const Handle handle, lease->prepare(options));
    *request = handle.packed();
    return {};
  });
}

orbite_nixl_status_t orbite_nixl_request_post(orbite_nixl_engine_t engine,
                                              orbite_nixl_request_t request,
                                              const orbite_nixl_post_t* post,
                                              orbite_nixl_result_t* result,
                                              orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    if (post != nullptr) {
      ORBITE_TRY(check_record(post, "post"));
    }
    ORBITE_TRY(check_record(result, "result"));
    ORBITE_ASSIGN_OR_RETURN(const orbite::PostOptions options, options_of(post));
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    ORBITE_ASSIGN_OR_RETURN(const Outcome outcome, lease->post(Handle::unpack(request), options));
    write_outcome(outcome, *result);
    return {};
  });
}

orbite_nixl_status_t orbite_nixl_request_check(orbite_nixl_engine_t engine,
                                               orbite_nixl_request_t request,
                                               orbite_nixl_result_t* result,
                                               orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_TRY(check_record(result, "result"));
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    ORBITE_ASSIGN_OR_RETURN(const Outcome outcome, lease->check(Handle::unpack(request)));
    write_outcome(outcome, *result);
    return {};
  });
}

orbite_nixl_status_t orbite_nixl_request_query(orbite_nixl_engine_t engine,
                                               orbite_nixl_request_t request,
                                               orbite_nixl_result_t* result,
                                               orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_TRY(check_record(result, "result"));
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    ORBITE_ASSIGN_OR_RETURN(const Outcome outcome, lease->query(Handle::unpack(request)));
    write_outcome(outcome, *result);
    return {};
  });
}

orbite_nixl_status_t orbite_nixl_request_cancel(orbite_nixl_engine_t engine,
                                                orbite_nixl_request_t request,
                                                orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    return lease->cancel(Handle::unpack(request));
  });
}

orbite_nixl_status_t orbite_nixl_request_release(orbite_nixl_engine_t engine,
                                                 orbite_nixl_request_t request,
                                                 orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    return lease->release(Handle::unpack(request));
  });
}

orbite_nixl_status_t orbite_nixl_request_abandon(orbite_nixl_engine_t engine,
                                                 orbite_nixl_request_t request,
                                                 orbite_nixl_error_t* error) {
  return guarded(error, [&]() -> Result<void> {
    ORBITE_ASSIGN_OR_RETURN(const EngineLease lease, EngineLease::enter(engine));
    return lease->abandon(Handle::unpack(request));
  });
}
