// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "notify/mailbox.hpp"
#include "orders/checker.hpp"
#include "orders/scenario.hpp"
#include "orders/user.hpp"

namespace orbite::test {

/// Two hosts, the wire between them and a user; nothing happens but by happen(). The checker looks
/// after each event.
class World {
 public:
  explicit World(const Scenario& scenario);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  /// Ends what is outstanding, without a look.
  ~World();

  /// What can happen next. Calls that were made are not made again.
  [[nodiscard]] std::vector<Event> possible() const;
  void happen(Event event);
  /// Everything under way ends, by an operator's word where nothing else ends it; then the user
  /// gives everything back.
  void heal();

  [[nodiscard]] const std::vector<Violation>& violations() const { return checker_.violations(); }
  /// Equal for worlds in which the same can happen from here on, up to the order of requests.
  [[nodiscard]] std::uint64_t signature() const;

 private:
  static constexpr std::size_t kBytes = 128;
  using Memory = std::array<std::uint8_t, kBytes>;

  struct Execution {
    const transfer::Execution* pointer = nullptr;  ///< nullptr: gone, or never on the transport
    std::uint32_t request = 0;
  };
  struct Request {
    std::vector<Pair> pairs;
    std::vector<std::uint32_t> executions;
    std::uint8_t posts_left = 0;
    bool released = false;
    std::uint64_t answers = 0;  ///< what its calls answered
  };

  sim::SimTransport::World hooks();
  sim::Fate fate_of(const transfer::Slice& slice);
  void on_access(const sim::Access& access);
  Result<void> deliver(const transfer::Execution& execution);

  void make_call(Event event);
  void post(std::uint32_t request);
  void release(std::uint32_t request);
  void deregister(Checker::Side side);
  void restart();
  void answer(Event event, const Result<void>& result);
  void look();
  void look_at_pools();
  [[nodiscard]] const transfer::Execution* current(std::uint32_t request) const;
  [[nodiscard]] std::uint32_t number_of(const transfer::Execution* execution) const;
  [[nodiscard]] Checker::Mask all_of(const Request& request) const;
  bool step_any();

  const Scenario& scenario_;
  Memory near_{};
  Memory far_{};
  Memory near_model_{};
  Memory far_model_{};
  std::vector<Execution> executions_;
  std::vector<Request> requests_;
  std::array<bool, kActs> done_{};  ///< calls of the engine
  std::array<std::array<bool, kActs>, 2> request_done_{};
  std::uint64_t answers_ = 0;
  std::uint64_t steps_ = 0;
  bool far_alive_ = true;
  bool is_watched_ = true;
  std::uint32_t posting_ = 0;

  Checker checker_;
  base::SeededRandom far_random_{2};
  telemetry::Counters far_counters_;
  notify::Mailbox far_mailbox_{{64, 4096}, far_counters_};
  memory::Registry far_registry_{{.registrations_max = 4}, far_random_};
  Handle far_handle_;
  const std::unique_ptr<User> user_;
};

}  // namespace orbite::test
