// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/assert.hpp"
#include "base/clock.hpp"
#include "base/planted.hpp"
#include "base/result.hpp"
#include "peer/peer.hpp"
#include "policy/route_table.hpp"
#include "transfer/admission.hpp"
#include "transfer/execution.hpp"
#include "wire/frame.hpp"

namespace orbite::transfer {

class Planner;

/// What one call may do before it returns: no entry of the API runs longer than this allows.
struct WorkLimit {
  std::uint64_t bytes_max = 0;
  std::uint32_t calls_max = 0;

  [[nodiscard]] bool exhausted() const noexcept {
    return (bytes_max == 0 || calls_max == 0) && !base::planted(base::Bug::kUnboundedStep);
  }
  void spend(std::uint64_t bytes) noexcept {
    bytes_max -= bytes < bytes_max ? bytes : bytes_max;
    calls_max -= calls_max > 0 ? 1 : 0;
  }
};

/// Who drives: a caller of the API, who moves whatever there is, one that waits for latency work
/// and moves nothing else, or the engine's worker.
enum class Driver : std::uint8_t { kCaller, kLatencyCaller, kWorker };

/// A transport's way to one peer, with the executions whose slices it has not accepted yet.
class Flow {
 public:
  explicit Flow(policy::TransportKind kind) noexcept : kind_(kind) {}
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;
  virtual ~Flow() = default;

  [[nodiscard]] policy::TransportKind kind() const noexcept { return kind_; }

 private:
  friend class Planner;
  const policy::TransportKind kind_;
  std::mutex mutex_;
  std::array<ExecutionQueue, policy::kQosClasses> waiting_;
};

/// The flows to one peer epoch: one of each transport that may reach it.
class PeerFlows final : public peer::Link {
 public:
  /// Before the peer is shared.
  void set(std::shared_ptr<Flow> flow) noexcept {
    flows_[static_cast<std::size_t>(flow->kind())] = std::move(flow);
  }
  [[nodiscard]] Flow* find(policy::TransportKind kind) const noexcept {
    return flows_[static_cast<std::size_t>(kind)].get();
  }
  [[nodiscard]] Flow& of(policy::TransportKind kind) const noexcept {
    ORBITE_CHECK(find(kind) != nullptr);
    return *find(kind);
  }

  /// Of the pools that peers share: this peer's part.
  [[nodiscard]] PeerShares& shares() noexcept { return shares_; }

  /// Executions of it that are not terminal. Under the engine's mutex of those.
  std::size_t active = 0;

 private:
  std::array<std::shared_ptr<Flow>, policy::kTransportKinds> flows_;
  PeerShares shares_;
};

/// Only of a peer with a route.
inline PeerFlows& flows_of(const peer::Peer& peer) { return static_cast<PeerFlows&>(*peer.link()); }
inline Flow& flow_of(const peer::Peer& peer, policy::TransportKind kind) {
  return flows_of(peer).of(kind);
}

/// Makes receipts, so only for code that reports completions: every transport derives from it.
class CompletionPath {
 public:
  explicit CompletionPath(Planner& planner) : planner_(planner) {}
  CompletionPath(const CompletionPath&) = delete;
  CompletionPath& operator=(const CompletionPath&) = delete;

 protected:
  ~CompletionPath() = default;

  /// Exactly once for each accepted slice.
  static void complete(Slice& slice, const SliceResult& result) {
    slice.execution->complete_slice(slice, result);
  }
  /// Exactly once for each accepted slice, not before its completion, by the code that has the
  /// proof. The slice is gone after it. Must not be called with a lock that submit() takes.
  void retire(Slice& slice);
  /// Both at once, exactly once, of a slice that carry() was given.
  void end_carried(Slice& slice, const SliceResult& result);

  Planner& planner() noexcept { return planner_; }

 private:
  Planner& planner_;
};

/// What the planner asks of every transport.
///
/// For every slice that submit() accepted, exactly one completion and exactly one retirement, which
/// may come later. It never retries. Time and randomness are given to it at construction.
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  [[nodiscard]] virtual policy::TransportKind kind() const noexcept = 0;

  /// The link to a peer; the same one for the same connection blob while it lives. No traffic.
  virtual Result<std::shared_ptr<Flow>> open(const peer::Peer& peer) = 0;

  [[nodiscard]] virtual SliceLimits slice_limits() const noexcept = 0;
  /// Whether submit() would take a slice of that class now.
  [[nodiscard]] virtual bool has_room(Flow& flow, policy::QosClass qos) = 0;
  /// Accepts or refuses the slice whole. Never completes or retires it before it returns.
  virtual Result<void> submit(Flow& flow, Slice& slice) = 0;
  /// Moves a slice of small work on this thread, in place of submit(): it has ended on return.
  /// False: not by this transport, or not at this moment, and nothing of it happened.
  virtual bool carry(Slice& /*slice*/) { return false; }
  /// Whether carry() is worth asking.
  [[nodiscard]] virtual bool carries() const noexcept { return false; }
  /// Completes and retires those slices of `execution` of which nothing was sent.
  virtual void drop_unposted(Flow& flow, const Execution& execution) = 0;
  /// Moves bytes for that peer, at most `limit`. Never blocks.
  virtual void drive(Flow& flow, WorkLimit& limit, Driver driver) = 0;
  /// Whether `prepared` can go by it, from its first byte to its last, as things are now.
  [[nodiscard]] virtual bool reaches(Flow& /*flow*/, const Prepared& /*prepared*/) { return true; }
  /// Waits at most `timeout_ns` until the peer can be reached.
  virtual Result<void> connect(Flow& flow, base::Nanoseconds timeout_ns) = 0;
  /// What the peer says of those registrations now, one answer for each, in order; waits at most
  /// `timeout_ns`. kUnsupported where there is nobody to ask.
  virtual Result<std::vector<wire::DescribedRange>> describe(
      Flow& flow, std::span<const wire::RegistrationRef> registrations,
      base::Nanoseconds timeout_ns) = 0;
  /// An operator's word that the peer is fenced: everything unproved of it is retired.
  virtual void confirm_fenced(Flow& flow) = 0;
  /// Slices accepted and not retired whose proof of retirement is being sought.
  [[nodiscard]] virtual std::uint64_t unproved(Flow& flow) = 0;
};

/// Cuts executions into slices and hands them to transports as they have room. One queue for each
/// peer and class, first come first served; a notification that follows its bytes is latency work.
class Planner {
 public:
  /// Begins an execution that was just admitted. Small work of a transport that carries is over on
  /// return, but for a notification that goes another way: it passes what waits, and takes no room
  /// of a queue, for each caller carries his own. Anything else is queued and handed out.
  void begin(Transport& transport, Flow& flow, const std::shared_ptr<Execution>& execution);
  /// Takes its place in the queue of its next slice's class, unless it is stopped; nothing is
  /// handed out before pump(). `flow` is the one that its next slice goes by. Cannot fail: what is
  /// admitted is queued.
  void enqueue(Flow& flow, std::shared_ptr<Execution> execution) noexcept;
  /// Hands out what the transport has room for. An execution for whose slice there is no memory
  /// fails with kOutOfMemory.
  void pump(Transport& transport, Flow& flow);
  /// Takes a stopped execution out of the queues, at a cost that does not grow with it.
  void forget(Execution& execution);
  [[nodiscard]] bool waiting(Flow& flow);

  /// Transports by kind, so that a retirement can go on with the flow that it freed room in.
  void set_transport(policy::TransportKind kind, Transport* transport) {
    transports_[static_cast<std::size_t>(kind)] = transport;
  }
  [[nodiscard]] Transport* transport(policy::TransportKind kind) const noexcept {
    return transports_[static_cast<std::size_t>(kind)];
  }

  /// nullptr: no memory for one.
  Slice* acquire_slice() noexcept;
  void recycle_slice(Slice& slice) noexcept;
  /// Slices handed out and not retired.
  [[nodiscard]] std::size_t slices_out() const;

 private:
  /// What hand_out_next() leaves to be ended outside the flow's lock.
  struct Leftover {
    Slice* refused = nullptr;            ///< by the transport
    std::shared_ptr<Execution> starved;  ///< there was no memory for its next slice
  };
  bool carry(Transport& transport, Flow& flow, Execution& execution);
  bool hand_out_next(Transport& transport, Flow& flow, std::size_t qos, Leftover& leftover);
  static std::shared_ptr<Execution> leave_queue(Flow& flow, Execution& execution) noexcept;

  std::array<Transport*, policy::kTransportKinds> transports_{};

  // The slab. Its size is bounded by what all flows have room for.
  mutable std::mutex slab_mutex_;
  std::deque<Slice> slab_;
  Slice* free_ = nullptr;
  std::size_t out_ = 0;
};

}  // namespace orbite::transfer
