// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "orbite/engine.hpp"

namespace orbite::test {

/// Fails the test when a bounded wait runs out.
template <typename Condition>
bool eventually(Condition condition,
                std::chrono::milliseconds bound = std::chrono::milliseconds(20'000)) {
  const auto deadline = std::chrono::steady_clock::now() + bound;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) {
      return false;
    }
    std::this_thread::yield();
  }
  return true;
}

/// Peers of one host use TCP, as if they were on two.
inline Config loopback_config() {
  Config config;
  config.listen.address = "127.0.0.1";
  config.cma.enabled = false;
  config.shm.enabled = false;
  return config;
}

/// An engine with one registered buffer whose bytes follow from a seed.
class Node {
 public:
  explicit Node(const std::string& name, std::size_t bytes, Config config = loopback_config())
      : Node(TransferEngine::create({name, std::move(config)}), bytes) {}
  Node(Result<std::unique_ptr<TransferEngine>> created, std::size_t bytes) : buffer(bytes) {
    EXPECT_TRUE(created.has_value()) << (created ? "" : created.error().message());
    engine = std::move(*created);
    MemoryDescriptor memory;
    memory.address = reinterpret_cast<std::uint64_t>(buffer.data());
    memory.length = buffer.size();
    registration = engine->register_memory(memory).value();
    blob = engine->export_memory(registration).value();
  }

  void fill(std::uint8_t seed) {
    for (std::size_t i = 0; i < buffer.size(); ++i) {
      buffer[i] = static_cast<std::uint8_t>(seed + i * 31 + (i >> 8) * 7);
    }
  }
  [[nodiscard]] std::uint64_t address(std::size_t offset = 0) const {
    return reinterpret_cast<std::uint64_t>(buffer.data()) + offset;
  }

  /// Imports `other` and its buffer.
  void know(const std::string& name, const Node& other) {
    peer = engine->import_peer(name, other.engine->connection_blob()).value();
    range = engine->import_range(peer, other.blob, other.address(), other.buffer.size()).value();
  }

  std::vector<std::uint8_t> buffer;
  std::unique_ptr<TransferEngine> engine;
  Handle registration;
  std::vector<std::uint8_t> blob;
  Handle peer;
  Handle range;
};

struct Block {
  std::size_t local;
  std::size_t remote;
  std::size_t length;
};

inline Result<Handle> prepare(Node& local, const Node& remote, Operation operation,
                              const std::vector<Block>& blocks) {
  std::vector<Descriptor> from;
  std::vector<Descriptor> to;
  for (const Block& block : blocks) {
    from.push_back({local.address(block.local), block.length, local.registration});
    to.push_back({remote.address(block.remote), block.length, local.range});
  }
  return local.engine->prepare({operation, local.peer, from, to});
}

/// Polls until the outcome is terminal.
inline Outcome wait_terminal(TransferEngine& engine, Handle request) {
  Outcome outcome;
  EXPECT_TRUE(eventually([&] {
    outcome = engine.check(request).value();
    return outcome.terminal();
  }));
  return outcome;
}

}  // namespace orbite::test
