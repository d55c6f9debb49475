/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled as C11 and as C++20 with all warnings: the header alone, twice, and one of each use. */
#include "orbite/nixl.h"

int header_use(void);

int header_use(void) {
  static const orbite_nixl_record_t heads[] = {ORBITE_NIXL_RECORD(orbite_nixl_error_t),
                                               ORBITE_NIXL_RECORD(orbite_nixl_abi_t),
                                               ORBITE_NIXL_RECORD(orbite_nixl_engine_options_t),
                                               ORBITE_NIXL_RECORD(orbite_nixl_close_t),
                                               ORBITE_NIXL_RECORD(orbite_nixl_memory_t),
                                               ORBITE_NIXL_RECORD(orbite_nixl_prepare_t),
                                               ORBITE_NIXL_RECORD(orbite_nixl_post_t),
                                               ORBITE_NIXL_RECORD(orbite_nixl_result_t),
                                               ORBITE_NIXL_RECORD(orbite_nixl_telemetry_t),
                                               ORBITE_NIXL_RECORD(orbite_nixl_route_t),
                                               ORBITE_NIXL_RECORD(orbite_nixl_budget_t),
                                               ORBITE_NIXL_RECORD(orbite_nixl_shared_options_t)};
  const uint64_t features = ORBITE_NIXL_FEATURE_TCP | ORBITE_NIXL_FEATURE_LOCAL;
  const uint32_t access =
      ORBITE_NIXL_ACCESS_LOCAL | ORBITE_NIXL_ACCESS_REMOTE_READ | ORBITE_NIXL_ACCESS_REMOTE_WRITE;
#ifdef __cplusplus
  orbite_nixl_error_t error{};
  error.record = ORBITE_NIXL_RECORD(orbite_nixl_error_t);
#else
  orbite_nixl_error_t error = {.record = ORBITE_NIXL_RECORD(orbite_nixl_error_t)};
#endif
  return (int)(heads[0].size - error.record.size + (access - ORBITE_NIXL_ACCESS_ALL)) +
         (features == 3 ? 0 : 1);
}
