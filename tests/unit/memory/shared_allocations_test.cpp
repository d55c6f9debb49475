// SPDX-License-Identifier: Apache-2.0
#include "memory/shared_allocations.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "orbite/shared_memory.hpp"
#include "platform/system_neighbors.hpp"
#include "unit/platform/child_process.hpp"

namespace orbite::memory {
namespace {

using platform::testing::in_child;
using ::testing::HasSubstr;

constexpr std::size_t kPage = 4096;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

std::optional<SharedPart> find(std::uint64_t address, std::uint64_t length) {
  return SharedAllocations::of_process().find(*base::ByteRange::make(address, length));
}

bool is_mapped(const void* page) {
  unsigned char there = 0;
  return ::mincore(const_cast<void*>(page), kPage, &there) == 0;
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

/// A memfd of the test's own and a mapping of it.
class OwnPages {
 public:
  explicit OwnPages(std::size_t pages, int seals = kSeals, int sharing = MAP_SHARED,
                    int protection = PROT_READ | PROT_WRITE)
      : bytes_(pages * kPage), fd_(::memfd_create("own", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    EXPECT_EQ(::ftruncate(fd_, static_cast<off_t>(bytes_)), 0);
    start_ = ::mmap(nullptr, bytes_, protection, sharing, fd_, 0);
    EXPECT_NE(start_, MAP_FAILED);
    EXPECT_EQ(::fcntl(fd_, F_ADD_SEALS, seals), 0);
  }
  OwnPages(const OwnPages&) = delete;
  OwnPages& operator=(const OwnPages&) = delete;
  ~OwnPages() {
    ::munmap(start_, bytes_);
    ::close(fd_);
  }
  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] std::byte* page(std::size_t index = 0) const {
    return static_cast<std::byte*>(start_) + index * kPage;
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  int fd_;
  void* start_ = MAP_FAILED;
};

void expect_refused(const Result<SharedMemory>& result, ErrorCode code, const std::string& text) {
  ASSERT_FALSE(result.has_value()) << text;
  EXPECT_EQ(result.error().code(), code) << result.error().message();
  EXPECT_THAT(result.error().message(), HasSubstr(text));
}

TEST(SharedMemory, IsZerosOfWholePagesAndEndsWithItsOwner) {
  const std::size_t before = open_descriptors();
  const std::byte* page = nullptr;
  {
    const auto memory = allocate_shm_memory(kPage + 1, {.name = "sized"});
    ASSERT_TRUE(memory.has_value()) << memory.error().message();
    EXPECT_EQ(memory->bytes(), kPage + 1);
    EXPECT_TRUE(std::all_of(memory->data(), memory->data() + memory->bytes(),
                            [](std::byte b) { return b == std::byte{}; }));
    page = memory->data();
    memory->data()[kPage] = std::byte{1};
    EXPECT_TRUE(is_mapped(page));
    EXPECT_TRUE(find(address_of(page), 2 * kPage));
  }
  EXPECT_FALSE(is_mapped(page));
  EXPECT_FALSE(find(address_of(page), 1));
  EXPECT_EQ(open_descriptors(), before);
}

TEST(SharedMemory, ImpossibleSizesAndNamesAreRefusedByValue) {
  expect_refused(allocate_shm_memory(0), ErrorCode::kInvalidArgument, "0 bytes");
  expect_refused(allocate_shm_memory(kSharedBytesMax + 1), ErrorCode::kInvalidArgument,
                 std::to_string(kSharedBytesMax + 1));
  expect_refused(allocate_shm_memory(~std::uint64_t{0}), ErrorCode::kInvalidArgument,
                 std::to_string(kSharedBytesMax));
  expect_refused(allocate_shm_memory(1, {.name = std::string(65, 'n')}),
                 ErrorCode::kInvalidArgument, "65 bytes");
  expect_refused(allocate_shm_memory(1, {.name = std::string("a\0b", 3)}),
                 ErrorCode::kInvalidArgument, "none of them 0");
  EXPECT_TRUE(allocate_shm_memory(1, {.name = std::string(64, 'n')}).has_value());
}

TEST(SharedMemory, HugePagesAreWholeOnesOrNotSupported) {
  const auto memory = allocate_shm_memory(1, {.huge_pages = true});
  if (!memory) {
    EXPECT_EQ(memory.error().code(), ErrorCode::kUnsupported);
    EXPECT_NE(memory.error().native_errno(), 0);
    return;
  }
  EXPECT_EQ(memory->bytes(), 1U);
  EXPECT_TRUE(find(address_of(memory->data()), kPage + 1));
}

TEST(SharedMemory, MovesWithoutMovingItsPages) {
  auto first = *allocate_shm_memory(kPage);
  std::byte* const data = first.data();
  const std::uint64_t id = first.id();
  SharedMemory second = std::move(first);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(second.id(), id);
  // What it was moved from is empty, which is a promise.
  EXPECT_EQ(first.data(), nullptr);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(first.bytes(), 0U);
  EXPECT_EQ(first.id(), 0U);
  auto third = *allocate_shm_memory(kPage);
  std::byte* const replaced = third.data();
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
  EXPECT_TRUE(find(address_of(data), kPage));
  EXPECT_FALSE(find(address_of(replaced), kPage));
}

TEST(SharedAllocations, OnlyARangeWhollyInsideOneQualifies) {
  const auto memory = *allocate_shm_memory(4 * kPage);
  const auto other = *allocate_shm_memory(kPage);
  const std::uint64_t start = address_of(memory.data());
  const auto part = find(start + 100, 3 * kPage);
  ASSERT_TRUE(part);
  EXPECT_EQ(part->offset, 100U);
  EXPECT_EQ(part->allocation->id, memory.id());
  EXPECT_EQ(part->allocation->range, *base::ByteRange::make(start, 4 * kPage));
  EXPECT_EQ(part->allocation->file->bytes(), 4 * kPage);
  EXPECT_TRUE(find(start, 4 * kPage));
  EXPECT_TRUE(find(start + 4 * kPage - 1, 1));
  EXPECT_FALSE(find(start - 1, 2));
  EXPECT_FALSE(find(start, 4 * kPage + 1));
  EXPECT_FALSE(find(start + 4 * kPage - 1, 2));
  EXPECT_EQ(find(address_of(other.data()), kPage)->allocation->id, other.id());
  const std::vector<std::byte> ordinary(kPage);
  EXPECT_FALSE(find(address_of(ordinary.data()), 1));
}

TEST(SharedAllocations, NumbersAreNeverGivenTwice) {
  std::uint64_t last = 0;
  for (int i = 0; i < 10; ++i) {
    const auto memory = *allocate_shm_memory(kPage);
    EXPECT_GT(memory.id(), last);
    last = memory.id();
  }
}

TEST(SharedAllocations, OthersMapTheSamePages) {
  const auto memory = *allocate_shm_memory(2 * kPage);
  const auto part = find(address_of(memory.data() + kPage), 8);
  platform::SystemNeighbors neighbors;
  const auto mapping =
      *neighbors.map(*part->allocation->file, platform::Neighbors::PageAccess::kReadWrite,
                     platform::Neighbors::AfterFork::kAbsent);
  mapping->pages()[part->offset] = std::byte{5};
  EXPECT_EQ(memory.data()[kPage], std::byte{5});
}

TEST(SharedAllocations, WhoHoldsAPartKeepsThePagesAndNobodyFindsThemAnyMore) {
  auto memory = std::make_optional(*allocate_shm_memory(kPage));
  std::byte* const data = memory->data();
  auto part = find(address_of(data), 10);
  ASSERT_TRUE(part);
  memory.reset();
  EXPECT_FALSE(find(address_of(data), 10));
  ASSERT_TRUE(is_mapped(data));
  data[0] = std::byte{1};
  // Its addresses are not given to another one meanwhile.
  const auto next = *allocate_shm_memory(kPage);
  EXPECT_NE(next.data(), data);
  part.reset();
  EXPECT_FALSE(is_mapped(data));
}

TEST(SharedAllocations, AreFoundAndForgottenFromManyThreads) {
  constexpr int kRounds = 200;
  const auto lasting = *allocate_shm_memory(kPage);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        auto memory = allocate_shm_memory(kPage);
        const bool found = memory && find(address_of(memory->data()), kPage) &&
                           find(address_of(lasting.data()), 1)->allocation->id == lasting.id();
        // Relaxed: read after the join.
        wrong.fetch_add(found ? 0 : 1, std::memory_order_relaxed);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong.load(std::memory_order_relaxed), 0);
}

// Pages of the caller's.

TEST(SharedMemoryImport, IsFoundAtItsOffsetInTheFileAndLeavesTheMapping) {
  const OwnPages pages(4);
  const std::size_t before = open_descriptors();
  {
    const auto memory = import_shm_memory(pages.fd(), pages.page(1) + 5, 2 * kPage);
    ASSERT_TRUE(memory.has_value()) << memory.error().message();
    EXPECT_EQ(memory->data(), pages.page(1) + 5);
    EXPECT_EQ(memory->bytes(), 2 * kPage);
    const auto part = find(address_of(pages.page(2)), 100);
    ASSERT_TRUE(part);
    EXPECT_EQ(part->offset, 2 * kPage);
    EXPECT_EQ(part->allocation->file->bytes(), 4 * kPage);
    EXPECT_FALSE(find(address_of(pages.page(1)), 100));
    EXPECT_EQ(open_descriptors(), before + 1);
  }
  EXPECT_TRUE(is_mapped(pages.page()));
  EXPECT_FALSE(find(address_of(pages.page(2)), 1));
  EXPECT_EQ(open_descriptors(), before);
}

TEST(SharedMemoryImport, KeepsTheFileWhoeverClosesHisDescriptor) {
  OwnPages pages(1);
  const int copy = ::fcntl(pages.fd(), F_DUPFD_CLOEXEC, 0);
  const auto memory = import_shm_memory(copy, pages.page(), kPage);
  ASSERT_TRUE(memory.has_value());
  ::close(copy);
  platform::SystemNeighbors neighbors;
  const auto mapping = *neighbors.map(*find(address_of(pages.page()), 1)->allocation->file,
                                      platform::Neighbors::PageAccess::kRead,
                                      platform::Neighbors::AfterFork::kAbsent);
  pages.page()[9] = std::byte{9};
  EXPECT_EQ(mapping->pages()[9], std::byte{9});
}

TEST(SharedMemoryImport, AMappingThatTheKernelListsInPiecesIsOneRun) {
  const OwnPages pages(4);
  ASSERT_EQ(::madvise(pages.page(1), kPage, MADV_DONTFORK), 0);
  EXPECT_TRUE(import_shm_memory(pages.fd(), pages.page(), 4 * kPage).has_value());
}

TEST(SharedMemoryImport, ItsEndIsRefusedWhileAPartIsHeld) {
  const OwnPages pages(1);
  auto memory = *import_shm_memory(pages.fd(), pages.page(), kPage);
  auto part = find(address_of(pages.page()), 1);
  EXPECT_FALSE(memory.end_if_unused());
  EXPECT_EQ(memory.data(), pages.page());
  EXPECT_TRUE(find(address_of(pages.page()), 1));
  part.reset();
  EXPECT_TRUE(memory.end_if_unused());
  EXPECT_EQ(memory.data(), nullptr);
  EXPECT_FALSE(find(address_of(pages.page()), 1));
  EXPECT_TRUE(memory.end_if_unused());
}

TEST(SharedMemoryImport, ADescriptorThatIsNoSealedMemfdIsRefused) {
  for (const int seals : {0, F_SEAL_SHRINK, F_SEAL_GROW}) {
    const OwnPages pages(1, seals);
    expect_refused(import_shm_memory(pages.fd(), pages.page(), kPage), ErrorCode::kInvalidArgument,
                   "F_SEAL_SHRINK");
  }
  const OwnPages pages(1);
  expect_refused(import_shm_memory(-1, pages.page(), kPage), ErrorCode::kInvalidArgument,
                 "-1 is no open descriptor");
  const int ordinary = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  expect_refused(import_shm_memory(ordinary, pages.page(), kPage), ErrorCode::kInvalidArgument,
                 "descriptor " + std::to_string(ordinary));
  ::close(ordinary);
  const OwnPages unwritable(1, kSeals | 0x10);  // F_SEAL_FUTURE_WRITE
  expect_refused(import_shm_memory(unwritable.fd(), unwritable.page(), kPage),
                 ErrorCode::kInvalidArgument, "cannot be written");
  const std::string again = "/proc/self/fd/" + std::to_string(pages.fd());
  const int read_only = ::open(again.c_str(), O_RDONLY | O_CLOEXEC);
  expect_refused(import_shm_memory(read_only, pages.page(), kPage), ErrorCode::kInvalidArgument,
                 "cannot be written");
  ::close(read_only);
}

TEST(SharedMemoryImport, ARangeThatIsNotOneRunOfThatFileIsRefused) {
  const std::size_t before = open_descriptors();
  {
    const OwnPages pages(4);
    const OwnPages others(4);
    const auto refused = [&](const void* address, std::uint64_t bytes, const std::string& text) {
      expect_refused(import_shm_memory(pages.fd(), const_cast<void*>(address), bytes),
                     ErrorCode::kInvalidRange, text);
    };
    refused(others.page(), kPage, "not the file");
    const std::vector<std::byte> ordinary(2 * kPage);
    refused(ordinary.data(), kPage, "not the file");
    refused(nullptr, kPage, "null");
    // The last page of the user's half, which nobody has.
    refused(reinterpret_cast<void*>(0x7ffffffff000), 16, "0x7ffffffff000");
    // A hole in the middle, then another page of the same file in it.
    ASSERT_EQ(::munmap(pages.page(2), kPage), 0);
    refused(pages.page(), 4 * kPage, "nothing is mapped");
    ASSERT_EQ(
        ::mmap(pages.page(2), kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, pages.fd(), 0),
        pages.page(2));
    refused(pages.page(), 4 * kPage, "another part of the file");
    EXPECT_TRUE(import_shm_memory(pages.fd(), pages.page(), 2 * kPage).has_value());
    ASSERT_EQ(::mprotect(pages.page(1), kPage, PROT_READ), 0);
    refused(pages.page(), 2 * kPage, "cannot be read and written");
    const OwnPages own(1, kSeals, MAP_PRIVATE);
    expect_refused(import_shm_memory(own.fd(), own.page(), kPage), ErrorCode::kInvalidRange,
                   "MAP_SHARED");
    expect_refused(import_shm_memory(pages.fd(), pages.page(), 0), ErrorCode::kInvalidArgument,
                   "0 bytes");
    expect_refused(import_shm_memory(pages.fd(), pages.page(), kSharedBytesMax + 1),
                   ErrorCode::kInvalidArgument, std::to_string(kSharedBytesMax));
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(SharedMemoryImport, AMappingBeyondTheEndOfTheFileIsRefused) {
  const OwnPages pages(1);
  void* const longer =
      ::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, pages.fd(), 0);
  ASSERT_NE(longer, MAP_FAILED);
  expect_refused(import_shm_memory(pages.fd(), longer, 2 * kPage), ErrorCode::kInvalidRange,
                 "the file ends after 4096");
  EXPECT_TRUE(import_shm_memory(pages.fd(), longer, kPage).has_value());
  ::munmap(longer, 2 * kPage);
}

TEST(SharedMemoryImport, WhatIsSharedAlreadyIsRefusedWithItsNumber) {
  const OwnPages pages(4);
  const auto memory = *import_shm_memory(pages.fd(), pages.page(1), 2 * kPage);
  const std::string number = "shared memory " + std::to_string(memory.id());
  for (const auto& [first, count] : {std::pair{0U, 4U}, {1U, 1U}, {2U, 2U}, {0U, 2U}}) {
    expect_refused(import_shm_memory(pages.fd(), pages.page(first), count * kPage),
                   ErrorCode::kInvalidRange, number);
  }
  EXPECT_TRUE(import_shm_memory(pages.fd(), pages.page(0), kPage).has_value());
  EXPECT_TRUE(import_shm_memory(pages.fd(), pages.page(3), kPage).has_value());
}

// Children made by fork().

TEST(SharedMemoryFork, AChildSeesThePagesAndSharesOnlyItsOwn) {
  auto memory = std::make_optional(*allocate_shm_memory(kPage));
  const OwnPages pages(1);
  auto imported = *import_shm_memory(pages.fd(), pages.page(), kPage);
  memory->data()[0] = std::byte{1};
  const std::string answer = in_child([&]() -> std::string {
    const std::byte* const inherited = memory->data();
    if (inherited[0] != std::byte{1}) {
      return "the pages are not there";
    }
    memory->data()[1] = std::byte{2};
    if (find(address_of(inherited), 1) || find(address_of(pages.page()), 1)) {
      return "what the parent shares is found";
    }
    auto own = allocate_shm_memory(kPage);
    if (!own || own->id() <= imported.id() || !find(address_of(own->data()), kPage)) {
      return "nothing of its own";
    }
    if (!imported.end_if_unused()) {
      return "what the parent shares is in use";
    }
    memory.reset();
    return "";
  });
  EXPECT_EQ(answer, "");
  EXPECT_EQ(memory->data()[1], std::byte{2});
  EXPECT_TRUE(find(address_of(memory->data()), kPage));
  EXPECT_TRUE(find(address_of(pages.page()), kPage));
}

TEST(SharedMemoryFork, AChildOfAProcessThatWasInsideTheTableIsNotHeldUp) {
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    // Relaxed: only the end of the loop.
    while (!stop.load(std::memory_order_relaxed)) {
      static_cast<void>(allocate_shm_memory(kPage));
    }
  });
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(in_child([]() -> std::string {
                const auto memory = allocate_shm_memory(kPage);
                return memory && find(address_of(memory->data()), 1) ? "" : "nothing";
              }),
              "");
  }
  stop.store(true, std::memory_order_relaxed);
  busy.join();
}

}  // namespace
}  // namespace orbite::memory
