// SPDX-License-Identifier: Apache-2.0
#include "engine/impl.hpp"
#include "engine/quarantine.hpp"

namespace orbite {
namespace {

constexpr std::size_t kOperations = 2;

const char* qos_name(policy::QosClass qos) noexcept {
  return qos == policy::QosClass::kLatency ? "latency" : "bulk";
}

BudgetTelemetry of_budget(const transfer::Budget& budget) {
  return {budget.name(), budget.key(), budget.used(), budget.max(), budget.refused()};
}

}  // namespace

std::size_t TransferEngine::Impl::route_index(const transfer::Execution& execution) noexcept {
  const auto transport = static_cast<std::size_t>(execution.route().transport);
  const auto operation = static_cast<std::size_t>(execution.operation());
  return (transport * kOperations + operation) * policy::kQosClasses +
         static_cast<std::size_t>(execution.route().qos);
}

std::vector<RouteTelemetry> TransferEngine::Impl::route_telemetry() const {
  std::vector<RouteTelemetry> routes(route_counters_.size());
  for (std::size_t i = 0; i < routes.size(); ++i) {
    RouteTelemetry& route = routes[i];
    route.transport = policy::transport_name(
        static_cast<policy::TransportKind>(i / policy::kQosClasses / kOperations));
    route.operation = static_cast<Operation>(i / policy::kQosClasses % kOperations);
    route.qos = qos_name(static_cast<policy::QosClass>(i % policy::kQosClasses));
    route_counters_[i].read_into(route);
  }
  for (const auto& execution : active_executions()) {
    if (execution->prepared() == nullptr) {
      continue;
    }
    RouteTelemetry& route = routes[route_index(*execution)];
    const Outcome outcome = execution->outcome();
    if (outcome.terminal()) {
      continue;
    }
    ++route.active;
    if (outcome.logical != Logical::kNone) {
      ++route.unquiesced;
      route.unquiesced_bytes += outcome.bytes_total;
    }
  }
  return routes;
}

std::vector<BudgetTelemetry> TransferEngine::Impl::budget_telemetry() const {
  const memory::Registry::Counts held = registry.counts();
  const Config& config = options.config;
  std::vector<BudgetTelemetry> budgets = {
      {"registrations", "limits.registrations_max", held.live + held.fenced + held.unquiesced,
       config.limits.registrations_max, held.refused_total},
      {"peers", "limits.peers_max", peers.size(), peers.max(), peers.refused()},
      {"ranges", "limits.ranges_max", ranges.size(), ranges.max(), ranges.refused()},
      of_budget(admission_.requests),
      of_budget(admission_.descriptors),
      of_budget(admission_.bytes_in_flight),
      of_budget(admission_.outbox_bytes),
      {"inbox_bytes", "notifications.inbox_bytes_max", mailbox.bytes(),
       config.notifications.inbox_bytes_max, counters.notifications_refused.value()},
  };
  // Created ones that were refused have no engine to tell of it.
  budgets.push_back({"quarantined_engines", "limits.quarantined_engines_max",
                     Quarantine::of_process().size(), config.limits.quarantined_engines_max, 0});
  if (tcp_ != nullptr) {
    budgets.push_back({"served_lanes", "tcp.served_lanes_max", tcp_->proved_lanes(),
                       config.tcp.served_lanes_max, tcp_->lanes_out_of_room()});
  }
  return budgets;
}

Telemetry::Counters TransferEngine::Impl::counter_telemetry() const {
  Telemetry::Counters values;
#define ORBITE_COUNTER(name, meaning) values.name = counters.name.value();
#define ORBITE_GAUGE(name, meaning)
#include "orbite/telemetry.def"
#undef ORBITE_COUNTER
#undef ORBITE_GAUGE
  return values;
}

Telemetry::Gauges TransferEngine::Impl::gauge_telemetry() const {
  Telemetry::Gauges values;
  if (tcp_ != nullptr) {
    values.lanes_open = tcp_->lane_sockets();
    values.served_lanes = tcp_->served_lanes();
    values.slices_unproved = tcp_->unproved_slices();
  }
  values.slices_outstanding = planner_.slices_out();
  const memory::Registry::Counts held = registry.counts();
  values.registrations_live = held.live;
  values.registrations_fenced = held.fenced;
  values.registrations_quarantined = held.unquiesced;
  values.registered_bytes = held.bytes_registered;
  values.quarantined_bytes = held.bytes_unquiesced;
  values.loans_out = held.loans;
  return values;
}

Telemetry TransferEngine::Impl::telemetry() const {
  return {options.name, counter_telemetry(), gauge_telemetry(), route_telemetry(),
          budget_telemetry()};
}

}  // namespace orbite
