// SPDX-License-Identifier: Apache-2.0
// Registrations and metadata, and NIXL's habit of handing pointers back twice: surprises 0.4, 0.5
// and 0.6 of the agent.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <set>

#include "nixl/direct/bridge_seam.hpp"
#include "nixl/direct/plugin.hpp"

namespace orbite::test {
namespace {

TEST(Register, OtherMemoryTypesAreRefusedBeforeRegistration) {
  Node node("dram");
  std::vector<uint8_t> memory(64);
  const nixlBlobDesc descriptor(reinterpret_cast<uintptr_t>(memory.data()), 64, 0, "");
  const RegisterSeam::Counter registered;
  const ImportRangeSeam::Counter imported;
  for (const nixl_mem_t type : {VRAM_SEG, BLK_SEG, OBJ_SEG, FILE_SEG}) {
    nixlBackendMD* metadata = nullptr;
    EXPECT_EQ(node->registerMem(descriptor, type, metadata), NIXL_ERR_NOT_SUPPORTED) << type;
    EXPECT_EQ(metadata, nullptr);
    EXPECT_EQ(node->loadRemoteMD(descriptor, type, "dram", metadata), NIXL_ERR_NOT_SUPPORTED);
    EXPECT_EQ(metadata, nullptr);
  }
  EXPECT_EQ(RegisterSeam::calls(), 0);
  EXPECT_EQ(ImportRangeSeam::calls(), 0);
}

TEST(Register, BadRangesAreRefused) {
  Node node("bounds");
  constexpr uint64_t kEnd = std::numeric_limits<uint64_t>::max();
  const std::pair<uint64_t, uint64_t> ranges[] = {{0, 64},        {4096, 0},    {0, 0},
                                                  {kEnd - 8, 64}, {4096, kEnd}, {kEnd, 1}};
  for (const auto& [address, length] : ranges) {
    nixlBackendMD* metadata = nullptr;
    EXPECT_EQ(node->registerMem(nixlBlobDesc(address, length, 0), DRAM_SEG, metadata),
              NIXL_ERR_INVALID_PARAM)
        << address << "+" << length;
    EXPECT_EQ(metadata, nullptr);
  }
}

TEST(Register, AnyDeviceIdIsAccepted) {
  Node node("device");
  for (const uint64_t device : {uint64_t{0}, uint64_t{7}, std::numeric_limits<uint64_t>::max()}) {
    Region region(node, 256, 1, device);
    Request request = prepared(node, NIXL_WRITE, list_of({region.part(0, 64, region.local())}),
                               list_of({region.part(128, 64, region.self())}), "device");
    EXPECT_EQ(run(node, request), NIXL_SUCCESS) << device;
    EXPECT_EQ(node->releaseReqH(request.handle), NIXL_SUCCESS);
  }
}

TEST(Register, DuplicatesAndOverlapsAreSeparate) {
  Node node("twice");
  std::vector<uint8_t> memory(4096);
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  std::set<nixlBackendMD*> all;
  for (const auto& [offset, length] : std::vector<std::pair<size_t, size_t>>{
           {0, 4096}, {0, 4096}, {64, 128}, {100, 200}, {4095, 1}}) {
    nixlBackendMD* metadata = nullptr;
    ASSERT_EQ(node->registerMem(nixlBlobDesc(address + offset, length, 0), DRAM_SEG, metadata),
              NIXL_SUCCESS);
    all.insert(metadata);
  }
  EXPECT_EQ(all.size(), 5U);
  for (nixlBackendMD* metadata : all) {
    EXPECT_EQ(node->deregisterMem(metadata), NIXL_SUCCESS);
  }
}

// 0.5: a duplicate descriptor in one list makes NIXL pass the same pointers twice.
TEST(Deregister, TheSamePointerTwiceEndsOneRegistrationOnly) {
  Node node("duplicate");
  Region other(node, 4096, 1);
  std::vector<uint8_t> memory(4096);
  const nixlBlobDesc descriptor(reinterpret_cast<uintptr_t>(memory.data()), memory.size(), 0);
  nixlBackendMD* metadata = nullptr;
  nixlBackendMD* loaded = nullptr;
  ASSERT_EQ(node->registerMem(descriptor, DRAM_SEG, metadata), NIXL_SUCCESS);
  ASSERT_EQ(node->loadLocalMD(metadata, loaded), NIXL_SUCCESS);
  const DeregisterSeam::Counter deregistered;
  const ReleaseRangeSeam::Counter unloaded;
  EXPECT_EQ(node->unloadMD(loaded), NIXL_SUCCESS);
  EXPECT_LT(node->unloadMD(loaded), 0);
  EXPECT_EQ(node->deregisterMem(metadata), NIXL_SUCCESS);
  // In between another thread registers, and an allocator would give the same address again.
  nixlBackendMD* next = nullptr;
  ASSERT_EQ(node->registerMem(descriptor, DRAM_SEG, next), NIXL_SUCCESS);
  EXPECT_NE(next, metadata);
  EXPECT_EQ(node->deregisterMem(metadata), NIXL_SUCCESS);
  EXPECT_EQ(DeregisterSeam::calls(), 1);
  EXPECT_EQ(ReleaseRangeSeam::calls(), 1);
  std::string blob;
  EXPECT_EQ(node->getPublicData(next, blob), NIXL_SUCCESS);
  EXPECT_EQ(node->deregisterMem(next), NIXL_SUCCESS);
  EXPECT_EQ(DeregisterSeam::calls(), 2);
  EXPECT_FALSE(other.public_blob().empty());
}

// 0.4: an explicit deregistration unloads first, the end of an agent deregisters first.
TEST(Deregister, BothOrdersOfDeregisterAndUnload) {
  Node node("orders");
  std::vector<uint8_t> memory(4096);
  const nixlBlobDesc descriptor(reinterpret_cast<uintptr_t>(memory.data()), memory.size(), 0);
  for (const bool unload_first : {true, false}) {
    nixlBackendMD* metadata = nullptr;
    nixlBackendMD* loaded = nullptr;
    ASSERT_EQ(node->registerMem(descriptor, DRAM_SEG, metadata), NIXL_SUCCESS);
    ASSERT_EQ(node->loadLocalMD(metadata, loaded), NIXL_SUCCESS);
    EXPECT_NE(metadata, loaded);
    if (unload_first) {
      EXPECT_EQ(node->unloadMD(loaded), NIXL_SUCCESS);
      EXPECT_EQ(node->deregisterMem(metadata), NIXL_SUCCESS);
    } else {
      EXPECT_EQ(node->deregisterMem(metadata), NIXL_SUCCESS);
      EXPECT_EQ(node->unloadMD(loaded), NIXL_SUCCESS);
    }
  }
}

TEST(Deregister, FailureInsideStillAnswersSuccess) {
  Node node("refusing");
  std::vector<uint8_t> memory(64);
  nixlBackendMD* metadata = nullptr;
  ASSERT_EQ(node->registerMem(nixlBlobDesc(reinterpret_cast<uintptr_t>(memory.data()), 64, 0),
                              DRAM_SEG, metadata),
            NIXL_SUCCESS);
  const DeregisterSeam::Guard refused([](orbite_nixl_engine_t engine,
                                         orbite_nixl_registration_t registration, int32_t* state,
                                         orbite_nixl_error_t* error) {
    DeregisterSeam::real(engine, registration, state, error);
    error->status = ORBITE_NIXL_ERR_SYSTEM;
    return ORBITE_NIXL_ERR_SYSTEM;
  });
  EXPECT_EQ(node->deregisterMem(metadata), NIXL_SUCCESS);
}

TEST(Pointers, WhatWasNeverGivenOutIsNeverDereferenced) {
  Node node("pointers");
  Node other("others");
  Region foreign(other, 4096, 1);
  int on_the_stack = 0;
  nixlBackendMD* const wrong[] = {nullptr, reinterpret_cast<nixlBackendMD*>(&on_the_stack),
                                  reinterpret_cast<nixlBackendMD*>(uintptr_t{1}), foreign.local(),
                                  foreign.self()};
  for (nixlBackendMD* pointer : wrong) {
    nixlBackendMD* out = nullptr;
    std::string blob = "kept";
    EXPECT_EQ(node->deregisterMem(pointer), NIXL_SUCCESS);
    EXPECT_LT(node->unloadMD(pointer), 0);
    EXPECT_LT(node->loadLocalMD(pointer, out), 0);
    EXPECT_EQ(out, nullptr);
    EXPECT_LT(node->getPublicData(pointer, blob), 0);
    EXPECT_EQ(blob, "kept");
    auto* const request = reinterpret_cast<nixlBackendReqH*>(pointer);
    nixlBackendReqH* handle = request;
    EXPECT_EQ(node->checkXfer(request), NIXL_ERR_INVALID_PARAM);
    EXPECT_EQ(node->releaseReqH(request), NIXL_ERR_INVALID_PARAM);
    EXPECT_EQ(node->postXfer(NIXL_READ, MetaList(DRAM_SEG), MetaList(DRAM_SEG), "x", handle),
              NIXL_ERR_INVALID_PARAM);
  }
  // A registration is no range and a range no registration.
  Region region(node, 4096, 1);
  EXPECT_LT(node->unloadMD(region.local()), 0);
  EXPECT_EQ(node->deregisterMem(region.self()), NIXL_SUCCESS);
  EXPECT_FALSE(region.public_blob().empty());
}

// 0.6: NIXL passes a string that holds the blob of the descriptor before.
TEST(PublicData, IsAssignedNotAppended) {
  Node node("blobs");
  Region first(node, 4096, 1);
  Region second(node, 8192, 2);
  std::string blob = first.public_blob();
  EXPECT_EQ(node->getPublicData(second.local(), blob), NIXL_SUCCESS);
  EXPECT_EQ(blob, second.public_blob());
  EXPECT_NE(blob, first.public_blob());
}

TEST(Scale, TenThousandRangesRegisterAndEnd) {
  Node node("many");
  std::vector<uint8_t> memory(10000 * 64);
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  std::vector<nixlBackendMD*> all(10000, nullptr);
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(node->registerMem(nixlBlobDesc(address + 64 * i, 64, 0), DRAM_SEG, all[i]),
              NIXL_SUCCESS);
  }
  for (nixlBackendMD* metadata : all) {
    ASSERT_EQ(node->deregisterMem(metadata), NIXL_SUCCESS);
  }
}

}  // namespace
}  // namespace orbite::test
