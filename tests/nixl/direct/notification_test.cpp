// SPDX-License-Identifier: Apache-2.0
// getNotifs and genNotif: control N08 on the backend's methods.
#include <gtest/gtest.h>

#include <algorithm>

#include "nixl/direct/bridge_seam.hpp"
#include "nixl/direct/plugin.hpp"

namespace orbite::test {
namespace {

using Message = std::pair<std::string, std::string>;

std::string every_byte() {
  std::string bytes;
  for (int value = 0; value < 256; ++value) {
    bytes.push_back(static_cast<char>(value));
  }
  return bytes;
}

TEST(N08Direct, BinaryPayloadSurvivesWithASenderThatWeNeverLoaded) {
  Node sender("sender");
  Node receiver("receiver");
  sender.meet(receiver);
  const std::string messages[] = {"", std::string("n\0tification", 12), every_byte(),
                                  std::string(70000, '\xff')};
  for (const std::string& message : messages) {
    EXPECT_EQ(sender->genNotif("receiver", message), NIXL_SUCCESS);
    const notif_list_t received = receive(receiver, 1);
    ASSERT_EQ(received.size(), 1U) << message.size();
    EXPECT_EQ(received[0], Message("sender", message));
  }
  notif_list_t none;
  EXPECT_EQ(receiver->getNotifs(none), NIXL_SUCCESS);
  EXPECT_TRUE(none.empty());
}

TEST(N08Direct, ToItself) {
  Node node("myself");
  EXPECT_EQ(node->genNotif("myself", ""), NIXL_SUCCESS);
  EXPECT_EQ(node->genNotif("myself", every_byte()), NIXL_SUCCESS);
  const notif_list_t received = receive(node, 2);
  ASSERT_EQ(received.size(), 2U);
  EXPECT_EQ(received[0], Message("myself", ""));
  EXPECT_EQ(received[1], Message("myself", every_byte()));
}

TEST(N08Direct, ManyArriveOnceEach) {
  Node sender("sender");
  Node receiver("receiver");
  sender.meet(receiver);
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(sender->genNotif("receiver", std::to_string(i)), NIXL_SUCCESS);
  }
  const notif_list_t received = receive(receiver, 500);
  ASSERT_EQ(received.size(), 500U);
  std::vector<int> numbers;
  for (const Message& message : received) {
    EXPECT_EQ(message.first, "sender");
    numbers.push_back(std::stoi(message.second));
  }
  std::sort(numbers.begin(), numbers.end());
  for (int i = 0; i < 500; ++i) {
    EXPECT_EQ(numbers[static_cast<size_t>(i)], i);
  }
}

TEST(N08Direct, OfATransferComesAfterItsBytesAndOnce) {
  Node here("here");
  Node there("there");
  Region source(here, 1 << 20, 1);
  Region target(there, 1 << 20, 2);
  here.meet(there);
  nixlBackendMD* const remote = target.at(here);
  for (const nixl_xfer_op_t operation : {NIXL_WRITE, NIXL_READ}) {
    Request request = prepared(here, operation, list_of({source.part(0, 1 << 20, source.local())}),
                               list_of({target.part(0, 1 << 20, remote)}), "there");
    const std::string message = "done\0" + std::to_string(operation);
    const nixl_status_t posted = post(here, request, message);
    ASSERT_GE(posted, 0);
    const notif_list_t received = receive(there, 1);
    ASSERT_EQ(received.size(), 1U);
    EXPECT_EQ(received[0], Message("here", message));
    if (operation == NIXL_WRITE) {
      EXPECT_EQ(target.content(), source.content());
    }
    EXPECT_EQ(posted == NIXL_SUCCESS ? posted : finish(here, request), NIXL_SUCCESS);
    // A post without a notification sends none, whatever the last one did.
    EXPECT_EQ(run(here, request), NIXL_SUCCESS);
    EXPECT_EQ(here->releaseReqH(request.handle), NIXL_SUCCESS);
    notif_list_t none;
    EXPECT_EQ(there->getNotifs(none), NIXL_SUCCESS);
    EXPECT_TRUE(none.empty());
  }
}

TEST(N08Direct, EmptyMessageOfATransferIsDelivered) {
  Node node("empty");
  Region region(node, 4096, 1);
  Request request = prepared(node, NIXL_WRITE, list_of({region.part(0, 8, region.local())}),
                             list_of({region.part(8, 8, region.self())}), "empty");
  ASSERT_GE(post(node, request, ""), 0);
  const notif_list_t received = receive(node, 1);
  ASSERT_EQ(received.size(), 1U);
  EXPECT_EQ(received[0], Message("empty", ""));
  EXPECT_EQ(finish(node, request), NIXL_SUCCESS);
}

// The caller's string may be gone when postXfer and genNotif have returned.
TEST(N08Direct, MessageIsCopiedBeforeTheCallReturns) {
  Node sender("sender");
  Node receiver("receiver");
  sender.meet(receiver);
  std::string message(1000, 'a');
  EXPECT_EQ(sender->genNotif("receiver", message), NIXL_SUCCESS);
  std::fill(message.begin(), message.end(), 'b');
  const notif_list_t received = receive(receiver, 1);
  ASSERT_EQ(received.size(), 1U);
  EXPECT_EQ(received[0].second, std::string(1000, 'a'));
}

TEST(N08Direct, OversizedIsRefusedAndNothingIsSent) {
  const std::string limits = R"("notifications": {"message_bytes_max": 1000})";
  Node sender("sender", test_config(limits));
  Node receiver("receiver", test_config(limits));
  sender.meet(receiver);
  Region source(sender, 64, 1);
  Region target(receiver, 64, 2);
  EXPECT_LT(sender->genNotif("receiver", std::string(1001, 'x')), 0);
  const std::vector<uint8_t> before = target.content();
  Request request = prepared(sender, NIXL_WRITE, list_of({source.part(0, 64, source.local())}),
                             list_of({target.part(0, 64, target.at(sender))}), "receiver");
  EXPECT_LT(post(sender, request, std::string(1001, 'x')), 0);
  EXPECT_EQ(target.content(), before);
  EXPECT_EQ(sender->genNotif("receiver", std::string(1000, 'y')), NIXL_SUCCESS);
  const notif_list_t received = receive(receiver, 1);
  ASSERT_EQ(received.size(), 1U);
  EXPECT_EQ(received[0].second, std::string(1000, 'y'));
}

TEST(N08Direct, UnknownAndRemovedTargetsAreRefused) {
  Node sender("sender");
  Node receiver("receiver");
  EXPECT_EQ(sender->genNotif("receiver", "x"), NIXL_ERR_NOT_FOUND);
  sender.meet(receiver);
  EXPECT_EQ(sender->disconnect("receiver"), NIXL_SUCCESS);
  EXPECT_EQ(sender->genNotif("receiver", "x"), NIXL_ERR_NOT_FOUND);
  sender.meet(receiver);
  EXPECT_EQ(sender->genNotif("receiver", "after"), NIXL_SUCCESS);
  const notif_list_t received = receive(receiver, 1);
  ASSERT_EQ(received.size(), 1U);
  EXPECT_EQ(received[0].second, "after");
}

// A message for a life that is over never reaches the next agent of the name.
TEST(N08Direct, StaleEpochOfTheTargetReceivesNothing) {
  Node sender("sender");
  auto receiver = std::make_unique<Node>("receiver");
  sender.meet(*receiver);
  EXPECT_EQ(sender->genNotif("receiver", "to the first"), NIXL_SUCCESS);
  EXPECT_EQ(receive(*receiver, 1).size(), 1U);
  receiver = std::make_unique<Node>("receiver");
  // Sent under the old epoch: refused, or accepted and dropped, never delivered.
  sender->genNotif("receiver", "to the dead");
  EXPECT_EQ(sender->disconnect("receiver"), NIXL_SUCCESS);
  sender.meet(*receiver);
  EXPECT_EQ(sender->genNotif("receiver", "to the second"), NIXL_SUCCESS);
  const notif_list_t received = receive(*receiver, 1);
  ASSERT_EQ(received.size(), 1U);
  EXPECT_EQ(received[0], Message("sender", "to the second"));
}

// Nobody ever drains (Ray, SGLang, LMCache): transfers go on, memory stays bounded.
TEST(N08Direct, AnInboxThatNobodyDrainsStallsNothing) {
  const std::string limits =
      R"("notifications": {"message_bytes_max": 4096, "inbox_bytes_max": 65536})";
  Node sender("sender");
  Node receiver("receiver", test_config(limits));
  sender.meet(receiver);
  Region source(sender, 64, 1);
  Region target(receiver, 64, 2);
  Request request = prepared(sender, NIXL_WRITE, list_of({source.part(0, 64, source.local())}),
                             list_of({target.part(0, 64, target.at(sender))}), "receiver");
  for (int i = 0; i < 200; ++i) {
    nixl_status_t status = post(sender, request, std::string(4000, 'u'));
    if (status == NIXL_IN_PROG) {
      status = finish(sender, request);
    }
    ASSERT_EQ(status, NIXL_SUCCESS) << i;
  }
  // 200 messages of 4000 bytes came; no more than the budget of 65536 bytes is kept.
  notif_list_t kept;
  EXPECT_EQ(receiver->getNotifs(kept), NIXL_SUCCESS);
  EXPECT_GE(kept.size(), 1U);
  EXPECT_LE(kept.size(), 16U);
  EXPECT_EQ(sender->releaseReqH(request.handle), NIXL_SUCCESS);
}

TEST(N08Direct, AFailureOfTheBridgeIsPassedOn) {
  Node node("failing");
  EXPECT_EQ(node->genNotif("failing", "kept"), NIXL_SUCCESS);
  {
    const ReceiveSeam::Guard failing(
        [](orbite_nixl_engine_t, char*, size_t*, void*, size_t*, orbite_nixl_error_t* error) {
          error->status = ORBITE_NIXL_ERR_INTERNAL;
          return ORBITE_NIXL_ERR_INTERNAL;
        });
    notif_list_t none;
    EXPECT_EQ(node->getNotifs(none), NIXL_ERR_BACKEND);
    EXPECT_TRUE(none.empty());
  }
  EXPECT_EQ(receive(node, 1).size(), 1U);
}

}  // namespace
}  // namespace orbite::test
