// SPDX-License-Identifier: Apache-2.0
#include "bench/load.hpp"

#include <algorithm>
#include <barrier>
#include <span>
#include <string_view>
#include <thread>

#include "base/result.hpp"
#include "bench/sockets.hpp"
#include "platform/system.hpp"

namespace orbite::tool::bench {
namespace {

constexpr base::Nanoseconds kTransferTimeout = 60 * base::kSecond;
/// A round of a number of transfers that takes longer is given up.
constexpr base::Nanoseconds kRoundMax = 300 * base::kSecond;
/// A thread that has waited that long lets others have its core.
constexpr base::Nanoseconds kPollWindow = 50 * base::kMicrosecond;
constexpr std::uint64_t kPreparesMax = 200;
constexpr base::Nanoseconds kPrepareTime = 200 * base::kMillisecond;

Result<void> check_success(const Outcome& outcome) {
  if (outcome.logical != Logical::kSuccess) {
    return fail(Error::make_native(outcome.code, outcome.native_errno, "a transfer over '%s'",
                                   outcome.route));
  }
  return {};
}

Result<void> check_in_time(base::Nanoseconds posted_ns, base::Nanoseconds now) {
  // The outcome is due at the deadline, and the proof that nothing touches the memory soon after.
  if (now - posted_ns > 2 * kTransferTimeout) {
    return fail(ErrorCode::kDeadlineExceeded, "a transfer does not end");
  }
  return {};
}

void add_route(std::vector<const char*>& routes, const char* route) {
  const auto is_same = [&](const char* known) { return std::string_view(known) == route; };
  if (std::none_of(routes.begin(), routes.end(), is_same)) {
    routes.push_back(route);
  }
}

}  // namespace

void Round::merge(const Round& other) {
  post.merge(other.post);
  total.merge(other.total);
  transfers += other.transfers;
  wall_ns += other.wall_ns;
  for (const char* const route : other.routes) {
    add_route(routes, route);
  }
}

/// What one thread does in a round.
struct Load::Share {
  std::span<const Handle> requests;
  std::uint64_t transfers_left = 0;
  base::Nanoseconds end_ns = 0;  ///< nothing is posted after it
  bool counts = false;           ///< ends with its transfers, before end_ns

  Result<void> result;
  Histogram post;
  Histogram total;
  std::uint64_t transfers = 0;
  std::vector<const char*> routes;
  base::Nanoseconds began_ns = 0;
  base::Nanoseconds ended_ns = 0;
};

namespace {

struct Slot {
  Handle request;
  bool active = false;
  base::Nanoseconds posted_ns = 0;
};

/// Keeps the requests of one thread under way.
template <typename Share>
class Poster {
 public:
  Poster(TransferEngine& engine, Share& share) : engine_(engine), share_(share) {
    for (const Handle request : share.requests) {
      slots_.push_back({request});
    }
  }

  Result<void> run(const std::atomic<bool>& failed) {
    base::Nanoseconds moved_ns = now_ns();
    // relaxed: only ends this thread early; the result of the one that failed comes with its join.
    while (!failed.load(std::memory_order_relaxed)) {
      bool moved = false;
      bool active = false;
      for (Slot& slot : slots_) {
        ORBITE_ASSIGN_OR_RETURN(const bool stepped, step(slot));
        moved |= stepped;
        active |= slot.active;
      }
      if (moved) {
        moved_ns = now_ns();
      } else if (!active) {
        break;
      } else if (now_ns() - moved_ns > kPollWindow) {
        platform::yield_processor();
      }
    }
    return {};
  }

 private:
  /// Whether anything happened.
  Result<bool> step(Slot& slot) {
    if (!slot.active) {
      return post(slot);
    }
    ORBITE_ASSIGN_OR_RETURN(const Outcome outcome, engine_.check(slot.request));
    const base::Nanoseconds now = now_ns();
    if (!outcome.terminal()) {
      ORBITE_TRY(check_in_time(slot.posted_ns, now));
      return false;
    }
    ORBITE_TRY(finish(slot, outcome, now));
    return true;
  }

  Result<bool> post(Slot& slot) {
    slot.posted_ns = now_ns();
    if (share_.transfers_left == 0) {
      return false;
    }
    if (slot.posted_ns >= share_.end_ns) {
      if (share_.counts) {
        return fail(ErrorCode::kDeadlineExceeded,
                    "a round takes longer than 300 s: ask for fewer transfers");
      }
      return false;
    }
    --share_.transfers_left;
    ORBITE_ASSIGN_OR_RETURN(
        const Outcome outcome,
        engine_.post(slot.request, {.notification = std::nullopt, .timeout_ns = kTransferTimeout}));
    const base::Nanoseconds now = now_ns();
    share_.post.add(now - slot.posted_ns);
    slot.active = true;
    if (outcome.terminal()) {
      ORBITE_TRY(finish(slot, outcome, now));
    }
    return true;
  }

  Result<void> finish(Slot& slot, const Outcome& outcome, base::Nanoseconds now) {
    ORBITE_TRY(check_success(outcome));
    slot.active = false;
    share_.total.add(now - slot.posted_ns);
    add_route(share_.routes, outcome.route);
    ++share_.transfers;
    return {};
  }

  TransferEngine& engine_;
  Share& share_;
  std::vector<Slot> slots_;
};

}  // namespace

void Load::run_share(Share& share, std::atomic<bool>& failed) const {
  share.result = Poster(*engine_, share).run(failed);
  share.ended_ns = now_ns();
  if (!share.result) {
    // relaxed: pairs with the loads of the other threads, which only end early for it.
    failed.store(true, std::memory_order_relaxed);
  }
}

Result<Round> Load::run(const Budget& budget) {
  const bool counts = budget.transfers != 0;
  std::vector<Share> shares(threads_);
  const std::size_t depth = requests_.size() / threads_;
  for (std::size_t i = 0; i < threads_; ++i) {
    shares[i].requests = std::span(requests_).subspan(i * depth, depth);
    shares[i].counts = counts;
    shares[i].transfers_left =
        counts ? budget.transfers / threads_ + (i < budget.transfers % threads_ ? 1 : 0)
               : UINT64_MAX;
  }
  std::atomic<bool> failed{false};
  std::barrier start(static_cast<std::ptrdiff_t>(threads_));
  std::vector<std::thread> threads;
  threads.reserve(threads_);
  for (Share& share : shares) {
    threads.emplace_back([&] {
      start.arrive_and_wait();
      share.began_ns = now_ns();
      share.end_ns = share.began_ns + (counts ? kRoundMax : budget.duration_ns);
      run_share(share, failed);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  Round round;
  base::Nanoseconds began_ns = UINT64_MAX;
  base::Nanoseconds ended_ns = 0;
  for (const Share& share : shares) {
    if (!share.result) {
      return fail(share.result.error());
    }
    round.post.merge(share.post);
    round.total.merge(share.total);
    round.transfers += share.transfers;
    for (const char* const route : share.routes) {
      add_route(round.routes, route);
    }
    began_ns = std::min(began_ns, share.began_ns);
    ended_ns = std::max(ended_ns, share.ended_ns);
  }
  round.wall_ns = std::max<std::uint64_t>(ended_ns - began_ns, 1);
  return round;
}

Lists make_lists(const Layout& layout, std::uint64_t offset, std::uint64_t local_address,
                 Handle registration, const Remote& remote) {
  Lists lists;
  for (const std::uint64_t block : block_offsets(layout)) {
    lists.local.push_back({local_address + offset + block, layout.size, registration});
    lists.remote.push_back({remote.address + offset + block, layout.size, remote.range});
  }
  return lists;
}

Result<Load> Load::prepare(Endpoint& endpoint, Handle registration, const Area& local,
                           const Remote& remote, const LoadOptions& options, Histogram& prepared) {
  TransferEngine& engine = endpoint.engine();
  Load load(engine, options.threads);
  const auto timed = [&](const Lists& lists) {
    const base::Nanoseconds began_ns = now_ns();
    Result<Handle> request =
        engine.prepare({options.operation, remote.peer, lists.local, lists.remote});
    prepared.add(now_ns() - began_ns);
    return request;
  };
  const std::uint64_t slots = std::uint64_t{options.threads} * options.depth;
  Lists lists;
  for (std::uint64_t slot = 0; slot < slots; ++slot) {
    lists = make_lists(options.layout, slot * options.layout.extent(), local.address(),
                       registration, remote);
    ORBITE_ASSIGN_OR_RETURN(const Handle request, timed(lists));
    load.requests_.push_back(request);
  }
  const base::Nanoseconds end_ns = now_ns() + kPrepareTime;
  while (prepared.count() < kPreparesMax && now_ns() < end_ns) {
    ORBITE_ASSIGN_OR_RETURN(const Handle request, timed(lists));
    ORBITE_TRY(engine.release(request));
  }
  return load;
}

Load::~Load() {
  for (const Handle request : requests_) {
    // What has not retired stays the engine's, whose end tells about it.
    (void)engine_->abandon(request);
  }
}

Result<const char*> transfer_once(TransferEngine& engine, Handle request) {
  const base::Nanoseconds posted_ns = now_ns();
  ORBITE_ASSIGN_OR_RETURN(Outcome outcome, engine.post(request, {.notification = std::nullopt,
                                                                 .timeout_ns = kTransferTimeout}));
  while (!outcome.terminal()) {
    const base::Nanoseconds now = now_ns();
    ORBITE_TRY(check_in_time(posted_ns, now));
    if (now - posted_ns > kPollWindow) {
      platform::yield_processor();
    }
    ORBITE_ASSIGN_OR_RETURN(outcome, engine.check(request));
  }
  ORBITE_TRY(check_success(outcome));
  return outcome.route;
}

}  // namespace orbite::tool::bench
