// SPDX-License-Identifier: Apache-2.0
#include "conformance/rig.hpp"

#include "sim/sim_transport.hpp"
#include "support/faulty_network.hpp"
#include "support/flows.hpp"
#include "support/tcp_node.hpp"
#include "transport/local/local_transport.hpp"

namespace orbite::test {
namespace {

class LocalRig final : public Rig {
 public:
  LocalRig(std::size_t bytes, std::uint64_t seed)
      : random_(seed), near_(registry_, bytes), far_(registry_, bytes) {
    caller_.planner.set_transport(transport_.kind(), &transport_);
    test::set_flow(*peer_, transport_.open(*peer_).value());
    far_range_ = caller_.import_own(far_.handle);
  }

  transfer::Transport& transport() override { return transport_; }
  Caller& caller() override { return caller_; }
  const std::shared_ptr<peer::Peer>& peer() override { return peer_; }
  Buffer& near() override { return near_; }
  Buffer& far() override { return far_; }
  Handle far_range() override { return far_range_; }
  void turn() override { registry_.reap(); }
  std::vector<std::vector<std::uint8_t>>& inbox() override { return inbox_; }
  void refuse_notifications(bool refuse) override { refuses_ = refuse; }
  void reset_peer() override { FAIL() << "we are never apart from ourselves"; }

 private:
  static constexpr std::uint64_t kSliceBytes = 4096;

  base::SeededRandom random_;
  memory::Registry registry_{{.registrations_max = 16}, random_};
  Buffer near_;
  Buffer far_;
  Caller caller_{registry_};
  base::ManualClock clock_;
  bool refuses_ = false;
  std::vector<std::vector<std::uint8_t>> inbox_;
  transport::local::LocalTransport transport_{
      caller_.planner, clock_, kSliceBytes,
      [this](std::span<const std::uint8_t> message) -> Result<void> {
        if (refuses_) {
          return fail(ErrorCode::kBudgetExhausted, "the inbox is full");
        }
        inbox_.emplace_back(message.begin(), message.end());
        return {};
      }};
  std::shared_ptr<peer::Peer> peer_ =
      std::make_shared<peer::Peer>("self", wire::ConnectionBlob{}, true);
  Handle far_range_;
};

class TcpRig final : public Rig {
 public:
  TcpRig(std::size_t bytes, std::uint64_t seed, bool short_io)
      : near_node_({.name = "near", .config = config(), .seed = 2 * seed, .network = &network_}),
        far_node_({.name = "far", .config = config(), .seed = 2 * seed + 1, .network = &network_}),
        near_(near_node_.registry, bytes),
        far_(far_node_.registry, bytes) {
    if (short_io) {
      network_.set_short_io(700, 300, seed);
    }
    peer_ = near_node_.import("far", far_node_.blob());
    far_range_ = near_node_.caller.import(peer_, far_.blob(far_node_.epoch));
    far_node_.on_deliver = [this] { inbox_.push_back(far_node_.inbox.back().message); };
  }

  transfer::Transport& transport() override { return *near_node_.transport; }
  Caller& caller() override { return near_node_.caller; }
  const std::shared_ptr<peer::Peer>& peer() override { return peer_; }
  Buffer& near() override { return near_; }
  Buffer& far() override { return far_; }
  Handle far_range() override { return far_range_; }
  void turn() override {
    near_node_.turn();
    far_node_.turn();
    near_node_.registry.reap();
    far_node_.registry.reap();
  }
  std::vector<std::vector<std::uint8_t>>& inbox() override { return inbox_; }
  void refuse_notifications(bool refuse) override { far_node_.refuse_notifications = refuse; }
  void reset_peer() override { far_node_.die(); }

 private:
  static Config config() {
    Config made = TcpNode::default_config();
    made.tcp.slice_bytes = 4096;
    made.tcp.lane_bytes_in_flight_max = 64 << 10;
    return made;
  }

  FaultyNetwork network_;
  TcpNode near_node_;
  TcpNode far_node_;
  Buffer near_;
  Buffer far_;
  std::shared_ptr<peer::Peer> peer_;
  Handle far_range_;
  std::vector<std::vector<std::uint8_t>> inbox_;
};

class SimRig final : public Rig {
 public:
  SimRig(std::size_t bytes, const sim::Script& script, bool is_faultless)
      : near_random_(script.seed + 1),
        far_random_(script.seed + 2),
        near_(near_registry_, bytes),
        far_(far_registry_, bytes),
        transport_(caller_.planner, script, world()),
        is_faultless_(is_faultless) {
    caller_.planner.set_transport(transport_.kind(), &transport_);
    wire::ConnectionBlob connection;
    far_random_.fill(connection.epoch.bytes);
    peer_ = std::make_shared<peer::Peer>("far", connection, false);
    test::set_flow(*peer_, transport_.open(*peer_).value());
    far_range_ = caller_.import(peer_, far_.blob(connection.epoch));
  }

  transfer::Transport& transport() override { return transport_; }
  Caller& caller() override { return caller_; }
  const std::shared_ptr<peer::Peer>& peer() override { return peer_; }
  Buffer& near() override { return near_; }
  Buffer& far() override { return far_; }
  Handle far_range() override { return far_range_; }
  void turn() override {
    near_registry_.reap();
    far_registry_.reap();
    // Room that no retirement announces.
    caller_.planner.pump(transport_, flow());
  }
  std::vector<std::vector<std::uint8_t>>& inbox() override { return inbox_; }
  void refuse_notifications(bool refuse) override { refuses_ = refuse; }
  void reset_peer() override { transport_.reset_peer(flow()); }
  [[nodiscard]] bool is_faultless() const override { return is_faultless_; }

 private:
  sim::SimTransport::World world() {
    return {.registry_of = [this](const base::SourceEpoch&) { return &far_registry_; },
            .deliver = [this](const transfer::Execution& execution) -> Result<void> {
              if (refuses_) {
                return fail(ErrorCode::kBudgetExhausted, "the inbox is full");
              }
              inbox_.push_back(*execution.notification());
              return {};
            },
            .on_access = {}};
  }

  base::SeededRandom near_random_;
  base::SeededRandom far_random_;
  memory::Registry near_registry_{{.registrations_max = 16}, near_random_};
  memory::Registry far_registry_{{.registrations_max = 16}, far_random_};
  Buffer near_;
  Buffer far_;
  Caller caller_{near_registry_};
  bool refuses_ = false;
  std::vector<std::vector<std::uint8_t>> inbox_;
  sim::SimTransport transport_;
  std::shared_ptr<peer::Peer> peer_;
  Handle far_range_;
  bool is_faultless_;
};

}  // namespace

std::unique_ptr<Rig> make_rig(RigKind kind, std::size_t buffer_bytes, std::uint64_t seed) {
  sim::Script script;
  script.seed = seed;
  script.limits = {1024, 8, 4};
  switch (kind) {
    case RigKind::kLocal:
      return std::make_unique<LocalRig>(buffer_bytes, seed);
    case RigKind::kTcp:
      return std::make_unique<TcpRig>(buffer_bytes, seed, false);
    case RigKind::kTcpShortIo:
      return std::make_unique<TcpRig>(buffer_bytes, seed, true);
    case RigKind::kSimFaulty:
      script.refused = 20;
      script.failed_none = 30;
      script.failed_prefix = 30;
      script.failed_unknown = 30;
      script.notification_refused = 200;
      [[fallthrough]];
    case RigKind::kSimLate:
      script.delay_max = 8;
      [[fallthrough]];
    case RigKind::kSim:
      return std::make_unique<SimRig>(buffer_bytes, script, kind != RigKind::kSimFaulty);
  }
  return nullptr;
}

}  // namespace orbite::test
