// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "orbite/config.hpp"

namespace orbite::policy {

/// Latency work is never queued behind bulk work.
enum class QosClass : std::uint8_t { kLatency = 0, kBulk = 1 };
inline constexpr std::size_t kQosClasses = 2;

enum class TransportKind : std::uint8_t { kLocal, kTcp };
inline constexpr std::size_t kTransportKinds = 2;

/// Static storage.
const char* transport_name(TransportKind kind) noexcept;

struct Route {
  TransportKind transport = TransportKind::kTcp;
  QosClass qos = QosClass::kBulk;
};

/// The routes, compiled once from the configuration.
class RouteTable {
 public:
  explicit RouteTable(const Config& config);

  /// kTransportUnavailable names the peer's kind and what is switched off.
  [[nodiscard]] Result<Route> choose(bool self, std::uint64_t bytes) const;

 private:
  std::vector<TransportKind> self_routes_;
  std::vector<TransportKind> remote_routes_;
  std::uint64_t small_bytes_;
};

}  // namespace orbite::policy
