// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "memory/registry.hpp"
#include "transfer/transport.hpp"

namespace orbite::sim {

/// What may befall a slice. Shares are in thousandths and drawn once for each slice at its
/// acceptance; what they leave over is success.
struct Script {
  std::uint64_t seed = 1;
  std::uint32_t refused = 0;         ///< submit says no
  std::uint32_t failed_none = 0;     ///< nothing moves
  std::uint32_t failed_prefix = 0;   ///< a prefix moves, and no more
  std::uint32_t failed_unknown = 0;  ///< a prefix is known; more moves, at the latest at retirement
  std::uint32_t lost = 0;            ///< as failed_unknown, and retired by confirm_fenced alone
  std::uint32_t notification_refused = 0;
  /// Each of acceptance, posting, completion and retirement comes up to so many steps after the one
  /// before it. 0: in the next step, in order of acceptance.
  std::uint32_t delay_max = 0;
  std::size_t queue_max = 16;  ///< slices of one class that are accepted and not retired
  /// Nothing happens by itself: drive() does nothing, the world takes every step.
  bool stepped = false;
  transfer::SliceLimits limits{4096, 16, 4};
};

/// Bytes that the simulated hardware moves, told when it moves them.
struct Access {
  const transfer::Execution* execution = nullptr;
  std::uint64_t offset = 0;  ///< of the first byte in the request
  std::uint64_t source = 0;
  std::uint64_t target = 0;
  std::uint64_t length = 0;
};

/// What becomes of a slice.
struct Fate {
  transfer::SliceResult result;
  std::uint64_t moved = 0;  ///< leading bytes in place at retirement; at least the prefix
  bool is_lost = false;     ///< retired by confirm_fenced alone
};

/// What happens to a slice, in this order, but that late bytes may land after the completion.
enum class Step : std::uint8_t {
  kEnter,     ///< it enters the wire: loans are taken at the far side
  kLand,      ///< all bytes of its fate move
  kComplete,  ///< the completion is told
  kRetire     ///< the retirement is told
};

/// A transport over memory of this process, driven by a seeded script: the same seed and the same
/// calls give the same run. It keeps the transport contract, in the worst manner that the contract
/// allows. Stands for TransportKind::kTcp. One thread.
class SimTransport final : public transfer::Transport, private transfer::CompletionPath {
 public:
  struct World {
    /// The far side of an epoch: where loans for its ranges are taken; nullptr: it is gone.
    std::function<memory::Registry*(const base::SourceEpoch&)> registry_of;
    /// Takes a notification at the far side.
    std::function<Result<void>(const transfer::Execution&)> deliver;
    // These may be empty.
    std::function<void(const Access&)> on_access = {};
    std::function<void(const transfer::Slice&)> on_enter = {};  ///< it enters the wire
    std::function<Fate(const transfer::Slice&)> fate_of = {};   ///< instead of a draw
  };

  SimTransport(transfer::Planner& planner, const Script& script, World world);
  ~SimTransport() override;

  [[nodiscard]] policy::TransportKind kind() const noexcept override {
    return policy::TransportKind::kTcp;
  }
  Result<std::shared_ptr<transfer::Flow>> open(const peer::Peer& peer) override;
  [[nodiscard]] transfer::SliceLimits slice_limits() const noexcept override {
    return script_.limits;
  }
  [[nodiscard]] bool has_room(transfer::Flow& flow, policy::QosClass qos) override;
  Result<void> submit(transfer::Flow& flow, transfer::Slice& slice) override;
  void drop_unposted(transfer::Flow& flow, const transfer::Execution& execution) override;
  /// One step of the simulated time, and what is due in it.
  void drive(transfer::Flow& flow, transfer::WorkLimit& limit, transfer::Driver driver) override;
  Result<void> connect(transfer::Flow& flow, base::Nanoseconds timeout_ns) override;
  Result<std::vector<wire::DescribedRange>> describe(
      transfer::Flow& flow, std::span<const wire::RegistrationRef> registrations,
      base::Nanoseconds timeout_ns) override;
  void confirm_fenced(transfer::Flow& flow) override;
  [[nodiscard]] std::uint64_t unproved(transfer::Flow& flow) override;

  /// The peer's end of that flow is reset: what is posted fails with an unknown effect, what is not
  /// with none, and all of it is retired. Whether bytes of the former moved is drawn.
  void reset_peer(transfer::Flow& flow);

  // With Script::stepped, these are all that happens. The slice meant is the oldest of that
  // execution for which the step is possible.
  [[nodiscard]] bool can(const transfer::Execution& execution, Step step) const;
  void take(const transfer::Execution& execution, Step step);
  /// Its slices that are accepted and not retired, and those of them that hold loans at the far
  /// side.
  [[nodiscard]] std::size_t outstanding(const transfer::Execution& execution) const;
  [[nodiscard]] std::size_t on_wire(const transfer::Execution& execution) const;

  /// Equal when its slices are in equal states.
  [[nodiscard]] std::uint64_t digest(const transfer::Execution& execution) const;

  /// Slices accepted and not retired.
  [[nodiscard]] std::size_t outstanding() const noexcept { return jobs_.size(); }
  /// Changes with every event; equal for equal runs.
  [[nodiscard]] std::uint64_t trace() const noexcept { return trace_; }

 private:
  class SimFlow;
  enum class Phase : std::uint8_t { kQueued, kPosted, kCompleted, kLost };

  struct Job {
    std::uint64_t id = 0;
    transfer::Slice* slice = nullptr;
    SimFlow* flow = nullptr;
    Phase phase = Phase::kQueued;
    std::uint64_t due_step = 0;
    Fate fate;
    std::uint64_t moved = 0;  ///< leading bytes in place now
    bool is_refused = false;  ///< the far side gave no loan: nothing of it moves
    std::vector<memory::RangeLoan> far_loans;
  };

  [[nodiscard]] std::uint64_t draw(std::uint64_t bound);  ///< 0..bound-1
  [[nodiscard]] bool chance(std::uint32_t thousandths) { return draw(1000) < thousandths; }
  [[nodiscard]] std::uint64_t delay() { return 1 + draw(std::uint64_t{script_.delay_max} + 1); }
  [[nodiscard]] Fate draw_fate(const transfer::Slice& slice);
  [[nodiscard]] static bool can(const Job& job, Step step);
  [[nodiscard]] Job* find(const transfer::Execution& execution, Step step) const;
  Job* pick_due(const SimFlow& flow);
  void advance(Job& job, transfer::WorkLimit& limit);
  void post(Job& job);
  void borrow_far(Job& job);
  void finish(Job& job);
  void end(Job& job);
  void fail_unposted(Job& job, ErrorCode code);
  void move_up_to(Job& job, std::uint64_t moved);
  void move_bytes(const transfer::Slice& slice, std::uint64_t from, std::uint64_t to);
  void note(const char* what, const Job& job);

  const Script script_;
  const World world_;
  base::SeededRandom random_;
  std::vector<std::pair<base::SourceEpoch, std::weak_ptr<SimFlow>>> flows_;
  std::vector<std::unique_ptr<Job>> jobs_;  ///< in order of acceptance
  std::uint64_t step_ = 0;
  std::uint64_t next_id_ = 1;
  std::uint64_t trace_ = 0;
};

}  // namespace orbite::sim
