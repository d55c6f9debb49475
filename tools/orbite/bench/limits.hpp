// SPDX-License-Identifier: Apache-2.0
// What the hardware could do at most with the same work, measured between our own rounds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/area.hpp"
#include "bench/channel.hpp"
#include "bench/layout.hpp"
#include "bench/options.hpp"

namespace orbite::tool::bench {

class Limit {
 public:
  Limit() = default;
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;
  virtual ~Limit() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  /// GB/s over about that time.
  virtual Result<double> measure(Operation operation, std::uint64_t duration_ns) = 0;
};

/// memcpy of each block, by as many threads, within this process.
class MemoryCopy final : public Limit {
 public:
  static Result<std::unique_ptr<MemoryCopy>> create(const Area& area, const Options& options);
  [[nodiscard]] std::string name() const override { return "memcpy of the same blocks"; }
  Result<double> measure(Operation operation, std::uint64_t duration_ns) override;

 private:
  MemoryCopy(const Area& area, Area scratch, const Options& options);

  const Area& area_;
  Area scratch_;
  const Layout layout_;
  const std::uint32_t threads_;
  const std::uint32_t depth_;
  const std::vector<std::uint64_t> offsets_;
};

/// Two bare TCP streams, with the process at the other end of the control connection.
class BareTcp final : public Limit {
 public:
  BareTcp(Channel& channel, const Options& options, std::string congestion_control);
  [[nodiscard]] std::string name() const override { return "bare TCP, 2 streams, 1 MiB calls"; }
  Result<double> measure(Operation operation, std::uint64_t duration_ns) override;

 private:
  Channel& channel_;
  const std::uint64_t buffer_bytes_;
  const std::string congestion_control_;
};

}  // namespace orbite::tool::bench
