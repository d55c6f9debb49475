// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "engine/environment.hpp"
#include "engine/impl.hpp"
#include "orbite/engine.hpp"

namespace orbite {

/// What simulated worlds and tests need of an engine beyond its API: to give it an environment, to
/// be its worker, and to look at its pools. No product code includes this.
class EngineAccess {
 public:
  using Impl = TransferEngine::Impl;

  static Result<std::unique_ptr<TransferEngine>> create(EngineOptions options,
                                                        EngineEnvironment environment) {
    auto impl = std::make_unique<Impl>(std::move(options), std::move(environment));
    ORBITE_TRY(impl->start());
    return std::unique_ptr<TransferEngine>(new TransferEngine(std::move(impl)));
  }

  static const Impl& impl(const TransferEngine& engine) { return *engine.impl_; }

  /// One turn of the worker, at the end of its sleep. Returns how long it would sleep now.
  static base::Nanoseconds work(TransferEngine& engine) {
    Impl& impl = *engine.impl_;
    if (impl.worker_ends()) {
      return base::kSecond;
    }
    const base::Nanoseconds sleep_ns = impl.turn_worker(0);
    if (impl.worker_ends()) {
      impl.end_worker();
    }
    return sleep_ns;
  }
  /// The worker's sleep between two turns.
  static void sleep(TransferEngine& engine, base::Nanoseconds sleep_ns) {
    engine.impl_->take_events(sleep_ns);
  }
  /// It has nothing more to do, for ever.
  static bool worker_ended(const TransferEngine& engine) { return engine.impl_->worker_ends(); }
  static platform::Socket poller(const TransferEngine& engine) { return engine.impl_->poller_; }

  static const transfer::Admission& admission(const TransferEngine& engine) {
    return engine.impl_->admission_;
  }
  /// To put a simulated transport in the place of a real one, before anything is imported.
  static transfer::Planner& planner(TransferEngine& engine) { return engine.impl_->planner_; }
  static std::size_t slices_out(const TransferEngine& engine) {
    return engine.impl_->planner_.slices_out();
  }

  /// The end of an engine whose process has died: nothing of it is waited for. Its network must do
  /// nothing any more. False: something could not be resolved, so it is kept in memory.
  static bool destroy_dead(std::unique_ptr<TransferEngine> engine);
};

}  // namespace orbite
