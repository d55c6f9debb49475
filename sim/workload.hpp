// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "sim/world.hpp"

namespace orbite::sim {

/// What the applications do: seeded steps, each one call of the API or a few, valid and not.
class Workload {
 public:
  explicit Workload(World& world) : world_(world), random_(world.random.next()) {}

  /// Starts the steps of every host; they end when the options' number is used up.
  void begin();
  [[nodiscard]] bool done() const noexcept { return left_ == 0; }

  // Also for the end of a run.
  void check(Host& host, const RequestPtr& request);
  void receive(Host& host);
  void release(Host& host, const RequestPtr& request);
  void deregister(Host& host, const RegistrationPtr& registration);
  /// True when it has closed and is destroyed.
  bool close(Host& host, base::Nanoseconds timeout_ns);
  void confirm_fenced(Host& host, Life life);
  /// S5: successes whose notification the living never got.
  void check_notifications();

 private:
  struct Sent {
    NotificationPtr notification;
    std::shared_ptr<ExecutionModel> execution;  ///< that it belongs to; nullptr: none
  };
  using Step = void (Workload::*)(Host&);

  void next_step(Host& host);
  void step(Host& host);
  void register_memory(Host& host);
  void register_memory(Host& host, std::uint64_t begin, std::uint64_t end);
  void replace_pages(Host& host);
  void deregister_some(Host& host);
  void import_peer(Host& host);
  void connect_peer(Host& host);
  void retire_peer(Host& host);
  void import_range(Host& host);
  void release_range(Host& host);
  void prepare(Host& host);
  void prepare_wrong(Host& host);
  void post_some(Host& host);
  void check_some(Host& host);
  void query_some(Host& host);
  void cancel_some(Host& host);
  void release_some(Host& host);
  void abandon_some(Host& host);
  void notify(Host& host);
  void receive_some(Host& host);
  void fence_dead(Host& host);
  void close_some(Host& host);
  void use_stale_handles(Host& host);

  void post(Host& host, const RequestPtr& request);
  void query(Host& host, const RequestPtr& request);
  void introduce();
  [[nodiscard]] std::shared_ptr<ExecutionModel> begin_execution(const RequestModel& request);
  bool draw_extents(Host& host, const RequestPtr& request, const RangeModel& range);
  bool draw_extent(Host& host, const RequestPtr& request, const RangeModel& range,
                   const RegistrationPtr& local);
  std::optional<std::uint64_t> find_room(const ClaimMap& claims, std::uint64_t begin,
                                         std::uint64_t end, std::uint64_t length);
  NotificationPtr new_notification(Host& host, const Life& to);
  std::vector<std::uint8_t> message_of(const NotificationModel& notification);
  RequestPtr some_request(Host& host, bool active_first);

  World& world_;
  Random random_;
  std::uint32_t left_ = 0;
  std::uint64_t next_id_ = 1;
  std::unordered_map<std::uint64_t, Sent> sent_;
  std::vector<std::uint64_t> sent_order_;
};

}  // namespace orbite::sim
