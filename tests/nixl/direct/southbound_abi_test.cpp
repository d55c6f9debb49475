// SPDX-License-Identifier: Apache-2.0
// The declarations in plugins/nixl/southbound against the binary interface of NIXL.
#include <gtest/gtest.h>

#include <cstring>

#include "backend/backend_plugin.h"

namespace {

// In the Itanium C++ ABI a pointer to a virtual member function holds 1 + its byte offset in the
// table of virtual functions.
template <class Member>
size_t slot_of(Member member) {
  static_assert(sizeof(Member) == 2 * sizeof(size_t));
  size_t words[2];
  std::memcpy(words, &member, sizeof(words));
  EXPECT_EQ(words[0] % sizeof(void*), 1U) << "not virtual";
  return words[0] / sizeof(void*);
}

using Engine = nixlBackendEngine;

TEST(SouthBoundAbi, VirtualFunctionsStandInNixlsOrder) {
  using RemoteView = nixl_status_t (Engine::*)(const nixl_remote_meta_dlist_t&, nixlMemViewH&,
                                               const nixl_opt_b_args_t*) const;
  using LocalView = nixl_status_t (Engine::*)(const nixl_meta_dlist_t&, nixlMemViewH&,
                                              const nixl_opt_b_args_t*) const;
  const std::vector<size_t> slots = {slot_of(&Engine::supportsRemote),
                                     slot_of(&Engine::supportsLocal),
                                     slot_of(&Engine::supportsNotif),
                                     slot_of(&Engine::getSupportedMems),
                                     slot_of(&Engine::registerMem),
                                     slot_of(&Engine::deregisterMem),
                                     slot_of(&Engine::connect),
                                     slot_of(&Engine::disconnect),
                                     slot_of(&Engine::unloadMD),
                                     slot_of(&Engine::prepXfer),
                                     slot_of(&Engine::postXfer),
                                     slot_of(&Engine::checkXfer),
                                     slot_of(&Engine::releaseReqH),
                                     slot_of(static_cast<RemoteView>(&Engine::prepMemView)),
                                     slot_of(static_cast<LocalView>(&Engine::prepMemView)),
                                     slot_of(&Engine::releaseMemView),
                                     slot_of(&Engine::getPublicData),
                                     slot_of(&Engine::getConnInfo),
                                     slot_of(&Engine::loadRemoteConnInfo),
                                     slot_of(&Engine::loadRemoteMD),
                                     slot_of(&Engine::loadLocalMD),
                                     slot_of(&Engine::getNotifs),
                                     slot_of(&Engine::genNotif),
                                     slot_of(&Engine::queryMem),
                                     slot_of(&Engine::estimateXferCost)};
  // The two destructors come first.
  for (size_t i = 0; i < slots.size(); ++i) {
    EXPECT_EQ(slots[i], i + 2) << "function " << i;
  }
  EXPECT_EQ(slots.size() + 2, 27U);
}

TEST(SouthBoundAbi, SizesAreThoseOfTheReleasedAgent) {
  EXPECT_EQ(sizeof(nixlBackendInitParams), 96U);
  EXPECT_EQ(sizeof(nixlBasicDesc), 24U);
  EXPECT_EQ(sizeof(nixlMetaDesc), 32U);
  EXPECT_EQ(sizeof(nixlBlobDesc), 56U);
  EXPECT_EQ(sizeof(nixl_meta_dlist_t), 40U);
  EXPECT_EQ(sizeof(nixlBackendOptionalArgs), 72U);
  EXPECT_EQ(sizeof(nixlBackendPlugin), 56U);
  EXPECT_EQ(sizeof(nixlBackendEngine), 208U);
  EXPECT_EQ(NIXL_PLUGIN_API_VERSION, 1);
}

TEST(SouthBoundAbi, StatusesHaveNixlsNumbers) {
  EXPECT_EQ(NIXL_IN_PROG, 1);
  EXPECT_EQ(NIXL_SUCCESS, 0);
  EXPECT_EQ(NIXL_ERR_NOT_POSTED, -1);
  EXPECT_EQ(NIXL_ERR_REPOST_ACTIVE, -7);
  EXPECT_EQ(NIXL_ERR_REMOTE_DISCONNECT, -10);
  EXPECT_EQ(NIXL_ERR_NO_TELEMETRY, -12);
}

}  // namespace
