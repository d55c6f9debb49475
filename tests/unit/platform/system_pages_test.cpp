// SPDX-License-Identifier: Apache-2.0
#include "platform/system_pages.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string>

#include "unit/platform/child_process.hpp"
#include "unit/platform/system_neighbors_rig.hpp"

namespace orbite::platform {
namespace {

using testing::in_child;
using Access = Neighbors::PageAccess;
using Fork = Neighbors::AfterFork;

TEST(SystemPages, HaveASizeThatStays) {
  SystemNeighbors neighbors;
  const std::size_t before = open_descriptors();
  {
    const auto file = *neighbors.make_pages("fixed", 3 * kPage, {});
    EXPECT_EQ(file->bytes(), 3 * kPage);
    int fd = -1;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      if (std::filesystem::read_symlink(entry, gone).string().starts_with("/memfd:fixed")) {
        fd = std::stoi(entry.path().filename());
      }
    }
    ASSERT_GE(fd, 0);
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_EQ(::ftruncate(fd, kPage), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(::ftruncate(fd, 4 * kPage), -1);
    EXPECT_EQ(errno, EPERM);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(SystemPages, ImpossibleSizesAreRefusedByName) {
  SystemNeighbors neighbors;
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1} << 63}) {
    const auto file = neighbors.make_pages("pages", bytes, {});
    ASSERT_FALSE(file.has_value());
    EXPECT_EQ(file.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(file.error().message().find(std::to_string(bytes)), std::string::npos);
  }
}

TEST(SystemPages, MoreThanThereAreAddressesIsOutOfMemory) {
  SystemNeighbors neighbors;
  const auto file = neighbors.make_pages("pages", std::uint64_t{1} << 60, {});
  ASSERT_TRUE(file.has_value()) << file.error().message();
  const auto mapping = neighbors.map(**file, Access::kRead, Fork::kInherited);
  ASSERT_FALSE(mapping.has_value());
  EXPECT_EQ(mapping.error().code(), ErrorCode::kOutOfMemory);
}

TEST(SystemPages, AMappingOutlivesItsFile) {
  SystemNeighbors neighbors;
  auto file = *neighbors.make_pages("pages", kPage, {});
  const auto mapping = *neighbors.map(*file, Access::kReadWrite, Fork::kInherited);
  file.reset();
  mapping->pages()[7] = std::byte{7};
  EXPECT_EQ(mapping->pages()[7], std::byte{7});
}

TEST(SystemPages, ForbiddenWritesStayWithTheMappingsThatAreThere) {
  SystemNeighbors neighbors;
  const auto file = *neighbors.make_pages("pages", kPage, {});
  const auto writer = *neighbors.map(*file, Access::kReadWrite, Fork::kInherited);
  ASSERT_TRUE(neighbors.forbid_writes(*file).has_value());
  const auto second = neighbors.map(*file, Access::kReadWrite, Fork::kInherited);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), ErrorCode::kNotAllowed);
  const auto reader = *neighbors.map(*file, Access::kRead, Fork::kInherited);
  writer->pages()[7] = std::byte{7};
  EXPECT_EQ(reader->pages()[7], std::byte{7});
  EXPECT_EQ(::mprotect(reader->pages().data(), kPage, PROT_READ | PROT_WRITE), -1);
  EXPECT_EQ(errno, EACCES);
}

TEST(SystemPages, AMappingToReadCannotBeWritten) {
  const std::string answer = in_child([]() -> std::string {
    SystemNeighbors neighbors;
    const auto file = *neighbors.make_pages("pages", kPage, {});
    const auto reader = *neighbors.map(*file, Access::kRead, Fork::kInherited);
    int ends[2] = {-1, -1};
    if (::pipe(ends) != 0 || ::write(ends[1], "x", 1) != 1) {
      return "no pipe";
    }
    const ssize_t got = ::read(ends[0], reader->pages().data(), 1);
    return got == -1 && errno == EFAULT ? "" : "written";
  });
  EXPECT_EQ(answer, "");
}

TEST(SystemPages, HugeOnesWorkOrAreNotSupported) {
  SystemNeighbors neighbors;
  const std::size_t before = open_descriptors();
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 30;
  const auto file = neighbors.make_pages("huge", kHuge, {.huge = true});
  if (file) {
    const auto mapping = *neighbors.map(**file, Access::kReadWrite, Fork::kInherited);
    mapping->pages().back() = std::byte{1};
    EXPECT_EQ(mapping->pages().front(), std::byte{});
  } else {
    EXPECT_EQ(file.error().code(), ErrorCode::kUnsupported);
    EXPECT_NE(file.error().native_errno(), 0);
    EXPECT_EQ(open_descriptors(), before);
  }
  const auto odd = neighbors.make_pages("huge", kPage, {.huge = true});
  ASSERT_FALSE(odd.has_value());
  EXPECT_TRUE(odd.error().code() == ErrorCode::kInvalidArgument ||
              odd.error().code() == ErrorCode::kUnsupported);
}

// Children made by fork().

}  // namespace
}  // namespace orbite::platform
