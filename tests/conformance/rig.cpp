// SPDX-License-Identifier: Apache-2.0
#include "conformance/rig.hpp"

#include <array>

#include "peer/lender.hpp"
#include "platform/system.hpp"
#include "platform/system_neighbors.hpp"
#include "sim/sim_transport.hpp"
#include "support/faulty_network.hpp"
#include "support/flows.hpp"
#include "support/tcp_node.hpp"
#include "transport/cma/cma_transport.hpp"
#include "transport/local/local_transport.hpp"
#include "transport/shm/shm_transport.hpp"

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

/// Two engines of one process as far as borrowing goes. Notifications go by another transport, as
/// they do in an engine.
class NeighborRig final : public Rig {
 public:
  NeighborRig(std::size_t bytes, std::uint64_t seed, RigKind kind)
      : random_(seed), near_(near_registry_, bytes), far_(far_registry_, bytes) {
    // Its name is known to every process of this host.
    platform::SystemRandom().fill(owner_.epoch.bytes);
    random_.fill(owner_.secret);
    lender_ = peer::Lender::create(environment()).value();
    links_ = std::make_unique<peer::BorrowLinks>(environment());
    if (kind == RigKind::kCma) {
      transport_ = std::make_unique<transport::cma::CmaTransport>(caller_.planner, clock_,
                                                                  kSliceBytes, *links_, copying());
    } else {
      transport_ = std::make_unique<transport::shm::ShmTransport>(
          caller_.planner, clock_, kSliceBytes, *links_, transport::OnCopy(), copying());
    }
    caller_.planner.set_transport(transport_->kind(), transport_.get());
    caller_.planner.set_transport(control_.kind(), &control_);
    caller_.control = control_.kind();
    peer_ = std::make_shared<peer::Peer>("far", owner_, false);
    auto flows = std::make_shared<transfer::PeerFlows>();
    flows->set(transport_->open(*peer_).value());
    flows->set(control_.open(peer::Peer("far", owner_, true)).value());
    peer_->set_link(std::move(flows));
    lend();
    while (links_->want(owner_).value()->state() != peer::BorrowLink::State::kReady) {
      turn();
    }
  }
  ~NeighborRig() override {
    EXPECT_TRUE(far_.deregister().has_value());
    turn();
    peer_.reset();
    transport_.reset();
    links_.reset();
    lender_.reset();
    network_.close(poller_);
  }

  transfer::Transport& transport() override { return *transport_; }
  transfer::Transport& control() override { return control_; }
  Caller& caller() override { return caller_; }
  const std::shared_ptr<peer::Peer>& peer() override { return peer_; }
  Buffer& near() override { return near_; }
  Buffer& far() override { return far_; }
  Handle far_range() override { return far_range_; }
  void turn() override {
    std::array<platform::PollEvent, 16> events;
    const std::size_t count = network_.poller_wait(poller_, events, 0);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t kind = events[i].token & peer::kTokenKinds;
      if (kind == peer::kTokenLink || kind == peer::kTokenLinkProcess) {
        links_->on_event(events[i].token);
      } else {
        lender_->on_event(events[i].token);
      }
    }
    static_cast<void>(lender_->on_tick(clock_.now_ns()));
    static_cast<void>(links_->on_tick(clock_.now_ns()));
    transfer::WorkLimit limit{1 << 20, 16};
    control_.drive(transfer::flow_of(*peer_, control_.kind()), limit, transfer::Driver::kCaller);
    near_registry_.reap();
    far_registry_.reap();
  }
  std::vector<std::vector<std::uint8_t>>& inbox() override { return inbox_; }
  void refuse_notifications(bool refuse) override { refuses_ = refuse; }
  void reset_peer() override { FAIL() << "it is in our process"; }

 private:
  static constexpr std::uint64_t kSliceBytes = 4096;

  static transport::Copying copying() { return {}; }
  peer::LinkEnvironment environment() {
    return {network_,
            neighbors_,
            clock_,
            random_,
            waiter_,
            "far",
            owner_.epoch,
            owner_.secret,
            owner_.host,
            poller_,
            base::kSecond,
            4,
            4,
            16,
            [](const wire::RegistrationRef&) -> Result<peer::SharedRange> {
              return fail(ErrorCode::kUnsupported, "ordinary memory");
            },
            [] {}};
  }
  /// The far buffer, as its engine would; and its range, which is mapped where it lies: the pages
  /// are those of our own process.
  void lend() {
    EXPECT_TRUE(lender_->reserve().has_value());
    lender_->open(far_.handle);
    far_.before_deregister = [this] {
      lender_->close(
          far_registry_
              .borrow(far_.registration, memory::Direction::kRead, memory::Borrower::kLocal)
              .value());
    };
    far_range_ = caller_.import(peer_, far_.blob(owner_.epoch));
    caller_.ranges.find(far_range_).value()->map(nullptr, far_.address());
  }

  platform::SystemNetwork network_;
  platform::SystemNeighbors neighbors_;
  base::ManualClock clock_;
  base::ThreadWaiter waiter_;
  base::SeededRandom random_;
  platform::Socket poller_ = network_.make_poller().value();
  wire::ConnectionBlob owner_;
  memory::Registry near_registry_{{.registrations_max = 16}, random_};
  memory::Registry far_registry_{{.registrations_max = 16}, random_};
  Buffer near_;
  Buffer far_;
  Caller caller_{near_registry_};
  bool refuses_ = false;
  std::vector<std::vector<std::uint8_t>> inbox_;
  transport::local::LocalTransport control_{
      caller_.planner, clock_, kSliceBytes,
      [this](std::span<const std::uint8_t> message) -> Result<void> {
        if (refuses_) {
          return fail(ErrorCode::kBudgetExhausted, "the inbox is full");
        }
        inbox_.emplace_back(message.begin(), message.end());
        return {};
      }};
  std::unique_ptr<peer::Lender> lender_;
  std::unique_ptr<peer::BorrowLinks> links_;
  std::unique_ptr<transfer::Transport> transport_;
  std::shared_ptr<peer::Peer> peer_;
  Handle far_range_;
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
    case RigKind::kCma:
    case RigKind::kShm:
      return std::make_unique<NeighborRig>(buffer_bytes, seed, kind);
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
