// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "platform/network.hpp"

namespace orbite::platform {

/// Pages that several processes may map. They live as long as somebody holds the file or a mapping
/// of it, and never shrink or grow.
class PageFile {
 public:
  PageFile() = default;
  PageFile(const PageFile&) = delete;
  PageFile& operator=(const PageFile&) = delete;
  virtual ~PageFile() = default;

  [[nodiscard]] virtual std::uint64_t bytes() const noexcept = 0;
};

/// Unmapped at its end. May outlive its file.
class PageMapping {
 public:
  PageMapping() = default;
  PageMapping(const PageMapping&) = delete;
  PageMapping& operator=(const PageMapping&) = delete;
  virtual ~PageMapping() = default;

  [[nodiscard]] virtual std::span<std::byte> pages() const noexcept = 0;
};

/// What one copy between two processes did: `bytes` are in place, from the start of the lists, and
/// nothing behind them. `native_errno` says why it ended early; 0: it did not.
struct ProcessCopy {
  std::uint64_t bytes = 0;
  int native_errno = 0;
};

/// Another process of this host, or our own.
class Process {
 public:
  Process() = default;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  virtual ~Process() = default;

  /// In our own numbers.
  [[nodiscard]] virtual std::int32_t number() const noexcept = 0;
  /// For a poller: kPollIn once the process is gone, with all of its threads. Closed by ours.
  [[nodiscard]] virtual Socket end() const noexcept = 0;
  /// One look.
  [[nodiscard]] virtual bool ended() const noexcept = 0;

  /// In order; at most kPartsMax parts in either list, with the same number of bytes. A look
  /// at the end where the last one is not fresh, and one copying call to the system each, more of
  /// these only after one that stopped early and did not say why: each moves something or is the
  /// last. When it returns, nothing of it
  /// is under way. EPERM: the system does not let us; ESRCH: it is gone; EFAULT: an address of one
  /// of the lists is not mapped, at page granularity.
  static constexpr std::size_t kPartsMax = 1024;
  virtual ProcessCopy read(std::span<const iovec> local, std::span<const iovec> remote) = 0;
  virtual ProcessCopy write(std::span<const iovec> local, std::span<const iovec> remote) = 0;
};

/// What engines of one host have of each other beyond the network. Its sockets are those of the
/// Network that it belongs to: polled and closed there, non-blocking and close-on-exec, and known
/// to no child made by fork().
class Neighbors {
 public:
  Neighbors() = default;
  Neighbors(const Neighbors&) = delete;
  Neighbors& operator=(const Neighbors&) = delete;
  virtual ~Neighbors() = default;

  // Sockets by name, in this network namespace; 1 to 100 bytes, none of them 0. They carry whole
  // messages in order.

  /// kAddressInUse: somebody has the name.
  virtual Result<Socket> listen(std::string_view name) = 0;
  /// kNotFound: nobody is waiting. kSystem: no descriptor or memory for the one that waits.
  virtual Result<Socket> accept(Socket listener) = 0;
  /// Connected when it returns. kPeerUnreachable: nobody has the name, or its listener has no room.
  virtual Result<Socket> connect(std::string_view name) = 0;
  /// The process at the other end, as the kernel knows it: of an accepted socket who connected, of
  /// a connected one who listens; not whom it gave its descriptor since. kUnsupported where the
  /// kernel has no such handle, or where that process has no number in our PID namespace.
  /// kPeerDisconnected: it is gone; a kernel may give us what is left of it instead, which has
  /// ended. kOutOfMemory.
  virtual Result<std::unique_ptr<Process>> process_of(Socket socket) = 0;

  using Files = std::vector<std::shared_ptr<const PageFile>>;
  static constexpr std::size_t kFilesMax = 4;

  /// One whole message (not empty), with at most kFilesMax files, or nothing. EMSGSIZE: it will
  /// never fit.
  virtual IoResult send(Socket socket, std::span<const std::uint8_t> message,
                        const Files& files) = 0;
  /// One whole message of at most `buffer`; kFailed with EMSGSIZE for a longer one, or one with
  /// more files, EBADF for one with a file that can shrink or grow, or is empty, EMFILE and ENOMEM
  /// when we have no descriptor or memory for a file: that message is lost, its files closed, and
  /// the next one can be received. kEnded also for an empty message, which nobody honest sends.
  /// `files` are those that came with it; what they hold and how long they are is the sender's say.
  virtual IoResult receive(Socket socket, std::span<std::uint8_t> buffer, Files& files) = 0;

  // Pages.

  struct PageOptions {
    bool huge = false;  ///< of the system's huge pages; `bytes` is then a multiple of their size
  };
  /// Zeros. `name` is for people who look at the process; its first 64 bytes. kInvalidArgument: a
  /// size of 0, over 2^63 - 1, or no multiple. kOutOfMemory; kUnsupported with the errno where the
  /// system has no huge pages to give: those that there are get set aside here.
  virtual Result<std::shared_ptr<const PageFile>> make_pages(std::string_view name,
                                                             std::uint64_t bytes,
                                                             PageOptions options) = 0;
  enum class PageAccess : std::uint8_t { kRead, kReadWrite };
  enum class AfterFork : std::uint8_t {
    kInherited,
    kAbsent  ///< a child made by fork() does not have the mapping, unless forked within map()
  };
  /// All of it. kNotAllowed: it can only be read; kOutOfMemory.
  virtual Result<std::unique_ptr<PageMapping>> map(const PageFile& file, PageAccess access,
                                                   AfterFork after_fork) = 0;
  /// From now on nobody can map it for writing; mappings that are there stay. kUnsupported with the
  /// errno where the kernel cannot.
  virtual Result<void> forbid_writes(const PageFile& file) = 0;
};

}  // namespace orbite::platform
