// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "bench/area.hpp"
#include "bench/channel.hpp"
#include "bench/endpoint.hpp"
#include "bench/messages.hpp"

namespace orbite::tool::bench {

/// The passive side: memory, an engine that serves it, and answers to one initiator.
class Session {
 public:
  Session(Channel channel, Config config, std::uint64_t memory_max)
      : channel_(std::move(channel)), config_(std::move(config)), memory_max_(memory_max) {}

  /// Until the initiator ends it. What it must not ask ends it too, with an error.
  Result<void> run();

 private:
  Result<void> answer(const Message& message);
  Result<void> open(const Body& body);
  Result<void> verify(const Body& body);
  Result<void> stream(const Body& body);
  Result<void> reply(Kind kind, const Body& body = {});

  Channel channel_;
  const Config config_;
  const std::uint64_t memory_max_;
  Area area_;
  std::optional<Endpoint> endpoint_;
  bool ended_ = false;
};

}  // namespace orbite::tool::bench
