// SPDX-License-Identifier: Apache-2.0
// Controls N02 and N03 on the backend's methods: the target is played by the test, which takes a
// part of a WRITE and withholds the rest, or the answer.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>

#include "nixl/direct/bridge_seam.hpp"
#include "nixl/direct/raw_target.hpp"
#include "nixl/direct/retired_counter.hpp"
#include "support/repeats.hpp"

namespace orbite::test {
namespace {

constexpr size_t kBytes = 256 << 10;  // one frame, on the lane for large work
constexpr size_t kFrame = 1 << 20;

/// A node, memory of its own for each round, and a target that holds.
class ActiveWork : public ::testing::Test {
 protected:
  explicit ActiveWork(const std::string& members = R"("tcp": {"bulk_lanes_per_peer": 1})")
      : node_("holder", test_config(members)), target_(node_, "target", 2 * kFrame) {
    remote_ = target_.load(node_);
    checks_.emplace([this](orbite_nixl_engine_t engine, orbite_nixl_request_t request,
                           orbite_nixl_result_t* result, orbite_nixl_error_t* error) {
      const orbite_nixl_status_t status = CheckSeam::real(engine, request, result, error);
      last_ = *result;
      return status;
    });
    prepares_.emplace([this](orbite_nixl_engine_t engine, const orbite_nixl_prepare_t* prepare,
                             orbite_nixl_request_t* request, orbite_nixl_error_t* error) {
      const orbite_nixl_status_t status = PrepareSeam::real(engine, prepare, request, error);
      engine_ = engine;
      bridge_request_ = *request;
      return status;
    });
  }
  Request write(Region& source, size_t offset, size_t bytes) {
    return prepared(node_, NIXL_WRITE, list_of({source.part(0, bytes, source.local())}),
                    list_of({target_.part(offset, bytes, remote_)}), target_.name());
  }
  nixl_status_t check(const Request& request) { return node_->checkXfer(request.handle); }
  nixl_status_t release(const Request& request) { return node_->releaseReqH(request.handle); }
  void expect_in_progress(const Request& request) {
    for (int i = 0; i < 5; ++i) {
      ASSERT_EQ(check(request), NIXL_IN_PROG);
      ASSERT_EQ(last_.terminal, 0);
    }
  }
  /// Polls until the outcome is known, which is not the end.
  void expect_failed_in_progress(const Request& request, orbite_nixl_status_t why) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    do {
      ASSERT_EQ(check(request), NIXL_IN_PROG);
    } while (last_.logical == ORBITE_NIXL_LOGICAL_NONE && std::chrono::steady_clock::now() < end);
    ASSERT_EQ(last_.logical, ORBITE_NIXL_LOGICAL_FAILED);
    ASSERT_EQ(last_.status, why);
    ASSERT_EQ(last_.drain, ORBITE_NIXL_DRAIN_PENDING);
    expect_in_progress(request);
  }
  /// It cannot be posted again, and no byte of it is sent again.
  void expect_over(Request& request) {
    EXPECT_LT(post(node_, request), 0);
    EXPECT_EQ(release(request), NIXL_SUCCESS);
    EXPECT_EQ(release(request), NIXL_ERR_INVALID_PARAM);
  }

  Node node_;
  RawTarget target_;
  nixlBackendMD* remote_ = nullptr;
  orbite_nixl_result_t last_{};
  orbite_nixl_engine_t engine_ = 0;
  orbite_nixl_request_t bridge_request_ = 0;
  std::optional<CheckSeam::Guard> checks_;
  std::optional<PrepareSeam::Guard> prepares_;
};

using N02Direct = ActiveWork;

TEST_F(N02Direct, ReleaseIsRefusedTheHandleStaysGoodAndOneReceiptEndsIt) {
  const auto idle = node_.accounts();
  for (int round = 0; round < repeats(50); ++round) {
    const RetiredCounter retired;
    const CancelSeam::Counter cancels;
    const AbandonSeam::Counter abandons;
    Region source(node_, kBytes, static_cast<uint32_t>(round));
    Request request = write(source, 0, kBytes);
    ASSERT_EQ(post(node_, request), NIXL_IN_PROG);
    RawConnection& lane = target_.bulk();
    RawRequest taken = target_.half_of_a_write(lane);
    expect_in_progress(request);
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(release(request), NIXL_ERR_REPOST_ACTIVE);
      expect_in_progress(request);
    }
    EXPECT_EQ(CancelSeam::calls() + AbandonSeam::calls(), 0);
    source.deregister();
    const auto held = node_.accounts();
    EXPECT_EQ(held.at("bytes_in_flight"), kBytes);
    EXPECT_EQ(held.at("requests"), 1U);
    EXPECT_EQ(held.at("loans"), 1U);
    EXPECT_EQ(retired.count(), 0);
    target_.finish(lane, taken);
    ASSERT_EQ(finish(node_, request), NIXL_SUCCESS);
    EXPECT_TRUE(retired.becomes(1));
    ASSERT_EQ(check(request), NIXL_SUCCESS);
    EXPECT_EQ(release(request), NIXL_SUCCESS);
    EXPECT_TRUE(std::equal(source.data(), source.data() + kBytes, target_.memory().begin()));
    EXPECT_TRUE(source.guards_intact());
    EXPECT_TRUE(node_.accounts_become(idle));
    EXPECT_EQ(retired.count(), 1);
  }
}

class N02DirectCancel : public ActiveWork {
 protected:
  N02DirectCancel()
      : ActiveWork(R"("tcp": {"bulk_lanes_per_peer": 1, "lane_bytes_in_flight_max": 1048576})") {}
  void cancel(orbite_nixl_request_t request) {
    EXPECT_EQ(CancelSeam::real(engine_, request, nullptr), ORBITE_NIXL_OK);
  }
};

TEST_F(N02DirectCancel, QueuedWorkWasNeverPostedAndRunningWorkDrains) {
  Region source(node_, 2 * kFrame, 1);
  for (int round = 0; round < repeats(50); ++round) {
    Request running = write(source, 0, 2 * kFrame);
    const orbite_nixl_request_t bridge_running = bridge_request_;
    Request queued = write(source, 0, kBytes);
    const orbite_nixl_request_t bridge_queued = bridge_request_;
    ASSERT_EQ(post(node_, running), NIXL_IN_PROG);
    ASSERT_EQ(post(node_, queued), NIXL_IN_PROG);
    RawConnection& lane = target_.bulk();
    // One frame is all that may be under way; the rest of this one waits, the other behind it.
    RawRequest taken = target_.half_of_a_write(lane);
    cancel(bridge_queued);
    EXPECT_EQ(check(queued), NIXL_ERR_CANCELED);
    EXPECT_EQ(last_.effect, ORBITE_NIXL_EFFECT_NONE);
    EXPECT_EQ(last_.drain, ORBITE_NIXL_DRAIN_RETIRED);
    EXPECT_EQ(last_.bytes_prefix, 0U);
    cancel(bridge_running);
    expect_in_progress(running);
    EXPECT_EQ(last_.logical, ORBITE_NIXL_LOGICAL_CANCELED);
    EXPECT_EQ(last_.drain, ORBITE_NIXL_DRAIN_PENDING);
    target_.finish(lane, taken);
    EXPECT_EQ(finish(node_, running), NIXL_ERR_CANCELED);
    EXPECT_EQ(last_.effect, ORBITE_NIXL_EFFECT_PREFIX);
    EXPECT_EQ(last_.bytes_prefix, kFrame);
    expect_over(running);
    expect_over(queued);
    // Nothing of either comes behind: the next frame on the lane is that of the next request.
    Request next = write(source, 4096, kBytes);
    ASSERT_EQ(post(node_, next), NIXL_IN_PROG);
    taken = target_.half_of_a_write(lane);
    EXPECT_EQ(taken.header.payload_bytes, kBytes);
    EXPECT_EQ(taken.extents.at(0).offset, 4096U);
    target_.finish(lane, taken);
    EXPECT_EQ(finish(node_, next), NIXL_SUCCESS);
    EXPECT_EQ(release(next), NIXL_SUCCESS);
  }
}

using N07DirectWithheld = ActiveWork;

TEST_F(N07DirectWithheld, AnswersBlockNoCallAndPreparingSendsNothing) {
  Region source(node_, kBytes, 1);
  for (int round = 0; round < repeats(50); ++round) {
    Request first = write(source, 0, kBytes);
    Request second = write(source, 0, kBytes);
    Request unposted = write(source, 0, kBytes);
    if (round > 0) {
      EXPECT_FALSE(target_.bulk().has_bytes());
    }
    ASSERT_EQ(post(node_, first), NIXL_IN_PROG);
    ASSERT_EQ(post(node_, second), NIXL_IN_PROG);
    EXPECT_EQ(release(unposted), NIXL_SUCCESS);
    for (Request* request : {&first, &second}) {
      expect_in_progress(*request);
      EXPECT_EQ(post(node_, *request), NIXL_ERR_REPOST_ACTIVE);
      expect_in_progress(*request);
      EXPECT_EQ(release(*request), NIXL_ERR_REPOST_ACTIVE);
      expect_in_progress(*request);
    }
    target_.serve_one(target_.bulk());
    target_.serve_one(target_.bulk());
    for (Request* request : {&first, &second}) {
      EXPECT_EQ(finish(node_, *request), NIXL_SUCCESS);
      EXPECT_EQ(release(*request), NIXL_SUCCESS);
    }
  }
}

class N03DirectDeadline : public ActiveWork {
 protected:
  N03DirectDeadline() {
    // The lane stands before any deadline is set.
    Region source(node_, kBytes, 1);
    Request request = write(source, 0, kBytes);
    EXPECT_EQ(post(node_, request), NIXL_IN_PROG);
    target_.serve_one(target_.bulk());
    EXPECT_EQ(finish(node_, request), NIXL_SUCCESS);
    EXPECT_EQ(release(request), NIXL_SUCCESS);
    posts_.emplace([](orbite_nixl_engine_t engine, orbite_nixl_request_t which,
                      const orbite_nixl_post_t* how, orbite_nixl_result_t* result,
                      orbite_nixl_error_t* error) {
      orbite_nixl_post_t hasty = *how;
      hasty.timeout_ns = 50'000'000;
      return PostSeam::real(engine, which, &hasty, result, error);
    });
  }

  std::optional<PostSeam::Guard> posts_;
};

TEST_F(N03DirectDeadline, IsNoReceiptAndNeitherIsAnotherRequestsEnd) {
  for (int round = 0; round < repeats(50); ++round) {
    const RetiredCounter retired;
    Region source(node_, kBytes, static_cast<uint32_t>(round));
    Request request = write(source, 0, kBytes);
    ASSERT_EQ(post(node_, request), NIXL_IN_PROG);
    RawConnection& lane = target_.bulk();
    RawRequest taken = target_.half_of_a_write(lane);
    expect_failed_in_progress(request, ORBITE_NIXL_ERR_DEADLINE_EXCEEDED);
    EXPECT_EQ(node_->genNotif(target_.name(), "another"), NIXL_SUCCESS);
    const auto notified = target_.latency().read_request();
    ASSERT_TRUE(notified.has_value());
    RawTarget::acknowledge(target_.latency(), *notified);
    expect_in_progress(request);
    source.deregister();
    EXPECT_EQ(retired.count(), 0);
    target_.finish(lane, taken);
    EXPECT_EQ(finish(node_, request), NIXL_ERR_BACKEND);
    EXPECT_EQ(last_.status, ORBITE_NIXL_ERR_DEADLINE_EXCEEDED);
    EXPECT_TRUE(retired.becomes(1));
    expect_over(request);
    EXPECT_FALSE(lane.has_bytes());
  }
}

using N03Direct = ActiveWork;

TEST_F(N03Direct, ShortCompletionWithAnotherReceiptWithheld) {
  Region source(node_, 2 * kFrame, 1);
  for (int round = 0; round < repeats(50); ++round) {
    Request request = write(source, 0, 2 * kFrame);
    ASSERT_EQ(post(node_, request), NIXL_IN_PROG);
    RawConnection& lane = target_.bulk();
    RawRequest first = target_.half_of_a_write(lane);
    target_.take_rest(lane, first);
    RawRequest second = target_.half_of_a_write(lane);
    wire::ResponseHeader short_answer = RawConnection::success_of(first);
    short_answer.status = static_cast<uint16_t>(ErrorCode::kIoFailed);
    short_answer.effect = static_cast<uint8_t>(wire::FrameEffect::kPrefix);
    short_answer.prefix_bytes = 1000 + static_cast<uint64_t>(round);
    ASSERT_TRUE(lane.write_struct(short_answer));
    expect_failed_in_progress(request, ORBITE_NIXL_ERR_IO_FAILED);
    target_.finish(lane, second);
    EXPECT_EQ(finish(node_, request), NIXL_ERR_BACKEND);
    EXPECT_EQ(last_.bytes_prefix, 1000U + static_cast<uint64_t>(round));
    EXPECT_EQ(last_.effect, ORBITE_NIXL_EFFECT_UNKNOWN) << "bytes landed behind the gap";
    expect_over(request);
    EXPECT_FALSE(lane.has_bytes());
  }
}

TEST_F(N03Direct, UnknownEffectUntilTheDrainIsAnsweredAndNoReplay) {
  for (int round = 0; round < repeats(50); ++round) {
    const RetiredCounter retired;
    Region source(node_, kBytes, static_cast<uint32_t>(round));
    Request request = write(source, 0, kBytes);
    ASSERT_EQ(post(node_, request), NIXL_IN_PROG);
    target_.half_of_a_write(target_.bulk());
    const uint64_t lane_id = target_.bulk().hello.lane_id;
    target_.reset(wire::LaneClass::kBulk);
    expect_failed_in_progress(request, ORBITE_NIXL_ERR_PEER_DISCONNECTED);
    const RawRequest question = target_.drain_question(lane_id);
    source.deregister();
    expect_in_progress(request);
    EXPECT_EQ(retired.count(), 0);
    RawTarget::acknowledge(target_.lane(wire::LaneClass::kControl), question);
    EXPECT_EQ(finish(node_, request), NIXL_ERR_REMOTE_DISCONNECT);
    EXPECT_EQ(last_.effect, ORBITE_NIXL_EFFECT_UNKNOWN);
    EXPECT_TRUE(retired.becomes(1));
    expect_over(request);
    // The next lane carries the next request, and nothing of this one.
    Region fresh(node_, kBytes, 1);
    Request next = write(fresh, kBytes, kBytes);
    ASSERT_EQ(post(node_, next), NIXL_IN_PROG);
    RawRequest taken = target_.half_of_a_write(target_.bulk());
    EXPECT_EQ(taken.extents.at(0).offset, kBytes);
    target_.finish(target_.bulk(), taken);
    EXPECT_EQ(finish(node_, next), NIXL_SUCCESS);
    EXPECT_EQ(release(next), NIXL_SUCCESS);
  }
}

TEST_F(N03Direct, WrapperDroppedEarlyKeepsItsOwners) {
  const auto idle = node_.accounts();
  for (int round = 0; round < repeats(50); ++round) {
    const RetiredCounter retired;
    Region source(node_, kBytes, static_cast<uint32_t>(round));
    Request request = write(source, 0, kBytes);
    ASSERT_EQ(post(node_, request), NIXL_IN_PROG);
    RawConnection& lane = target_.bulk();
    RawRequest taken = target_.half_of_a_write(lane);
    EXPECT_EQ(release(request), NIXL_ERR_REPOST_ACTIVE);
    EXPECT_EQ(release(request), NIXL_SUCCESS) << "the agent has lost its pointer";
    source.deregister();
    EXPECT_EQ(node_.accounts().at("loans"), 1U);
    EXPECT_EQ(node_.accounts().at("bytes_in_flight"), kBytes);
    EXPECT_EQ(retired.count(), 0);
    target_.finish(lane, taken);
    EXPECT_TRUE(retired.becomes(1));
    EXPECT_TRUE(node_.accounts_become(idle));
  }
}

}  // namespace
}  // namespace orbite::test
