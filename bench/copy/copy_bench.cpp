// SPDX-License-Identifier: Apache-2.0
// What the copy room gives, beside std::memcpy of the same shape in the same run. Names:
//   <kernel>/<shape>/<block bytes>/<total bytes>/<threads>
// kernel: memcpy, a streaming kernel, or `copier`, which chooses as the engine does.
// shape: `warm` copies the same bytes again and again; `cold` goes through far more memory than
// caches hold, so that no byte is met twice. Blocks go to scattered places. The memory has huge
// pages where the system gives them; `paged` is `cold` in pages of the usual size.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "copy/copier.hpp"
#include "platform/processors.hpp"

namespace orbite::copy {
namespace {

constexpr std::size_t kPoolBytes = std::size_t{256} << 20;
/// Between blocks, so that none is adjacent to the next.
constexpr std::size_t kGapBytes = 128;

std::byte* make_pool(int value, int advice) {
  auto* const bytes =
      static_cast<std::byte*>(::operator new(kPoolBytes, std::align_val_t{std::size_t{2} << 20}));
  // What the system makes of it is its own affair.
  static_cast<void>(::madvise(bytes, kPoolBytes, advice));
  std::memset(bytes, value, kPoolBytes);
  return bytes;
}

enum class Heat { kWarm, kCold, kPaged };

struct Memory {
  explicit Memory(int advice) : source(make_pool(1, advice)), target(make_pool(2, advice)) {}
  std::byte* source;
  std::byte* target;
};

const Memory& memory(Heat heat) {
  if (heat == Heat::kPaged) {
    static const Memory paged(MADV_NOHUGEPAGE);
    return paged;
  }
  static const Memory huge(MADV_HUGEPAGE);
  return huge;
}

struct Shape {
  Heat heat;
  std::size_t block_bytes;
  std::size_t total_bytes;
  int threads;
};

/// The requests that a run goes through, in turn: one when warm.
std::vector<std::vector<Part>> requests_of(const Shape& shape) {
  const std::size_t blocks = shape.total_bytes / shape.block_bytes;
  const std::size_t gap = blocks == 1 ? 0 : kGapBytes;
  const std::size_t stride = shape.block_bytes + gap;
  const std::size_t count =
      shape.heat == Heat::kWarm ? 1 : std::max<std::size_t>(1, kPoolBytes / (blocks * stride));
  std::mt19937 random(1);
  std::vector<std::vector<Part>> requests(count);
  for (std::size_t request = 0; request < count; ++request) {
    std::vector<std::size_t> places(blocks);
    std::iota(places.begin(), places.end(), std::size_t{0});
    std::shuffle(places.begin(), places.end(), random);
    const std::size_t base = request * blocks * stride;
    for (std::size_t block = 0; block < blocks; ++block) {
      requests[request].push_back({memory(shape.heat).target + base + places[block] * stride,
                                   memory(shape.heat).source + base + block * stride,
                                   shape.block_bytes});
    }
  }
  return requests;
}

using CopyParts = void (*)(std::span<const Part> parts, std::uint64_t total,
                           const StreamingKernel* kernel);

void copy_with_memcpy(std::span<const Part> parts, std::uint64_t /*total*/,
                      const StreamingKernel* /*kernel*/) {
  for (const Part& part : parts) {
    std::memcpy(part.target, part.source, part.bytes);
  }
}

void copy_with_kernel(std::span<const Part> parts, std::uint64_t /*total*/,
                      const StreamingKernel* kernel) {
  for (const Part& part : parts) {
    kernel->copy(part.target, part.source, part.bytes);
  }
  fence_streaming();
}

void copy_with_copier(std::span<const Part> parts, std::uint64_t total,
                      const StreamingKernel* /*kernel*/) {
  static const Copier copier(Thresholds::make(Config::Copy(), platform::last_level_cache_bytes()));
  PartCursor cursor(parts);
  copier.copy(cursor, total, total);
}

void run(benchmark::State& state, const Shape& shape, CopyParts copy,
         const StreamingKernel* kernel) {
  const auto requests = requests_of(shape);
  std::size_t next = 0;
  for (auto step : state) {
    static_cast<void>(step);
    const std::span<const Part> parts = requests[next];
    next = (next + 1) % requests.size();
    const std::size_t share = parts.size() / static_cast<std::size_t>(shape.threads);
    std::vector<std::thread> others;
    for (int i = 1; i < shape.threads; ++i) {
      others.emplace_back([&, i] {
        copy(parts.subspan(static_cast<std::size_t>(i) * share, share), shape.total_bytes, kernel);
      });
    }
    copy(parts.first(share), shape.total_bytes, kernel);
    for (std::thread& other : others) {
      other.join();
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) *
                          static_cast<std::int64_t>(shape.total_bytes));
}

std::string name_of(std::string_view kernel, const Shape& shape) {
  constexpr const char* kHeats[] = {"/warm/", "/cold/", "/paged/"};
  return std::string(kernel) + kHeats[static_cast<std::size_t>(shape.heat)] +
         std::to_string(shape.block_bytes) + '/' + std::to_string(shape.total_bytes) + '/' +
         std::to_string(shape.threads);
}

void add(const Shape& shape) {
  const auto with = [&](std::string_view name, CopyParts copy, const StreamingKernel* kernel) {
    benchmark::RegisterBenchmark(name_of(name, shape).c_str(), run, shape, copy, kernel)
        ->UseRealTime();
  };
  with("memcpy", copy_with_memcpy, nullptr);
  for (const StreamingKernel& kernel : streaming_kernels()) {
    if (kernel.runs_here() && kernel.name != "plain") {
      with(kernel.name, copy_with_kernel, &kernel);
    }
  }
  with("copier", copy_with_copier, nullptr);
}

void add_all() {
  constexpr std::size_t kKiB = 1'024;
  constexpr std::size_t kMiB = 1'024 * kKiB;
  for (std::size_t bytes = 64; bytes <= 256 * kMiB; bytes *= 4) {
    add({Heat::kWarm, bytes, bytes, 1});
  }
  for (const std::size_t bytes : {4 * kKiB, 64 * kKiB, kMiB, 64 * kMiB}) {
    add({Heat::kCold, bytes, bytes, 1});
  }
  for (const std::size_t block : {kKiB / 2, kKiB, 2 * kKiB, 4 * kKiB, 16 * kKiB, 64 * kKiB}) {
    add({Heat::kCold, block, 64 * kMiB, 1});
  }
  add({Heat::kWarm, 4 * kKiB, kMiB, 1});
  add({Heat::kCold, 4 * kKiB, 16 * kMiB, 1});
  for (const std::size_t block : {4 * kKiB, 64 * kKiB, 64 * kMiB}) {
    add({Heat::kPaged, block, 64 * kMiB, 1});
  }
  add({Heat::kCold, 64 * kKiB, 64 * kMiB, 2});
  add({Heat::kCold, 4 * kKiB, 64 * kMiB, 2});
}

}  // namespace
}  // namespace orbite::copy

int main(int argc, char** argv) {
  orbite::copy::add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 1;
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
