// SPDX-License-Identifier: Apache-2.0
// Two ends of a connection by name.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/system_neighbors.hpp"

namespace orbite::platform {

inline constexpr base::Nanoseconds kLong = 20 * base::kSecond;
inline constexpr std::size_t kPage = 4096;

/// Not the same in two tests of two processes, nor twice in one.
inline std::string fresh_name() {
  static int count = 0;
  return "orbite-test-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
}

inline std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

/// What `socket` has to say, within a bound.
inline bool wait_for(SystemNetwork& network, Socket socket) {
  const Socket poller = *network.make_poller();
  PollEvent event;
  const bool added = network.poller_add(poller, socket, kPollIn, 1).has_value();
  const std::size_t found = network.poller_wait(poller, {&event, 1}, kLong);
  network.close(poller);
  return added && found == 1 && (event.events & kPollIn) != 0;
}

inline std::vector<std::uint8_t> bytes_of(std::string_view text) {
  return {text.begin(), text.end()};
}

class SystemNeighborsTest : public ::testing::Test {
 protected:
  SystemNeighborsTest() {
    listener_ = *neighbors_.listen(name_);
    client_ = *neighbors_.connect(name_);
    server_ = *neighbors_.accept(listener_);
  }
  ~SystemNeighborsTest() override {
    for (const Socket socket : {server_, client_, listener_}) {
      if (socket != kNoSocket) {
        network_.close(socket);
      }
    }
  }
  void close(Socket& socket) { network_.close(std::exchange(socket, kNoSocket)); }

  /// "kFailed 90", or the text of the message.
  std::string next(std::size_t room = 256) {
    std::vector<std::uint8_t> buffer(room);
    const IoResult result = neighbors_.receive(server_, buffer, files_);
    switch (result.kind) {
      case IoResult::Kind::kBytes:
        return {buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(result.bytes)};
      case IoResult::Kind::kWouldBlock:
        return "kWouldBlock";
      case IoResult::Kind::kEnded:
        return "kEnded";
      case IoResult::Kind::kFailed:
        return "kFailed " + std::to_string(result.native_errno);
    }
    return "";
  }
  IoResult say(std::string_view text, const Neighbors::Files& files = {}) {
    return neighbors_.send(client_, bytes_of(text), files);
  }

  SystemNetwork network_;
  SystemNeighbors neighbors_;
  std::string name_ = fresh_name();
  Socket listener_ = kNoSocket;
  Socket client_ = kNoSocket;
  Socket server_ = kNoSocket;
  Neighbors::Files files_;
};

inline std::string failed_with(int native_errno) {
  return "kFailed " + std::to_string(native_errno);
}

}  // namespace orbite::platform
