// SPDX-License-Identifier: Apache-2.0
#include "notify/mailbox.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <string>
#include <thread>
#include <vector>

namespace orbite::notify {
namespace {

/// What the budget is charged for a message beyond its bytes.
constexpr std::uint64_t kOverhead = 128;

std::vector<std::uint8_t> message(std::size_t size, std::uint8_t value = 0) {
  return std::vector<std::uint8_t>(size, value);
}

class MailboxTest : public ::testing::Test {
 protected:
  Mailbox::Sizes needed_;
  telemetry::Counters counters_;
  Mailbox mailbox_{{.message_bytes_max = 100, .inbox_bytes_max = 1000}, counters_};

  std::optional<Message> take(std::size_t sender = SIZE_MAX, std::size_t bytes = SIZE_MAX) {
    return mailbox_.take({sender, bytes}, needed_);
  }
};

TEST_F(MailboxTest, GivesTheOldestFirstAndEveryByteOfIt) {
  const std::vector<std::uint8_t> odd = {0, 255, 0, 'x'};
  ASSERT_TRUE(mailbox_.deliver("a", odd).has_value());
  ASSERT_TRUE(mailbox_.deliver(std::string_view("b\0c", 3), {}).has_value());
  EXPECT_EQ(mailbox_.messages(), 2U);
  EXPECT_EQ(mailbox_.bytes(), 1 + 4 + 3 + 2 * kOverhead);
  const auto first = take();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->sender, "a");
  EXPECT_EQ(first->bytes, odd);
  const auto second = take();
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->sender, std::string("b\0c", 3));
  EXPECT_TRUE(second->bytes.empty());
  EXPECT_EQ(mailbox_.bytes(), 0U);
  EXPECT_FALSE(take().has_value());
  EXPECT_EQ(counters_.notifications_received.value(), 2U);
}

TEST_F(MailboxTest, TellsTheSizesOfAMessageThatDoesNotFitAndKeepsIt) {
  EXPECT_FALSE(take().has_value());
  EXPECT_EQ(needed_.sender_bytes, 0U);
  EXPECT_EQ(needed_.message_bytes, 0U);
  ASSERT_TRUE(mailbox_.deliver("sender", message(50)).has_value());
  for (const auto& [sender, bytes] :
       {std::pair<std::size_t, std::size_t>{5, 50}, {6, 49}, {0, 0}}) {
    EXPECT_FALSE(take(sender, bytes).has_value());
    EXPECT_EQ(needed_.sender_bytes, 6U);
    EXPECT_EQ(needed_.message_bytes, 50U);
    EXPECT_EQ(mailbox_.messages(), 1U);
  }
  EXPECT_TRUE(take(6, 50).has_value());
  EXPECT_EQ(needed_.message_bytes, 50U);
}

TEST_F(MailboxTest, RefusesAMessageOverItsLimit) {
  EXPECT_TRUE(mailbox_.deliver("a", message(100)).has_value());
  const auto refused = mailbox_.deliver("a", message(101));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(mailbox_.messages(), 1U);
}

TEST_F(MailboxTest, DropsItsOldestWhileNobodyHasEverLooked) {
  for (std::uint8_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(mailbox_.deliver("a", message(71, i)).has_value());
    EXPECT_LE(mailbox_.bytes(), 1000U);
  }
  EXPECT_EQ(mailbox_.messages(), 2U);
  EXPECT_EQ(counters_.notifications_dropped.value(), 18U);
  EXPECT_EQ(counters_.notifications_refused.value(), 0U);
  EXPECT_EQ(take()->bytes.front(), 18);
}

TEST_F(MailboxTest, AFloodWhileNobodyLooksDropsOnlyItsOwn) {
  ASSERT_TRUE(mailbox_.deliver("quiet", message(10, 7)).has_value());
  for (std::uint8_t i = 0; i < 200; ++i) {
    ASSERT_TRUE(mailbox_.deliver("flood", message(60, i)).has_value());
  }
  EXPECT_EQ(take()->sender, "quiet");
}

/// A sender over its share, because others have come since, pays for what it adds and no more.
TEST_F(MailboxTest, AMessageDropsOfItsSenderAsManyBytesAsItHas) {
  constexpr std::size_t kSize = 10;
  constexpr std::uint64_t kCost = 1 + kSize + kOverhead;
  for (const char* const sender : {"a", "a", "a", "b", "b", "c"}) {
    ASSERT_TRUE(mailbox_.deliver(sender, message(kSize)).has_value());
  }
  ASSERT_EQ(mailbox_.bytes(), 6 * kCost) << "nothing was dropped";
  ASSERT_TRUE(mailbox_.deliver("a", message(kSize, 1)).has_value());
  EXPECT_EQ(counters_.notifications_dropped.value(), 1U);
  EXPECT_EQ(mailbox_.bytes(), 6 * kCost);
  // Of more bytes than one of its old messages, and less than two.
  ASSERT_TRUE(mailbox_.deliver("a", message(kSize + 1, 2)).has_value());
  EXPECT_EQ(counters_.notifications_dropped.value(), 3U);
  EXPECT_EQ(mailbox_.bytes(), 5 * kCost + 1);
  std::string senders;
  while (const auto taken = take()) {
    senders += taken->sender;
  }
  EXPECT_EQ(senders, "bbcaa");
}

/// One that has nothing in here takes the room of the oldest of all, and only as it needs it.
TEST_F(MailboxTest, AMessageOfANewSenderDropsTheOldestOfAll) {
  for (const char* const sender : {"a", "b", "a", "c", "d"}) {
    ASSERT_TRUE(mailbox_.deliver(sender, message(60)).has_value());
  }
  ASSERT_EQ(mailbox_.bytes(), 5 * (1 + 60 + kOverhead));
  ASSERT_TRUE(mailbox_.deliver("e", message(60)).has_value());
  EXPECT_EQ(counters_.notifications_dropped.value(), 1U);
  EXPECT_EQ(take()->sender, "b");
}

TEST_F(MailboxTest, AFloodLeavesRoomForOthers) {
  EXPECT_FALSE(take().has_value());
  while (mailbox_.deliver("flood", message(0)).has_value()) {
  }
  EXPECT_LE(mailbox_.bytes(), 500U);
  ASSERT_TRUE(mailbox_.deliver("a", message(100)).has_value());
  while (mailbox_.deliver("b", message(0)).has_value()) {
  }
  // Both have what they may have, and still who comes next finds room.
  EXPECT_TRUE(mailbox_.deliver("c", message(0)).has_value());
  const auto refused = mailbox_.deliver("flood", message(0));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kBudgetExhausted);
  EXPECT_NE(refused.error().context().find("notifications.inbox_bytes_max"), std::string::npos);
  // What is fetched is room again.
  while (take().has_value()) {
  }
  EXPECT_TRUE(mailbox_.deliver("flood", message(100)).has_value());
}

TEST_F(MailboxTest, RefusesWhatDoesNotFitOnceSomebodyHasLooked) {
  EXPECT_FALSE(take().has_value());
  for (std::uint8_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(mailbox_.deliver("a", message(71, i)).has_value());
  }
  const auto refused = mailbox_.deliver("a", message(71));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kBudgetExhausted);
  EXPECT_EQ(counters_.notifications_refused.value(), 1U);
  EXPECT_EQ(counters_.notifications_dropped.value(), 0U);
  EXPECT_EQ(take()->bytes.front(), 0);
  EXPECT_TRUE(mailbox_.deliver("a", message(71)).has_value());
}

TEST_F(MailboxTest, RefusesWhatCanNeverFitAndDropsNothingForIt) {
  Mailbox tiny({.message_bytes_max = 100, .inbox_bytes_max = 200}, counters_);
  ASSERT_TRUE(tiny.deliver("a", message(10)).has_value());
  const auto refused = tiny.deliver("a", message(72));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kBudgetExhausted);
  EXPECT_EQ(tiny.messages(), 1U);
  EXPECT_TRUE(tiny.deliver("a", message(71)).has_value());
  EXPECT_EQ(tiny.bytes(), 200U);
  EXPECT_EQ(tiny.messages(), 1U);
}

/// The rules in their plainest form.
struct MailboxModel {
  static std::uint64_t cost(const Message& it) {
    return it.sender.size() + it.bytes.size() + kOverhead;
  }
  [[nodiscard]] std::uint64_t used() const {
    std::uint64_t sum = 0;
    for (const Message& it : messages) {
      sum += cost(it);
    }
    return sum;
  }
  [[nodiscard]] std::uint64_t held_by(const std::string& sender) const {
    std::uint64_t sum = 0;
    for (const Message& it : messages) {
      sum += it.sender == sender ? cost(it) : 0;
    }
    return sum;
  }
  [[nodiscard]] bool has_room(const Message& it) const {
    const std::uint64_t held = held_by(it.sender);
    return used() + cost(it) <= inbox_max &&
           (held == 0 || held + cost(it) <= inbox_max - used() - cost(it));
  }
  void drop_for(const Message& it) {
    std::uint64_t bytes = 0;
    while (used() + cost(it) > inbox_max || (bytes < cost(it) && !has_room(it))) {
      const bool has_own = held_by(it.sender) > 0;
      const auto oldest = std::find_if(messages.begin(), messages.end(), [&](const Message& other) {
        return !has_own || other.sender == it.sender;
      });
      bytes += cost(*oldest);
      messages.erase(oldest);
      ++dropped;
    }
  }
  bool deliver(const Message& it) {
    if (it.bytes.size() > kMessageMax || cost(it) > inbox_max || (looked && !has_room(it))) {
      return false;
    }
    drop_for(it);
    messages.push_back(it);
    return true;
  }

  static constexpr std::uint64_t kMessageMax = 200;
  std::uint64_t inbox_max = 0;
  std::deque<Message> messages;
  bool looked = false;
  std::uint64_t dropped = 0;
};

RC_GTEST_PROP(MailboxProperty, EqualsTheModel,
              (const std::vector<std::array<std::uint8_t, 3>>& steps)) {
  telemetry::Counters counters;
  MailboxModel model;
  model.inbox_max = *rc::gen::inRange<std::uint64_t>(150, 1500);
  Mailbox mailbox(
      {.message_bytes_max = MailboxModel::kMessageMax, .inbox_bytes_max = model.inbox_max},
      counters);
  for (const auto& [what, sender, size] : steps) {
    if (what % 16 != 0) {
      const Message it{std::string(sender % 20, 's'), message(size, what)};
      RC_ASSERT(mailbox.deliver(it.sender, it.bytes).has_value() == model.deliver(it));
    } else {
      model.looked = true;
      Mailbox::Sizes needed;
      const auto taken = mailbox.take({sender, size}, needed);
      const bool fits = !model.messages.empty() && model.messages.front().sender.size() <= sender &&
                        model.messages.front().bytes.size() <= size;
      RC_ASSERT(taken.has_value() == fits);
      if (!model.messages.empty()) {
        RC_ASSERT(needed.sender_bytes == model.messages.front().sender.size());
        RC_ASSERT(needed.message_bytes == model.messages.front().bytes.size());
      }
      if (fits) {
        RC_ASSERT(taken->sender == model.messages.front().sender &&
                  taken->bytes == model.messages.front().bytes);
        model.messages.pop_front();
      }
    }
    RC_ASSERT(mailbox.bytes() == model.used() && mailbox.messages() == model.messages.size());
    RC_ASSERT(mailbox.bytes() <= model.inbox_max);
    RC_ASSERT(counters.notifications_dropped.value() == model.dropped);
  }
}

TEST_F(MailboxTest, TakesFromManyThreadsAndLosesNothing) {
  EXPECT_FALSE(take().has_value());
  constexpr int kEach = 500;
  std::vector<std::thread> senders;
  std::atomic<int> accepted{0};
  for (int i = 0; i < 3; ++i) {
    senders.emplace_back([&] {
      for (int n = 0; n < kEach; ++n) {
        accepted.fetch_add(mailbox_.deliver("a", message(10)).has_value() ? 1 : 0,
                           std::memory_order_relaxed);
      }
    });
  }
  int taken = 0;
  for (int n = 0; n < 3 * kEach; ++n) {
    taken += take().has_value() ? 1 : 0;
  }
  for (std::thread& sender : senders) {
    sender.join();
  }
  while (take().has_value()) {
    ++taken;
  }
  EXPECT_EQ(taken, accepted.load(std::memory_order_relaxed));
  EXPECT_EQ(mailbox_.bytes(), 0U);
}

}  // namespace
}  // namespace orbite::notify
