// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "bench/area.hpp"
#include "bench/channel.hpp"
#include "bench/content.hpp"
#include "bench/endpoint.hpp"
#include "bench/messages.hpp"

namespace orbite::tool::bench {

/// The other side as an engine of ours sees it.
struct Remote {
  Handle peer;
  Handle range;
  std::uint64_t address = 0;
};

/// The memory that transfers write to and read from, wherever it is.
class Target {
 public:
  Target() = default;
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
  virtual ~Target() = default;

  virtual Result<Remote> introduce_to(Endpoint& endpoint) = 0;
  virtual Result<void> fill(std::uint64_t key) = 0;
  virtual Result<Mismatch> verify(const Verify& what) = 0;
  /// CPU time of its process, unless it is ours.
  virtual Result<std::optional<std::uint64_t>> cpu_ns() = 0;
};

/// Memory of this process.
class SelfTarget final : public Target {
 public:
  explicit SelfTarget(Area area) : area_(std::move(area)) {}
  Result<Remote> introduce_to(Endpoint& endpoint) override;
  Result<void> fill(std::uint64_t key) override;
  Result<Mismatch> verify(const Verify& what) override;
  Result<std::optional<std::uint64_t>> cpu_ns() override { return std::nullopt; }

 private:
  Area area_;
};

/// Memory of the process at the other end of a control connection.
class RemoteTarget final : public Target {
 public:
  static Result<std::unique_ptr<RemoteTarget>> open(Channel& channel, std::uint64_t bytes);
  Result<Remote> introduce_to(Endpoint& endpoint) override;
  Result<void> fill(std::uint64_t key) override;
  Result<Mismatch> verify(const Verify& what) override;
  Result<std::optional<std::uint64_t>> cpu_ns() override;
  Result<void> end();

 private:
  RemoteTarget(Channel& channel, std::uint64_t bytes, Opened opened)
      : channel_(channel), bytes_(bytes), opened_(std::move(opened)) {}

  Channel& channel_;
  const std::uint64_t bytes_;
  const Opened opened_;
};

/// Asks, and waits for the answer of that kind. The other side's kFailed is an error here.
Result<Body> ask(Channel& channel, Kind question, const Body& body, Kind answer);
Result<Body> await(Channel& channel, Kind answer, base::Nanoseconds timeout_ns);

}  // namespace orbite::tool::bench
