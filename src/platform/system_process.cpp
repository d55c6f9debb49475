// SPDX-License-Identifier: Apache-2.0
#include "platform/system_process.hpp"

#include <poll.h>

#include <array>
#include <cerrno>
#include <cstddef>

#include "base/assert.hpp"

namespace orbite::platform {
namespace {

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

ProcessCopy copy(Call call, const SystemProcess& process, std::span<const iovec> local,
                 std::span<const iovec> remote) {
  const std::uint64_t wanted = bytes_of(local);
  ORBITE_CHECK(local.size() <= Process::kPartsMax && remote.size() <= Process::kPartsMax);
  ORBITE_DCHECK(wanted == bytes_of(remote));
  // Once a process is gone its number may be another's, so each copy looks: it must not write
  // into a stranger.
  if (process.ended()) {
    return {.bytes = 0, .native_errno = ESRCH};
  }
  const pid_t number = process.number();
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

ProcessCopy SystemProcess::read(std::span<const iovec> local, std::span<const iovec> remote) {
  return copy(::process_vm_readv, *this, local, remote);
}

ProcessCopy SystemProcess::write(std::span<const iovec> local, std::span<const iovec> remote) {
  return copy(::process_vm_writev, *this, local, remote);
}

}  // namespace orbite::platform
