// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>

namespace orbite {

/// The engines of this process that their owners gave up while something of them was unresolved.
/// One that is resolved is destroyed when the next engine is made or given up. What is not is never
/// destroyed, not even at the end of the process, where its worker may still run.
class Quarantine {
 public:
  /// A child of fork() has one of its own, and touches nothing of its parent's.
  static Quarantine& of_process();

  /// `resolved` says, from any thread, that nothing of the engine runs any more. Reaps.
  void keep(std::shared_ptr<void> engine, std::function<bool()> resolved);
  /// Destroys those that are resolved.
  void reap() noexcept;
  /// How many are unresolved. Destroys nothing.
  [[nodiscard]] std::size_t size() const;

 private:
  struct Resident {
    std::shared_ptr<void> engine;
    std::function<bool()> resolved;
  };
  explicit Quarantine(std::uint32_t process_generation) : process_generation_(process_generation) {}

  const std::uint32_t process_generation_;
  mutable std::mutex mutex_;
  std::list<Resident> residents_;
};

}  // namespace orbite
