// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace orbite::test {

/// The folders of this process's engine workers in /proc.
inline std::vector<std::filesystem::path> worker_threads() {
  std::vector<std::filesystem::path> workers;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name == "orbite") {
      workers.push_back(task.path());
    }
  }
  return workers;
}

/// Of this process, but the one that counts.
inline std::size_t open_descriptors() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    count += entry.path().empty() ? 0 : 1;
  }
  return count - 1;
}

/// How often the workers of this process went to sleep so far.
inline std::uint64_t worker_sleeps() {
  std::uint64_t sleeps = 0;
  for (const auto& worker : worker_threads()) {
    std::ifstream status(worker / "status");
    std::string word;
    while (status >> word) {
      if (word == "voluntary_ctxt_switches:") {
        std::uint64_t count = 0;
        status >> count;
        sleeps += count;
      }
    }
  }
  return sleeps;
}

/// How often they wake within `span`, while this thread sleeps.
inline std::uint64_t worker_wakes(std::chrono::milliseconds span) {
  const std::uint64_t before = worker_sleeps();
  std::this_thread::sleep_for(span);
  return worker_sleeps() - before;
}

}  // namespace orbite::test
