// SPDX-License-Identifier: Apache-2.0
// What becomes of a transfer whose handle is released, dropped or destroyed while it is in
// progress: surprises 0.1, 0.2 and 0.3 of the agent, and agents destroyed with transfers in flight.
#include <gtest/gtest.h>

#include "nixl/direct/bridge_seam.hpp"
#include "nixl/direct/plugin.hpp"

namespace orbite::test {
namespace {

// A transfer whose end the test decides. Until `finished` the engine says what it would say of one
// that is under way: post, check and release see an active execution.
class Held {
 public:
  Held()
      : node_("holder"),
        region_(node_, 4096, 1),
        request_(prepared(node_, NIXL_WRITE, list_of({region_.part(0, 64, region_.local())}),
                          list_of({region_.part(1024, 64, region_.self())}), "holder")),
        posts_([this](orbite_nixl_engine_t engine, orbite_nixl_request_t request,
                      const orbite_nixl_post_t* post, orbite_nixl_result_t* result,
                      orbite_nixl_error_t* error) {
          if (posted_ && !finished) {
            return active(error);
          }
          const orbite_nixl_status_t status = PostSeam::real(engine, request, post, result, error);
          posted_ = status == ORBITE_NIXL_OK;
          hold(*result);
          return status;
        }),
        checks_([this](orbite_nixl_engine_t engine, orbite_nixl_request_t request,
                       orbite_nixl_result_t* result, orbite_nixl_error_t* error) {
          const orbite_nixl_status_t status = CheckSeam::real(engine, request, result, error);
          hold(*result);
          return status;
        }),
        releases_([this](orbite_nixl_engine_t engine, orbite_nixl_request_t request,
                         orbite_nixl_error_t* error) {
          return finished ? ReleaseSeam::real(engine, request, error) : active(error);
        }) {}

  Node& node() { return node_; }
  Request& request() { return request_; }
  nixlBackendReqH* handle() { return request_.handle; }
  nixl_status_t post() { return orbite::test::post(node_, request_); }
  nixl_status_t check() { return node_->checkXfer(request_.handle); }
  nixl_status_t release() { return node_->releaseReqH(request_.handle); }

  bool finished = false;
  orbite_nixl_drain_t drain = ORBITE_NIXL_DRAIN_PENDING;
  orbite_nixl_logical_t logical = ORBITE_NIXL_LOGICAL_NONE;

 private:
  static orbite_nixl_status_t active(orbite_nixl_error_t* error) {
    error->status = ORBITE_NIXL_ERR_ACTIVE;
    return ORBITE_NIXL_ERR_ACTIVE;
  }
  void hold(orbite_nixl_result_t& result) const {
    if (!finished) {
      result.terminal = 0;
      result.logical = logical;
      result.drain = drain;
    }
  }

  bool posted_ = false;
  Node node_;
  Region region_;
  Request request_;
  PostSeam::Guard posts_;
  CheckSeam::Guard checks_;
  ReleaseSeam::Guard releases_;
};

// N02's rule, and what NIXL does after its own poll: a refusal leaves a good handle.
TEST(ReleaseInProgress, IsRefusedWithANegativeStatusAndCancelsNothing) {
  Held held;
  const AbandonSeam::Counter abandoned;
  const CancelSeam::Counter cancelled;
  ASSERT_EQ(held.post(), NIXL_IN_PROG);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(held.check(), NIXL_IN_PROG);
    const nixl_status_t refused = held.release();
    EXPECT_EQ(refused, NIXL_ERR_REPOST_ACTIVE);
    EXPECT_NE(refused, NIXL_IN_PROG) << "0.2: NIXL takes it for a success";
  }
  EXPECT_EQ(held.check(), NIXL_IN_PROG);
  held.finished = true;
  EXPECT_EQ(finish(held.node(), held.request()), NIXL_SUCCESS);
  EXPECT_EQ(held.release(), NIXL_SUCCESS);
  EXPECT_EQ(AbandonSeam::calls(), 0);
  EXPECT_EQ(CancelSeam::calls(), 0);
}

// 0.1: after a refusal NIXL 1.5 answers by itself, and its next release deletes the handle.
TEST(PoisonedHandle, SecondReleaseInARowHandsTheTransferToTheEngine) {
  Held held;
  const AbandonSeam::Counter abandoned;
  ASSERT_EQ(held.post(), NIXL_IN_PROG);
  ASSERT_EQ(held.check(), NIXL_IN_PROG);
  ASSERT_EQ(held.release(), NIXL_ERR_REPOST_ACTIVE);
  EXPECT_EQ(held.release(), NIXL_SUCCESS);
  EXPECT_EQ(AbandonSeam::calls(), 1);
  EXPECT_EQ(held.check(), NIXL_ERR_INVALID_PARAM);
  EXPECT_EQ(held.release(), NIXL_ERR_INVALID_PARAM);
  EXPECT_EQ(AbandonSeam::calls(), 1);
}

// 0.1: and it may post the refused handle again first, while the transfer still runs.
TEST(PoisonedHandle, PostIsRefusedAndTheReleaseAfterItIsFinal) {
  Held held;
  const AbandonSeam::Counter abandoned;
  ASSERT_EQ(held.post(), NIXL_IN_PROG);
  ASSERT_EQ(held.check(), NIXL_IN_PROG);
  ASSERT_EQ(held.release(), NIXL_ERR_REPOST_ACTIVE);
  EXPECT_EQ(held.post(), NIXL_ERR_REPOST_ACTIVE);
  // NIXL has stored that status and deletes the handle without another poll.
  EXPECT_EQ(held.release(), NIXL_SUCCESS);
  EXPECT_EQ(AbandonSeam::calls(), 1);
}

TEST(PoisonedHandle, APollInBetweenMakesItGoodAgain) {
  Held held;
  const AbandonSeam::Counter abandoned;
  ASSERT_EQ(held.post(), NIXL_IN_PROG);
  ASSERT_EQ(held.release(), NIXL_ERR_REPOST_ACTIVE);
  ASSERT_EQ(held.check(), NIXL_IN_PROG);
  EXPECT_EQ(held.release(), NIXL_ERR_REPOST_ACTIVE);
  EXPECT_EQ(AbandonSeam::calls(), 0);
  held.finished = true;
  EXPECT_EQ(finish(held.node(), held.request()), NIXL_SUCCESS);
  EXPECT_EQ(held.release(), NIXL_SUCCESS);
}

TEST(PoisonedHandle, FinishedMeanwhileIsReleasedNotAbandoned) {
  Held held;
  const AbandonSeam::Counter abandoned;
  ASSERT_EQ(held.post(), NIXL_IN_PROG);
  ASSERT_EQ(held.release(), NIXL_ERR_REPOST_ACTIVE);
  held.finished = true;
  // The self transfer itself has ended long ago or ends now; NIXL polls no more.
  EXPECT_EQ(held.release(), NIXL_SUCCESS);
  EXPECT_EQ(AbandonSeam::calls(), 0);
}

// Any negative answer is stored by NIXL, which then deletes the handle without another poll.
TEST(PoisonedHandle, ARefusedPostAloneMakesTheReleaseFinal) {
  Held held;
  const AbandonSeam::Counter abandoned;
  ASSERT_EQ(held.post(), NIXL_IN_PROG);
  ASSERT_EQ(held.post(), NIXL_ERR_REPOST_ACTIVE);
  EXPECT_EQ(held.release(), NIXL_SUCCESS);
  EXPECT_EQ(AbandonSeam::calls(), 1);
}

// An error that comes while the transfer runs makes NIXL forget the handle at the next release.
TEST(PoisonedHandle, AFailedPollMakesTheReleaseFinal) {
  Held held;
  const AbandonSeam::Counter abandoned;
  ASSERT_EQ(held.post(), NIXL_IN_PROG);
  held.drain = ORBITE_NIXL_DRAIN_IDLE;  // NIXL_ERR_NOT_POSTED: any negative answer does
  ASSERT_LT(held.check(), 0);
  EXPECT_EQ(held.release(), NIXL_SUCCESS);
  EXPECT_EQ(AbandonSeam::calls(), 1);
}

// N03's rule: a logical failure is not shown while an access may still happen.
TEST(InProgress, OutcomeKnownButNotRetiredStaysInProgress) {
  Held held;
  ASSERT_EQ(held.post(), NIXL_IN_PROG);
  for (const auto logical :
       {ORBITE_NIXL_LOGICAL_SUCCESS, ORBITE_NIXL_LOGICAL_CANCELED, ORBITE_NIXL_LOGICAL_FAILED}) {
    for (const auto drain : {ORBITE_NIXL_DRAIN_PENDING, ORBITE_NIXL_DRAIN_UNQUIESCED}) {
      held.logical = logical;
      held.drain = drain;
      EXPECT_EQ(held.check(), NIXL_IN_PROG) << logical << " " << drain;
      EXPECT_EQ(held.release(), NIXL_ERR_REPOST_ACTIVE);
    }
  }
  held.finished = true;
  EXPECT_EQ(finish(held.node(), held.request()), NIXL_SUCCESS);
  EXPECT_EQ(held.release(), NIXL_SUCCESS);
}

TEST(InProgress, UnquiescedIsLoggedOnce) {
  Held held;
  ASSERT_EQ(held.post(), NIXL_IN_PROG);
  held.drain = ORBITE_NIXL_DRAIN_UNQUIESCED;
  testing::internal::CaptureStderr();
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(held.check(), NIXL_IN_PROG);
  }
  const std::string log = testing::internal::GetCapturedStderr();
  const size_t first = log.find("unquiesced");
  ASSERT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("unquiesced", first + 1), std::string::npos) << log;
  held.finished = true;
  EXPECT_EQ(finish(held.node(), held.request()), NIXL_SUCCESS);
}

// 0.3 and the spec: only a drained success may be posted again.
TEST(Repost, OfATransferInProgressIsRefused) {
  Held held;
  ASSERT_EQ(held.post(), NIXL_IN_PROG);
  EXPECT_EQ(held.post(), NIXL_ERR_REPOST_ACTIVE);
  EXPECT_EQ(held.check(), NIXL_IN_PROG);
  held.finished = true;
  EXPECT_EQ(finish(held.node(), held.request()), NIXL_SUCCESS);
  EXPECT_EQ(held.post(), NIXL_SUCCESS);
}

TEST(Destroy, EngineWithTransfersInFlightAbandonsEachAndIsReleasedOnce) {
  const EngineReleaseSeam::Counter released;
  const AbandonSeam::Counter abandoned;
  {
    Held held;
    ASSERT_EQ(held.post(), NIXL_IN_PROG);
    ASSERT_EQ(held.check(), NIXL_IN_PROG);
    held.node().destroy();
    EXPECT_EQ(AbandonSeam::calls(), 1);
  }
  EXPECT_EQ(EngineReleaseSeam::calls(), 1);
  EXPECT_EQ(AbandonSeam::calls(), 1);
}

TEST(Destroy, AnAbandonedTransferStillDeliversItsBytes) {
  Node here("sender");
  Node there("receiver");
  Region source(here, 8 << 20, 1);
  Region target(there, 8 << 20, 2);
  here.meet(there);
  nixlBackendMD* const remote = target.at(here);
  Request request =
      prepared(here, NIXL_WRITE, list_of({source.part(0, source.size(), source.local())}),
               list_of({target.part(0, target.size(), remote)}), "receiver");
  const nixl_status_t posted = post(here, request, "arrived");
  ASSERT_TRUE(posted == NIXL_IN_PROG || posted == NIXL_SUCCESS) << posted;
  const nixl_status_t released = here->releaseReqH(request.handle);
  if (released < 0) {
    EXPECT_EQ(released, NIXL_ERR_REPOST_ACTIVE);
    EXPECT_EQ(here->releaseReqH(request.handle), NIXL_SUCCESS);
  }
  const notif_list_t received = receive(there, 1);
  ASSERT_EQ(received.size(), 1U);
  EXPECT_EQ(received[0], (std::pair<std::string, std::string>("sender", "arrived")));
  EXPECT_EQ(target.content(), source.content());
  EXPECT_TRUE(target.guards_intact());
}

TEST(Destroy, BothAgentsInEitherOrderWithTransfersInFlight) {
  for (const bool sender_first : {true, false}) {
    Node here("first");
    Node there("second");
    Region source(here, 4 << 20, 1);
    Region target(there, 4 << 20, 2);
    here.meet(there);
    nixlBackendMD* const remote = target.at(here);
    std::vector<Request> requests;
    for (size_t i = 0; i < 4; ++i) {
      requests.push_back(prepared(here, i % 2 == 0 ? NIXL_WRITE : NIXL_READ,
                                  list_of({source.part(i << 20, 1 << 20, source.local())}),
                                  list_of({target.part(i << 20, 1 << 20, remote)}), "second"));
      const nixl_status_t posted = post(here, requests.back());
      EXPECT_GE(posted, 0);
    }
    (sender_first ? here : there).destroy();
    (sender_first ? there : here).destroy();
    EXPECT_TRUE(source.guards_intact() && target.guards_intact());
  }
}

}  // namespace
}  // namespace orbite::test
