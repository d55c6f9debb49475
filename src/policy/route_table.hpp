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

enum class TransportKind : std::uint8_t { kLocal, kShm, kCma, kTcp };
inline constexpr std::size_t kTransportKinds = 4;

/// Static storage.
const char* transport_name(TransportKind kind) noexcept;

struct Route {
  Route() = default;
  Route(TransportKind by, QosClass of) : transport(by), qos(of), control(by) {}
  Route(TransportKind by, QosClass of, TransportKind notifies_by)
      : transport(by), qos(of), control(notifies_by) {}

  TransportKind transport = TransportKind::kTcp;  ///< of the bytes
  QosClass qos = QosClass::kBulk;
  TransportKind control = TransportKind::kTcp;  ///< of notifications
};

/// The routes, compiled once from the configuration.
class RouteTable {
 public:
  explicit RouteTable(const Config& config);

  /// By what always reaches the peer. kTransportUnavailable names the peer's kind and what is
  /// switched off.
  [[nodiscard]] Result<Route> choose(bool self, std::uint64_t bytes) const;
  /// What is preferred to that where it reaches, the best first.
  [[nodiscard]] const std::vector<TransportKind>& preferred(bool self) const noexcept {
    return self ? self_preferred_ : remote_preferred_;
  }

 private:
  std::vector<TransportKind> self_preferred_;  ///< none so far
  std::vector<TransportKind> remote_preferred_;
  bool self_ = false;
  bool remote_ = false;
  std::uint64_t small_bytes_;
};

}  // namespace orbite::policy
