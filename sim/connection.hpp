// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/clock.hpp"
#include "platform/network.hpp"

namespace orbite::sim {

class HostNetwork;

/// Bytes in order, taken from the front.
class ByteQueue {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return bytes_.size() - begin_; }
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }
  void append(const void* data, std::size_t length) {
    const auto* const first = static_cast<const std::uint8_t*>(data);
    bytes_.insert(bytes_.end(), first, first + length);
  }
  /// At most `length` bytes; returns how many.
  std::size_t take(void* out, std::size_t length) {
    length = std::min(length, size());
    if (length > 0) {
      std::memcpy(out, bytes_.data() + begin_, length);
      drop(length);
    }
    return length;
  }
  void move_to(ByteQueue& other, std::size_t length) {
    other.append(bytes_.data() + begin_, length);
    drop(length);
  }
  void clear() noexcept {
    bytes_.clear();
    begin_ = 0;
  }

 private:
  void drop(std::size_t length) {
    begin_ += length;
    if (begin_ == bytes_.size()) {
      clear();
    } else if (begin_ > 65'536) {
      bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin_));
      begin_ = 0;
    }
  }
  std::vector<std::uint8_t> bytes_;
  std::size_t begin_ = 0;
};

/// What one kernel knows of a connection.
struct End {
  enum class Holder : std::uint8_t {
    kProcess,
    kBacklog,  ///< of a listener: nobody has accepted it
    kNobody    ///< closed by its process; the kernel still finishes it
  };

  std::uint32_t machine = 0;
  platform::SocketAddress address;
  /// False: the kernel has forgotten it, or has been restarted since.
  bool exists = false;
  Holder holder = Holder::kNobody;
  HostNetwork* process = nullptr;  ///< of the holder, or whose listener it waits at
  platform::Socket socket = platform::kNoSocket;
  platform::Socket listener = platform::kNoSocket;

  bool connected = false;  ///< its handshake is over
  bool dead = false;       ///< reset or given up: nothing moves any more
  int error = 0;           ///< to be told once

  ByteQueue received;
  bool fin_received = false;

  ByteQueue sending;            ///< written and not delivered
  std::uint64_t written = 0;    ///< in all
  std::uint64_t delivered = 0;  ///< of it, to the other kernel
  std::uint64_t acked = 0;      ///< of that, as this kernel knows
  bool fin_queued = false;
  bool fin_delivered = false;

  bool delivery_scheduled = false;
  bool ack_scheduled = false;
  bool probe_scheduled = false;
  base::Nanoseconds last_arrival_ns = 0;  ///< segments do not overtake each other
  base::Nanoseconds keepalive_idle_ns = 0;
  std::uint32_t probes_lost = 0;
};

struct Connection {
  std::uint64_t id = 0;
  bool joins_neighbours = false;  ///< by loopback, two processes of one machine
  End ends[2];                    ///< who connected, who listened
};

}  // namespace orbite::sim
