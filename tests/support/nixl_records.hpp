// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "orbite/nixl.h"

namespace orbite::testing {

template <typename T>
T make_record() {
  T record{};
  record.record = ORBITE_NIXL_RECORD(T);
  return record;
}

inline orbite_nixl_status_t create(std::string_view name, std::string_view config,
                                   orbite_nixl_engine_t& engine, orbite_nixl_error_t& error) {
  auto options = make_record<orbite_nixl_engine_options_t>();
  options.name = name.data();
  options.name_bytes = name.size();
  options.config = config.data();
  options.config_bytes = config.size();
  return orbite_nixl_engine_create(&options, &engine, &error);
}

}  // namespace orbite::testing
