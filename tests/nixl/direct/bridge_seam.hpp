// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <utility>

#include "orbite/nixl.h"

namespace orbite::test {

// The address of a function of liborbite_nixl.so itself; ends the process if there is none.
void* bridge_symbol(const char* name);

// The engine that this thread created last.
orbite_nixl_engine_t engine_created_last();

// Stands between the plugin and liborbite_nixl.so: the executable defines the bridge's functions,
// and the dynamic linker resolves the plugin's calls to them first. Each call is counted and goes
// to the library, or to the hook if a test has set one. Hooks are set while no other thread calls.
template <auto Function>
class Seam;

template <class... Args, orbite_nixl_status_t (*Function)(Args...)>
class Seam<Function> {
 public:
  using Hook = std::function<orbite_nixl_status_t(Args...)>;

  static const char* symbol();
  static orbite_nixl_status_t call(Args... args) {
    // Relaxed: tests read it after they have joined whatever called.
    calls_.fetch_add(1, std::memory_order_relaxed);
    return hook_ ? hook_(args...) : real(args...);
  }
  static orbite_nixl_status_t real(Args... args) {
    static const auto function =
        reinterpret_cast<orbite_nixl_status_t (*)(Args...)>(bridge_symbol(symbol()));
    return function(args...);
  }
  static int calls() { return calls_.load(std::memory_order_relaxed); }

  // Sets a hook for its own lifetime and counts calls from 0.
  class Guard {
   public:
    explicit Guard(Hook hook) {
      hook_ = std::move(hook);
      calls_.store(0, std::memory_order_relaxed);
    }
    ~Guard() { hook_ = nullptr; }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
  };
  // Counts only.
  class Counter : public Guard {
   public:
    Counter() : Guard(nullptr) {}
  };

 private:
  static inline Hook hook_;
  static inline std::atomic<int> calls_{0};
};

using AbiQuerySeam = Seam<&orbite_nixl_abi_query>;
using CreateSeam = Seam<&orbite_nixl_engine_create>;
using EngineReleaseSeam = Seam<&orbite_nixl_engine_release>;
using RegisterSeam = Seam<&orbite_nixl_memory_register>;
using DeregisterSeam = Seam<&orbite_nixl_memory_deregister>;
using ImportPeerSeam = Seam<&orbite_nixl_peer_import>;
using RetirePeerSeam = Seam<&orbite_nixl_peer_retire>;
using ImportRangeSeam = Seam<&orbite_nixl_range_import>;
using ReleaseRangeSeam = Seam<&orbite_nixl_range_release>;
using PrepareSeam = Seam<&orbite_nixl_request_prepare>;
using PostSeam = Seam<&orbite_nixl_request_post>;
using CheckSeam = Seam<&orbite_nixl_request_check>;
using ReleaseSeam = Seam<&orbite_nixl_request_release>;
using AbandonSeam = Seam<&orbite_nixl_request_abandon>;
using CancelSeam = Seam<&orbite_nixl_request_cancel>;
using SendSeam = Seam<&orbite_nixl_notification_send>;
using ReceiveSeam = Seam<&orbite_nixl_notification_receive>;

}  // namespace orbite::test
