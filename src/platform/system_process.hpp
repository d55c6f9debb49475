// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <utility>

#include "platform/descriptor.hpp"
#include "platform/neighbors.hpp"

namespace orbite::platform {

/// Of the operating system, by number and pidfd.
class SystemProcess final : public Process {
 public:
  SystemProcess(std::int32_t number, Descriptor end) noexcept
      : number_(number), end_(std::move(end)) {}

  [[nodiscard]] std::int32_t number() const noexcept override { return number_; }
  [[nodiscard]] Socket end() const noexcept override { return end_.get(); }
  [[nodiscard]] bool ended() const noexcept override;
  ProcessCopy read(std::span<const iovec> local, std::span<const iovec> remote) override;
  ProcessCopy write(std::span<const iovec> local, std::span<const iovec> remote) override;

 private:
  [[nodiscard]] bool lately_alive() noexcept;

  std::int32_t number_;
  Descriptor end_;
  /// When the last look found it alive. Relaxed: each thread may look for itself.
  std::atomic<base::Nanoseconds> seen_alive_ns_{0};
};

}  // namespace orbite::platform
