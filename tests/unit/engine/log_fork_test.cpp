// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <future>
#include <string>
#include <thread>

#include "base/log.hpp"
#include "engine/environment.hpp"
#include "unit/platform/child_process.hpp"

namespace orbite {
namespace {

/// Standard error is a pipe that is full, in its scope.
class FullError {
 public:
  FullError() : kept_(::dup(STDERR_FILENO)) {
    EXPECT_EQ(::pipe2(ends_, O_NONBLOCK), 0);
    const std::string page(4096, '.');
    while (::write(ends_[1], page.data(), page.size()) > 0) {
    }
    ::fcntl(ends_[1], F_SETFL, 0);
    ::dup2(ends_[1], STDERR_FILENO);
  }
  FullError(const FullError&) = delete;
  FullError& operator=(const FullError&) = delete;
  ~FullError() {
    ::dup2(kept_, STDERR_FILENO);
    for (const int fd : {kept_, ends_[0], ends_[1]}) {
      ::close(fd);
    }
  }
  void drain() {
    std::array<char, 4096> page{};
    while (::read(ends_[0], page.data(), page.size()) > 0) {
    }
  }

 private:
  int ends_[2] = {-1, -1};
  const int kept_;
};

bool writes_to_error(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/syscall");
  std::string number;
  std::string descriptor;
  file >> number >> descriptor;
  return number == std::to_string(SYS_write) && descriptor == "0x2";
}

TEST(LogFork, AChildOfAProcessThatWasWritingALineIsNotHeldUp) {
  static_cast<void>(system_environment());  // brings the handler along
  std::string answer;
  {
    FullError error;
    std::promise<pid_t> number;
    std::thread writer([&] {
      number.set_value(static_cast<pid_t>(::syscall(SYS_gettid)));
      base::log(base::LogLevel::kError, "has to wait");
    });
    const pid_t thread = number.get_future().get();
    const auto bound = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!writes_to_error(thread) && std::chrono::steady_clock::now() < bound) {
      std::this_thread::yield();
    }
    EXPECT_TRUE(writes_to_error(thread));
    answer = platform::testing::in_child([]() -> std::string {
      ::dup2(::open("/dev/null", O_WRONLY), STDERR_FILENO);
      base::log(base::LogLevel::kError, "a line of the child's");
      return "";
    });
    error.drain();
    writer.join();
  }
  EXPECT_EQ(answer, "");
}

}  // namespace
}  // namespace orbite
