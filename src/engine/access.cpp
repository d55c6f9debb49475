// SPDX-License-Identifier: Apache-2.0
#include "engine/access.hpp"

#include <vector>

namespace orbite {

bool EngineAccess::destroy_dead(std::unique_ptr<TransferEngine> engine) {
  std::unique_ptr<Impl> impl = std::move(engine->impl_);
  engine.reset();
  impl->begin_close();
  for (const auto& execution : impl->active_executions()) {
    if (impl->tcp_ != nullptr && !execution->peer().is_self()) {
      impl->tcp_->confirm_fenced(transfer::flow_of(execution->peer(), policy::TransportKind::kTcp));
    }
  }
  if (impl->active_executions().empty()) {
    return true;
  }
  static auto* const kept = new std::vector<std::unique_ptr<Impl>>();
  kept->push_back(std::move(impl));
  return false;
}

}  // namespace orbite
