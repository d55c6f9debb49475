// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "nixl/direct/plugin.hpp"
#include "platform/network.hpp"
#include "support/raw_peer.hpp"

namespace orbite::test {

using ConnectionPtr = std::unique_ptr<RawConnection>;

/// A peer of a node that the test plays: it takes what it is sent, and answers when it likes.
class RawTarget {
 public:
  RawTarget(Node& node, std::string name, std::size_t bytes)
      : name_(std::move(name)), memory_(bytes, 0) {
    base::SeededRandom random(7);
    random.fill(epoch_.bytes);
    random.fill(secret_);
    wire::ConnectionBlob blob;
    blob.epoch = epoch_;
    blob.secret = secret_;
    blob.port = listener_.port();
    const auto address = platform::SocketAddress::loopback(4, listener_.port());
    blob.addresses.push_back({address.family(), address.bytes()});
    EXPECT_EQ(node->loadRemoteConnInfo(name_, text(wire::encode(blob))), NIXL_SUCCESS);
  }

  /// The node's metadata of the whole memory.
  nixlBackendMD* load(Node& node) const {
    wire::RangeBlob blob;
    blob.epoch = epoch_;
    blob.index = 3;
    blob.generation = 9;
    blob.key.bytes[0] = 77;
    blob.address = address();
    blob.length = memory_.size();
    blob.access = 7;
    nixlBackendMD* metadata = nullptr;
    const nixlBlobDesc descriptor(address(), memory_.size(), 0, text(wire::encode(blob)));
    EXPECT_EQ(node->loadRemoteMD(descriptor, DRAM_SEG, name_, metadata), NIXL_SUCCESS);
    return metadata;
  }
  nixlMetaDesc part(std::size_t offset, std::size_t bytes, nixlBackendMD* metadata) const {
    return {address() + offset, bytes, 0, metadata};
  }
  const std::string& name() const { return name_; }
  const std::vector<std::uint8_t>& memory() const { return memory_; }

  /// The lane of that class, accepted when it comes; the others that come first are kept.
  RawConnection& lane(wire::LaneClass lane_class) {
    ConnectionPtr& wanted = lanes_.at(static_cast<std::size_t>(lane_class));
    while (wanted == nullptr) {
      ConnectionPtr next = listener_.accept();
      if (next == nullptr || !next->serve_handshake(epoch_, secret_)) {
        throw std::runtime_error("no lane was opened to the raw target");
      }
      lanes_.at(next->hello.lane_class) = std::move(next);
    }
    return *wanted;
  }
  RawConnection& bulk() { return lane(wire::LaneClass::kBulk); }
  RawConnection& latency() { return lane(wire::LaneClass::kLatency); }
  void reset(wire::LaneClass lane_class) {
    lanes_.at(static_cast<std::size_t>(lane_class))->reset();
    lanes_.at(static_cast<std::size_t>(lane_class)).reset();
  }
  void stop_listening() {
    listener_.close();
    for (ConnectionPtr& each : lanes_) {
      each.reset();
    }
  }

  /// A WRITE up to the middle of its payload; the rest is taken by finish().
  RawRequest half_of_a_write(RawConnection& lane) {
    auto request = lane.read_request(true);
    if (!request || request->type() != wire::FrameType::kWrite) {
      throw std::runtime_error("no WRITE came");
    }
    request->payload.resize(request->header.payload_bytes / 2);
    EXPECT_TRUE(lane.read(request->payload.data(), request->payload.size()));
    return std::move(*request);
  }
  /// The rest of it; and the bytes go where they belong.
  void take_rest(RawConnection& lane, RawRequest& request) {
    const std::size_t have = request.payload.size();
    request.payload.resize(request.header.payload_bytes);
    request.trailer.resize(request.header.trailer_bytes);
    EXPECT_TRUE(lane.read(request.payload.data() + have, request.payload.size() - have));
    EXPECT_TRUE(lane.read(request.trailer.data(), request.trailer.size()));
    std::size_t position = 0;
    for (const wire::WireExtent& extent : request.extents) {
      std::memcpy(memory_.data() + extent.offset, request.payload.data() + position, extent.length);
      position += extent.length;
    }
  }
  void finish(RawConnection& lane, RawRequest& request) {
    take_rest(lane, request);
    acknowledge(lane, request);
  }
  static void acknowledge(RawConnection& lane, const RawRequest& request) {
    EXPECT_TRUE(lane.write_struct(RawConnection::success_of(request)));
  }
  /// The next request as a whole, answered with success.
  void serve_one(RawConnection& lane) {
    RawRequest request = half_of_a_write(lane);
    finish(lane, request);
  }
  /// Waits for the question whether a lane has ended.
  RawRequest drain_question(std::uint64_t lane_id) {
    auto request = lane(wire::LaneClass::kControl).read_request();
    if (!request || request->type() != wire::FrameType::kDrain) {
      throw std::runtime_error("no drain was asked for");
    }
    std::uint64_t asked = 0;
    std::memcpy(&asked, request->trailer.data(), sizeof(asked));
    EXPECT_EQ(asked, lane_id);
    return std::move(*request);
  }

 private:
  static std::string text(const std::vector<std::uint8_t>& bytes) {
    return {bytes.begin(), bytes.end()};
  }
  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(memory_.data()); }

  std::string name_;
  std::vector<std::uint8_t> memory_;
  base::SourceEpoch epoch_;
  wire::Secret secret_{};
  RawListener listener_;
  std::array<ConnectionPtr, 3> lanes_;
};

}  // namespace orbite::test
