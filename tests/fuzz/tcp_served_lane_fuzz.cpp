// SPDX-License-Identifier: Apache-2.0
// What a peer that has passed the handshake may send, on several connections, while time passes and
// it stops reading: whole frames with true and with false keys, cut frames, any bytes. Nothing
// outside a range that it may write is written, and nothing of it is held when it is gone.
#include <optional>

#include "tcp_world.hpp"
#include "wire/envelope.hpp"
#include "wire/frame.hpp"
#include "wire/handshake.hpp"

namespace {

using namespace orbite;
using fuzz::bytes_of;

constexpr std::size_t kLanesMax = 4;
constexpr int kStepsMax = 200;
const std::string kName = "peer";

class Served {
 public:
  explicit Served(std::span<const std::uint8_t> bytes) : input_(bytes) {}

  void run() {
    connect();
    for (int i = 0; i < kStepsMax && !input_.empty(); ++i) {
      step();
      world_.turn();
      check_memory();
    }
    for (Lane& lane : lanes_) {
      world_.network.finish(lane.socket);
      world_.network.set_room(lane.socket, SIZE_MAX);
    }
    world_.turns(8);
    for (Lane& lane : lanes_) {
      check_responses(lane);
    }
    world_.transport->shut();
    check_memory();
    ORBITE_CHECK(world_.registry.counts().loans == 0);
    ORBITE_CHECK(world_.transport->served_lanes() == 0);
    ORBITE_CHECK(world_.transport->proved_lanes() == 0);
    ORBITE_CHECK(world_.mailbox.bytes() <= world_.config.notifications.inbox_bytes_max);
  }

 private:
  struct Lane {
    platform::Socket socket;
    base::SourceEpoch epoch;
    std::vector<std::uint8_t> received;
  };

  void step() {
    switch (input_.byte() % 10) {
      case 0:
        connect();
        break;
      case 1:
        give(input_.bytes(input_.byte()));
        break;
      case 2:
        give(bytes_of(input_.take<wire::RequestHeader>()));
        break;
      case 3:
      case 4:
        send_access();
        break;
      case 5:
        send_notification();
        break;
      case 6:
        send_describe_or_drain();
        break;
      case 7:
        world_.clock.advance((input_.byte() + 1) * 20 * base::kMillisecond);
        break;
      case 8:
        world_.network.set_room(lane().socket, input_.byte() % 2 == 0 ? SIZE_MAX : input_.byte());
        break;
      default:
        (input_.byte() % 2 == 0) ? world_.network.finish(lane().socket)
                                 : world_.network.reset(lane().socket);
        break;
    }
  }

  /// One more lane, with a good handshake.
  void connect() {
    if (lanes_.size() == kLanesMax) {
      return;
    }
    wire::ClientHello hello;
    hello.client_epoch.bytes[0] = input_.byte() % 2;
    hello.expected_epoch = world_.epoch;
    hello.lane_id = ++lane_ids_;
    hello.lane_class = input_.byte() % 3;
    hello.name_bytes = static_cast<std::uint16_t>(kName.size());
    std::memcpy(hello.name, kName.data(), kName.size());
    Lane& made = lanes_.emplace_back();
    made.socket = world_.network.arrive();
    made.epoch = hello.client_epoch;
    world_.network.give(made.socket, bytes_of(hello));
    world_.turns(2);
    const std::vector<std::uint8_t> answer = world_.network.take_sent(made.socket);
    wire::ServerHello server;
    ORBITE_CHECK(answer.size() == sizeof(server));
    std::memcpy(static_cast<void*>(&server), answer.data(), sizeof(server));
    ORBITE_CHECK(wire::check_server_hello(server).has_value());
    if (server.status != 0) {
      return;
    }
    ORBITE_CHECK(wire::verify_server(world_.secret, hello, server));
    wire::ClientProof proof;
    wire::sign_client(world_.secret, hello, server, proof);
    world_.network.give(made.socket, bytes_of(proof));
    world_.turn();
  }

  Lane& lane() { return lanes_[input_.byte() % lanes_.size()]; }
  void give(std::span<const std::uint8_t> bytes) { world_.network.give(lane().socket, bytes); }

  wire::RegistrationRef reference() {
    const std::uint8_t which = input_.byte();
    const fuzz::Region& region = *regions_[which % regions_.size()];
    wire::RegistrationRef entry;
    entry.index = region.handle.index;
    entry.generation = region.handle.generation + (which >> 7);
    std::memcpy(entry.key, region.registration->key().bytes.data(), sizeof(entry.key));
    entry.key[0] ^= which & 0x40U;
    return entry;
  }

  void put(const void* data, std::size_t bytes) {
    const auto* const from = static_cast<const std::uint8_t*>(data);
    frame_.insert(frame_.end(), from, from + bytes);
  }
  /// All of it, or a part.
  void send_frame() {
    const std::uint8_t cut = input_.byte();
    const std::size_t bytes = cut < 200 ? frame_.size() : frame_.size() * (cut - 200) / 56;
    give(std::span(frame_).first(bytes));
    frame_.clear();
  }

  std::vector<std::uint8_t> envelope(base::SourceEpoch sender) {
    const std::size_t size = input_.byte() % 4 == 0 ? input_.take<std::uint16_t>() : input_.byte();
    const std::vector<std::uint8_t> message(size, 5);
    return wire::encode_envelope({sender, kName, message}).value();
  }

  /// WRITE and READ frames that are well-formed but for what their extents name.
  void send_access() {
    wire::RequestHeader header;
    const std::uint8_t shape = input_.byte();
    header.type = static_cast<std::uint8_t>(shape % 2 == 0 ? wire::FrameType::kWrite
                                                           : wire::FrameType::kRead);
    header.frame_id = input_.byte();
    header.table_count = 1 + (shape >> 2) % 3;
    header.extent_count = 1 + (shape >> 4) % 4;
    std::vector<wire::RegistrationRef> table(header.table_count);
    std::vector<wire::WireExtent> extents(header.extent_count);
    for (auto& entry : table) {
      entry = reference();
    }
    for (auto& extent : extents) {
      extent.offset = input_.byte() % 8 == 0 ? input_.take<std::uint64_t>() : input_.byte();
      extent.length = input_.byte() % 8 == 0 ? input_.take<std::uint16_t>() : input_.byte();
      extent.table_index = input_.byte() % 4 == 0 ? input_.byte() : 0;
      header.payload_bytes += extent.length;
    }
    std::vector<std::uint8_t> trailer;
    if (shape % 2 == 0 && (shape & 2) != 0) {
      trailer = envelope(lanes_[0].epoch);
      header.trailer_bytes = static_cast<std::uint32_t>(trailer.size());
    }
    put(&header, sizeof(header));
    put(table.data(), table.size() * sizeof(table[0]));
    put(extents.data(), extents.size() * sizeof(extents[0]));
    if (shape % 2 == 0) {
      frame_.insert(frame_.end(), header.payload_bytes, 0x77);
    }
    put(trailer.data(), trailer.size());
    send_frame();
  }

  void send_notification() {
    wire::RequestHeader header;
    header.type = static_cast<std::uint8_t>(wire::FrameType::kNotify);
    base::SourceEpoch sender;
    sender.bytes[0] = input_.byte() % 2;
    const std::vector<std::uint8_t> trailer = envelope(sender);
    header.trailer_bytes = static_cast<std::uint32_t>(trailer.size());
    put(&header, sizeof(header));
    put(trailer.data(), trailer.size());
    send_frame();
  }

  void send_describe_or_drain() {
    wire::RequestHeader header;
    const std::uint8_t what = input_.byte();
    if (what % 3 == 0) {
      header.type = static_cast<std::uint8_t>(wire::FrameType::kPing);
      put(&header, sizeof(header));
    } else if (what % 3 == 1) {
      header.type = static_cast<std::uint8_t>(wire::FrameType::kDrain);
      header.trailer_bytes = wire::kDrainTrailerBytes;
      const std::uint64_t lane_id = input_.byte() % (kLanesMax + 2);
      put(&header, sizeof(header));
      put(&lane_id, sizeof(lane_id));
    } else {
      header.type = static_cast<std::uint8_t>(wire::FrameType::kDescribe);
      header.table_count = 1 + input_.byte() % 4;
      put(&header, sizeof(header));
      for (int i = 0; i < header.table_count; ++i) {
        const wire::RegistrationRef entry = reference();
        put(&entry, sizeof(entry));
      }
    }
    send_frame();
  }

  void check_memory() const {
    writable_.check_guards();
    readable_.check_untouched();
    fenced_.check_untouched();
  }

  /// What we send is never malformed, whatever was sent to us.
  void check_responses(Lane& lane) {
    std::vector<std::uint8_t> bytes = world_.network.take_sent(lane.socket);
    std::span<const std::uint8_t> left(bytes);
    while (left.size() >= sizeof(wire::ResponseHeader)) {
      wire::ResponseHeader header;
      std::memcpy(static_cast<void*>(&header), left.data(), sizeof(header));
      ORBITE_CHECK(wire::check_response_header(header, wire::FrameLimits{}).has_value());
      left = left.subspan(sizeof(header));
      left = left.subspan(std::min<std::size_t>(left.size(), header.payload_bytes));
    }
  }

  fuzz::Input input_;
  fuzz::TcpWorld world_;
  fuzz::Region writable_{world_.registry, 512, kAccessAll};
  fuzz::Region readable_{world_.registry, 512, kAccessLocal | kAccessRemoteRead};
  fuzz::Region fenced_ = make_fenced();
  std::array<const fuzz::Region*, 3> regions_ = {&writable_, &readable_, &fenced_};
  std::vector<Lane> lanes_;
  std::vector<std::uint8_t> frame_;
  std::uint64_t lane_ids_ = 0;

  fuzz::Region make_fenced() {
    fuzz::Region made(world_.registry, 512, kAccessAll);
    ORBITE_CHECK(world_.registry.deregister(made.handle) == RegistrationState::kRetired);
    return made;
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Served({data, size}).run();
  return 0;
}
