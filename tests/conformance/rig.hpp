// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "support/caller.hpp"
#include "support/flows.hpp"

namespace orbite::test {

/// A transport under test with a buffer on each side of it. One thread drives both sides.
class Rig {
 public:
  Rig() = default;
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;
  virtual ~Rig() = default;

  virtual transfer::Transport& transport() = 0;
  /// What carries notifications.
  virtual transfer::Transport& control() { return transport(); }
  virtual Caller& caller() = 0;
  virtual const std::shared_ptr<peer::Peer>& peer() = 0;
  virtual Buffer& near() = 0;
  virtual Buffer& far() = 0;
  virtual Handle far_range() = 0;
  /// One round of whatever works without the caller, on both sides.
  virtual void turn() = 0;
  /// Notifications that arrived at the far side.
  virtual std::vector<std::vector<std::uint8_t>>& inbox() = 0;
  virtual void refuse_notifications(bool refuse) = 0;
  /// The far side is gone from one moment to the next.
  virtual void reset_peer() = 0;
  /// Without a reset, a stop or a deregistration, every execution succeeds.
  [[nodiscard]] virtual bool is_faultless() const { return true; }

  [[nodiscard]] transfer::Flow& flow() { return transfer::flow_of(*peer(), transport().kind()); }
  /// The caller's step and everybody else's.
  void step(transfer::WorkLimit limit = {std::uint64_t{1} << 20, 16}) {
    transport().drive(flow(), limit, transfer::Driver::kCaller);
    turn();
  }
};

enum class RigKind : std::uint8_t {
  kLocal,
  kTcp,
  kTcpShortIo,  ///< every system call moves a few bytes, or none
  kSim,
  kSimLate,    ///< late and out of order
  kSimFaulty,  ///< and failing in every way that retires
  kCma,
  kShm
};

struct RigParam {
  const char* name;
  RigKind kind;
};
inline void PrintTo(const RigParam& param, std::ostream* out) { *out << param.name; }

std::unique_ptr<Rig> make_rig(RigKind kind, std::size_t buffer_bytes, std::uint64_t seed);

}  // namespace orbite::test
