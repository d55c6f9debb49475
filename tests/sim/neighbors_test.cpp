// SPDX-License-Identifier: Apache-2.0
// What processes of one simulated machine have of each other: it must be what a kernel gives them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>

#include "street.hpp"

namespace orbite::test {
namespace {

using platform::Neighbors;
using Kind = Street::Kind;
using Touched = std::vector<std::string>;

// ---- Sockets by name

TEST(SimNeighbors, MessagesComeWholeAndInOrder) {
  Street street;
  const Street::Ends ends = street.join(0, 1);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(street.send(0, ends.client, "message " + std::to_string(i)).kind, Kind::kBytes);
    EXPECT_EQ(street.send(1, ends.server, "answer " + std::to_string(i)).kind, Kind::kBytes);
  }
  street.run();
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(street.receive(1, ends.server).text, "message " + std::to_string(i));
    EXPECT_EQ(street.receive(0, ends.client).text, "answer " + std::to_string(i));
  }
  EXPECT_EQ(street.receive(1, ends.server).result.kind, Kind::kWouldBlock);
}

TEST(SimNeighbors, MessagesAreLateOrNot) {
  Street street;
  const Street::Ends ends = street.join(0, 1);
  int at_once = 0;
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    (void)street.send(0, ends.client, "x");
    at_once += street.receive(1, ends.server).result.kind == Kind::kBytes ? 1 : 0;
    street.run();
    (void)street.receive(1, ends.server);
  }
  EXPECT_GT(at_once, 10);
  EXPECT_LT(at_once, kTries - 10);
  street.neighborhood.kernel(0).latency_max_ns = base::kSecond;
  while (street.receive(1, ends.server).result.kind != Kind::kWouldBlock) {
  }
  (void)street.send(0, ends.client, "y");
  street.run(base::kSecond);
  EXPECT_EQ(street.receive(1, ends.server).text, "y");
}

TEST(SimNeighbors, ANameIsOfOneMachineAndTakenOnce) {
  Street street;
  const auto listener = street.of(1).listen("here").value();
  EXPECT_EQ(street.of(0).listen("here").error().code(), ErrorCode::kAddressInUse);
  EXPECT_TRUE(street.of(Street::kStranger).listen("here").has_value());
  const auto nobody = street.of(0).connect("there");
  EXPECT_EQ(nobody.error().code(), ErrorCode::kPeerUnreachable);
  EXPECT_EQ(nobody.error().native_errno(), ECONNREFUSED);
  EXPECT_TRUE(street.of(0).connect("here").has_value());
  street.network(1).close(listener);
  EXPECT_FALSE(street.of(0).connect("here").has_value());
  EXPECT_TRUE(street.of(0).listen("here").has_value());
  street.network(0).kill();
  EXPECT_TRUE(street.of(1).listen("here").has_value());
}

TEST(SimNeighbors, AConnectionCanBeUsedBeforeItIsAccepted) {
  Street street;
  const auto listener = street.of(1).listen("here").value();
  EXPECT_EQ(street.of(1).accept(listener).error().code(), ErrorCode::kNotFound);
  const auto client = street.of(0).connect("here").value();
  EXPECT_EQ(street.send(0, client, "early").kind, Kind::kBytes);
  street.run();
  const auto server = street.of(1).accept(listener).value();
  EXPECT_EQ(street.receive(1, server).text, "early");
}

TEST(SimNeighbors, AListenerHasRoomForSoMany) {
  Street street;
  street.neighborhood.kernel(0).backlog_max = 2;
  const auto listener = street.of(1).listen("here").value();
  ASSERT_TRUE(street.of(0).connect("here").has_value());
  ASSERT_TRUE(street.of(2).connect("here").has_value());
  const auto refused = street.of(0).connect("here");
  EXPECT_EQ(refused.error().code(), ErrorCode::kPeerUnreachable);
  EXPECT_EQ(refused.error().native_errno(), EAGAIN);
  ASSERT_TRUE(street.of(1).accept(listener).has_value());
  EXPECT_TRUE(street.of(0).connect("here").has_value());
  ASSERT_TRUE(street.of(1).accept(listener).has_value());
  street.fabric.machine(0).ignores_connects = true;
  EXPECT_EQ(street.of(0).connect("here").error().code(), ErrorCode::kPeerUnreachable);
}

TEST(SimNeighbors, AcceptFailsForWantOfADescriptorAndWhoWaitsStays) {
  Street street;
  const auto listener = street.of(1).listen("here").value();
  ASSERT_TRUE(street.of(0).connect("here").has_value());
  street.fabric.machine(0).accept_failures = 1000;
  EXPECT_EQ(street.of(1).accept(listener).error().code(), ErrorCode::kSystem);
  street.fabric.machine(0).accept_failures = 0;
  EXPECT_TRUE(street.of(1).accept(listener).has_value());
}

TEST(SimNeighbors, AFullQueueStopsTheSender) {
  Street street;
  street.neighborhood.kernel(0).messages_max = 3;
  const Street::Ends ends = street.join(0, 1);
  auto& network = street.network(0);
  const auto poller = network.make_poller().value();
  ASSERT_TRUE(network.poller_add(poller, ends.client, platform::kPollOut, 5));
  std::array<platform::PollEvent, 2> events;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(network.poller_wait(poller, events, 0), 1U);
    EXPECT_EQ(street.send(0, ends.client, "full").kind, Kind::kBytes);
  }
  EXPECT_EQ(street.send(0, ends.client, "more").kind, Kind::kWouldBlock);
  EXPECT_EQ(network.poller_wait(poller, events, 0), 0U);
  street.run();
  const std::uint64_t before = street.ready[0];
  EXPECT_EQ(street.receive(1, ends.server).text, "full");
  EXPECT_GT(street.ready[0], before);
  EXPECT_EQ(street.send(0, ends.client, "more").kind, Kind::kBytes);
}

TEST(SimNeighbors, AMessageThatIsTooLongIsLost) {
  Street street;
  const Street::Ends ends = street.join(0, 1);
  (void)street.send(0, ends.client, "long message");
  (void)street.send(0, ends.client, "short");
  street.run();
  EXPECT_EQ(street.receive(1, ends.server, 6).result.native_errno, EMSGSIZE);
  EXPECT_EQ(street.receive(1, ends.server, 6).text, "short");
  const std::string much(300'000, 'm');
  EXPECT_EQ(street.send(0, ends.client, much).native_errno, EMSGSIZE);
}

TEST(SimNeighbors, AMessageIsLostWhenThereIsNoDescriptorForItsFile) {
  Street street;
  const Street::Ends ends = street.join(0, 1);
  const auto pages = street.of(0).make_pages("p", 4096, {}).value();
  (void)street.send(0, ends.client, "first", {pages});
  (void)street.send(0, ends.client, "second", {pages});
  (void)street.send(0, ends.client, "third");
  street.run();
  street.fabric.machine(0).accept_failures = 1000;
  const Street::Received lost = street.receive(1, ends.server);
  EXPECT_EQ(lost.result.native_errno, EMFILE);
  EXPECT_TRUE(lost.files.empty());
  street.fabric.machine(0).accept_failures = 0;
  EXPECT_EQ(street.receive(1, ends.server).files.size(), 1U);
  EXPECT_EQ(street.receive(1, ends.server).text, "third");
}

TEST(SimNeighbors, TheEndComesBehindTheMessages) {
  for (const bool killed : {false, true}) {
    Street street;
    const Street::Ends ends = street.join(0, 1);
    (void)street.send(0, ends.client, "last");
    (void)street.send(0, ends.client, "words");
    if (killed) {
      street.network(0).kill();
    } else {
      street.network(0).close(ends.client);
    }
    street.run();
    EXPECT_EQ(street.receive(1, ends.server).text, "last");
    EXPECT_EQ(street.receive(1, ends.server).text, "words");
    EXPECT_EQ(street.receive(1, ends.server).result.kind, Kind::kEnded);
    EXPECT_EQ(street.receive(1, ends.server).result.kind, Kind::kEnded);
    EXPECT_EQ(street.send(1, ends.server, "who?").native_errno, EPIPE);
  }
}

TEST(SimNeighbors, WhatWasNeverReadResetsTheSender) {
  Street street;
  const Street::Ends ends = street.join(0, 1);
  (void)street.send(0, ends.client, "unread");
  (void)street.send(1, ends.server, "arrives");
  street.run();
  street.network(1).close(ends.server);
  street.run();
  EXPECT_EQ(street.receive(0, ends.client).result.native_errno, ECONNRESET);
  EXPECT_EQ(street.receive(0, ends.client).text, "arrives");
  EXPECT_EQ(street.receive(0, ends.client).result.kind, Kind::kEnded);

  const auto listener = street.of(1).listen("here").value();
  const auto waiting = street.of(0).connect("here").value();
  street.network(1).close(listener);
  street.run();
  EXPECT_EQ(street.receive(0, waiting).result.native_errno, ECONNRESET);
}

TEST(SimNeighbors, AnEndPolls) {
  Street street;
  const Street::Ends ends = street.join(0, 1);
  auto& network = street.network(1);
  const auto poller = network.make_poller().value();
  ASSERT_TRUE(network.poller_add(poller, ends.server, platform::kPollIn, 9));
  std::array<platform::PollEvent, 2> events;
  EXPECT_EQ(network.poller_wait(poller, events, 0), 0U);
  (void)street.send(0, ends.client, "in");
  street.run();
  ASSERT_EQ(network.poller_wait(poller, events, 0), 1U);
  EXPECT_EQ(events[0].token, 9U);
  EXPECT_EQ(events[0].events, platform::kPollIn);
  (void)street.receive(1, ends.server);
  EXPECT_EQ(network.poller_wait(poller, events, 0), 0U);
  network.poller_modify(poller, ends.server, 0, 9);
  street.network(0).kill();
  street.run();
  ASSERT_EQ(network.poller_wait(poller, events, 0), 1U);
  EXPECT_NE(events[0].events & platform::kPollError, 0U);
}

TEST(SimNeighbors, AMachineWithoutPowerIsSilent) {
  Street street;
  const Street::Ends ends = street.join(0, 1);
  const auto process = street.of(1).process_of(ends.server).value();
  street.network(0).vanish();
  street.end(0);
  street.run(base::kSecond);
  EXPECT_EQ(street.receive(1, ends.server).result.kind, Kind::kWouldBlock);
}

TEST(SimNeighbors, ADeadProcessDoesNothing) {
  Street street;
  const Street::Ends ends = street.join(0, 1);
  const auto pages = street.of(0).make_pages("p", 4096, {}).value();
  street.network(0).kill();
  EXPECT_FALSE(street.of(0).listen("here").has_value());
  EXPECT_FALSE(street.of(0).connect("here").has_value());
  EXPECT_FALSE(street.of(0).process_of(ends.client).has_value());
  EXPECT_FALSE(street.of(0).make_pages("q", 4096, {}).has_value());
  EXPECT_FALSE(street.of(0)
                   .map(*pages, Neighbors::PageAccess::kRead, Neighbors::AfterFork::kInherited)
                   .has_value());
  EXPECT_EQ(street.send(0, ends.client, "x").kind, Kind::kFailed);
  EXPECT_EQ(street.receive(0, ends.client).result.kind, Kind::kFailed);
  EXPECT_TRUE(street.misuses.empty());
}

TEST(SimNeighbors, UseAfterCloseIsSeen) {
  Street street;
  const Street::Ends ends = street.join(0, 1);
  street.network(0).close(ends.client);
  (void)street.send(0, ends.client, "x");
  (void)street.of(1).accept(ends.server);
  EXPECT_EQ(street.misuses, (Touched{"send", "accept"}));
}

// ---- Pages

std::byte* bytes_of(const std::unique_ptr<platform::PageMapping>& mapping) {
  return mapping->pages().data();
}

TEST(SimNeighbors, PagesComeWithAMessageAndAreTheSameForAll) {
  Street street;
  const Street::Ends ends = street.join(0, 1);
  const auto made = street.of(0).make_pages("shared", 8192, {}).value();
  EXPECT_EQ(made->bytes(), 8192U);
  const auto ours =
      street.of(0)
          .map(*made, Neighbors::PageAccess::kReadWrite, Neighbors::AfterFork::kInherited)
          .value();
  EXPECT_EQ(ours->pages().size(), 8192U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes_of(ours)) % 4096, 0U);
  EXPECT_EQ(std::count(ours->pages().begin(), ours->pages().end(), std::byte{0}), 8192);
  (void)street.send(0, ends.client, "pages", {made});
  street.run();
  const Street::Received got = street.receive(1, ends.server);
  ASSERT_EQ(got.files.size(), 1U);
  const auto theirs =
      street.of(1)
          .map(*got.files[0], Neighbors::PageAccess::kReadWrite, Neighbors::AfterFork::kAbsent)
          .value();
  const auto seen =
      street.of(1)
          .map(*got.files[0], Neighbors::PageAccess::kRead, Neighbors::AfterFork::kAbsent)
          .value();
  EXPECT_NE(bytes_of(theirs), bytes_of(ours));
  bytes_of(ours)[8191] = std::byte{7};
  EXPECT_EQ(bytes_of(seen)[8191], std::byte{7});
  bytes_of(theirs)[0] = std::byte{8};
  EXPECT_EQ(bytes_of(ours)[0], std::byte{8});
}

TEST(SimNeighbors, WhatCanOnlyBeReadIsNotMappedForWriting) {
  Street street;
  const auto pages = street.of(0).make_pages("directory", 4096, {}).value();
  const auto map = [&](std::uint32_t who, Neighbors::PageAccess access) {
    return street.of(who).map(*pages, access, Neighbors::AfterFork::kAbsent);
  };
  const auto ours = map(0, Neighbors::PageAccess::kReadWrite).value();
  street.neighborhood.kernel(0).can_forbid_writes = false;
  EXPECT_EQ(street.of(0).forbid_writes(*pages).error().code(), ErrorCode::kUnsupported);
  EXPECT_TRUE(map(1, Neighbors::PageAccess::kReadWrite).has_value());
  street.neighborhood.kernel(0).can_forbid_writes = true;
  ASSERT_TRUE(street.of(0).forbid_writes(*pages).has_value());
  for (const std::uint32_t who : {0U, 1U}) {
    EXPECT_EQ(map(who, Neighbors::PageAccess::kReadWrite).error().code(), ErrorCode::kNotAllowed);
  }
  const auto theirs = map(1, Neighbors::PageAccess::kRead).value();
  bytes_of(ours)[5] = std::byte{1};
  EXPECT_EQ(bytes_of(theirs)[5], std::byte{1});
  EXPECT_DEATH(bytes_of(theirs)[5] = std::byte{2}, "");
}

TEST(SimNeighbors, AMappingOutlivesItsFileAndItsMaker) {
  Street street;
  auto pages = street.of(0).make_pages("p", 4096, {}).value();
  const auto theirs =
      street.of(1)
          .map(*pages, Neighbors::PageAccess::kReadWrite, Neighbors::AfterFork::kInherited)
          .value();
  bytes_of(theirs)[1] = std::byte{3};
  pages = nullptr;
  street.end(0);
  EXPECT_EQ(bytes_of(theirs)[1], std::byte{3});
}

TEST(SimNeighbors, PagesMayComeShortOrNotAtAll) {
  Street street;
  const Street::Ends ends = street.join(0, 1);
  const auto pages = street.of(0).make_pages("p", Street::kBytes, {}).value();
  const auto ours =
      street.of(0)
          .map(*pages, Neighbors::PageAccess::kReadWrite, Neighbors::AfterFork::kAbsent)
          .value();
  ours->pages()[0] = std::byte{7};
  street.neighborhood.kernel(0).page_failures = 1000;
  std::uint32_t lost = 0;
  std::uint32_t refused = 0;
  std::uint32_t shortened = 0;
  for (int i = 0; i < 60; ++i) {
    ASSERT_EQ(street.send(0, ends.client, "pages", {pages}).kind, Street::Kind::kBytes);
    street.run();
    const Street::Received got = street.receive(1, ends.server);
    if (got.result.kind != Street::Kind::kBytes) {
      EXPECT_TRUE(got.files.empty());
      EXPECT_TRUE(got.result.native_errno == ENOMEM || got.result.native_errno == EBADF);
      ++(got.result.native_errno == ENOMEM ? lost : refused);
      continue;
    }
    ASSERT_EQ(got.files.size(), 1U);
    EXPECT_LE(got.files[0]->bytes(), Street::kBytes);
    shortened += got.files[0]->bytes() < Street::kBytes ? 1 : 0;
    const auto theirs =
        street.of(1)
            .map(*got.files[0], Neighbors::PageAccess::kRead, Neighbors::AfterFork::kAbsent)
            .value();
    EXPECT_EQ(theirs->pages().size(), got.files[0]->bytes());
    EXPECT_EQ(theirs->pages()[0], std::byte{7}) << "of the same pages";
  }
  EXPECT_GT(lost, 5U);
  EXPECT_GT(refused, 1U);
  EXPECT_GT(shortened, 20U);
}

TEST(SimNeighbors, ThereMayBeNoMemoryForPages) {
  Street street;
  const auto pages = street.of(0).make_pages("p", 4096, {}).value();
  const auto map = [&] {
    return street.of(0).map(*pages, Neighbors::PageAccess::kRead, Neighbors::AfterFork::kInherited);
  };
  street.lacks_memory = true;
  EXPECT_EQ(street.of(0).make_pages("q", 4096, {}).error().code(), ErrorCode::kOutOfMemory);
  EXPECT_EQ(map().error().code(), ErrorCode::kOutOfMemory);
  street.lacks_memory = false;
  EXPECT_TRUE(map().has_value());
  constexpr std::uint64_t kHuge = std::uint64_t{2} << 20;
  const auto huge = street.of(0).make_pages("huge", kHuge, {.huge = true});
  EXPECT_EQ(huge.error().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(huge.error().native_errno(), ENOMEM);
  street.neighborhood.kernel(0).has_huge_pages = true;
  for (const auto& wrong : {street.of(0).make_pages("h", kHuge / 2, {.huge = true}),
                            street.of(0).make_pages("h", 0, {})}) {
    EXPECT_EQ(wrong.error().code(), ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(street.of(0).make_pages("huge", kHuge, {.huge = true}).value()->bytes(), kHuge);
}

// ---- Processes

TEST(SimNeighbors, AProcessIsWhoIsAtTheOtherEnd) {
  Street street;
  const Street::Ends ends = street.join(0, 1);
  const auto server = street.of(0).process_of(ends.client).value();
  const auto client = street.of(1).process_of(ends.server).value();
  EXPECT_NE(server->number(), client->number());
  EXPECT_GT(server->number(), 0);
  EXPECT_EQ(street.process(1, 2)->number(), server->number());
  EXPECT_FALSE(server->ended());
  street.neighborhood.kernel(0).has_process_handles = false;
  EXPECT_EQ(street.of(0).process_of(ends.client).error().code(), ErrorCode::kUnsupported);
}

TEST(SimNeighbors, OfAProcessThatHasEndedThereIsAHandleOrNone) {
  Street street;
  const Street::Ends ends = street.join(0, 1);
  street.network(1).kill();
  street.run();
  int gone = 0;
  constexpr int kTries = 50;
  for (int i = 0; i < kTries; ++i) {
    const auto process = street.of(0).process_of(ends.client);
    if (process.has_value()) {
      EXPECT_TRUE((*process)->ended());
    } else {
      EXPECT_EQ(process.error().code(), ErrorCode::kPeerDisconnected);
      ++gone;
    }
  }
  EXPECT_GT(gone, 5);
  EXPECT_LT(gone, kTries - 5);
}

TEST(SimNeighbors, TheEndOfAProcessIsSeenAfterIt) {
  Street street;
  const std::size_t open = street.network(0).open_sockets();
  auto process = street.process(1, 0);
  auto& network = street.network(0);
  const auto poller = network.make_poller().value();
  ASSERT_TRUE(network.poller_add(poller, process->end(), platform::kPollIn, 3));
  std::array<platform::PollEvent, 2> events;
  std::uint8_t byte = 0;
  const iovec near{&byte, 1};
  const iovec far = street.part(1, 0, 1);
  EXPECT_EQ(process->read({&near, 1}, {&far, 1}).bytes, 1U);
  street.network(1).kill();
  // Dead at once, and known to be some time later.
  EXPECT_FALSE(process->ended());
  EXPECT_EQ(process->read({&near, 1}, {&far, 1}).native_errno, ESRCH);
  EXPECT_EQ(network.poller_wait(poller, events, 0), 0U);
  const std::uint64_t before = street.ready[0];
  street.run();
  EXPECT_TRUE(process->ended());
  EXPECT_GT(street.ready[0], before);
  ASSERT_EQ(network.poller_wait(poller, events, 0), 1U);
  EXPECT_EQ(events[0].events, platform::kPollIn);
  // Its next life is another process, whatever its number is.
  street.start(1);
  EXPECT_EQ(process->read({&near, 1}, {&far, 1}).native_errno, ESRCH);
  network.poller_remove(poller, process->end());
  process = nullptr;
  EXPECT_EQ(network.open_sockets(), open + 2) << "the connection and the poller";
  EXPECT_TRUE(street.misuses.empty());
}

TEST(SimNeighbors, ANumberMayComeAgain) {
  Street street;
  std::set<std::int32_t> numbers;
  int again = 0;
  for (int life = 0; life < 100; ++life) {
    again += numbers.insert(street.process(1, 0)->number()).second ? 0 : 1;
    street.start(1);
    street.run();
  }
  EXPECT_GT(again, 0);
  EXPECT_LT(again, 90);
}

}  // namespace
}  // namespace orbite::test
