// SPDX-License-Identifier: Apache-2.0
#include "bench/limits.hpp"

#include <algorithm>
#include <barrier>
#include <cstring>
#include <thread>

#include "base/result.hpp"
#include "bench/content.hpp"
#include "bench/sockets.hpp"
#include "bench/streams.hpp"
#include "bench/target.hpp"

namespace orbite::tool::bench {
namespace {

constexpr std::uint32_t kStreams = 2;
constexpr std::uint64_t kStreamBytesMin = std::uint64_t{1} << 20;
constexpr base::Nanoseconds kStreamEndTimeout = 60 * base::kSecond;

double gigabytes_per_second(std::uint64_t bytes, std::uint64_t wall_ns) {
  return static_cast<double>(bytes) / static_cast<double>(std::max<std::uint64_t>(wall_ns, 1));
}

/// The streams touch as much memory as a request does, as far as that is bounded.
std::uint64_t stream_bytes(const Layout& layout) {
  return std::clamp(layout.payload() / kStreams, kStreamBytesMin, kStreamBytesMax);
}

}  // namespace

Result<std::unique_ptr<MemoryCopy>> MemoryCopy::create(const Area& area, const Options& options) {
  ORBITE_ASSIGN_OR_RETURN(Area scratch, Area::map(area.bytes().size()));
  fill(scratch.bytes(), 0);
  return std::unique_ptr<MemoryCopy>(new MemoryCopy(area, std::move(scratch), options));
}

MemoryCopy::MemoryCopy(const Area& area, Area scratch, const Options& options)
    : area_(area),
      scratch_(std::move(scratch)),
      layout_(options.layout),
      threads_(options.threads),
      depth_(options.depth),
      offsets_(block_offsets(options.layout)) {}

Result<double> MemoryCopy::measure(Operation /*operation*/, std::uint64_t duration_ns) {
  struct Share {
    std::uint64_t bytes = 0;
    base::Nanoseconds began_ns = 0;
    base::Nanoseconds ended_ns = 0;
  };
  std::vector<Share> shares(threads_);
  std::barrier start(static_cast<std::ptrdiff_t>(threads_));
  std::vector<std::thread> threads;
  threads.reserve(threads_);
  for (std::uint64_t i = 0; i < threads_; ++i) {
    threads.emplace_back([&, i] {
      Share& share = shares[i];
      start.arrive_and_wait();
      share.began_ns = now_ns();
      std::uint64_t slot = 0;
      do {
        const std::uint64_t base = (i * depth_ + slot) * layout_.extent();
        for (const std::uint64_t offset : offsets_) {
          std::memcpy(scratch_.bytes().data() + base + offset, area_.bytes().data() + base + offset,
                      layout_.size);
        }
        share.bytes += layout_.payload();
        slot = (slot + 1) % depth_;
        share.ended_ns = now_ns();
      } while (share.ended_ns - share.began_ns < duration_ns);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::uint64_t bytes = 0;
  base::Nanoseconds began_ns = UINT64_MAX;
  base::Nanoseconds ended_ns = 0;
  for (const Share& share : shares) {
    bytes += share.bytes;
    began_ns = std::min(began_ns, share.began_ns);
    ended_ns = std::max(ended_ns, share.ended_ns);
  }
  return gigabytes_per_second(bytes, ended_ns - began_ns);
}

BareTcp::BareTcp(Channel& channel, const Options& options, std::string congestion_control)
    : channel_(channel),
      buffer_bytes_(stream_bytes(options.layout)),
      congestion_control_(std::move(congestion_control)) {}

Result<double> BareTcp::measure(Operation operation, std::uint64_t duration_ns) {
  Stream shape;
  shape.target_sends = operation == Operation::kRead;
  shape.streams = kStreams;
  shape.buffer_bytes = buffer_bytes_;
  shape.duration_ns = std::clamp<std::uint64_t>(duration_ns, 1, kStreamNsMax);
  ORBITE_ASSIGN_OR_RETURN(const Body body,
                          ask(channel_, Kind::kStream, encode(shape), Kind::kStreamReady));
  ORBITE_ASSIGN_OR_RETURN(const StreamReady ready, decode_stream_ready(body));
  ORBITE_ASSIGN_OR_RETURN(HostPort at, remote_end(channel_.socket()));
  at.port = ready.port;
  Streams streams(shape, congestion_control_);
  ORBITE_TRY(streams.connect(at, ready.token));
  const base::Nanoseconds began_ns = now_ns();
  ORBITE_TRY(shape.target_sends ? streams.receive() : streams.send());
  ORBITE_ASSIGN_OR_RETURN(const Body moved, await(channel_, Kind::kStreamed, kStreamEndTimeout));
  // When the bytes are sent the other side's word says that they have arrived.
  const base::Nanoseconds ended_ns = now_ns();
  ORBITE_ASSIGN_OR_RETURN(const std::uint64_t bytes, decode_number(moved));
  return gigabytes_per_second(bytes, ended_ns - began_ns);
}

}  // namespace orbite::tool::bench
