// SPDX-License-Identifier: Apache-2.0
// Shared memory over the C ABI, with an engine double.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bridge/bridge_test.hpp"
#include "memory/shared_allocations.hpp"
#include "unit/platform/child_process.hpp"

namespace orbite::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(BridgeTest, SharedMemoryIsThereUntilItIsFreed) {
  orbite_nixl_shared_t first = 0;
  orbite_nixl_shared_t second = 0;
  std::uint64_t address = 0;
  ASSERT_EQ(orbite_nixl_shared_allocate(arguments.shared, &first, &address, arguments.error),
            ORBITE_NIXL_OK);
  auto* const bytes = reinterpret_cast<unsigned char*>(address);
  EXPECT_EQ(bytes[4095], 0);
  bytes[4095] = 1;
  // Without a name it has one.
  arguments.shared_record.name = nullptr;
  arguments.shared_record.name_bytes = 0;
  ASSERT_EQ(orbite_nixl_shared_allocate(arguments.shared, &second, &address, arguments.error),
            ORBITE_NIXL_OK);
  EXPECT_GT(second, first);
  EXPECT_EQ(orbite_nixl_shared_free(first, arguments.error), ORBITE_NIXL_OK);
  for (const orbite_nixl_shared_t gone : {first, orbite_nixl_shared_t{0}, second + 1}) {
    EXPECT_EQ(orbite_nixl_shared_free(gone, arguments.error), ORBITE_NIXL_ERR_STALE_HANDLE);
    EXPECT_THAT(arguments.error_record.message, HasSubstr(std::to_string(gone)));
  }
  EXPECT_EQ(orbite_nixl_shared_free(second, arguments.error), ORBITE_NIXL_OK);
  EXPECT_EQ(fake_engine().calls, 0);
}

TEST_F(BridgeTest, SharedOptionsAreChecked) {
  const auto refused = [&](orbite_nixl_status_t status, const char* message) {
    EXPECT_EQ(orbite_nixl_shared_allocate(arguments.shared, arguments.output, arguments.address,
                                          arguments.error),
              status);
    EXPECT_THAT(arguments.error_record.message, HasSubstr(message));
    arguments.shared_record = Arguments().shared_record;
    arguments.shared_record.name = "agent";
  };
  arguments.shared_record.bytes = 0;
  refused(ORBITE_NIXL_ERR_INVALID_ARGUMENT, "0 bytes");
  arguments.shared_record.bytes = ORBITE_NIXL_SHARED_BYTES_MAX + 1;
  refused(ORBITE_NIXL_ERR_INVALID_ARGUMENT, "70368744177665");
  arguments.shared_record.flags = 2;
  refused(ORBITE_NIXL_ERR_INVALID_ARGUMENT, "0x2");
  arguments.shared_record.reserved = 7;
  refused(ORBITE_NIXL_ERR_INVALID_ARGUMENT, "reserved is 7");
  const std::string too_long(ORBITE_NIXL_SHARED_NAME_BYTES_MAX + 1, 'n');
  arguments.shared_record.name = too_long.data();
  arguments.shared_record.name_bytes = too_long.size();
  refused(ORBITE_NIXL_ERR_INVALID_ARGUMENT, "65");
  arguments.shared_record.name_bytes = SIZE_MAX - 4;
  refused(ORBITE_NIXL_ERR_INVALID_RANGE, "options.name");
  EXPECT_EQ(arguments.handle_out, 0U);
  EXPECT_EQ(arguments.address_out, 0U);
}

TEST_F(BridgeTest, AnImportIsRefusedByWhatIsWrongWithIt) {
  EXPECT_EQ(orbite_nixl_shared_import(-1, 4096, 1, arguments.output, arguments.error),
            ORBITE_NIXL_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(arguments.error_record.native_errno, EBADF);
  EXPECT_EQ(orbite_nixl_shared_import(0, 0, 1, arguments.output, arguments.error),
            ORBITE_NIXL_ERR_INVALID_RANGE);
  EXPECT_EQ(orbite_nixl_shared_import(0, ~std::uint64_t{0}, 1, arguments.output, arguments.error),
            ORBITE_NIXL_ERR_INVALID_RANGE);
  EXPECT_EQ(arguments.handle_out, 0U);
}

TEST_F(BridgeTest, AnImportIsNotFreedWhilePartOfItIsHeld) {
  constexpr std::size_t kBytes = 4096;
  const int fd = ::memfd_create("import", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(fd, kBytes), 0);
  void* const start = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_EQ(::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  const auto address = reinterpret_cast<std::uintptr_t>(start);
  orbite_nixl_shared_t shared = 0;
  ASSERT_EQ(orbite_nixl_shared_import(fd, address, kBytes, &shared, arguments.error),
            ORBITE_NIXL_OK);
  // What a registration does.
  auto part = memory::SharedAllocations::of_process().find(*base::ByteRange::make(address, 1));
  ASSERT_TRUE(part);
  EXPECT_EQ(orbite_nixl_shared_free(shared, arguments.error), ORBITE_NIXL_ERR_ACTIVE);
  EXPECT_THAT(arguments.error_record.message, HasSubstr("deregister it first"));
  part.reset();
  EXPECT_EQ(orbite_nixl_shared_free(shared, arguments.error), ORBITE_NIXL_OK);
  ::munmap(start, kBytes);
  ::close(fd);
}

TEST_F(BridgeTest, AForkedChildIsRefusedItsParentsSharedMemory) {
  orbite_nixl_shared_t shared = 0;
  std::uint64_t address = 0;
  ASSERT_EQ(orbite_nixl_shared_allocate(arguments.shared, &shared, &address, arguments.error),
            ORBITE_NIXL_OK);
  EXPECT_EQ(platform::testing::in_child([&]() -> std::string {
              orbite_nixl_shared_t own = 0;
              std::uint64_t own_address = 0;
              if (orbite_nixl_shared_free(shared, nullptr) != ORBITE_NIXL_ERR_FORKED ||
                  orbite_nixl_shared_allocate(arguments.shared, &own, &own_address, nullptr) !=
                      ORBITE_NIXL_OK ||
                  orbite_nixl_shared_free(own, nullptr) != ORBITE_NIXL_OK ||
                  orbite_nixl_shared_free(own, nullptr) != ORBITE_NIXL_ERR_STALE_HANDLE) {
                return "not as promised";
              }
              return *reinterpret_cast<const unsigned char*>(address) == 0 ? "" : "not there";
            }),
            "");
  EXPECT_EQ(orbite_nixl_shared_free(shared, arguments.error), ORBITE_NIXL_OK);
}

}  // namespace
}  // namespace orbite::testing
