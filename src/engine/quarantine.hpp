// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

namespace orbite {

/// The engines of this process that their owners gave up while something of them was unresolved.
/// One that is resolved is destroyed when the next engine is made or given up. What is not is never
/// destroyed, not even at the end of the process, where its worker may still run.
class Quarantine {
 public:
  /// A child of fork() has one of its own, and touches nothing of its parent's.
  static Quarantine& of_process();

  /// An engine and how to ask it whether nothing of it runs any more, from any thread.
  struct Resident {
    std::unique_ptr<void, void (*)(void*)> engine{nullptr, nullptr};
    bool (*resolved)(const void*) = nullptr;
  };
  /// Room for one, made with the engine: whoever gives it up must not fail.
  using Place = std::list<Resident>;
  static Place make_place() { return Place(1); }

  /// `resolved` takes a `const Engine&`. Reaps.
  template <auto resolved, typename Engine>
  void keep(Place place, std::unique_ptr<Engine> engine) noexcept {
    Resident& resident = place.front();
    resident.resolved = [](const void* asked) {
      return resolved(*static_cast<const Engine*>(asked));
    };
    resident.engine = {engine.release(), [](void* done) { delete static_cast<Engine*>(done); }};
    enter(std::move(place));
  }
  /// Destroys those that are resolved.
  void reap() noexcept;
  /// How many are unresolved. Destroys nothing.
  [[nodiscard]] std::size_t size() const;

 private:
  void enter(Place place) noexcept;
  explicit Quarantine(std::uint32_t process_generation) : process_generation_(process_generation) {}

  const std::uint32_t process_generation_;
  mutable std::mutex mutex_;
  Place residents_;
};

}  // namespace orbite
