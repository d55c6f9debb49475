// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "base/clock.hpp"
#include "base/waiter.hpp"

namespace orbite::copy {

/// Work in pieces, for as many threads as come: its owner takes pieces like everybody else.
class SharedWork {
 public:
  SharedWork() = default;
  SharedWork(const SharedWork&) = delete;
  SharedWork& operator=(const SharedWork&) = delete;
  virtual ~SharedWork() = default;

  /// Takes one piece of bounded length and finishes it, fences included. False: there was none to
  /// take. From any thread, any number at a time.
  virtual bool do_piece() noexcept = 0;

 private:
  friend class Workers;
  // Under the mutex of the workers.
  std::uint64_t offers_ = 0;   ///< how often it was offered
  std::uint64_t emptied_ = 0;  ///< `offers_` as it was when no piece was left
  std::uint32_t helpers_ = 0;  ///< workers inside do_piece()
};

/// Threads that help where they are asked to, while there are processors with nothing else to do.
/// They start when they are first needed, and end after a second without work.
///
/// Nobody waits for help: whoever asks for it goes on, and does all of the work where none comes.
/// After fork() nothing happens in the child: it has no such threads.
class Workers {
 public:
  /// What the workers ask of the system.
  struct System {
    const base::Clock& clock;
    base::Waiter& waiter;
    /// May throw std::system_error.
    std::function<std::thread(const char* name, std::function<void()> body)> start_thread;
    /// Processors that have nothing to do at this moment.
    std::function<std::uint32_t()> idle_processors;
    /// Processor time of the calling thread.
    std::function<base::Nanoseconds()> thread_time_ns;
  };
  /// The operating system's.
  static System system(const base::Clock& clock, base::Waiter& waiter);

  Workers(std::uint32_t workers_max, System system);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  /// No work may be enrolled. Waits for the ends of the threads.
  ~Workers();

  /// Before its first offer. The work stays until it is withdrawn.
  void enroll(SharedWork& work);
  /// When it returns, no worker is inside do_piece(), nor will be. Waits for pieces under way.
  void withdraw(SharedWork& work);

  /// About that many pieces wait to be taken. Returns at once; does little when called again soon.
  void offer(SharedWork& work, std::size_t pieces) noexcept;

  struct Counts {
    std::uint32_t threads = 0;  ///< that run or sleep
    std::uint32_t active = 0;   ///< of these, at work or called to it
    std::uint64_t pieces = 0;   ///< done by them so far
  };
  [[nodiscard]] Counts counts() const;

  static constexpr base::Nanoseconds kIdleEndNs = base::kSecond;

 private:
  struct State;

  [[nodiscard]] bool is_foreign() const noexcept;
  bool is_helped(SharedWork& work) noexcept;
  void call_workers(SharedWork& work, std::size_t pieces, std::uint32_t idle) noexcept;
  bool start_worker() noexcept;
  void run(std::size_t index) noexcept;
  void help() noexcept;
  void back_off() noexcept;

  const std::uint32_t workers_max_;
  const System system_;
  const std::uint32_t process_generation_;
  /// Before it nobody looks for idle processors: that has its price. Relaxed: it only paces.
  std::atomic<base::Nanoseconds> next_look_ns_{0};
  /// Given up, not destroyed, in a child of fork(): its lock may be held by a thread that is not
  /// there, and its condition variables have waiters that never leave.
  std::unique_ptr<State> state_;
};

}  // namespace orbite::copy
