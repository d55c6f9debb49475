// SPDX-License-Identifier: Apache-2.0
// Hunts in the target's side of TCP, by an initiator that speaks the wire format by hand: what it
// would take for a proof goes to the checker, and so does every byte that lands.
#include <numeric>

#include "planted/hunts.hpp"
#include "support/served_node.hpp"

namespace orbite::test {
namespace {

constexpr std::uint32_t kBytes = 16;  ///< of the WRITE that is played
constexpr Checker::Mask kAll = (Checker::Mask{1} << kBytes) - 1;
constexpr auto kControl = wire::LaneClass::kControl;
constexpr auto kLatency = wire::LaneClass::kLatency;

/// One WRITE of kBytes to the start of a buffer, and what became of it.
class ServedHunt {
 public:
  explicit ServedHunt(std::function<bool()> is_outstanding = [] { return false; })
      : checker([is_outstanding = std::move(is_outstanding)](std::uint32_t) {
          return Checker::Outstanding{false, is_outstanding()};
        }) {
    checker.posted({0, Operation::kWrite, kAll, false});
    checker.entered(0, kAll);
  }

  RawRequest write() const { return access_of(wire::FrameType::kWrite, far, kBytes); }
  /// What the initiator makes of an answer or a proof.
  void show(Logical logical, RemoteEffect effect, ErrorCode code, std::uint64_t prefix) {
    Outcome outcome;
    outcome.logical = logical;
    outcome.drain = Drain::kRetired;
    outcome.effect = effect;
    outcome.code = code;
    outcome.bytes_prefix = prefix;
    outcome.bytes_total = kBytes;
    checker.shown(0, outcome);
  }
  void show_success() { show(Logical::kSuccess, RemoteEffect::kComplete, ErrorCode::kOk, kBytes); }
  /// Bytes that landed since the last look.
  void look_at_memory() {
    Checker::Mask landed = 0;
    for (std::uint32_t i = 0; i < kBytes; ++i) {
      landed |= far.bytes[i] != 0 ? Checker::Mask{1} << i : 0;
    }
    if (landed != seen_) {
      checker.accessed(0, landed & ~seen_);
    }
    seen_ = landed;
    checker.memory(std::accumulate(far.bytes.begin() + kBytes, far.bytes.end(), 0) == 0);
  }
  Findings found(std::string how) const { return {checker.violations(), std::move(how)}; }

  Served served;
  Buffer far{served.node.registry, 256};
  Checker checker;

 private:
  Checker::Mask seen_ = 0;
};

}  // namespace

Findings half_sent_frame() {
  bool all_sent = false;
  ServedHunt hunt([&all_sent] { return !all_sent; });
  const Connection lane = hunt.served.lane({epoch_of(1), 1, "raw", kLatency});
  RawRequest write = hunt.write();
  const std::vector<std::uint8_t> rest(write.payload.begin() + 4, write.payload.end());
  write.payload.resize(4);
  EXPECT_TRUE(lane->send(write));
  hunt.served.turns(50);
  hunt.look_at_memory();
  const bool answered_early = lane->has_bytes();
  if (answered_early) {
    hunt.show_success();  // what an initiator takes the answer for
  }
  EXPECT_TRUE(lane->write(rest));
  all_sent = true;
  const auto response = lane->read_response();
  hunt.served.turns(50);
  hunt.look_at_memory();
  if (!answered_early && response.has_value() && response->status() == ErrorCode::kOk) {
    hunt.show_success();
  }
  return hunt.found("an answer is looked for before the rest of the frame is sent");
}

Findings late_hello_of_a_drained_lane() {
  ServedHunt hunt;
  const base::SourceEpoch epoch = epoch_of(1);
  const Connection control = hunt.served.lane({epoch, 9, "raw", kControl});
  if (ask(*control, drain_of(5)) == ErrorCode::kOk) {
    hunt.show(Logical::kFailed, RemoteEffect::kUnknown, ErrorCode::kPeerSilent, 0);
  }
  // The connection of the drained lane comes to life only now.
  const Connection late = hunt.served.connect();
  EXPECT_TRUE(late->send_hello(hunt.served.node.blob(), {epoch, 5, "raw", kLatency}));
  if (late->finish_handshake(hunt.served.node.blob()) == ErrorCode::kOk) {
    (void)ask(*late, hunt.write());
  }
  hunt.look_at_memory();
  return hunt.found("a WRITE on a lane that was drained before");
}

Findings lengths_beyond_the_payload() {
  ServedHunt hunt;
  const Connection lane = hunt.served.lane({epoch_of(1), 1, "raw", kLatency});
  RawRequest write = hunt.write();
  // A second extent that the payload does not fill: it would take in the frame that follows.
  write.extents.push_back({64, 32, 0});
  write.header.extent_count = 2;
  EXPECT_TRUE(lane->send(write));
  (void)lane->send(request_of(wire::FrameType::kPing));
  hunt.served.turns(50);
  hunt.look_at_memory();
  return hunt.found("extents longer than the payload");
}

Findings hello_to_an_earlier_life() {
  ServedHunt hunt;
  hunt.checker.far_died();  // the life that was posted to
  wire::ConnectionBlob earlier = hunt.served.node.blob();
  earlier.epoch.bytes[0] ^= 1;
  const Connection lane = hunt.served.connect();
  EXPECT_TRUE(lane->send_hello(earlier, {epoch_of(1), 1, "raw", kLatency}));
  if (lane->finish_handshake(earlier) == ErrorCode::kOk) {
    (void)ask(*lane, hunt.write());
  }
  hunt.look_at_memory();
  return hunt.found("a WRITE to the epoch before");
}

}  // namespace orbite::test
