// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "engine_pair.hpp"

namespace orbite::test {

/// An engine in a process of its own that can be stopped and killed. Made while this process has no
/// other thread.
class RemoteProcess {
 public:
  explicit RemoteProcess(std::size_t bytes, const Config& config = loopback_config())
      : bytes_(bytes) {
    int to_parent[2];
    int to_child[2];
    EXPECT_EQ(pipe(to_parent), 0);
    EXPECT_EQ(pipe(to_child), 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(to_parent[0]);
      close(to_child[1]);
      serve(to_parent[1], to_child[0], bytes, config);
    }
    close(to_parent[1]);
    close(to_child[0]);
    read_fd_ = to_parent[0];
    write_fd_ = to_child[1];
    connection_ = receive();
    range_ = receive();
    const std::vector<std::uint8_t> address = receive();
    std::memcpy(&address_, address.data(), sizeof(address_));
  }
  RemoteProcess(const RemoteProcess&) = delete;
  RemoteProcess& operator=(const RemoteProcess&) = delete;
  ~RemoteProcess() {
    kill();
    close(read_fd_);
    close(write_fd_);
  }

  [[nodiscard]] std::uint64_t address() const { return address_; }
  [[nodiscard]] const std::vector<std::uint8_t>& connection() const { return connection_; }
  [[nodiscard]] const std::vector<std::uint8_t>& range() const { return range_; }
  /// Returns when none of its threads runs any more.
  void stop() const {
    ASSERT_EQ(::kill(pid_, SIGSTOP), 0);
    int status = 0;
    ASSERT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
    ASSERT_TRUE(WIFSTOPPED(status));
  }
  void go_on() const { ASSERT_EQ(::kill(pid_, SIGCONT), 0); }
  void kill() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
      pid_ = -1;
    }
  }

  void introduce_to(Node& node) const {
    node.peer = node.engine->import_peer("remote", connection_).value();
    node.range = node.engine->import_range(node.peer, range_, address_, bytes_).value();
  }
  [[nodiscard]] Result<Handle> prepare(Node& node, Operation operation, std::size_t length) const {
    const Descriptor local{node.address(), length, node.registration};
    const Descriptor remote{address_, length, node.range};
    return node.engine->prepare({operation, node.peer, {&local, 1}, {&remote, 1}});
  }

 private:
  static void send(int fd, const std::vector<std::uint8_t>& bytes) {
    const std::uint64_t size = bytes.size();
    if (write(fd, &size, sizeof(size)) != sizeof(size) ||
        write(fd, bytes.data(), size) != static_cast<ssize_t>(size)) {
      _exit(1);
    }
  }
  [[nodiscard]] std::vector<std::uint8_t> receive() const {
    std::uint64_t size = 0;
    EXPECT_EQ(read(read_fd_, &size, sizeof(size)), static_cast<ssize_t>(sizeof(size)));
    std::vector<std::uint8_t> bytes(size);
    EXPECT_EQ(read(read_fd_, bytes.data(), size), static_cast<ssize_t>(size));
    return bytes;
  }
  [[noreturn]] static void serve(int write_fd, int read_fd, std::size_t bytes,
                                 const Config& config) {
    Node node("remote", bytes, config);
    send(write_fd, node.engine->connection_blob());
    send(write_fd, node.blob);
    std::vector<std::uint8_t> address(sizeof(std::uint64_t));
    const std::uint64_t value = node.address();
    std::memcpy(address.data(), &value, sizeof(value));
    send(write_fd, address);
    char byte = 0;
    (void)!read(read_fd, &byte, 1);  // until the parent goes
    _exit(0);
  }

  pid_t pid_ = -1;
  int read_fd_ = -1;
  int write_fd_ = -1;
  std::size_t bytes_;
  std::uint64_t address_ = 0;
  std::vector<std::uint8_t> connection_;
  std::vector<std::uint8_t> range_;
};

/// Every lane connected: what happens next happens to frames and not to handshakes.
inline void warm_up(Node& node, const RemoteProcess& remote, std::size_t bytes) {
  const Handle request = remote.prepare(node, Operation::kWrite, bytes).value();
  ASSERT_TRUE(node.engine->post(request, {}).has_value());
  ASSERT_EQ(wait_terminal(*node.engine, request).logical, Logical::kSuccess);
  ASSERT_TRUE(node.engine->release(request).has_value());
  ASSERT_TRUE(node.engine->connect_peer(node.peer, 0).has_value());
}

}  // namespace orbite::test
