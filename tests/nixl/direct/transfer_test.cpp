// SPDX-License-Identifier: Apache-2.0
// prepXfer, postXfer, checkXfer: controls N01 (TCP) and N07 on the backend's methods.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "nixl/direct/bridge_seam.hpp"
#include "nixl/direct/plugin.hpp"

namespace orbite::test {
namespace {

// Two agents that know each other, a region of each, and each region loaded at the other.
struct Pair {
  explicit Pair(size_t bytes = 1 << 16)
      : here("here"), there("there"), source(here, bytes, 1), target(there, bytes, 2) {
    here.meet(there);
    there.meet(here);
    remote = target.at(here);
  }
  MetaList local_list(const std::vector<std::pair<size_t, size_t>>& parts) const {
    std::vector<nixlMetaDesc> descriptors;
    for (const auto& [offset, bytes] : parts) {
      descriptors.push_back(source.part(offset, bytes, source.local()));
    }
    return list_of(descriptors);
  }
  MetaList remote_list(const std::vector<std::pair<size_t, size_t>>& parts) const {
    std::vector<nixlMetaDesc> descriptors;
    for (const auto& [offset, bytes] : parts) {
      descriptors.push_back(target.part(offset, bytes, remote));
    }
    return list_of(descriptors);
  }
  bool guards_intact() const { return source.guards_intact() && target.guards_intact(); }

  Node here;
  Node there;
  Region source;
  Region target;
  nixlBackendMD* remote = nullptr;
};

using Parts = std::vector<std::pair<size_t, size_t>>;

// What a transfer must leave behind: `from` copied over `to` piece by piece, nothing else changed.
std::vector<uint8_t> model(const std::vector<uint8_t>& from, const Parts& from_parts,
                           std::vector<uint8_t> to, const Parts& to_parts) {
  for (size_t i = 0; i < from_parts.size(); ++i) {
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(from_parts[i].first),
                from_parts[i].second, to.begin() + static_cast<std::ptrdiff_t>(to_parts[i].first));
  }
  return to;
}

void expect_moves(Pair& pair, nixl_xfer_op_t operation, const Parts& local, const Parts& remote) {
  const std::vector<uint8_t> source = pair.source.content();
  const std::vector<uint8_t> target = pair.target.content();
  Request request =
      prepared(pair.here, operation, pair.local_list(local), pair.remote_list(remote), "there");
  EXPECT_EQ(pair.source.content(), source) << "prepXfer moved bytes";
  EXPECT_EQ(pair.target.content(), target) << "prepXfer moved bytes";
  EXPECT_EQ(run(pair.here, request), NIXL_SUCCESS);
  if (operation == NIXL_WRITE) {
    EXPECT_EQ(pair.source.content(), source);
    EXPECT_EQ(pair.target.content(), model(source, local, target, remote));
  } else {
    EXPECT_EQ(pair.source.content(), model(target, remote, source, local));
    EXPECT_EQ(pair.target.content(), target);
  }
  EXPECT_TRUE(pair.guards_intact());
  EXPECT_EQ(pair.here->releaseReqH(request.handle), NIXL_SUCCESS);
}

TEST(N01DirectTcp, FragmentedListsBothWays) {
  Pair pair;
  Parts local;
  Parts remote;
  for (size_t i = 0; i < 500; ++i) {
    const size_t bytes = 1 + (i * 37) % 61;
    local.emplace_back(64 * i, bytes);
    remote.emplace_back(64 * (499 - i) + 1, bytes);
  }
  expect_moves(pair, NIXL_WRITE, local, remote);
  expect_moves(pair, NIXL_READ, local, remote);
}

TEST(N01DirectTcp, MergedAliasesBothWays) {
  Pair pair;
  Parts adjacent;
  Parts with_gaps;
  for (size_t i = 0; i < 64; ++i) {
    adjacent.emplace_back(128 * i, 128);
    with_gaps.emplace_back(128 * i + (i / 16) * 256, 128);
  }
  expect_moves(pair, NIXL_WRITE, adjacent, adjacent);
  expect_moves(pair, NIXL_READ, adjacent, with_gaps);
  expect_moves(pair, NIXL_WRITE, with_gaps, adjacent);
}

TEST(N01DirectTcp, OneByteAndTheWholeRange) {
  Pair pair(1 << 20);
  expect_moves(pair, NIXL_WRITE, {{0, 1}}, {{(1 << 20) - 1, 1}});
  expect_moves(pair, NIXL_READ, {{(1 << 20) - 1, 1}}, {{0, 1}});
  expect_moves(pair, NIXL_WRITE, {{0, 1 << 20}}, {{0, 1 << 20}});
}

TEST(N01DirectTcp, AccountingReturnsToTheBaseline) {
  Pair pair(4 << 20);
  const auto here = pair.here.accounts();
  const auto there = pair.there.accounts();
  for (int round = 0; round < 3; ++round) {
    std::vector<Request> requests;
    for (size_t i = 0; i < 8; ++i) {
      const Parts parts = {{i << 19, 100'000}, {(i << 19) + 100'001, 7}};
      requests.push_back(prepared(pair.here, i % 2 == 0 ? NIXL_WRITE : NIXL_READ,
                                  pair.local_list(parts), pair.remote_list(parts), "there"));
    }
    EXPECT_NE(pair.here.accounts(), here) << "prepared requests are charged";
    for (Request& request : requests) {
      EXPECT_GE(post(pair.here, request, "charged"), 0);
    }
    for (Request& request : requests) {
      EXPECT_EQ(finish(pair.here, request), NIXL_SUCCESS);
      EXPECT_EQ(pair.here->releaseReqH(request.handle), NIXL_SUCCESS);
    }
    EXPECT_EQ(receive(pair.there, requests.size()).size(), requests.size());
    EXPECT_TRUE(pair.here.accounts_become(here));
    EXPECT_TRUE(pair.there.accounts_become(there));
  }
  EXPECT_TRUE(pair.guards_intact());
}

TEST(N01DirectSelf, TransfersWithinOneAgent) {
  Node node("alone");
  Region source(node, 1 << 16, 1);
  Region target(node, 1 << 16, 2);
  Request request = prepared(node, NIXL_WRITE, list_of({source.part(5, 60000, source.local())}),
                             list_of({target.part(77, 60000, target.self())}), "alone");
  EXPECT_EQ(run(node, request), NIXL_SUCCESS);
  EXPECT_EQ(target.content(),
            model(source.content(), {{5, 60000}}, pattern(1 << 16, 2), {{77, 60000}}));
  EXPECT_TRUE(source.guards_intact() && target.guards_intact());
  EXPECT_EQ(node->releaseReqH(request.handle), NIXL_SUCCESS);
}

TEST(N07Direct, PreparedRequestIsNotPosted) {
  Pair pair;
  Request request = prepared(pair.here, NIXL_WRITE, pair.local_list({{0, 64}}),
                             pair.remote_list({{0, 64}}), "there");
  EXPECT_EQ(pair.here->checkXfer(request.handle), NIXL_ERR_NOT_POSTED);
  const AbandonSeam::Counter abandoned;
  EXPECT_EQ(pair.here->releaseReqH(request.handle), NIXL_SUCCESS);
  EXPECT_EQ(AbandonSeam::calls(), 0);
  EXPECT_EQ(pair.here->checkXfer(request.handle), NIXL_ERR_INVALID_PARAM);
  EXPECT_EQ(pair.here->releaseReqH(request.handle), NIXL_ERR_INVALID_PARAM);
  EXPECT_EQ(post(pair.here, request), NIXL_ERR_INVALID_PARAM);
}

TEST(N07Direct, ADrainedSuccessIsPostedAgain) {
  Pair pair;
  Request request = prepared(pair.here, NIXL_WRITE, pair.local_list({{0, 4096}, {8192, 64}}),
                             pair.remote_list({{100, 4096}, {9000, 64}}), "there");
  for (uint8_t round = 0; round < 5; ++round) {
    std::fill_n(pair.source.data(), pair.source.size(), round);
    std::fill_n(pair.target.data(), pair.target.size(), uint8_t{0xee});
    EXPECT_EQ(run(pair.here, request), NIXL_SUCCESS);
    EXPECT_EQ(pair.target.data()[100], round);
    EXPECT_EQ(pair.target.data()[9063], round);
    EXPECT_EQ(pair.target.data()[99], 0xee);
  }
  EXPECT_EQ(pair.here->releaseReqH(request.handle), NIXL_SUCCESS);
  EXPECT_TRUE(pair.guards_intact());
}

void expect_refused(Pair& pair, const MetaList& local, const MetaList& remote,
                    nixl_status_t expected, const char* what, const std::string& agent = "there") {
  const PostSeam::Counter posted;
  nixlBackendReqH* handle = nullptr;
  EXPECT_EQ(prepare(pair.here, NIXL_WRITE, local, remote, agent, handle), expected) << what;
  EXPECT_EQ(handle, nullptr) << what << ": NIXL releases whatever handle it finds";
  EXPECT_EQ(PostSeam::calls(), 0);
}

TEST(N07Direct, BadListsAreRefusedBeforeAnythingIsAdmitted) {
  Pair pair;
  const std::vector<uint8_t> before = pair.target.content();
  const MetaList one = pair.local_list({{0, 64}});
  const MetaList one_remote = pair.remote_list({{0, 64}});
  const size_t size = pair.source.size();
  constexpr size_t kHuge = std::numeric_limits<size_t>::max();
  const auto invalid = NIXL_ERR_INVALID_PARAM;
  expect_refused(pair, MetaList(DRAM_SEG), MetaList(DRAM_SEG), invalid, "empty lists");
  expect_refused(pair, pair.local_list({{0, 64}, {64, 64}}), one_remote, invalid, "unequal counts");
  expect_refused(pair, pair.local_list({{0, 65}}), one_remote, invalid, "unequal lengths");
  expect_refused(pair, pair.local_list({{0, 0}}), pair.remote_list({{0, 0}}), invalid, "no bytes");
  expect_refused(pair, pair.local_list({{size - 63, 64}}), one_remote, invalid, "past local end");
  expect_refused(pair, one, pair.remote_list({{size - 63, 64}}), invalid, "past remote end");
  expect_refused(pair, pair.local_list({{0, kHuge}}), pair.remote_list({{0, kHuge}}), invalid,
                 "overflow");
  nixlMetaDesc before_start = pair.source.part(0, 64, pair.source.local());
  before_start.addr -= 1;
  expect_refused(pair, list_of({before_start}), one_remote, invalid, "before local start");
  nixlMetaDesc null = before_start;
  null.addr = 0;
  expect_refused(pair, list_of({null}), one_remote, invalid, "null address");
  EXPECT_EQ(pair.target.content(), before);
}

TEST(N07Direct, BadMetadataAndBadNamesAreRefused) {
  Pair pair;
  const MetaList one = pair.local_list({{0, 64}});
  const MetaList one_remote = pair.remote_list({{0, 64}});
  const auto invalid = NIXL_ERR_INVALID_PARAM;
  expect_refused(pair, list_of({pair.source.part(0, 64, nullptr)}), one_remote, invalid,
                 "no local metadata");
  expect_refused(pair, one, list_of({pair.target.part(0, 64, nullptr)}), invalid,
                 "no remote metadata");
  expect_refused(pair, one, list_of({pair.target.part(0, 64, pair.target.local())}), invalid,
                 "a pointer of another engine");
  expect_refused(pair, list_of({pair.source.part(0, 64, pair.source.self())}), one_remote, invalid,
                 "a range where a registration belongs");
  expect_refused(pair, one, one_remote, NIXL_ERR_NOT_FOUND, "unknown agent", "nobody");
  // Mixed authorities: a range of ourselves in a list for another agent, and the reverse.
  nixlBackendReqH* handle = nullptr;
  const MetaList mixed = list_of(
      {pair.target.part(0, 64, pair.remote), pair.source.part(128, 64, pair.source.self())});
  EXPECT_LT(
      prepare(pair.here, NIXL_WRITE, pair.local_list({{0, 64}, {64, 64}}), mixed, "there", handle),
      0);
  EXPECT_LT(prepare(pair.here, NIXL_WRITE, one, one_remote, "here", handle), 0);
  EXPECT_EQ(handle, nullptr);
}

TEST(N07Direct, OtherMemoryTypesAndParametersAreRefused) {
  Pair pair;
  const MetaList local = pair.local_list({{0, 64}});
  const MetaList remote = pair.remote_list({{0, 64}});
  MetaList file(FILE_SEG);
  file.addDesc(remote[0]);
  const PrepareSeam::Counter prepares;
  nixlBackendReqH* handle = nullptr;
  EXPECT_EQ(prepare(pair.here, NIXL_WRITE, local, file, "there", handle), NIXL_ERR_NOT_SUPPORTED);
  EXPECT_EQ(prepare(pair.here, NIXL_READ, file, remote, "there", handle), NIXL_ERR_NOT_SUPPORTED);
  nixl_opt_b_args_t arguments;
  arguments.customParam = "intent=decode";
  EXPECT_EQ(pair.here->prepXfer(NIXL_WRITE, local, remote, "there", handle, &arguments),
            NIXL_ERR_INVALID_PARAM);
  EXPECT_EQ(handle, nullptr);
  EXPECT_EQ(PrepareSeam::calls(), 0);
  Request request = prepared(pair.here, NIXL_WRITE, local, remote, "there");
  EXPECT_EQ(pair.here->postXfer(NIXL_WRITE, local, remote, "there", request.handle, &arguments),
            NIXL_ERR_INVALID_PARAM);
  EXPECT_EQ(pair.here->postXfer(NIXL_READ, local, remote, "there", request.handle),
            NIXL_ERR_INVALID_PARAM);
  EXPECT_EQ(run(pair.here, request), NIXL_SUCCESS);
  EXPECT_EQ(pair.here->releaseReqH(request.handle), NIXL_SUCCESS);
}

TEST(N07Direct, BudgetExhaustedFailsBeforePosting) {
  const std::string limits =
      R"("limits": {"requests_max": 4, "descriptors_per_request_max": 16, "descriptors_max": 40})";
  Node node("small", test_config(limits));
  Region region(node, 4096, 1);
  const auto list_with = [&](size_t count, nixlBackendMD* metadata) {
    std::vector<nixlMetaDesc> descriptors;
    for (size_t i = 0; i < count; ++i) {
      descriptors.push_back(region.part(128 * i, 64, metadata));
    }
    return list_of(descriptors);
  };
  nixlBackendReqH* handle = nullptr;
  EXPECT_LT(prepare(node, NIXL_WRITE, list_with(17, region.local()), list_with(17, region.self()),
                    "small", handle),
            0);
  std::vector<Request> held;
  for (size_t i = 0; i < 4; ++i) {
    held.push_back(prepared(node, NIXL_WRITE, list_with(1, region.local()),
                            list_of({region.part(64, 64, region.self())}), "small"));
  }
  EXPECT_EQ(prepare(node, NIXL_WRITE, list_with(1, region.local()),
                    list_of({region.part(64, 64, region.self())}), "small", handle),
            NIXL_ERR_BACKEND);
  EXPECT_EQ(node->releaseReqH(held.back().handle), NIXL_SUCCESS);
  held.pop_back();
  Request again = prepared(node, NIXL_WRITE, list_with(1, region.local()),
                           list_of({region.part(64, 64, region.self())}), "small");
  EXPECT_EQ(run(node, again), NIXL_SUCCESS);
}

TEST(N07Direct, DeregisteredAndUnloadedRangesCannotBePosted) {
  Pair pair;
  Region spare(pair.here, 4096, 3);
  Request by_local = prepared(pair.here, NIXL_WRITE, list_of({spare.part(0, 64, spare.local())}),
                              pair.remote_list({{0, 64}}), "there");
  Request by_remote = prepared(pair.here, NIXL_WRITE, pair.local_list({{0, 64}}),
                               pair.remote_list({{0, 64}}), "there");
  const std::vector<uint8_t> before = pair.target.content();
  spare.deregister();
  EXPECT_EQ(post(pair.here, by_local), NIXL_ERR_NOT_FOUND);
  EXPECT_EQ(pair.here->unloadMD(pair.remote), NIXL_SUCCESS);
  EXPECT_EQ(post(pair.here, by_remote), NIXL_ERR_NOT_FOUND);
  EXPECT_EQ(pair.target.content(), before);
  EXPECT_EQ(pair.here->releaseReqH(by_local.handle), NIXL_SUCCESS);
  EXPECT_EQ(pair.here->releaseReqH(by_remote.handle), NIXL_SUCCESS);
}

// Metadata of a removed range is never withdrawn from a peer: the target refuses it.
TEST(N07Direct, ARangeDeregisteredAtTheTargetFailsAndIsNeverWritten) {
  Pair pair;
  Request request = prepared(pair.here, NIXL_WRITE, pair.local_list({{0, 64}}),
                             pair.remote_list({{0, 64}}), "there");
  EXPECT_EQ(run(pair.here, request), NIXL_SUCCESS);
  pair.target.deregister();
  const std::vector<uint8_t> before = pair.target.content();
  std::fill_n(pair.source.data(), 64, uint8_t{0x77});
  const nixl_status_t status = run(pair.here, request);
  EXPECT_TRUE(status == NIXL_ERR_NOT_FOUND || status == NIXL_ERR_MISMATCH) << status;
  EXPECT_EQ(pair.target.content(), before);
  EXPECT_EQ(pair.here->releaseReqH(request.handle), NIXL_SUCCESS);
}

// A failed handle, which NIXL would post again (0.3): the engine's refusal is passed on.
TEST(N07Direct, AFailedRequestIsNotPostedAgain) {
  Pair pair;
  Request request = prepared(pair.here, NIXL_WRITE, pair.local_list({{0, 64}}),
                             pair.remote_list({{0, 64}}), "there");
  pair.target.deregister();
  const std::vector<uint8_t> before = pair.target.content();
  EXPECT_LT(run(pair.here, request), 0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_LT(run(pair.here, request), 0);
  }
  EXPECT_EQ(pair.target.content(), before);
  EXPECT_EQ(pair.here->releaseReqH(request.handle), NIXL_SUCCESS);
}

TEST(N07Direct, ReadOnlyUnsupportedCallsAnswerNotSupported) {
  Pair pair;
  const MetaList local = pair.local_list({{0, 64}});
  const MetaList remote = pair.remote_list({{0, 64}});
  Request request = prepared(pair.here, NIXL_WRITE, local, remote, "there");
  std::chrono::microseconds duration{};
  std::chrono::microseconds margin{};
  nixl_cost_t method{};
  EXPECT_EQ(pair.here->estimateXferCost(NIXL_WRITE, local, remote, "there", request.handle,
                                        duration, margin, method),
            NIXL_ERR_NOT_SUPPORTED);
  std::vector<nixl_query_resp_t> answers;
  EXPECT_EQ(pair.here->queryMem(nixl_reg_dlist_t(DRAM_SEG), answers), NIXL_ERR_NOT_SUPPORTED);
  nixlMemViewH view = nullptr;
  EXPECT_EQ(pair.here->prepMemView(local, view), NIXL_ERR_NOT_SUPPORTED);
  EXPECT_EQ(pair.here->prepMemView(nixl_remote_meta_dlist_t(DRAM_SEG), view),
            NIXL_ERR_NOT_SUPPORTED);
  pair.here->releaseMemView(nullptr);
  EXPECT_EQ(pair.here->releaseReqH(request.handle), NIXL_SUCCESS);
}

TEST(Scale, AHundredThousandDescriptorsMove) {
  constexpr size_t kCount = 100'000;
  Pair pair(kCount * 16);
  Parts local;
  Parts remote;
  for (size_t i = 0; i < kCount; ++i) {
    local.emplace_back(16 * i, 8);
    remote.emplace_back(16 * (kCount - 1 - i) + 8, 8);
  }
  expect_moves(pair, NIXL_WRITE, local, remote);
}

}  // namespace
}  // namespace orbite::test
