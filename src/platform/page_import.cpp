// SPDX-License-Identifier: Apache-2.0
#include "platform/page_import.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "platform/descriptor.hpp"
#include "platform/system_pages.hpp"

namespace orbite::platform {
namespace {

constexpr const char* kMaps = "/proc/self/maps";
constexpr int kWriteSeals = F_SEAL_WRITE | 0x10;  // F_SEAL_FUTURE_WRITE

unsigned long long ull(std::uint64_t value) { return value; }

/// One line of the kernel's list of mappings.
struct Mapping {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  char access[5] = {};  ///< "rwxs", a dash for what is not; p for private
  std::uint64_t offset = 0;
  unsigned device_major = 0;
  unsigned device_minor = 0;
  std::uint64_t inode = 0;

  [[nodiscard]] bool is_of(const struct stat& file) const {
    return inode == file.st_ino && device_major == major(file.st_dev) &&
           device_minor == minor(file.st_dev);
  }
};

struct CloseFile {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};

Result<std::string> read_maps() {
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(kMaps, "re"));
  if (file == nullptr) {
    return fail(Error::make_native(ErrorCode::kSystem, errno, "cannot open %s", kMaps));
  }
  std::string text;
  char piece[4096];
  while (std::fgets(piece, sizeof(piece), file.get()) != nullptr) {
    text.append(piece);
  }
  return text;
}

/// The mappings of the kernel's list, by address.
class MappingList {
 public:
  explicit MappingList(std::string_view text) : text_(text) {}

  /// Nothing at the end.
  std::optional<Mapping> next() {
    Mapping it;
    while (!text_.empty()) {
      const std::string line(text_.substr(0, text_.find('\n')));
      text_.remove_prefix(std::min(text_.size(), line.size() + 1));
      if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64,
                      &it.start, &it.end, it.access, &it.offset, &it.device_major, &it.device_minor,
                      &it.inode) == 7) {
        return it;
      }
    }
    return std::nullopt;
  }

 private:
  std::string_view text_;
};

Result<void> check_descriptor(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0) {
    return fail(
        Error::make_native(ErrorCode::kInvalidArgument, errno, "%d is no open descriptor", fd));
  }
  if (!sealed_bytes(fd)) {
    return fail(ErrorCode::kInvalidArgument,
                "descriptor %d is no memfd with F_SEAL_SHRINK and F_SEAL_GROW and a size", fd);
  }
  if ((flags & O_ACCMODE) != O_RDWR || (::fcntl(fd, F_GET_SEALS) & kWriteSeals) != 0) {
    return fail(ErrorCode::kInvalidArgument,
                "descriptor %d cannot be written; it must be open for both, without a seal on "
                "writing",
                fd);
  }
  return {};
}

Error range_error(const base::ByteRange& range, std::uint64_t address, const char* what) {
  return Error::make(ErrorCode::kInvalidRange, "%llu bytes at 0x%llx: at 0x%llx %s",
                     ull(range.length()), ull(range.address()), ull(address), what);
}

/// The range must be one run of the file, whatever pieces the kernel lists it in.
Result<std::uint64_t> offset_in(const struct stat& file, const base::ByteRange& range) {
  ORBITE_ASSIGN_OR_RETURN(const std::string text, read_maps());
  MappingList mappings(text);
  std::uint64_t begin = 0;
  std::uint64_t next = range.address();
  while (next < range.end()) {
    const std::optional<Mapping> it = mappings.next();
    if (it && it->end <= next) {
      continue;
    }
    if (!it || it->start > next) {
      return fail(range_error(range, next, "nothing is mapped"));
    }
    if (!it->is_of(file)) {
      return fail(range_error(range, next, "not the file of the descriptor is mapped"));
    }
    if (it->access[3] != 's') {
      return fail(range_error(range, next, "the mapping is private; it must be MAP_SHARED"));
    }
    if (std::strncmp(it->access, "rw", 2) != 0) {
      return fail(range_error(range, next, "the mapping cannot be read and written"));
    }
    const std::uint64_t offset = it->offset + (next - it->start);
    if (next == range.address()) {
      begin = offset;
    } else if (offset != begin + (next - range.address())) {
      return fail(range_error(range, next, "another part of the file follows"));
    }
    next = it->end;
  }
  return begin;
}

}  // namespace

Result<ImportedPages> import_pages(int fd, const base::ByteRange& range) {
  ORBITE_TRY(check_descriptor(fd));
  // Our own from here on, so that all that is looked at is of one file.
  Descriptor own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  struct stat status{};
  if (own.get() < 0 || ::fstat(own.get(), &status) != 0) {
    return fail(
        Error::make_native(ErrorCode::kSystem, errno, "cannot duplicate descriptor %d", fd));
  }
  const std::optional<std::uint64_t> bytes = sealed_bytes(own.get());
  if (!bytes) {
    return fail(ErrorCode::kInvalidArgument, "descriptor %d was replaced meanwhile", fd);
  }
  ORBITE_ASSIGN_OR_RETURN(const std::uint64_t offset, offset_in(status, range));
  if (offset > *bytes || range.length() > *bytes - offset) {
    return fail(ErrorCode::kInvalidRange, "%llu bytes at 0x%llx: the file ends after %llu",
                ull(range.length()), ull(range.address()), ull(*bytes));
  }
  return ImportedPages{.file = std::make_shared<const SystemPageFile>(std::move(own), *bytes),
                       .offset = offset};
}

}  // namespace orbite::platform
