// SPDX-License-Identifier: Apache-2.0
// Connection information and metadata of peers: bad input, removal, restart.
#include <gtest/gtest.h>

#include "nixl/direct/bridge_seam.hpp"
#include "nixl/direct/plugin.hpp"

namespace orbite::test {
namespace {

bool is_metadata_refusal(nixl_status_t status) {
  return status == NIXL_ERR_INVALID_PARAM || status == NIXL_ERR_MISMATCH;
}

TEST(BadMetadata, ConnectionInformationTruncatedOrAlteredIsRefused) {
  Node reader("reader");
  Node other("other");
  const std::string& good = other.conn_info();
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    EXPECT_TRUE(is_metadata_refusal(reader->loadRemoteConnInfo("other", good.substr(0, bytes))))
        << "cut to " << bytes;
  }
  for (size_t i = 0; i < good.size(); ++i) {
    for (const int flip : {1, 0x80, 0xff}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      EXPECT_TRUE(is_metadata_refusal(reader->loadRemoteConnInfo("other", bad)))
          << "byte " << i << " xor " << flip;
    }
  }
  EXPECT_TRUE(is_metadata_refusal(reader->loadRemoteConnInfo("other", good + '\0')));
  EXPECT_TRUE(is_metadata_refusal(reader->loadRemoteConnInfo("other", std::string(1 << 20, 'x'))));
  EXPECT_EQ(reader->genNotif("other", "x"), NIXL_ERR_NOT_FOUND) << "nothing was kept";
  EXPECT_EQ(reader->loadRemoteConnInfo("other", good), NIXL_SUCCESS);
}

TEST(BadMetadata, PublicDataTruncatedOrAlteredIsRefused) {
  Node reader("reader");
  Node other("other");
  Region region(other, 4096, 1);
  reader.meet(other);
  const std::string good = region.public_blob();
  const auto load = [&](const std::string& blob, size_t shift = 0, size_t bytes = 4096) {
    nixlBackendMD* metadata = nullptr;
    const nixlBlobDesc descriptor(region.address(shift), bytes, 0, blob);
    const nixl_status_t status = reader->loadRemoteMD(descriptor, DRAM_SEG, "other", metadata);
    EXPECT_EQ(metadata != nullptr, status == NIXL_SUCCESS);
    return status;
  };
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    EXPECT_TRUE(is_metadata_refusal(load(good.substr(0, bytes)))) << "cut to " << bytes;
  }
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x01);
    EXPECT_TRUE(is_metadata_refusal(load(bad))) << "byte " << i;
  }
  EXPECT_TRUE(is_metadata_refusal(load(good + 'x')));
  EXPECT_TRUE(is_metadata_refusal(load(other.conn_info()))) << "a blob of another kind";
  EXPECT_TRUE(is_metadata_refusal(load(good, 1, 4096))) << "past the end of the range";
  EXPECT_TRUE(is_metadata_refusal(load(good, 0, 0))) << "no bytes";
  EXPECT_EQ(load(good, 1, 4095), NIXL_SUCCESS);
}

TEST(BadMetadata, ARangeOfAnotherAgentIsRefused) {
  Node reader("reader");
  Node first("first");
  Node second("second");
  Region region(first, 4096, 1);
  reader.meet(first);
  reader.meet(second);
  nixlBackendMD* metadata = nullptr;
  const nixlBlobDesc descriptor(region.address(), region.size(), 0, region.public_blob());
  EXPECT_TRUE(is_metadata_refusal(reader->loadRemoteMD(descriptor, DRAM_SEG, "second", metadata)));
  EXPECT_EQ(reader->loadRemoteMD(descriptor, DRAM_SEG, "nobody", metadata), NIXL_ERR_NOT_FOUND);
  EXPECT_EQ(metadata, nullptr);
}

TEST(Peers, TheSameInformationAgainChangesNothing) {
  Node reader("reader");
  Node other("other");
  Region region(other, 4096, 1);
  Region local(reader, 4096, 2);
  reader.meet(other);
  Request request = prepared(reader, NIXL_READ, list_of({local.part(0, 64, local.local())}),
                             list_of({region.part(0, 64, region.at(reader))}), "other");
  const RetirePeerSeam::Counter retired;
  for (int i = 0; i < 100; ++i) {
    reader.meet(other);
  }
  EXPECT_EQ(RetirePeerSeam::calls(), 0);
  EXPECT_EQ(run(reader, request), NIXL_SUCCESS);
}

TEST(Peers, RemovedAndAddedAgainWorksAndOldRequestsFail) {
  Node reader("reader");
  Node other("other");
  Region region(other, 4096, 1);
  Region local(reader, 4096, 2);
  std::vector<Request> old;
  for (int i = 0; i < 20; ++i) {
    reader.meet(other);
    nixlBackendMD* const metadata = region.at(reader);
    Request request = prepared(reader, NIXL_READ, list_of({local.part(0, 64, local.local())}),
                               list_of({region.part(0, 64, metadata)}), "other");
    EXPECT_EQ(run(reader, request), NIXL_SUCCESS) << i;
    old.push_back(request);
    EXPECT_EQ(reader->unloadMD(metadata), NIXL_SUCCESS);
    EXPECT_EQ(reader->disconnect("other"), NIXL_SUCCESS);
  }
  reader.meet(other);
  for (Request& request : old) {
    EXPECT_EQ(run(reader, request), NIXL_ERR_NOT_FOUND);
    EXPECT_EQ(reader->releaseReqH(request.handle), NIXL_SUCCESS);
  }
}

// NIXL unloads every range before it disconnects; the disconnect fences by itself as well.
TEST(Peers, DisconnectAloneFencesWhatWasPrepared) {
  Node reader("reader");
  Node other("other");
  Region region(other, 4096, 1);
  Region local(reader, 4096, 2);
  reader.meet(other);
  Request request = prepared(reader, NIXL_WRITE, list_of({local.part(0, 64, local.local())}),
                             list_of({region.part(0, 64, region.at(reader))}), "other");
  const std::vector<uint8_t> before = region.content();
  EXPECT_EQ(reader->disconnect("other"), NIXL_SUCCESS);
  EXPECT_EQ(reader->disconnect("other"), NIXL_ERR_NOT_FOUND);
  EXPECT_EQ(post(reader, request), NIXL_ERR_NOT_FOUND);
  EXPECT_EQ(region.content(), before);
  EXPECT_EQ(reader->releaseReqH(request.handle), NIXL_SUCCESS);
}

TEST(Peers, ChangedInformationReplacesThePeer) {
  Node reader("reader");
  Region local(reader, 4096, 2);
  auto first = std::make_unique<Node>("other");
  auto first_region = std::make_unique<Region>(*first, 4096, 1);
  reader.meet(*first);
  Request old = prepared(reader, NIXL_WRITE, list_of({local.part(0, 64, local.local())}),
                         list_of({first_region->part(0, 64, first_region->at(reader))}), "other");
  Node second("other");
  Region second_region(second, 4096, 3);
  const RetirePeerSeam::Counter retired;
  reader.meet(second);
  EXPECT_EQ(RetirePeerSeam::calls(), 1) << "our handle on the first";
  const std::vector<uint8_t> before = second_region.content();
  EXPECT_EQ(post(reader, old), NIXL_ERR_NOT_FOUND);
  EXPECT_EQ(second_region.content(), before);
  Request fresh = prepared(reader, NIXL_WRITE, list_of({local.part(0, 64, local.local())}),
                           list_of({second_region.part(0, 64, second_region.at(reader))}), "other");
  EXPECT_EQ(run(reader, fresh), NIXL_SUCCESS);
  EXPECT_EQ(reader->releaseReqH(old.handle), NIXL_SUCCESS);
}

TEST(Peers, OurOwnNameIsOurselvesOnly) {
  Node node("self");
  Node impostor("self");
  EXPECT_EQ(node->loadRemoteConnInfo("self", node.conn_info()), NIXL_SUCCESS);
  EXPECT_EQ(node->loadRemoteConnInfo("self", impostor.conn_info()), NIXL_ERR_INVALID_PARAM);
  EXPECT_EQ(node->genNotif("self", "still us"), NIXL_SUCCESS);
  EXPECT_EQ(receive(node, 1).size(), 1U);
  EXPECT_EQ(node->disconnect("self"), NIXL_SUCCESS);
  EXPECT_EQ(node->genNotif("self", "x"), NIXL_ERR_NOT_FOUND);
  EXPECT_EQ(node->connect("self"), NIXL_SUCCESS);
  EXPECT_EQ(node->genNotif("self", "again"), NIXL_SUCCESS);
}

TEST(Peers, ConnectIsForLoadedPeersAndSaysWhetherTheyAnswer) {
  Node node("node");
  EXPECT_EQ(node->connect("other"), NIXL_ERR_NOT_FOUND);
  EXPECT_EQ(node->disconnect("other"), NIXL_ERR_NOT_FOUND);
  auto other = std::make_unique<Node>("other");
  node.meet(*other);
  EXPECT_EQ(node->connect("other"), NIXL_SUCCESS);
  EXPECT_EQ(node->connect("other"), NIXL_SUCCESS);
}

TEST(Peers, ADestroyedPeerIsARemoteDisconnect) {
  Node node("node");
  Region local(node, 4096, 1);
  auto other = std::make_unique<Node>("other");
  auto region = std::make_unique<Region>(*other, 4096, 2);
  node.meet(*other);
  Request request = prepared(node, NIXL_WRITE, list_of({local.part(0, 64, local.local())}),
                             list_of({region->part(0, 64, region->at(node))}), "other");
  EXPECT_EQ(run(node, request), NIXL_SUCCESS);
  other->destroy();
  EXPECT_EQ(run(node, request), NIXL_ERR_REMOTE_DISCONNECT);
  EXPECT_EQ(node->releaseReqH(request.handle), NIXL_SUCCESS);
}

}  // namespace
}  // namespace orbite::test
