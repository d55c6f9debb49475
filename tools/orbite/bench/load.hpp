// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/area.hpp"
#include "bench/endpoint.hpp"
#include "bench/histogram.hpp"
#include "bench/layout.hpp"
#include "bench/target.hpp"

namespace orbite::tool::bench {

/// How long a round is: a time, or a number of transfers.
struct Budget {
  std::uint64_t duration_ns = 0;
  std::uint64_t transfers = 0;  ///< 0: until the time is over
};

struct Round {
  Histogram post;
  Histogram total;  ///< from before the post to the outcome
  std::uint64_t transfers = 0;
  std::uint64_t wall_ns = 0;
  std::vector<const char*> routes;  ///< each once, static storage

  void merge(const Round& other);
};

struct LoadOptions {
  Operation operation = Operation::kWrite;
  Layout layout;
  std::uint32_t threads = 1;
  std::uint32_t depth = 1;
};

/// Prepared requests, each over an extent of its own, which threads post again and again. The
/// endpoint must outlive it.
class Load {
 public:
  /// `prepared` gets the time of each prepare.
  static Result<Load> prepare(Endpoint& endpoint, Handle registration, const Area& local,
                              const Remote& remote, const LoadOptions& options,
                              Histogram& prepared);
  Load(Load&&) = default;
  Load& operator=(Load&&) = delete;
  ~Load();

  Result<Round> run(const Budget& budget);
  /// Each request once, all under way together.
  Result<Round> run_once() { return run({.transfers = requests_.size()}); }

 private:
  struct Share;
  Load(TransferEngine& engine, std::uint32_t threads) : engine_(&engine), threads_(threads) {}
  void run_share(Share& share, std::atomic<bool>& failed) const;

  TransferEngine* engine_;
  std::uint32_t threads_;
  std::vector<Handle> requests_;  ///< those of one thread after those of another
};

/// The lists of one request: the layout at `offset` of both areas.
struct Lists {
  std::vector<Descriptor> local;
  std::vector<Descriptor> remote;
};
Lists make_lists(const Layout& layout, std::uint64_t offset, std::uint64_t local_address,
                 Handle registration, const Remote& remote);

/// Posts, and waits for the outcome; an error for any but success. Its route, static storage.
Result<const char*> transfer_once(TransferEngine& engine, Handle request);

}  // namespace orbite::tool::bench
