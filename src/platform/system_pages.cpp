// SPDX-License-Identifier: Apache-2.0
#include "platform/system_pages.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <string>

#include "base/assert.hpp"
#include "platform/system.hpp"

namespace orbite::platform {
namespace {

// Younger than some C libraries that we build with.
constexpr unsigned kMemfdNoExecSeal = 0x8;
constexpr int kSealFutureWrite = 0x10;
constexpr int kSealsNeeded = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr std::size_t kNameBytesMax = 64;

unsigned long long ull(std::uint64_t value) { return value; }

/// MAP_FAILED and the rest behind one owner, so that nothing stays mapped when a step fails.
class SystemPageMapping final : public PageMapping {
 public:
  explicit SystemPageMapping(Neighbors::AfterFork after_fork) noexcept
      : after_fork_(after_fork), generation_(process_generation()) {}
  SystemPageMapping(const SystemPageMapping&) = delete;
  SystemPageMapping& operator=(const SystemPageMapping&) = delete;
  ~SystemPageMapping() override {
    // In a child these addresses may be somebody else's when it did not inherit them.
    const bool ours =
        after_fork_ == Neighbors::AfterFork::kInherited || generation_ == process_generation();
    if (!pages_.empty() && ours) {
      const int result = ::munmap(pages_.data(), pages_.size());
      ORBITE_DCHECK(result == 0);
    }
  }

  /// The errno of what failed; 0.
  int map(int fd, std::uint64_t bytes, int protection) noexcept {
    void* const start = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
    if (start == MAP_FAILED) {
      return errno;
    }
    pages_ = {static_cast<std::byte*>(start), static_cast<std::size_t>(bytes)};
    if (after_fork_ == Neighbors::AfterFork::kAbsent &&
        ::madvise(start, bytes, MADV_DONTFORK) != 0) {
      return errno;
    }
    return 0;
  }

  [[nodiscard]] std::span<std::byte> pages() const noexcept override { return pages_; }

 private:
  std::span<std::byte> pages_;
  Neighbors::AfterFork after_fork_;
  std::uint32_t generation_;
};

int create_memfd(const char* name, bool huge) {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB : 0U);
  // A system may insist on files that cannot be executed; an old one does not know the word.
  const int fd = ::memfd_create(name, flags | kMemfdNoExecSeal);
  return fd >= 0 || errno != EINVAL ? fd : ::memfd_create(name, flags);
}

ErrorCode memory_error(int native_errno) {
  return native_errno == ENOMEM || native_errno == ENOSPC ? ErrorCode::kOutOfMemory
                                                          : ErrorCode::kSystem;
}

/// Huge pages are set aside when they are first mapped; what cannot be had shows there.
int reserve_huge_pages(int fd, std::uint64_t bytes) {
  SystemPageMapping probe(Neighbors::AfterFork::kInherited);
  return probe.map(fd, bytes, PROT_READ | PROT_WRITE);
}

/// A file of huge pages says so itself.
Result<std::uint64_t> huge_page_bytes_of(int fd) {
  struct stat status{};
  if (::fstat(fd, &status) != 0 || status.st_blksize <= 0) {
    return fail(Error::make_native(ErrorCode::kSystem, errno, "no size of huge pages"));
  }
  return static_cast<std::uint64_t>(status.st_blksize);
}

}  // namespace

const SystemPageFile& system_file(const PageFile& file) noexcept {
  const auto* const ours = dynamic_cast<const SystemPageFile*>(&file);
  ORBITE_CHECK(ours != nullptr);
  return *ours;
}

std::optional<std::uint64_t> sealed_bytes(int fd) noexcept {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  struct stat status{};
  if (seals < 0 || (seals & kSealsNeeded) != kSealsNeeded || ::fstat(fd, &status) != 0 ||
      status.st_size <= 0) {
    return std::nullopt;
  }
  return static_cast<std::uint64_t>(status.st_size);
}

std::uint64_t page_bytes() noexcept { return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)); }

Result<std::uint64_t> huge_page_bytes() {
  const Descriptor descriptor(create_memfd("orbite-probe", true));
  if (descriptor.get() < 0) {
    return fail(Error::make_native(ErrorCode::kUnsupported, errno, "no huge pages"));
  }
  return huge_page_bytes_of(descriptor.get());
}

Result<std::shared_ptr<const PageFile>> make_page_file(std::string_view name, std::uint64_t bytes,
                                                       bool huge) {
  if (bytes == 0 || bytes > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max())) {
    return fail(ErrorCode::kInvalidArgument, "no pages of %llu bytes: 1 to 2^63 - 1", ull(bytes));
  }
  const std::string shown(name.substr(0, kNameBytesMax));
  Descriptor descriptor(create_memfd(shown.c_str(), huge));
  if (descriptor.get() < 0) {
    return fail(Error::make_native(huge ? ErrorCode::kUnsupported : memory_error(errno), errno,
                                   huge ? "no huge pages for '%s'" : "no memory file for '%s'",
                                   shown.c_str()));
  }
  if (huge) {
    ORBITE_ASSIGN_OR_RETURN(const std::uint64_t multiple, huge_page_bytes_of(descriptor.get()));
    if (bytes % multiple != 0) {
      return fail(ErrorCode::kInvalidArgument, "%llu bytes are no multiple of huge pages of %llu",
                  ull(bytes), ull(multiple));
    }
  }
  if (::ftruncate(descriptor.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(descriptor.get(), F_ADD_SEALS, kSealsNeeded) != 0) {
    return fail(Error::make_native(memory_error(errno), errno, "no %llu bytes of pages for '%s'",
                                   ull(bytes), shown.c_str()));
  }
  if (const int failed = huge ? reserve_huge_pages(descriptor.get(), bytes) : 0; failed != 0) {
    return fail(Error::make_native(ErrorCode::kUnsupported, failed,
                                   "no %llu bytes of huge pages for '%s'", ull(bytes),
                                   shown.c_str()));
  }
  return std::make_shared<const SystemPageFile>(std::move(descriptor), bytes);
}

Result<std::unique_ptr<PageMapping>> map_page_file(const SystemPageFile& file,
                                                   Neighbors::PageAccess access,
                                                   Neighbors::AfterFork after_fork) {
  auto mapping = std::make_unique<SystemPageMapping>(after_fork);
  const bool writes = access == Neighbors::PageAccess::kReadWrite;
  const int failed =
      mapping->map(file.descriptor(), file.bytes(), writes ? PROT_READ | PROT_WRITE : PROT_READ);
  switch (failed) {
    case 0:
      return mapping;
    case EACCES:
    case EPERM:
      return fail(Error::make_native(ErrorCode::kNotAllowed, failed, "cannot map %llu bytes %s",
                                     ull(file.bytes()), writes ? "for writing" : "for reading"));
    default:
      return fail(Error::make_native(memory_error(failed), failed, "cannot map %llu bytes",
                                     ull(file.bytes())));
  }
}

Result<void> seal_against_writes(const SystemPageFile& file) {
  if (::fcntl(file.descriptor(), F_ADD_SEALS, kSealFutureWrite) != 0) {
    return fail(Error::make_native(errno == EINVAL ? ErrorCode::kUnsupported : ErrorCode::kSystem,
                                   errno, "cannot forbid writes to %llu bytes of pages",
                                   ull(file.bytes())));
  }
  return {};
}

}  // namespace orbite::platform
