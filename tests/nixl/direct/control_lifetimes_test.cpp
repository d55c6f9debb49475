// SPDX-License-Identifier: Apache-2.0
// Controls N04, N05, N06 and N08 on the backend's methods, where they depend on timing: memory,
// metadata, peers and engines that are given up while they are in use.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>

#include "nixl/direct/bridge_seam.hpp"
#include "nixl/direct/raw_target.hpp"
#include "nixl/direct/retired_counter.hpp"
#include "support/repeats.hpp"

namespace orbite::test {
namespace {

constexpr size_t kBytes = 256 << 10;  // one frame, on the lane for large work

// So that a frame of large work comes on the lane on which it is waited for.
constexpr const char* kOneBulkLane = R"("tcp": {"bulk_lanes_per_peer": 1})";

wire::ConnectionBlob connection_of(const Node& node) {
  const std::string& info = node.conn_info();
  const std::vector<uint8_t> bytes(info.begin(), info.end());
  return wire::decode_connection(bytes, wire::Profile::kMemory).value();
}

/// A WRITE into a region, of which everything has been sent but the second half of the payload.
class HalfWrite {
 public:
  HalfWrite(RawConnection& lane, const Region& target, uint64_t frame_id) : lane_(lane) {
    const std::string text = target.public_blob();
    const auto blob = wire::decode_range(std::vector<uint8_t>(text.begin(), text.end())).value();
    request_.header.type = static_cast<uint8_t>(wire::FrameType::kWrite);
    request_.header.frame_id = frame_id;
    wire::RegistrationRef& entry = request_.table.emplace_back();
    entry.index = blob.index;
    entry.generation = blob.generation;
    std::memcpy(entry.key, blob.key.bytes.data(), sizeof(entry.key));
    request_.extents.push_back({0, static_cast<uint32_t>(target.size()), 0});
    request_.fit();
    request_.payload.assign(target.size() / 2, 0xEE);
    EXPECT_TRUE(lane_.send(request_));
  }
  const RawRequest& request() const { return request_; }
  ErrorCode finish() {
    const std::vector<uint8_t> rest(request_.header.payload_bytes - request_.payload.size(), 0xEE);
    EXPECT_TRUE(lane_.write(rest));
    const auto response = lane_.read_response();
    return response ? response->status() : ErrorCode::kInternal;
  }

 private:
  RawConnection& lane_;
  RawRequest request_;
};

template <class Condition>
bool comes_true(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition() && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  return condition();
}

TEST(N04Direct, ARemoteBorrowerKeepsTheLeaseAndNobodyBorrowsAfterTheFence) {
  Node node("owner");
  const wire::ConnectionBlob connection = connection_of(node);
  RawConnection::Identity identity;
  const ConnectionPtr borrower = connect_raw(connection.port);
  ASSERT_TRUE(borrower->handshake(connection, identity));
  identity.lane_id = 2;
  const ConnectionPtr latecomer = connect_raw(connection.port);
  ASSERT_TRUE(latecomer->handshake(connection, identity));
  uint64_t frame_id = 0;
  for (int round = 0; round < repeats(50); ++round) {
    const RetiredCounter retired;
    const DeregisterSeam::Counter deregistered;
    Region region(node, kBytes, static_cast<uint32_t>(round));
    HalfWrite write(*borrower, region, ++frame_id);
    ASSERT_TRUE(comes_true([&] { return node.accounts().at("loans") == 1; }));
    region.deregister();
    EXPECT_EQ(retired.count(), 0) << "success to the agent is no receipt";
    RawRequest late = write.request();
    late.header.frame_id = ++frame_id;
    late.payload.assign(kBytes, 0x11);
    ASSERT_TRUE(latecomer->send(late));
    const auto refused = latecomer->read_response();
    ASSERT_TRUE(refused.has_value());
    EXPECT_EQ(refused->status(), ErrorCode::kRegistrationFenced);
    EXPECT_EQ(retired.count(), 0);
    EXPECT_EQ(write.finish(), ErrorCode::kOk);
    EXPECT_TRUE(retired.becomes(1));
    EXPECT_EQ(DeregisterSeam::calls(), 1);
    EXPECT_EQ(region.content(), std::vector<uint8_t>(kBytes, 0xEE));
    EXPECT_TRUE(region.guards_intact());
  }
}

// As the agent does it: each range of a list, then, when a later one fails, back again.
TEST(N04Direct, RollbackOfAListEndsEachRegistrationOnce) {
  Node node("rollback");
  Region in_use(node, kBytes, 1);
  const auto before = node.accounts();
  for (int round = 0; round < repeats(50); ++round) {
    int registered = 0;
    int retired = 0;
    const RegisterSeam::Guard third_fails(
        [&](orbite_nixl_engine_t engine, const orbite_nixl_memory_t* memory,
            orbite_nixl_registration_t* registration, orbite_nixl_error_t* error) {
          if (++registered == 3) {
            error->status = ORBITE_NIXL_ERR_BUDGET_EXHAUSTED;
            return ORBITE_NIXL_ERR_BUDGET_EXHAUSTED;
          }
          orbite_nixl_memory_t leased = *memory;
          leased.context = &retired;
          leased.retired = [](void* context) { ++*static_cast<int*>(context); };
          return RegisterSeam::real(engine, &leased, registration, error);
        });
    const DeregisterSeam::Counter deregistered;
    std::vector<std::pair<nixlBackendMD*, nixlBackendMD*>> done;
    nixl_status_t status = NIXL_SUCCESS;
    for (size_t i = 0; i < 3 && status == NIXL_SUCCESS; ++i) {
      nixlBackendMD* metadata = nullptr;
      nixlBackendMD* self = nullptr;
      const nixlBlobDesc part(in_use.address(64 * i), 64, 0);
      status = node->registerMem(part, DRAM_SEG, metadata);
      if (status == NIXL_SUCCESS) {
        ASSERT_EQ(node->loadLocalMD(metadata, self), NIXL_SUCCESS);
        done.emplace_back(metadata, self);
      }
    }
    EXPECT_EQ(status, NIXL_ERR_BACKEND);
    for (const auto& [metadata, self] : done) {
      EXPECT_EQ(node->unloadMD(self), NIXL_SUCCESS);
      EXPECT_EQ(node->deregisterMem(metadata), NIXL_SUCCESS);
      EXPECT_EQ(node->deregisterMem(metadata), NIXL_SUCCESS) << "a duplicate in the list";
    }
    EXPECT_EQ(DeregisterSeam::calls(), 2);
    EXPECT_EQ(retired, 2);
    EXPECT_TRUE(node.accounts() == before);
  }
}

TEST(N05Direct, UnloadAndInvalidateDuringAnAdmittedCopy) {
  Node node("reader", test_config(kOneBulkLane));
  Node other("other");
  node.meet(other);
  Region elsewhere(other, 4096, 3);
  nixlBackendMD* const at_other = elsewhere.at(node);
  for (int round = 0; round < repeats(50); ++round) {
    const RetiredCounter retired;
    Region source(node, kBytes, static_cast<uint32_t>(round));
    RawTarget target(node, "target", kBytes);
    nixlBackendMD* const metadata = target.load(node);
    const MetaList local = list_of({source.part(0, kBytes, source.local())});
    const MetaList remote = list_of({target.part(0, kBytes, metadata)});
    Request running = prepared(node, NIXL_WRITE, local, remote, "target");
    Request waiting = prepared(node, NIXL_WRITE, local, remote, "target");
    ASSERT_EQ(post(node, running), NIXL_IN_PROG);
    RawRequest taken = target.half_of_a_write(target.bulk());
    EXPECT_EQ(node->unloadMD(metadata), NIXL_SUCCESS);
    EXPECT_LT(post(node, waiting), 0) << "its metadata is gone";
    if (round % 2 == 0) {
      EXPECT_EQ(node->disconnect("target"), NIXL_SUCCESS);
      EXPECT_EQ(post(node, waiting), NIXL_ERR_NOT_FOUND);
    }
    nixlBackendReqH* none = nullptr;
    EXPECT_LT(prepare(node, NIXL_WRITE, local, remote, "target", none), 0);
    // Admitted, so pollable, and everything of it stays.
    EXPECT_EQ(node->checkXfer(running.handle), NIXL_IN_PROG);
    EXPECT_EQ(node.accounts().at("bytes_in_flight"), kBytes);
    source.deregister();
    EXPECT_EQ(retired.count(), 0);
    Region small(node, 64, 1);
    Request elsewhere_request =
        prepared(node, NIXL_WRITE, list_of({small.part(0, 64, small.local())}),
                 list_of({elsewhere.part(0, 64, at_other)}), "other");
    EXPECT_EQ(run(node, elsewhere_request), NIXL_SUCCESS);
    EXPECT_EQ(node->checkXfer(running.handle), NIXL_IN_PROG);
    target.finish(target.bulk(), taken);
    EXPECT_EQ(finish(node, running), NIXL_SUCCESS);
    EXPECT_TRUE(std::equal(source.data(), source.data() + kBytes, target.memory().begin()));
    for (Request* request : {&running, &waiting, &elsewhere_request}) {
      EXPECT_EQ(node->releaseReqH(request->handle), NIXL_SUCCESS);
    }
    small.deregister();
    EXPECT_TRUE(retired.becomes(2));
    if (round % 2 != 0) {
      EXPECT_EQ(node->disconnect("target"), NIXL_SUCCESS);
    }
  }
}

TEST(N05Direct, RestartOnTheSamePortIsAnotherPeer) {
  Node node("node");
  Region source(node, 4096, 1);
  auto peer = std::make_unique<Node>("peer");
  const std::string same_port = R"({"listen": {"address": "127.0.0.1", "port": )" +
                                std::to_string(connection_of(*peer).port) +
                                R"(}, "advertise": {"addresses": ["127.0.0.1"]}})";
  for (int round = 0; round < repeats(50); ++round) {
    auto memory = std::make_unique<Region>(*peer, 4096, 2);
    node.meet(*peer);
    Request request = prepared(node, NIXL_WRITE, list_of({source.part(0, 4096, source.local())}),
                               list_of({memory->part(0, 4096, memory->at(node))}), "peer");
    ASSERT_EQ(run(node, request), NIXL_SUCCESS) << round;
    EXPECT_EQ(memory->content(), source.content());
    memory.reset();
    peer.reset();
    peer = std::make_unique<Node>("peer", same_port);
    const Region successor(*peer, 4096, 3);
    const std::vector<uint8_t> before = successor.content();
    // Nobody has told us yet: the lanes have ended, or the next one meets another epoch.
    const nixl_status_t untold = run(node, request);
    EXPECT_TRUE(untold == NIXL_ERR_MISMATCH || untold == NIXL_ERR_REMOTE_DISCONNECT) << untold;
    node.meet(*peer);
    EXPECT_LT(post(node, request), 0) << "the old epoch";
    EXPECT_EQ(successor.content(), before);
    EXPECT_EQ(node->releaseReqH(request.handle), NIXL_SUCCESS);
  }
}

// What the engine says of an execution whose proof cannot be had, whatever its outcome.
TEST(N06Direct, UnquiescedIsNeverTerminalAndKeepsItsOwners) {
  Node node("unquiesced", test_config(kOneBulkLane));
  const RetiredCounter retired;
  const AbandonSeam::Counter abandoned;
  const EngineReleaseSeam::Counter released;
  {
    Region source(node, kBytes, 1);
    RawTarget target(node, "target", kBytes);
    Request request = prepared(node, NIXL_WRITE, list_of({source.part(0, kBytes, source.local())}),
                               list_of({target.part(0, kBytes, target.load(node))}), "target");
    ASSERT_EQ(post(node, request), NIXL_IN_PROG);
    target.half_of_a_write(target.bulk());
    orbite_nixl_result_t said{};
    const CheckSeam::Guard unquiesced([&](orbite_nixl_engine_t engine, orbite_nixl_request_t which,
                                          orbite_nixl_result_t* result,
                                          orbite_nixl_error_t* error) {
      const orbite_nixl_status_t status = CheckSeam::real(engine, which, result, error);
      result->terminal = 0;
      result->drain = ORBITE_NIXL_DRAIN_UNQUIESCED;
      result->logical = said.logical;
      result->status = said.status;
      result->effect = said.effect;
      return status;
    });
    for (int round = 0; round < repeats(50); ++round) {
      for (const int logical : {ORBITE_NIXL_LOGICAL_NONE, ORBITE_NIXL_LOGICAL_SUCCESS,
                                ORBITE_NIXL_LOGICAL_CANCELED, ORBITE_NIXL_LOGICAL_FAILED}) {
        for (const int status : {ORBITE_NIXL_OK, ORBITE_NIXL_ERR_IO_FAILED,
                                 ORBITE_NIXL_ERR_PEER_DISCONNECTED, ORBITE_NIXL_ERR_INTERNAL}) {
          said.logical = logical;
          said.status = status;
          said.effect = round % 4;
          ASSERT_EQ(node->checkXfer(request.handle), NIXL_IN_PROG) << logical << " " << status;
          ASSERT_EQ(node->releaseReqH(request.handle), NIXL_ERR_REPOST_ACTIVE);
          ASSERT_EQ(node->checkXfer(request.handle), NIXL_IN_PROG);
        }
      }
    }
    source.deregister();
    EXPECT_EQ(retired.count(), 0);
    EXPECT_EQ(node.accounts().at("loans"), 1U);
    EXPECT_EQ(node.accounts().at("bytes_in_flight"), kBytes);
    EXPECT_EQ(AbandonSeam::calls(), 0);
  }
  // The target is gone with its lanes, which is proof.
  EXPECT_TRUE(retired.becomes(1));
  node.destroy();
  EXPECT_EQ(EngineReleaseSeam::calls(), 1);
}

// No native destroy can fail behind today's bridge; that the plugin tries each one once is shown by
// a bridge that says so.
TEST(N06Direct, FailedCleanupIsTriedOnce) {
  for (int round = 0; round < repeats(50); ++round) {
    Node node("failing", test_config(R"("close": {"timeout_ms": 20})"));
    std::vector<uint8_t> memory(4096);
    const nixlBlobDesc part(reinterpret_cast<uintptr_t>(memory.data()), memory.size(), 0);
    nixlBackendMD* metadata = nullptr;
    ASSERT_EQ(node->registerMem(part, DRAM_SEG, metadata), NIXL_SUCCESS);
    orbite_nixl_engine_t kept = 0;
    {
      const DeregisterSeam::Guard failing([](orbite_nixl_engine_t, orbite_nixl_registration_t,
                                             int32_t*, orbite_nixl_error_t* error) {
        error->status = ORBITE_NIXL_ERR_SYSTEM;
        return ORBITE_NIXL_ERR_SYSTEM;
      });
      for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(node->deregisterMem(metadata), NIXL_SUCCESS);
      }
      EXPECT_EQ(DeregisterSeam::calls(), 1);
      const EngineReleaseSeam::Guard refusing(
          [&](orbite_nixl_engine_t engine, orbite_nixl_error_t* error) {
            kept = engine;
            if (error != nullptr) {
              error->status = ORBITE_NIXL_ERR_SYSTEM;
            }
            return ORBITE_NIXL_ERR_SYSTEM;
          });
      node.destroy();
      EXPECT_EQ(EngineReleaseSeam::calls(), 1);
      EXPECT_EQ(DeregisterSeam::calls(), 1);
    }
    EXPECT_EQ(EngineReleaseSeam::real(kept, nullptr), ORBITE_NIXL_OK);
  }
}

TEST(N08Direct, UnreachableTargetCostsOthersNothing) {
  Node sender("sender");
  Node alive("alive");
  sender.meet(alive);
  RawTarget gone(sender, "gone", 64);
  gone.stop_listening();
  for (int round = 0; round < repeats(50); ++round) {
    const std::string message = std::to_string(round);
    EXPECT_EQ(sender->genNotif("gone", message), NIXL_SUCCESS) << "accepted, then dropped and told";
    EXPECT_EQ(sender->genNotif("alive", message), NIXL_SUCCESS);
    const notif_list_t received = receive(alive, 1);
    ASSERT_EQ(received.size(), 1U);
    EXPECT_EQ(received[0], (std::pair<std::string, std::string>("sender", message)));
  }
  EXPECT_TRUE(comes_true([&] { return sender.accounts().at("outbox_bytes") == 0; }));
}

TEST(N08Direct, AFailedNotificationRepeatsNoWrite) {
  Node node("writer", test_config(kOneBulkLane));
  Region source(node, kBytes, 1);
  RawTarget target(node, "target", kBytes);
  nixlBackendMD* const metadata = target.load(node);
  for (int round = 0; round < repeats(50); ++round) {
    Request request = prepared(node, NIXL_WRITE, list_of({source.part(0, kBytes, source.local())}),
                               list_of({target.part(0, kBytes, metadata)}), "target");
    ASSERT_EQ(post(node, request, "refused"), NIXL_IN_PROG);
    RawConnection& lane = target.bulk();
    RawRequest taken = target.half_of_a_write(lane);
    target.take_rest(lane, taken);
    EXPECT_GT(taken.trailer.size(), 0U);
    wire::ResponseHeader response = RawConnection::success_of(taken);
    response.status = static_cast<uint16_t>(ErrorCode::kNotificationFailed);
    ASSERT_TRUE(lane.write_struct(response));
    EXPECT_EQ(finish(node, request), NIXL_ERR_BACKEND);
    EXPECT_LT(post(node, request, "again"), 0);
    EXPECT_EQ(node->releaseReqH(request.handle), NIXL_SUCCESS);
    EXPECT_FALSE(lane.has_bytes());
  }
}

}  // namespace
}  // namespace orbite::test
