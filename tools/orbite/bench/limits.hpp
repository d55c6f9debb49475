// SPDX-License-Identifier: Apache-2.0
// What the hardware could do at most with the same work, measured between our own rounds.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
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

/// The blocks of the requests, copied by as many threads as post them.
class BlockLoop {
 public:
  explicit BlockLoop(const Options& options);
  [[nodiscard]] const Layout& layout() const { return layout_; }
  /// GB/s. `copy` moves the blocks at these offsets of an extent that begins there.
  using Copy = std::function<Result<void>(std::uint64_t base, std::span<const std::uint64_t>)>;
  Result<double> measure(std::uint64_t duration_ns, const Copy& copy) const;

 private:
  struct Share;
  void run(std::uint64_t thread, std::uint64_t duration_ns, const Copy& copy, Share& share) const;

  const Layout layout_;
  const std::uint32_t threads_;
  const std::uint32_t depth_;
  const std::vector<std::uint64_t> offsets_;
};

/// memcpy of each block, within this process.
class MemoryCopy final : public Limit {
 public:
  static Result<std::unique_ptr<Limit>> create(const Area& area, const Options& options);
  [[nodiscard]] std::string name() const override { return "memcpy of the same blocks"; }
  Result<double> measure(Operation operation, std::uint64_t duration_ns) override;

 private:
  MemoryCopy(const Area& area, Area scratch, const Options& options)
      : area_(area), scratch_(std::move(scratch)), loop_(options) {}

  const Area& area_;
  Area scratch_;
  const BlockLoop loop_;
};

/// process_vm_writev and process_vm_readv of the blocks, to and from memory that another process
/// lends.
class ProcessCopyLoop final : public Limit {
 public:
  /// nullptr for blocks of more than 1 GiB, which are too large for one call.
  static Result<std::unique_ptr<Limit>> create(Channel& channel, pid_t process, const Area& area,
                                               const Options& options);
  [[nodiscard]] std::string name() const override {
    return "process_vm_writev and readv of the same blocks";
  }
  Result<double> measure(Operation operation, std::uint64_t duration_ns) override;

 private:
  ProcessCopyLoop(pid_t process, std::uint64_t lent, const Area& area, Area scratch,
                  const Options& options)
      : process_(process), lent_(lent), area_(area), scratch_(std::move(scratch)), loop_(options) {}
  [[nodiscard]] Result<void> copy(Operation operation, std::uint64_t base,
                                  std::span<const std::uint64_t> offsets) const;

  const pid_t process_;
  const std::uint64_t lent_;
  const Area& area_;
  const Area scratch_;
  const BlockLoop loop_;
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
