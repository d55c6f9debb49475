// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.hpp"
#include "memory/range_loans.hpp"
#include "memory/registry.hpp"
#include "orbite/transfer.hpp"
#include "peer/peer.hpp"
#include "policy/route_table.hpp"
#include "transfer/admission.hpp"
#include "transfer/execution_queue.hpp"
#include "transfer/extents.hpp"
#include "transfer/receipt.hpp"

namespace orbite::transfer {

class Transport;
class Flow;
class Execution;

/// An immutable, validated request. No bytes move by it and it holds no loans: those are taken anew
/// by each execution, so a prepared request never keeps a deregistered range from retiring.
struct Prepared {
  Operation operation = Operation::kRead;
  std::shared_ptr<peer::Peer> peer;
  std::vector<std::shared_ptr<memory::Registration>> locals;
  std::vector<std::shared_ptr<peer::RemoteRange>> remotes;
  ExtentList extents;
  std::uint64_t bytes = 0;
  std::uint64_t tasks = 0;
  policy::Route route;
  Charge request_charge;
  Charge descriptor_charge;
};

/// What a transport reports once for a slice.
struct SliceResult {
  ErrorCode code = ErrorCode::kOk;
  std::int32_t native_errno = 0;
  /// Leading bytes of the slice known to be in place.
  std::uint64_t prefix_bytes = 0;
  /// Of the slice. kUnknown: at least the prefix, perhaps more.
  RemoteEffect effect = RemoteEffect::kNone;
  /// The notification that travelled with the slice was delivered.
  bool notification_delivered = false;
};

/// The unit that a transport accepts: a run of extents of one execution, or its notification.
/// Pinned: it stays where it is from its acceptance to its retirement.
struct Slice {
  std::shared_ptr<Execution> execution;
  ExtentCursor extents;            ///< from its first byte to its last; valid with `execution`
  std::uint32_t extent_count = 0;  ///< that it gives
  std::uint64_t bytes = 0;         ///< 0 for a notification of its own
  std::uint64_t offset = 0;        ///< of the slice in the request
  bool carries_notification = false;
  /// Of the slice, not of its request: a notification on its own never waits behind bulk.
  policy::QosClass qos = policy::QosClass::kBulk;
  Flow* flow = nullptr;   ///< that it goes by; the execution's peer holds it
  Slice* next = nullptr;  ///< for the list that the transport keeps it in

  // Each must happen exactly once, completion first.
  bool completed = false;
  bool retired = false;
};

struct SliceLimits {
  std::uint64_t bytes_max = 1 << 20;
  std::uint32_t extents_max = 1024;
  std::uint32_t remotes_max = 64;  ///< distinct remote ranges
};

/// One run of a Prepared, or (with prepared == nullptr) one notification on its own.
///
/// Logical outcome and physical retirement are separate facts: `fail`/`complete_slice` set the
/// first, `retire_slice` counts down to the second. It is terminal when both are known; only then
/// are loans and charges given back, and then the terminal state is published.
///
/// Invariants, under mutex_:
///   outstanding_ = slices handed out by next_slice() and not retired yet
///   planned_bytes_ = bytes of all slices handed out; only grows, never past the request's bytes,
///                    so each byte of a WRITE is given to a transport at most once
///   logical_ is set once; terminal_ is set once, when logical_ is known and outstanding_ == 0 and
///   nothing more will be handed out
class Execution : public std::enable_shared_from_this<Execution> {
 public:
  struct Options {
    std::shared_ptr<const Prepared> prepared;
    std::shared_ptr<peer::Peer> peer;  ///< of a notification on its own
    policy::Route route;
    std::optional<std::vector<std::uint8_t>> notification;
    base::Nanoseconds deadline_ns = 0;
    base::Nanoseconds posted_ns = 0;
    memory::RangeLoans loans;
    Charge bytes_charge;
    Charge outbox_charge;
    /// Called once, after the terminal state is published, with no lock held.
    std::function<void(Execution&)> on_terminal;
  };
  explicit Execution(Options&& options);
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;
  ~Execution();

  [[nodiscard]] const Prepared* prepared() const noexcept { return prepared_.get(); }
  [[nodiscard]] const peer::Peer& peer() const noexcept {
    return prepared_ != nullptr ? *prepared_->peer : *peer_;
  }
  [[nodiscard]] const policy::Route& route() const noexcept { return route_; }
  [[nodiscard]] Operation operation() const noexcept {
    return prepared_ != nullptr ? prepared_->operation : Operation::kWrite;
  }
  [[nodiscard]] std::uint64_t bytes() const noexcept {
    return prepared_ != nullptr ? prepared_->bytes : 0;
  }
  /// Stays valid and unchanged until the execution is terminal.
  [[nodiscard]] const std::optional<std::vector<std::uint8_t>>& notification() const noexcept {
    return notification_;
  }
  [[nodiscard]] base::Nanoseconds deadline_ns() const noexcept { return deadline_ns_; }
  /// Counts up in each engine; set once, before anything of it is handed out.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  void set_number(std::uint64_t number) noexcept { number_ = number; }
  /// When it was admitted.
  [[nodiscard]] base::Nanoseconds posted_ns() const noexcept { return posted_ns_; }

  // For the planner.

  /// Cuts the next slice, in request order, then the notification. False: nothing (more) to hand
  /// out now. `slice` keeps this execution alive until it is retired.
  bool next_slice(const SliceLimits& limits, Slice& slice);
  /// True while next_slice may have something now.
  [[nodiscard]] bool has_unplanned() const;
  /// And it goes by that transport.
  [[nodiscard]] bool has_unplanned_for(policy::TransportKind transport) const;
  /// Nothing but its notification, handed out already, is left of it.
  [[nodiscard]] bool only_notifies() const;
  /// Of the slice that is next.
  [[nodiscard]] policy::QosClass next_qos() const;
  /// Latency work whose bytes are surely one slice within such limits.
  [[nodiscard]] bool is_small(const SliceLimits& limits) const noexcept;

  // For transports.

  /// No more of it should be sent; true from the first failure on, too. Asked before a slice enters
  /// the wire.
  [[nodiscard]] bool stopped() const noexcept {
    // Relaxed: a wish; missing it once only sends what may be sent.
    return stopped_.load(std::memory_order_relaxed);
  }
  /// kCanceled is an outcome only of what we stopped; of anything else it is kProtocolViolation:
  /// codes come from peers too.
  void complete_slice(Slice& slice, const SliceResult& result);
  /// True when there is more to hand out now (its notification): the caller plans again.
  [[nodiscard]] bool retire_slice(RetirementReceipt receipt);
  /// Both in one step, of a slice whose result is the proof as well.
  [[nodiscard]] bool end_slice(const SliceResult& result, RetirementReceipt receipt);

  // For callers.

  /// Nothing more is handed out. With nothing outstanding it is terminal at once. `code` is the
  /// outcome: kCanceled, or why it failed. No effect once the logical outcome is known.
  void stop(ErrorCode code);
  [[nodiscard]] Outcome outcome() const;
  /// Acquire: who sees true sees the final outcome, and may reuse the buffers. Pairs with the
  /// release in finish_if_done().
  [[nodiscard]] bool terminal() const noexcept { return terminal_.load(std::memory_order_acquire); }
  /// Terminal, and a success.
  [[nodiscard]] bool succeeded() const noexcept {
    return terminal() && logical_ == Logical::kSuccess;  // set before, and once
  }

 private:
  friend class Planner;
  /// In a queue of a flow, in one at most. Under the queue's lock.
  struct Place {
    ExecutionQueue::Place at;
    std::optional<policy::QosClass> queued_in;
  };

  bool cut_slice(const SliceLimits& limits, Slice& slice);
  void complete_locked(Slice& slice, const SliceResult& result);
  [[nodiscard]] bool retire(RetirementReceipt receipt, std::unique_lock<std::mutex> lock);
  void fail_locked(ErrorCode code, std::int32_t native_errno);
  void set_success_if_done_locked();
  void finish_if_done(std::unique_lock<std::mutex> lock);
  [[nodiscard]] bool notification_is_next_locked() const;
  [[nodiscard]] bool all_retired_locked() const;
  [[nodiscard]] Outcome outcome_locked() const;

  const std::shared_ptr<const Prepared> prepared_;
  const std::shared_ptr<peer::Peer> peer_;  ///< of a notification on its own
  const policy::Route route_;
  const base::Nanoseconds deadline_ns_;
  std::uint64_t number_ = 0;
  const base::Nanoseconds posted_ns_;
  std::optional<std::vector<std::uint8_t>> notification_;

  mutable std::mutex mutex_;
  memory::RangeLoans loans_;
  Charge bytes_charge_;
  Charge outbox_charge_;
  std::function<void(Execution&)> on_terminal_;
  ExtentCursor unplanned_;  ///< what was not handed out yet
  std::uint64_t planned_bytes_ = 0;
  std::uint64_t landed_bytes_ = 0;  ///< known to be in place, prefixes of failed slices included
  std::uint64_t first_gap_ = UINT64_MAX;  ///< lowest request offset known not to be in place
  std::uint32_t outstanding_ = 0;
  bool notification_planned_ = false;  ///< handed out
  bool notification_delivered_ = false;
  bool effect_unknown_ = false;
  Logical logical_ = Logical::kNone;
  ErrorCode code_ = ErrorCode::kOk;
  std::int32_t native_errno_ = 0;

  /// In the queues of the flow of its bytes, and of the flow of its notification where that is
  /// another one. The planner's.
  [[nodiscard]] Place* place_in(policy::TransportKind transport) noexcept {
    if (transport == route_.transport) {
      return &place_;
    }
    return control_place_.has_value() ? &*control_place_ : nullptr;
  }
  Place place_;
  std::optional<Place> control_place_;  ///< only where it is needed

  std::atomic<bool> stopped_{false};
  std::atomic<bool> terminal_{false};
};

}  // namespace orbite::transfer
