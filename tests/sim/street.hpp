// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/host_neighbors.hpp"

namespace orbite::test {

/// Processes of two machines, with what each has of its neighbours. Number kStranger lives on a
/// machine of its own.
class Street {
 public:
  using Socket = platform::Socket;
  using Kind = platform::IoResult::Kind;
  using Files = platform::Neighbors::Files;
  static constexpr std::uint32_t kProcesses = 4;
  static constexpr std::uint32_t kStranger = 3;
  static constexpr std::uint64_t kBytes = 8192;

  Street() {
    for (std::uint32_t i = 0; i < kProcesses; ++i) {
      memories_[i].resize(kBytes, static_cast<std::uint8_t>('a' + i));
      start(i);
    }
  }
  ~Street() {
    for (std::uint32_t i = 0; i < kProcesses; ++i) {
      end(i);
    }
  }

  /// A life of the process; what it had before is gone.
  void start(std::uint32_t index) {
    end(index);
    Process& process = processes_[index];
    sim::HostNetwork::Observer observer;
    observer.on_send = [this, index](std::uint64_t address, std::uint64_t length) {
      note(index, "reads", address, length);
    };
    observer.on_receive = [this, index](std::uint64_t address, std::uint64_t length) {
      note(index, "lands", address, length);
    };
    observer.on_ready = [this, index] { ++ready[index]; };
    observer.on_misuse = [this](const char* what, Socket) { misuses.emplace_back(what); };
    process.network =
        std::make_unique<sim::HostNetwork>(fabric, index == kStranger ? 1 : 0, std::move(observer));
    sim::HostNeighbors::Hooks hooks;
    hooks.lacks_memory = [this] { return lacks_memory; };
    hooks.stop = [this](base::Nanoseconds time_ns) {
      run(time_ns);
      if (while_stopped) {
        while_stopped();
      }
    };
    hooks.may_die = [this] { return may_die; };
    hooks.killed = [this](std::uint64_t bytes, std::uint64_t bytes_max) {
      killed_at = bytes;
      killed_of = bytes_max;
    };
    process.neighbors =
        std::make_unique<sim::HostNeighbors>(neighborhood, *process.network, std::move(hooks));
    process.neighbors->add_memory(address(index), kBytes);
  }
  void end(std::uint32_t index) {
    processes_[index].neighbors = nullptr;
    processes_[index].network = nullptr;
  }

  sim::HostNetwork& network(std::uint32_t index) { return *processes_[index].network; }
  sim::HostNeighbors& of(std::uint32_t index) { return *processes_[index].neighbors; }
  std::vector<std::uint8_t>& memory(std::uint32_t index) { return memories_[index]; }
  std::uint64_t address(std::uint32_t index) const {
    return reinterpret_cast<std::uint64_t>(memories_[index].data());
  }
  [[nodiscard]] iovec part(std::uint32_t index, std::uint64_t offset, std::uint64_t length) {
    return {memories_[index].data() + offset, length};
  }

  void run(base::Nanoseconds time_ns = 10 * base::kMillisecond) {
    scheduler.run_until(scheduler.now_ns() + time_ns);
  }

  /// A connection of two processes: sockets of who connects and of who listens.
  struct Ends {
    Socket client;
    Socket server;
  };
  Ends join(std::uint32_t client, std::uint32_t server) {
    const std::string name = "name" + std::to_string(next_name_++);
    const Socket listener = of(server).listen(name).value();
    const Socket socket = of(client).connect(name).value();
    run();
    const Ends ends{socket, of(server).accept(listener).value()};
    network(server).close(listener);
    return ends;
  }
  std::unique_ptr<platform::Process> process(std::uint32_t of_whom, std::uint32_t by_whom) {
    return of(by_whom).process_of(join(by_whom, of_whom).client).value();
  }

  platform::IoResult send(std::uint32_t from, Socket socket, std::string_view text,
                          const Files& files = {}) {
    const auto* const first = reinterpret_cast<const std::uint8_t*>(text.data());
    return of(from).send(socket, {first, text.size()}, files);
  }
  struct Received {
    platform::IoResult result;
    std::string text;
    Files files;
  };
  Received receive(std::uint32_t at, Socket socket, std::size_t bytes = 1024) {
    Received got;
    std::vector<std::uint8_t> buffer(bytes);
    got.result = of(at).receive(socket, buffer, got.files);
    if (got.result.kind == Kind::kBytes) {
      got.text.assign(buffer.begin(),
                      buffer.begin() + static_cast<std::ptrdiff_t>(got.result.bytes));
    }
    return got;
  }

  sim::Scheduler scheduler{1};
  sim::Trace trace{false};
  sim::Fabric fabric{scheduler, trace, 2, 2};
  sim::Neighborhood neighborhood{fabric, 3};
  bool lacks_memory = false;
  bool may_die = true;
  std::function<void()> while_stopped;
  std::uint64_t killed_at = 0;
  std::uint64_t killed_of = 0;
  std::uint64_t ready[kProcesses] = {};
  std::vector<std::string> misuses;
  /// "1 reads 0+16": what the observers of copies were told, offsets in the process's memory.
  std::vector<std::string> touched;

 private:
  struct Process {
    std::unique_ptr<sim::HostNetwork> network;
    std::unique_ptr<sim::HostNeighbors> neighbors;
  };
  void note(std::uint32_t index, const char* what, std::uint64_t at, std::uint64_t length) {
    touched.push_back(std::to_string(index) + " " + what + " " +
                      std::to_string(at - address(index)) + "+" + std::to_string(length));
  }

  std::vector<std::uint8_t> memories_[kProcesses];
  Process processes_[kProcesses];
  int next_name_ = 0;
};

}  // namespace orbite::test
