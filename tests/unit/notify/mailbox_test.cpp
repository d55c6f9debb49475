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

RC_GTEST_PROP(MailboxProperty, EqualsTheModel,
              (const std::vector<std::array<std::uint8_t, 3>>& steps)) {
  telemetry::Counters counters;
  const auto inbox_max = *rc::gen::inRange<std::uint64_t>(150, 1500);
  Mailbox mailbox({.message_bytes_max = 200, .inbox_bytes_max = inbox_max}, counters);
  std::deque<Message> model;
  bool looked = false;
  std::uint64_t dropped = 0;
  const auto held_by = [&](const std::string& sender, const auto& cost_of) {
    std::uint64_t sum = 0;
    for (const Message& it : model) {
      sum += it.sender == sender ? cost_of(it) : 0;
    }
    return sum;
  };
  const auto cost = [](const Message& it) {
    return it.sender.size() + it.bytes.size() + kOverhead;
  };
  const auto used = [&] {
    std::uint64_t sum = 0;
    for (const Message& it : model) {
      sum += cost(it);
    }
    return sum;
  };
  for (const auto& [what, sender, size] : steps) {
    if (what % 4 != 0) {
      const Message it{std::string(sender % 20, 's'), message(size, what)};
      const bool legal = it.bytes.size() <= 200 && cost(it) <= inbox_max;
      const auto room = [&] {
        const std::uint64_t held = held_by(it.sender, cost);
        return used() + cost(it) <= inbox_max &&
               (held == 0 || held + cost(it) <= inbox_max - used() - cost(it));
      };
      while (legal && !looked && !room()) {
        const bool has_own = held_by(it.sender, cost) > 0;
        model.erase(std::find_if(model.begin(), model.end(), [&](const Message& other) {
          return !has_own || other.sender == it.sender;
        }));
        ++dropped;
      }
      const bool fits = legal && room();
      RC_ASSERT(mailbox.deliver(it.sender, it.bytes).has_value() == fits);
      if (fits) {
        model.push_back(it);
      }
    } else {
      looked = true;
      Mailbox::Sizes needed;
      const auto taken = mailbox.take({sender, size}, needed);
      const bool fits = !model.empty() && model.front().sender.size() <= sender &&
                        model.front().bytes.size() <= size;
      RC_ASSERT(taken.has_value() == fits);
      if (!model.empty()) {
        RC_ASSERT(needed.sender_bytes == model.front().sender.size());
        RC_ASSERT(needed.message_bytes == model.front().bytes.size());
      }
      if (fits) {
        RC_ASSERT(taken->sender == model.front().sender && taken->bytes == model.front().bytes);
        model.pop_front();
      }
    }
    RC_ASSERT(mailbox.bytes() == used() && mailbox.messages() == model.size());
    RC_ASSERT(mailbox.bytes() <= inbox_max);
    RC_ASSERT(counters.notifications_dropped.value() == dropped);
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
