// SPDX-License-Identifier: Apache-2.0
// What a peer may answer: true and false responses to what we ask, any bytes, silence, an end, on
// lanes that were connected with a good handshake and on ones that were not. Every execution ends
// once, success is told only when the peer said so, and nothing outside the loan is written.
#include <deque>

#include "peer/peer.hpp"
#include "support/flows.hpp"
#include "tcp_world.hpp"
#include "transfer/execution.hpp"
#include "wire/frame.hpp"
#include "wire/handshake.hpp"

namespace {

using namespace orbite;
using fuzz::bytes_of;

constexpr int kStepsMax = 200;
constexpr std::size_t kExecutionsMax = 32;
constexpr std::size_t kBytes = 2'048;

class Asked {
 public:
  explicit Asked(std::span<const std::uint8_t> bytes) : input_(bytes) {
    wire::ConnectionBlob connection;
    connection.epoch.bytes[0] = 9;
    connection.secret[0] = 3;
    connection.loopback_reachable = true;
    connection.port = 77;
    peer_ = std::make_shared<peer::Peer>("far", connection, false);
    test::set_flow(*peer_, world_.transport->open(*peer_).value());
    wire::RangeBlob blob;
    blob.index = 1;
    blob.generation = 1;
    blob.address = kFarAddress;
    blob.length = kBytes;
    remote_ = std::make_shared<peer::RemoteRange>(
        peer_, blob, base::ByteRange::make(kFarAddress, kBytes).value());
  }

  void run() {
    for (int i = 0; i < kStepsMax && !input_.empty(); ++i) {
      step();
      answer_handshakes(input_.byte());
      world_.turn();
      collect_requests();
      check_memory();
    }
    end_everything();
    check_memory();
    for (const auto& execution : executions_) {
      ORBITE_CHECK(execution->terminal());
      const Outcome outcome = execution->outcome();
      ORBITE_CHECK(outcome.bytes_prefix <= outcome.bytes_total);
      ORBITE_CHECK(outcome.logical != Logical::kSuccess || successes_ > 0);
    }
    ORBITE_CHECK(ended_ == executions_.size());
    ORBITE_CHECK(world_.planner.slices_out() == 0);
    ORBITE_CHECK(world_.registry.counts().loans == 0);
  }

 private:
  static constexpr std::uint64_t kFarAddress = 0x10000;

  struct Lane {
    platform::Socket socket;
    bool greeted = false;
    bool proved = false;
    std::vector<std::uint8_t> sent;
    std::deque<wire::RequestHeader> asked;  ///< not answered yet
  };

  transfer::Flow& flow() { return test::only_flow(*peer_); }

  void step() {
    switch (input_.byte() % 10) {
      case 0:
      case 1:
      case 2:
        post();
        break;
      case 3:
      case 4:
      case 5:
        respond();
        break;
      case 6:
        describe();
        break;
      case 7:
        world_.clock.advance((input_.byte() + 1) * 20 * base::kMillisecond);
        break;
      case 8:
        if (Lane* const to = lane()) {
          world_.network.give(to->socket, input_.bytes(input_.byte()));
        }
        break;
      default:
        interfere();
        break;
    }
  }

  Lane* lane() { return lanes_.empty() ? nullptr : &lanes_[input_.byte() % lanes_.size()]; }

  void post() {
    if (executions_.size() == kExecutionsMax) {
      return;
    }
    const std::uint8_t shape = input_.byte();
    transfer::Execution::Options options;
    options.peer = peer_;
    options.route = {policy::TransportKind::kTcp,
                     (shape & 1) == 0 ? policy::QosClass::kLatency : policy::QosClass::kBulk};
    if ((shape & 6) == 0) {
      options.notification.emplace(input_.byte(), 8);
    } else {
      options.prepared = prepare((shape & 2) == 0 ? Operation::kRead : Operation::kWrite);
      const bool reads = options.prepared->operation == Operation::kRead;
      options.loans.push_back(
          world_.registry
              .borrow(near_of(options.prepared->operation).registration,
                      reads ? memory::Direction::kWrite : memory::Direction::kRead,
                      memory::Borrower::kLocal)
              .value());
      if ((shape & 8) != 0) {
        options.notification.emplace(3, 8);
      }
    }
    options.on_terminal = [this](transfer::Execution&) { ++ended_; };
    auto execution = std::make_shared<transfer::Execution>(std::move(options));
    executions_.push_back(execution);
    world_.planner.enqueue(flow(), execution);
    world_.planner.pump(*world_.transport, flow());
    transfer::WorkLimit limit{1 << 20, 8};
    world_.transport->drive(flow(), limit, transfer::Driver::kCaller);
  }

  fuzz::Region& near_of(Operation operation) {
    return operation == Operation::kRead ? target_ : source_;
  }

  std::shared_ptr<const transfer::Prepared> prepare(Operation operation) {
    auto prepared = std::make_shared<transfer::Prepared>();
    prepared->operation = operation;
    prepared->peer = peer_;
    prepared->locals.push_back(near_of(operation).registration);
    prepared->remotes.push_back(remote_);
    const std::uint64_t length = 1 + input_.take<std::uint16_t>() % (kBytes / 2);
    transfer::ExtentListWriter extents;
    for (std::uint64_t at = 0; at <= kBytes / 2; at += kBytes / 2) {
      extents.add({near_of(operation).address() + at, kFarAddress + at, length, 0, 0});
    }
    prepared->extents = extents.finish();
    prepared->bytes = 2 * length;
    prepared->tasks = 2;
    return prepared;
  }

  /// The question is put; nobody waits for the answer.
  void describe() {
    wire::RegistrationRef entry;
    entry.index = 1;
    entry.generation = 1;
    const std::vector<wire::RegistrationRef> entries(1 + input_.byte() % 3, entry);
    (void)world_.transport->describe(flow(), entries, 0);
  }

  /// Every byte of what is asked for is right, but for what the input bends.
  void respond() {
    Lane* const to = lane();
    if (to == nullptr || to->asked.empty()) {
      return;
    }
    const wire::RequestHeader request = to->asked.front();
    to->asked.pop_front();
    const auto type = static_cast<wire::FrameType>(request.type);
    wire::ResponseHeader response;
    response.type = static_cast<std::uint8_t>(request.type + 64);
    response.frame_id = request.frame_id;
    if (type == wire::FrameType::kWrite) {
      response.effect = static_cast<std::uint8_t>(wire::FrameEffect::kComplete);
      response.prefix_bytes = request.payload_bytes;
    }
    std::vector<std::uint8_t> payload;
    if (type == wire::FrameType::kRead) {
      payload.assign(request.payload_bytes, 0x77);
    } else if (type == wire::FrameType::kDescribe) {
      for (int i = 0; i < request.table_count; ++i) {
        wire::DescribedRange range =
            input_.byte() % 2 == 0 ? input_.take<wire::DescribedRange>() : wire::DescribedRange{};
        range.index = 1;
        range.generation = 1;
        const auto bytes = bytes_of(range);
        payload.insert(payload.end(), bytes.begin(), bytes.end());
      }
    }
    response.payload_bytes = static_cast<std::uint32_t>(payload.size());
    bend(response);
    successes_ += response.status == 0 ? 1 : 0;
    world_.network.give(to->socket, bytes_of(response));
    const std::uint8_t cut = input_.byte();
    world_.network.give(to->socket,
                        std::span(payload).first(cut < 200 ? payload.size() : payload.size() / 2));
  }

  void bend(wire::ResponseHeader& response) {
    switch (input_.byte() % 16) {
      case 0:
        response.status = input_.take<std::uint16_t>();
        break;
      case 1:
        response.status = static_cast<std::uint16_t>(ErrorCode::kRegistrationFenced);
        response.effect = 0;
        response.prefix_bytes = 0;
        response.payload_bytes = 0;
        break;
      case 2:
        response.status = static_cast<std::uint16_t>(ErrorCode::kIoFailed);
        response.effect = input_.byte() % 4;
        response.prefix_bytes = input_.take<std::uint16_t>();
        break;
      case 3:
        response.frame_id += input_.byte();
        break;
      case 4:
        response.type = input_.byte();
        break;
      case 5:
        response.payload_bytes = input_.take<std::uint32_t>();
        break;
      case 6:
        response.prefix_bytes = input_.take<std::uint64_t>();
        break;
      case 7:
        response.effect = input_.byte();
        break;
      case 8:
        response.status = static_cast<std::uint16_t>(ErrorCode::kCanceled);
        break;
      default:
        break;
    }
  }

  void interfere() {
    const std::uint8_t what = input_.byte();
    Lane* const of = lane();
    if (what % 4 == 3) {
      if (!executions_.empty()) {
        transfer::Execution& execution = *executions_[what % executions_.size()];
        execution.stop(what % 8 == 3 ? ErrorCode::kCanceled : ErrorCode::kDeadlineExceeded);
        world_.planner.forget(execution);
        world_.transport->drop_unposted(flow(), execution);
      }
    } else if (of != nullptr && what % 4 == 0) {
      world_.network.finish(of->socket);
    } else if (of != nullptr && what % 4 == 1) {
      world_.network.reset(of->socket);
    } else if (of != nullptr) {
      world_.network.set_room(of->socket, what % 8 == 2 ? SIZE_MAX : what);
    }
  }

  /// Who connects is answered as its peer would, most times.
  void answer_handshakes(std::uint8_t how) {
    while (!world_.network.asking().empty()) {
      if (how % 32 == 31) {
        world_.network.reset(world_.network.asking().front());
      }
      lanes_.push_back({world_.network.answer(), false, false, {}, {}});
    }
    world_.turn();
    for (Lane& each : lanes_) {
      const std::vector<std::uint8_t> more = world_.network.take_sent(each.socket);
      each.sent.insert(each.sent.end(), more.begin(), more.end());
      if (!each.greeted && each.sent.size() >= sizeof(wire::ClientHello)) {
        each.greeted = true;
        greet(each, how);
      }
    }
  }

  void greet(Lane& each, std::uint8_t how) {
    wire::ClientHello hello;
    std::memcpy(static_cast<void*>(&hello), each.sent.data(), sizeof(hello));
    each.sent.erase(each.sent.begin(), each.sent.begin() + sizeof(hello));
    ORBITE_CHECK(wire::check_client_hello(hello).has_value());
    ORBITE_CHECK(hello.expected_epoch == peer_->epoch());
    wire::ServerHello server;
    server.server_epoch = peer_->epoch();
    if (how % 32 == 30) {
      server.status = input_.take<std::uint16_t>();
    }
    wire::sign_server(peer_->connection().secret, hello, server);
    if (how % 32 == 29) {
      server.mac[input_.byte() % 32] ^= 1;
    }
    world_.network.give(each.socket, bytes_of(server));
  }

  /// What was asked on each lane, by the heads of its frames. Each of them is well-formed.
  void collect_requests() {
    for (Lane& each : lanes_) {
      const std::vector<std::uint8_t> more = world_.network.take_sent(each.socket);
      each.sent.insert(each.sent.end(), more.begin(), more.end());
      if (!each.greeted) {
        continue;
      }
      std::size_t at = 0;
      if (!each.proved && each.sent.size() >= sizeof(wire::ClientProof)) {
        each.proved = true;
        at = sizeof(wire::ClientProof);
      }
      while (each.proved && take_request(each, at)) {
      }
      each.sent.erase(each.sent.begin(), each.sent.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }

  static bool take_request(Lane& each, std::size_t& at) {
    wire::RequestHeader header;
    if (each.sent.size() - at < sizeof(header)) {
      return false;
    }
    std::memcpy(static_cast<void*>(&header), each.sent.data() + at, sizeof(header));
    ORBITE_CHECK(wire::check_request_header(header, wire::FrameLimits{}).has_value());
    const bool writes = header.type == static_cast<std::uint8_t>(wire::FrameType::kWrite);
    const std::size_t bytes = sizeof(header) + wire::tables_bytes(header) + header.trailer_bytes +
                              (writes ? header.payload_bytes : 0);
    if (each.sent.size() - at < bytes) {
      return false;
    }
    at += bytes;
    each.asked.push_back(header);
    return true;
  }

  void check_memory() const {
    source_.check_untouched();
    target_.check_guards();
  }

  /// As at the end of an engine whose operator has fenced the peer.
  void end_everything() {
    for (const auto& execution : executions_) {
      execution->stop(ErrorCode::kCanceled);
      world_.planner.forget(*execution);
      world_.transport->drop_unposted(flow(), *execution);
    }
    world_.transport->confirm_fenced(flow());
    world_.turns(2);
  }

  fuzz::Input input_;
  fuzz::TcpWorld world_;
  fuzz::Region source_{world_.registry, kBytes, kAccessLocal};
  fuzz::Region target_{world_.registry, kBytes, kAccessLocal};
  std::shared_ptr<peer::Peer> peer_;
  std::shared_ptr<peer::RemoteRange> remote_;
  std::vector<std::shared_ptr<transfer::Execution>> executions_;
  std::size_t ended_ = 0;
  std::size_t successes_ = 0;
  std::vector<Lane> lanes_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Asked({data, size}).run();
  return 0;
}
