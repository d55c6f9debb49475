// SPDX-License-Identifier: Apache-2.0
// What a descriptor of a request costs: time to prepare it, what a prepared request keeps of it and
// held at most while it was made, and time to post it. No byte of a block is touched. Names:
//   <what>/<shape>/<blocks>
// what: `prepare` checks and seals a batch; `post` cuts the request into slices, which a transport
// that moves nothing reads twice, as a WRITE over TCP does. Blocks are of 4 KiB.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "base/random.hpp"
#include "transfer/batch.hpp"
#include "transfer/slice_queue.hpp"
#include "transfer/transport.hpp"

namespace {

/// What operator new has given and not got back; there is one thread.
struct Heap {
  std::size_t live_bytes = 0;
  std::size_t most_bytes = 0;
} heap;

}  // namespace

// Not inlined: GCC would take std::free for the wrong match of a new.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* const given = std::malloc(bytes);
  if (given == nullptr) {
    throw std::bad_alloc();
  }
  heap.live_bytes += malloc_usable_size(given);
  heap.most_bytes = std::max(heap.most_bytes, heap.live_bytes);
  return given;
}
[[gnu::noinline]] void operator delete(void* given) noexcept {
  heap.live_bytes -= malloc_usable_size(given);
  std::free(given);
}
[[gnu::noinline]] void operator delete(void* given, std::size_t /*bytes*/) noexcept {
  operator delete(given);
}

namespace orbite::transfer {
namespace {

constexpr std::uint64_t kBlockBytes = 4096;
constexpr std::uint64_t kNearAddress = 0x1'0000'0000;
constexpr std::uint64_t kFarAddress = 0x10'0000'0000;
constexpr std::uint64_t kRangeBytes = std::uint64_t{1} << 34;
constexpr std::size_t kOwners = 4;

/// Accepts slices, reads where their bytes are, and says that they have arrived.
class IdleTransport final : public Transport, private CompletionPath {
 public:
  explicit IdleTransport(Planner& planner) : CompletionPath(planner) {
    planner.set_transport(kind(), this);
  }
  [[nodiscard]] policy::TransportKind kind() const noexcept override {
    return policy::TransportKind::kTcp;
  }
  Result<std::shared_ptr<Flow>> open(const peer::Peer& /*peer*/) override {
    return std::make_shared<Flow>(kind());
  }
  [[nodiscard]] SliceLimits slice_limits() const noexcept override { return {}; }
  [[nodiscard]] bool has_room(Flow& /*flow*/, policy::QosClass /*qos*/) override {
    return queue_.count() < kQueueMax;
  }
  Result<void> submit(Flow& /*flow*/, Slice& slice) override {
    queue_.push_back(slice);
    return {};
  }
  void drop_unposted(Flow& /*flow*/, const Execution& /*execution*/) override {}
  void drive(Flow& /*flow*/, WorkLimit& /*limit*/, Driver /*driver*/) override {
    while (Slice* const slice = queue_.pop_front()) {
      for (int pass = 0; pass < 2; ++pass) {
        for (ExtentCursor extents = slice->extents; !extents.at_end();) {
          const Extent extent = extents.take();
          benchmark::DoNotOptimize(extent.local_address + extent.remote_address + extent.length);
        }
      }
      complete(*slice, {ErrorCode::kOk, 0, slice->bytes, RemoteEffect::kComplete, false});
      retire(*slice);
    }
  }
  Result<void> connect(Flow& /*flow*/, base::Nanoseconds /*timeout_ns*/) override { return {}; }
  Result<std::vector<wire::DescribedRange>> describe(
      Flow& /*flow*/, std::span<const wire::RegistrationRef> /*registrations*/,
      base::Nanoseconds /*timeout_ns*/) override {
    return fail(ErrorCode::kUnsupported, "nobody to ask");
  }
  void confirm_fenced(Flow& /*flow*/) override {}
  [[nodiscard]] std::uint64_t unproved(Flow& /*flow*/) override { return 0; }

 private:
  static constexpr std::uint32_t kQueueMax = 8;
  SliceQueue queue_;
};

enum class Shape { kStrided, kPagesThere, kPagesBoth, kMixed, kHalfAdjacent, kMostAdjacent };

struct Lists {
  std::vector<Descriptor> local;
  std::vector<Descriptor> remote;
};

/// Everything that a request needs, of addresses that nobody touches.
class World {
 public:
  World() {
    auto flows = std::make_shared<PeerFlows>();
    flows->set(transport.open(*peer).value());
    peer->set_link(std::move(flows));
    for (std::size_t i = 0; i < kOwners; ++i) {
      near.at(i) =
          registry.add({.address = kNearAddress, .length = kRangeBytes, .retired = {}}).value();
      wire::RangeBlob blob;
      blob.generation = 1;
      blob.address = kFarAddress;
      blob.length = kRangeBytes;
      blob.access = kAccessAll;
      far.at(i) = ranges
                      .insert(std::make_shared<peer::RemoteRange>(
                          peer, blob, base::ByteRange::make(kFarAddress, kRangeBytes).value()))
                      .value();
    }
  }

  Lists draw(Shape shape, std::size_t blocks) {
    std::mt19937_64 numbers(1);
    std::vector<std::uint64_t> pages(2 * blocks);
    std::iota(pages.begin(), pages.end(), std::uint64_t{0});
    std::shuffle(pages.begin(), pages.end(), numbers);
    Lists lists;
    std::uint64_t here = kNearAddress;
    std::uint64_t there = kFarAddress;
    for (std::size_t i = 0; i < blocks; ++i) {
      std::uint64_t length = kBlockBytes;
      std::size_t owner = 0;
      std::uint64_t here_at = kNearAddress + i * 2 * kBlockBytes;
      std::uint64_t there_at = kFarAddress + i * 4 * kBlockBytes;
      if (shape == Shape::kPagesBoth || shape == Shape::kMixed) {
        here_at = kNearAddress + pages[blocks + i] * kBlockBytes;
      }
      if (shape == Shape::kPagesThere || shape == Shape::kPagesBoth || shape == Shape::kMixed) {
        there_at = kFarAddress + pages[i] * kBlockBytes;
      }
      if (shape == Shape::kMixed) {
        length = 1 + numbers() % kBlockBytes;
        owner = numbers() % kOwners;
      }
      if (shape == Shape::kHalfAdjacent || shape == Shape::kMostAdjacent) {
        const bool adjacent = numbers() % 10 < (shape == Shape::kHalfAdjacent ? 5U : 9U);
        here += adjacent ? 0 : kBlockBytes;
        there += adjacent ? 0 : 3 * kBlockBytes;
        here_at = std::exchange(here, here + kBlockBytes);
        there_at = std::exchange(there, there + kBlockBytes);
      }
      lists.local.push_back({here_at, length, near.at(owner)});
      lists.remote.push_back({there_at, length, far.at(owner)});
    }
    return lists;
  }

  std::shared_ptr<const Prepared> prepare(const Lists& lists) {
    auto prepared = std::make_shared<Prepared>();
    Batch batch(registry, ranges, *peer);
    for (std::size_t i = 0; i < lists.local.size(); ++i) {
      ORBITE_CHECK(batch.add(Operation::kWrite, lists.local[i], lists.remote[i]).has_value());
    }
    ORBITE_CHECK(batch.seal().has_value());
    prepared->operation = Operation::kWrite;
    prepared->peer = peer;
    prepared->bytes = batch.bytes();
    prepared->tasks = batch.tasks();
    batch.move_into(prepared->extents, prepared->locals, prepared->remotes);
    return prepared;
  }

  void post(std::shared_ptr<const Prepared> prepared) {
    Execution::Options options;
    options.prepared = std::move(prepared);
    options.peer = peer;
    options.route = {transport.kind(), policy::QosClass::kBulk};
    const auto execution = std::make_shared<Execution>(std::move(options));
    Flow& flow = flow_of(*peer, transport.kind());
    planner.enqueue(flow, execution);
    planner.pump(transport, flow);
    WorkLimit limit{UINT64_MAX, UINT32_MAX};
    transport.drive(flow, limit, Driver::kCaller);
    ORBITE_CHECK(execution->terminal());
  }

 private:
  Planner planner;
  IdleTransport transport{planner};
  base::SeededRandom random{1};
  memory::Registry registry{{.registrations_max = kOwners}, random};
  peer::RangeTable ranges{"imported range", kOwners, "limits.ranges_max"};
  std::shared_ptr<peer::Peer> peer =
      std::make_shared<peer::Peer>("far", wire::ConnectionBlob{}, false);
  std::array<Handle, kOwners> near;
  std::array<Handle, kOwners> far;
};

/// Time of one block.
void count_each(benchmark::State& state, std::size_t blocks) {
  state.counters["ns_each"] = benchmark::Counter(
      static_cast<double>(blocks) * 1e-9,
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void run_prepare(benchmark::State& state, Shape shape, std::size_t blocks) {
  World world;
  const Lists lists = world.draw(shape, blocks);
  std::size_t kept_bytes = 0;
  std::size_t most_bytes = 0;
  for (auto step : state) {
    static_cast<void>(step);
    const std::size_t before = heap.live_bytes;
    heap.most_bytes = before;
    const auto prepared = world.prepare(lists);
    kept_bytes = heap.live_bytes - before;
    most_bytes = heap.most_bytes - before;
  }
  count_each(state, blocks);
  state.counters["kept_bytes_each"] = static_cast<double>(kept_bytes) / static_cast<double>(blocks);
  state.counters["most_bytes_each"] = static_cast<double>(most_bytes) / static_cast<double>(blocks);
}

void run_post(benchmark::State& state, Shape shape, std::size_t blocks) {
  World world;
  const auto prepared = world.prepare(world.draw(shape, blocks));
  for (auto step : state) {
    static_cast<void>(step);
    world.post(prepared);
  }
  count_each(state, blocks);
}

void add_all() {
  constexpr std::pair<const char*, Shape> kShapes[] = {{"strided", Shape::kStrided},
                                                       {"pages_there", Shape::kPagesThere},
                                                       {"pages_both", Shape::kPagesBoth},
                                                       {"mixed", Shape::kMixed},
                                                       {"half_adjacent", Shape::kHalfAdjacent},
                                                       {"most_adjacent", Shape::kMostAdjacent}};
  for (const auto& [name, shape] : kShapes) {
    for (const std::size_t blocks : {std::size_t{1}, std::size_t{100'000}}) {
      if (blocks == 1 && shape != Shape::kStrided) {
        continue;  // one block has no shape
      }
      const std::string suffix = std::string("/") + name + '/' + std::to_string(blocks);
      benchmark::RegisterBenchmark(("prepare" + suffix).c_str(), run_prepare, shape, blocks);
      benchmark::RegisterBenchmark(("post" + suffix).c_str(), run_post, shape, blocks);
    }
  }
}

}  // namespace
}  // namespace orbite::transfer

int main(int argc, char** argv) {
  orbite::transfer::add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 1;
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
