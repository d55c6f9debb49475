// SPDX-License-Identifier: Apache-2.0
#include "bench/limits.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <thread>

#include "base/result.hpp"
#include "bench/content.hpp"
#include "bench/endpoint.hpp"
#include "bench/sockets.hpp"
#include "bench/streams.hpp"
#include "bench/target.hpp"

namespace orbite::tool::bench {
namespace {

constexpr std::uint32_t kStreams = 2;
constexpr std::uint64_t kStreamBytesMin = std::uint64_t{1} << 20;
constexpr std::size_t kProcessCallPartsMax = 1024;
/// The kernel moves less than 2 GiB in a call.
constexpr std::uint64_t kProcessCallBytesMax = std::uint64_t{1} << 30;
constexpr base::Nanoseconds kStreamEndTimeout = 60 * base::kSecond;

double gigabytes_per_second(std::uint64_t bytes, std::uint64_t wall_ns) {
  return static_cast<double>(bytes) / static_cast<double>(std::max<std::uint64_t>(wall_ns, 1));
}

/// The streams touch as much memory as a request does, as far as that is bounded.
std::uint64_t stream_bytes(const Layout& layout) {
  return std::clamp(layout.payload() / kStreams, kStreamBytesMin, kStreamBytesMax);
}

}  // namespace

BlockLoop::BlockLoop(const Options& options)
    : layout_(options.layout),
      threads_(options.threads),
      depth_(options.depth),
      offsets_(block_offsets(options.layout)) {}

/// What one thread did.
struct BlockLoop::Share {
  Result<void> result;
  std::uint64_t bytes = 0;
  base::Nanoseconds began_ns = 0;
  base::Nanoseconds ended_ns = 0;
};

void BlockLoop::run(std::uint64_t thread, std::uint64_t duration_ns, const Copy& copy,
                    Share& share) const {
  share.began_ns = now_ns();
  std::uint64_t slot = 0;
  do {
    share.result = copy((thread * depth_ + slot) * layout_.extent(), offsets_);
    share.bytes += layout_.payload();
    slot = (slot + 1) % depth_;
    share.ended_ns = now_ns();
  } while (share.result && share.ended_ns - share.began_ns < duration_ns);
}

Result<double> BlockLoop::measure(std::uint64_t duration_ns, const Copy& copy) const {
  std::vector<Share> shares(threads_);
  std::barrier start(static_cast<std::ptrdiff_t>(threads_));
  std::vector<std::thread> threads;
  threads.reserve(threads_);
  for (std::uint64_t i = 0; i < threads_; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      run(i, duration_ns, copy, shares[i]);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::uint64_t bytes = 0;
  base::Nanoseconds began_ns = UINT64_MAX;
  base::Nanoseconds ended_ns = 0;
  for (const Share& share : shares) {
    ORBITE_TRY(share.result);
    bytes += share.bytes;
    began_ns = std::min(began_ns, share.began_ns);
    ended_ns = std::max(ended_ns, share.ended_ns);
  }
  return gigabytes_per_second(bytes, ended_ns - began_ns);
}

Result<std::unique_ptr<Limit>> MemoryCopy::create(const Area& area, const Options& options) {
  ORBITE_ASSIGN_OR_RETURN(Area scratch,
                          Area::map(area.bytes().size(), pages_for(options.transport)));
  fill(scratch.bytes(), 0);
  return std::unique_ptr<Limit>(new MemoryCopy(area, std::move(scratch), options));
}

Result<double> MemoryCopy::measure(Operation /*operation*/, std::uint64_t duration_ns) {
  return loop_.measure(
      duration_ns,
      [this](std::uint64_t base, std::span<const std::uint64_t> offsets) -> Result<void> {
        for (const std::uint64_t offset : offsets) {
          std::memcpy(scratch_.bytes().data() + base + offset, area_.bytes().data() + base + offset,
                      loop_.layout().size);
        }
        return {};
      });
}

Result<std::unique_ptr<Limit>> ProcessCopyLoop::create(Channel& channel, pid_t process,
                                                       const Area& area, const Options& options) {
  if (options.layout.size > kProcessCallBytesMax) {
    return std::unique_ptr<Limit>();
  }
  ORBITE_ASSIGN_OR_RETURN(Area scratch, Area::map(area.bytes().size()));
  fill(scratch.bytes(), 0);
  ORBITE_ASSIGN_OR_RETURN(const Body body, ask(channel, Kind::kLend, {}, Kind::kLent));
  ORBITE_ASSIGN_OR_RETURN(const std::uint64_t lent, decode_number(body));
  return std::unique_ptr<Limit>(
      new ProcessCopyLoop(process, lent, area, std::move(scratch), options));
}

Result<double> ProcessCopyLoop::measure(Operation operation, std::uint64_t duration_ns) {
  return loop_.measure(duration_ns,
                       [&](std::uint64_t base, std::span<const std::uint64_t> offsets) {
                         return copy(operation, base, offsets);
                       });
}

/// As many blocks in a call as the system takes, and never part of one.
Result<void> ProcessCopyLoop::copy(Operation operation, std::uint64_t base,
                                   std::span<const std::uint64_t> offsets) const {
  const bool writes = operation == Operation::kWrite;
  const std::uint64_t size = loop_.layout().size;
  const std::uint64_t local = (writes ? area_ : scratch_).address();
  const std::size_t blocks_max =
      std::min<std::size_t>(kProcessCallBytesMax / size, kProcessCallPartsMax);
  std::array<iovec, kProcessCallPartsMax> here;   // NOLINT: filled as far as count
  std::array<iovec, kProcessCallPartsMax> there;  // NOLINT
  while (!offsets.empty()) {
    const std::size_t count = std::min(blocks_max, offsets.size());
    for (std::size_t i = 0; i < count; ++i) {
      here[i] = {reinterpret_cast<void*>(local + base + offsets[i]), size};   // NOLINT
      there[i] = {reinterpret_cast<void*>(lent_ + base + offsets[i]), size};  // NOLINT
    }
    const ssize_t moved = (writes ? ::process_vm_writev : ::process_vm_readv)(
        process_, here.data(), count, there.data(), count, 0);
    if (moved != static_cast<ssize_t>(count * size)) {
      return fail(Error::make_native(ErrorCode::kSystem, moved < 0 ? errno : 0,
                                     "%zd bytes instead of %zu x %" PRIu64
                                     " between the memory of two processes",
                                     moved, count, size));
    }
    offsets = offsets.subspan(count);
  }
  return {};
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
