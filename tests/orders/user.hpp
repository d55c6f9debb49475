// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "memory/registry.hpp"
#include "notify/mailbox.hpp"
#include "orders/scenario.hpp"
#include "peer/peer.hpp"
#include "sim/sim_transport.hpp"
#include "transfer/admission.hpp"
#include "transfer/transport.hpp"

namespace orbite::test {

/// One pair of ranges of a request, as addresses.
struct Pair {
  std::uint64_t near = 0;
  std::uint64_t far = 0;
  std::uint64_t length = 0;
};

/// The near side: real registry, admission, planner, executions and peers, and between them what
/// the engine does from prepare to close, in the engine's order, without its threads.
class User {
 public:
  User(sim::Script script, sim::SimTransport::World hooks);
  User(const User&) = delete;
  User& operator=(const User&) = delete;

  void register_near(const MemoryDescriptor& memory);
  void import_far(const wire::ConnectionBlob& connection, const wire::RangeBlob& blob);
  void prepare(Operation operation, const std::vector<Pair>& pairs);

  Result<void> post(std::uint32_t request, std::optional<std::vector<std::uint8_t>> message);
  Result<void> cancel(std::uint32_t request);
  Result<void> check(std::uint32_t request);
  Result<void> release(std::uint32_t request);
  Result<RegistrationState> deregister();
  Result<void> unload();
  Result<void> invalidate();
  void close();
  /// An operator's word.
  void confirm_fenced();

  /// Of the newest execution; without any effect.
  [[nodiscard]] Outcome look(std::uint32_t request) const;
  [[nodiscard]] RegistrationState registration_state() const;

  memory::Registry& registry() noexcept { return registry_; }
  transfer::Flow& flow() noexcept { return static_cast<transfer::Flow&>(*peer_->link()); }
  sim::SimTransport& transport() noexcept { return transport_; }
  [[nodiscard]] const sim::SimTransport& transport() const noexcept { return transport_; }
  transfer::Planner& planner() noexcept { return planner_; }
  transfer::Admission& admission() noexcept { return admission_; }
  /// Charged for a message beyond its bytes.
  static constexpr std::uint64_t kMessageOverhead = 16;

 private:
  struct Request {
    std::shared_ptr<const transfer::Prepared> prepared;
    std::shared_ptr<transfer::Execution> execution;
    bool released = false;
  };
  [[nodiscard]] Result<void> check_postable(const Request& request) const;
  Result<std::vector<memory::RangeLoan>> take_loans(const transfer::Prepared& prepared);
  void stop(const std::shared_ptr<transfer::Execution>& execution, ErrorCode code);

  base::SeededRandom random_{1};
  memory::Registry registry_{{.registrations_max = 4}, random_};
  transfer::Admission admission_{
      {"requests", 8}, {"descriptors", 64}, {"bytes in flight", 4096}, {"outbox bytes", 4096}};
  transfer::Planner planner_;
  sim::SimTransport transport_;
  peer::SegmentManager peers_{4};
  peer::RangeTable ranges_{"imported range", 4};
  Handle near_;
  Handle peer_handle_;
  Handle range_;
  std::shared_ptr<peer::Peer> peer_;
  std::vector<Request> requests_;
  bool closing_ = false;
};

}  // namespace orbite::test
