// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "sim/allocation_fault.hpp"
#include "transfer/transport.hpp"

namespace orbite::transfer::testing {

class FakeFlow final : public Flow {
 public:
  FakeFlow() : Flow(policy::TransportKind::kTcp) {}
};

/// Holds what it accepts until the test completes and retires it.
class FakeTransport final : public Transport, private CompletionPath {
 public:
  explicit FakeTransport(Planner& planner) : CompletionPath(planner) {
    planner.set_transport(kind(), this);
  }

  [[nodiscard]] policy::TransportKind kind() const noexcept override {
    return policy::TransportKind::kTcp;
  }
  Result<std::shared_ptr<Flow>> open(const peer::Peer& /*peer*/) override {
    return std::shared_ptr<Flow>(std::make_shared<FakeFlow>());
  }
  [[nodiscard]] SliceLimits slice_limits() const noexcept override { return limits; }
  [[nodiscard]] bool has_room(Flow& /*flow*/, policy::QosClass qos) override {
    return room.at(static_cast<std::size_t>(qos)) > 0;
  }
  Result<void> submit(Flow& /*flow*/, Slice& slice) override {
    const sim::AllocationShelter shelter;
    const auto qos = static_cast<std::size_t>(slice.qos);
    --room.at(qos);
    if (refuse_next.has_value()) {
      const Error error = *std::exchange(refuse_next, std::nullopt);
      return fail(error);
    }
    accepted.push_back(&slice);
    return {};
  }
  [[nodiscard]] bool carries() const noexcept override { return carry_with.has_value(); }
  bool carry(Slice& slice) override {
    ++carry_calls;
    const std::optional<SliceResult> result = (*carry_with)(slice);
    if (result.has_value()) {
      end_carried(slice, *result);
    }
    return result.has_value();
  }
  void drop_unposted(Flow& /*flow*/, const Execution& /*execution*/) override {}
  void drive(Flow& /*flow*/, WorkLimit& /*limit*/, Driver /*driver*/) override {}
  Result<void> connect(Flow& /*flow*/, base::Nanoseconds /*timeout_ns*/) override { return {}; }
  Result<std::vector<wire::DescribedRange>> describe(
      Flow& /*flow*/, std::span<const wire::RegistrationRef> /*registrations*/,
      base::Nanoseconds /*timeout_ns*/) override {
    return fail(ErrorCode::kUnsupported, "nobody to ask");
  }
  void confirm_fenced(Flow& /*flow*/) override {}
  [[nodiscard]] std::uint64_t unproved(Flow& /*flow*/) override { return 0; }

  /// Cuts a slice without the planner's queue.
  Slice* hand_out(Execution& execution) {
    Slice& slice = *planner().acquire_slice();
    if (!execution.next_slice(limits, slice)) {
      planner().recycle_slice(slice);
      return nullptr;
    }
    return &slice;
  }
  static void complete_with(Slice& slice, const SliceResult& result) { complete(slice, result); }
  static SliceResult whole(const Slice& slice) {
    return {ErrorCode::kOk, 0, slice.bytes, RemoteEffect::kComplete, slice.carries_notification};
  }
  void retire_now(Slice& slice) { retire(slice); }
  /// The oldest accepted slice.
  Slice& finish_front() {
    Slice& slice = *accepted.front();
    accepted.pop_front();
    complete(slice, whole(slice));
    retire(slice);
    return slice;
  }

  SliceLimits limits{100, 1024, 64};
  std::array<int, policy::kQosClasses> room{1'000'000, 1'000'000};
  std::optional<Error> refuse_next;
  std::deque<Slice*> accepted;
  /// It carries by this; nothing: not at this moment.
  std::optional<std::function<std::optional<SliceResult>(const Slice&)>> carry_with;
  int carry_calls = 0;
};

}  // namespace orbite::transfer::testing
