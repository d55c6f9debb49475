// SPDX-License-Identifier: Apache-2.0
#include "platform/system_process.hpp"

#include <poll.h>

#include <array>
#include <cerrno>
#include <cstddef>

#include "base/assert.hpp"
#include "platform/system.hpp"

namespace orbite::platform {
namespace {

constexpr base::Nanoseconds kAliveFor = 100 * base::kMicrosecond;

using Call = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long,
                         unsigned long);

std::uint64_t bytes_of(std::span<const iovec> parts) {
  std::uint64_t bytes = 0;
  for (const iovec& part : parts) {
    bytes += part.iov_len;
  }
  return bytes;
}

/// What of a list comes after its first `bytes`.
class Rest {
 public:
  Rest(std::span<const iovec> parts, std::uint64_t bytes) {
    for (const iovec& part : parts) {
      const std::uint64_t dropped = bytes < part.iov_len ? bytes : part.iov_len;
      bytes -= dropped;
      if (dropped < part.iov_len) {
        parts_[count_++] = {static_cast<std::byte*>(part.iov_base) + dropped,
                            part.iov_len - dropped};
      }
    }
  }
  [[nodiscard]] const iovec* data() const noexcept { return parts_.data(); }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }

 private:
  std::array<iovec, Process::kPartsMax> parts_;
  std::size_t count_ = 0;
};

/// After a call that moved `done` bytes and did not say why no more. Each further one moves
/// something or is the last.
[[gnu::noinline]] ProcessCopy go_on(Call call, pid_t number, std::span<const iovec> local,
                                    std::span<const iovec> remote, ProcessCopy done,
                                    std::uint64_t wanted) {
  while (done.bytes < wanted) {
    const Rest from(local, done.bytes);
    const Rest to(remote, done.bytes);
    const ssize_t moved = call(number, from.data(), from.size(), to.data(), to.size(), 0);
    if (moved <= 0) {
      done.native_errno = moved < 0 ? errno : EIO;
      return done;
    }
    done.bytes += static_cast<std::uint64_t>(moved);
  }
  return done;
}

ProcessCopy copy(Call call, pid_t number, std::span<const iovec> local,
                 std::span<const iovec> remote) {
  const std::uint64_t wanted = bytes_of(local);
  ORBITE_CHECK(local.size() <= Process::kPartsMax && remote.size() <= Process::kPartsMax);
  ORBITE_DCHECK(wanted == bytes_of(remote));
  const ssize_t moved = call(number, local.data(), local.size(), remote.data(), remote.size(), 0);
  if (moved < 0) {
    return {.bytes = 0, .native_errno = errno};
  }
  const ProcessCopy done{.bytes = static_cast<std::uint64_t>(moved), .native_errno = 0};
  return done.bytes == wanted ? done : go_on(call, number, local, remote, done, wanted);
}

}  // namespace

bool SystemProcess::ended() const noexcept {
  pollfd end{.fd = end_.get(), .events = POLLIN, .revents = 0};
  return end.fd < 0 || ::poll(&end, 1, 0) > 0;
}

/// Once a process is gone its number may be given to another, and a copy must not write into a
/// stranger. A number comes round when all the others have been given, which takes thousands of new
/// processes: it does not within kAliveFor of a look.
bool SystemProcess::lately_alive() noexcept {
  const base::Nanoseconds now_ns = SystemClock().now_ns();
  if (now_ns < seen_alive_ns_.load(std::memory_order_relaxed) + kAliveFor) {
    return true;
  }
  if (ended()) {
    return false;
  }
  seen_alive_ns_.store(now_ns, std::memory_order_relaxed);
  return true;
}

ProcessCopy SystemProcess::read(std::span<const iovec> local, std::span<const iovec> remote) {
  return lately_alive() ? copy(::process_vm_readv, number_, local, remote)
                        : ProcessCopy{.bytes = 0, .native_errno = ESRCH};
}

ProcessCopy SystemProcess::write(std::span<const iovec> local, std::span<const iovec> remote) {
  return lately_alive() ? copy(::process_vm_writev, number_, local, remote)
                        : ProcessCopy{.bytes = 0, .native_errno = ESRCH};
}

}  // namespace orbite::platform
