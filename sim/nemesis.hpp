// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/world.hpp"

namespace orbite::sim {

/// Brings faults over the world, and takes every one of them away again.
class Nemesis {
 public:
  explicit Nemesis(World& world) : world_(world), random_(world.random.next()) {}

  void begin();
  /// All faults end; the dead are started again or stay dead. Nothing happens after it.
  void end();

 private:
  void next_fault();
  void strike(Fault fault);
  void strike_link(Fault fault);
  void strike_host(Fault fault);
  void strike_connection(Fault fault);
  void end_hosts(Fault fault, Host& host);
  void strike_copies(Fault fault, Host& host);
  void struck_down(Host& host);
  bool may_die(const std::vector<Host*>& hosts) const;
  void restart_later(Host& host);
  void restore_link(std::uint32_t a, std::uint32_t b);
  /// Undoes a fault after a while, unless all have ended by then.
  void later(std::function<void()> undo);

  World& world_;
  Random random_;
  base::Nanoseconds pause_ns_ = 0;
  bool over_ = false;
};

}  // namespace orbite::sim
