// SPDX-License-Identifier: Apache-2.0
#include "orders/explorer.hpp"

#include <algorithm>
#include <unordered_map>

#include "orders/world.hpp"

namespace orbite::test {
namespace {

/// One point of the order that is being played, and what can follow it.
struct Point {
  std::vector<Event> next;
  std::size_t taken = 0;     ///< index of the one that was played last
  std::uint64_t state = 0;   ///< before it
  std::uint64_t orders = 0;  ///< complete ones through the nexts that are finished
};

class Explorer {
 public:
  Explorer(const Scenario& scenario, Merging merging) : scenario_(scenario), merging_(merging) {}

  Exploration run() {
    do {
      play();
    } while (result_.violations.empty() && next_order());
    result_.states = finished_.size();
    return result_;
  }

 private:
  /// The order up to the last point again, and from there on the first of what is possible.
  void play() {
    ++result_.worlds;
    World world(scenario_);
    for (const Point& point : points_) {
      world.happen(point.next[point.taken]);
    }
    while (world.violations().empty()) {
      Point point{.next = world.possible()};
      if (merging_ == Merging::kOn) {
        point.state = world.signature();
        const auto known = finished_.find(point.state);
        if (known != finished_.end()) {
          add(known->second);
          return;
        }
      }
      if (point.next.empty()) {
        break;
      }
      points_.push_back(std::move(point));
      world.happen(points_.back().next.front());
    }
    const std::uint64_t state = world.violations().empty() ? world.signature() : 0;
    if (world.violations().empty()) {
      world.heal();
    }
    report(world);
    if (merging_ == Merging::kOn) {
      finished_.emplace(state, 1);
    }
    result_.endings.insert(world.signature());
    add(1);
  }

  void report(const World& world) {
    if (world.violations().empty()) {
      return;
    }
    result_.violations = world.violations();
    std::vector<Event> order;
    for (const Point& point : points_) {
      order.push_back(point.next[point.taken]);
    }
    result_.order = text_of(order);
  }

  void add(std::uint64_t orders) {
    if (points_.empty()) {
      result_.orders += orders;
    } else {
      points_.back().orders += orders;
    }
  }

  /// False when there is none left.
  bool next_order() {
    while (!points_.empty()) {
      Point& last = points_.back();
      if (++last.taken < last.next.size()) {
        return true;
      }
      const Point done = std::move(last);
      points_.pop_back();
      if (merging_ == Merging::kOn) {
        finished_.emplace(done.state, done.orders);
      }
      add(done.orders);
    }
    return false;
  }

  const Scenario& scenario_;
  const Merging merging_;
  std::vector<Point> points_;
  std::unordered_map<std::uint64_t, std::uint64_t> finished_;  ///< state to orders from it on
  Exploration result_;
};

}  // namespace

std::string Exploration::text() const {
  std::string text = std::to_string(orders) + " orders, " + std::to_string(worlds) + " played";
  if (states > 0) {
    text += ", " + std::to_string(states) + " states";
  }
  text += ", " + std::to_string(endings.size()) + " endings";
  for (const Violation& violation : violations) {
    text += "\n  " + std::string(violation.invariant) + ": " + violation.what;
  }
  if (!order.empty()) {
    text += "\n  after: " + order;
  }
  return text;
}

bool Exploration::saw_broken(std::string_view invariants) const {
  const std::string all = " " + std::string(invariants) + " ";
  return std::any_of(violations.begin(), violations.end(), [&](const Violation& violation) {
    return all.find(" " + std::string(violation.invariant) + " ") != std::string::npos;
  });
}

Exploration explore(const Scenario& scenario, Merging merging) {
  return Explorer(scenario, merging).run();
}

}  // namespace orbite::test
