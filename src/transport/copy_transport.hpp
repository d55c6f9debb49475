// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <list>
#include <mutex>
#include <optional>

#include "copy/copier.hpp"
#include "copy/workers.hpp"
#include "transfer/caller_patience.hpp"
#include "transfer/slice_queue.hpp"
#include "transfer/transport.hpp"

namespace orbite::transport {

/// How bytes are copied, and who helps.
struct Copying {
  copy::Copier copier{copy::Thresholds()};
  copy::Workers* workers = nullptr;     ///< outlives the transport; nullptr: nobody helps
  std::uint64_t workers_min_bytes = 0;  ///< waiting, from which on they are asked
  /// After a worker has finished a piece or put one back: there may be work for the engine's
  /// worker. May be empty.
  std::function<void()> after_help;
  /// See transfer::CallerPatience; may be empty.
  std::function<bool()> processors_are_short = {};
};

/// Told of each copy within the address space before it is made; may be empty.
using OnCopy = std::function<void(std::uint64_t target, std::uint64_t source, std::uint64_t bytes)>;

/// Slices to one peer that wait to be copied.
class CopyFlow : public transfer::Flow {
 public:
  explicit CopyFlow(policy::TransportKind kind) : Flow(kind) {}

 private:
  friend class CopyTransport;
  // Under the transport's mutex.
  std::array<transfer::SliceQueue, policy::kQosClasses> queue_;
  std::list<CopyFlow*> place_ = std::list<CopyFlow*>(1, this);  ///< while it is not listed
  bool listed_ = false;
};

/// The transports whose slices are copied by whoever drives, in bounded steps, and by copy workers
/// when much waits: each takes slices of its own. A copy that has returned is its own proof of
/// retirement, on both sides.
class CopyTransport : public transfer::Transport, protected transfer::CompletionPath {
 public:
  /// Every flow must have been let go of.
  ~CopyTransport() override;
  [[nodiscard]] bool has_room(transfer::Flow& flow, policy::QosClass qos) final;
  Result<void> submit(transfer::Flow& flow, transfer::Slice& slice) final;
  bool carry(transfer::Slice& slice) final;
  [[nodiscard]] bool carries() const noexcept final { return true; }
  void drop_unposted(transfer::Flow& flow, const transfer::Execution& execution) final;
  void drive(transfer::Flow& flow, transfer::WorkLimit& limit, transfer::Driver driver) final;
  Result<void> connect(transfer::Flow& /*flow*/, base::Nanoseconds /*timeout_ns*/) override {
    return {};
  }
  Result<std::vector<wire::DescribedRange>> describe(
      transfer::Flow& flow, std::span<const wire::RegistrationRef> registrations,
      base::Nanoseconds timeout_ns) override;
  void confirm_fenced(transfer::Flow& /*flow*/) override {}
  [[nodiscard]] std::uint64_t unproved(transfer::Flow& /*flow*/) override { return 0; }

  /// The worker copies what waits while no caller was here for a while. Returns how long it may
  /// sleep.
  base::Nanoseconds on_tick(base::Nanoseconds now_ns);
  /// Slices wait.
  [[nodiscard]] bool busy();
  /// Slices wait, and the worker sleeps without knowing it.
  [[nodiscard]] bool waits_unwatched();

 protected:
  CopyTransport(transfer::Planner& planner, const base::Clock& clock, Copying copying);

  /// From any thread, any number at a time. Nothing: it cannot be copied at this moment, and its
  /// turn comes again.
  virtual std::optional<transfer::SliceResult> copy(CopyFlow& flow,
                                                    const transfer::Slice& slice) = 0;

  [[nodiscard]] const Copying& copying() const noexcept { return copying_; }
  /// Of a derived class, at the end of its constructor and at the beginning of its destructor:
  /// workers come in between.
  void let_workers_in();
  void keep_workers_out();

 private:
  class CallerInside;
  /// For the workers.
  class Slices final : public copy::SharedWork {
   public:
    explicit Slices(CopyTransport& transport) : transport_(transport) {}
    bool do_piece() noexcept override;

   private:
    CopyTransport& transport_;
  };

  transfer::Slice* take_of(CopyFlow& flow, policy::QosClass last);
  transfer::Slice* take_any();
  transfer::Slice* pop(CopyFlow& flow, policy::QosClass last);
  void put_back(transfer::Slice& slice);
  std::optional<transfer::SliceResult> move(transfer::Slice& slice);
  /// False: not now.
  bool finish(transfer::Slice& slice);
  [[nodiscard]] bool caller_is_here(base::Nanoseconds now_ns);
  void ask_for_help();

  const base::Clock& clock_;
  const Copying copying_;
  bool workers_in_ = false;
  // Callers at bulk work. Relaxed: a hint to the worker.
  std::atomic<std::uint32_t> callers_inside_{0};
  transfer::CallerTrace callers_;
  /// The worker comes again soon. Relaxed: lowered before a look at the queues, and read after
  /// something was put there, so their mutex orders the two.
  std::atomic<bool> watched_{false};
  transfer::CallerPatience patience_;  ///< the worker's
  std::mutex mutex_;
  std::list<CopyFlow*> listed_;  ///< those with slices; the first one's turn is next
  Slices slices_{*this};
};

}  // namespace orbite::transport
