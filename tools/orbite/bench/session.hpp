// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "bench/area.hpp"
#include "bench/channel.hpp"
#include "bench/endpoint.hpp"
#include "bench/messages.hpp"

namespace orbite::tool::bench {

struct SessionOptions {
  Config config;
  std::uint64_t memory_max = 0;
  Pages pages = Pages::kOrdinary;
  /// The initiator has started us: it may have memory that it reaches without an engine.
  bool lends = false;
};

/// The passive side: memory, an engine that serves it, and answers to one initiator.
class Session {
 public:
  Session(Channel channel, SessionOptions options)
      : channel_(std::move(channel)), options_(std::move(options)) {}

  /// Until the initiator ends it. What it must not ask ends it too, with an error.
  Result<void> run();

 private:
  Result<void> answer(const Message& message);
  Result<void> open(const Body& body);
  Result<void> verify(const Body& body);
  Result<void> stream(const Body& body);
  Result<void> lend(const Body& body);
  Result<void> reply(Kind kind, const Body& body = {});

  Channel channel_;
  const SessionOptions options_;
  Area area_;
  Area lent_;
  std::optional<Endpoint> endpoint_;
  bool ended_ = false;
};

}  // namespace orbite::tool::bench
