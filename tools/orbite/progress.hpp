// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace orbite::tool {

/// How far a long command is, on standard error: a bar on a terminal, else a line now and then.
class Progress {
 public:
  Progress(std::string unit, std::uint64_t total);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  void update(std::uint64_t done);
  [[nodiscard]] double seconds() const;

 private:
  void draw(std::uint64_t done);

  const std::string unit_;
  const std::uint64_t total_;
  const bool terminal_;
  const std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point next_;
  bool drawn_ = false;
};

}  // namespace orbite::tool
