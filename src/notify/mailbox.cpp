// SPDX-License-Identifier: Apache-2.0
#include "notify/mailbox.hpp"

#include <utility>

#include "base/assert.hpp"
#include "base/planted.hpp"
#include "base/share.hpp"

namespace orbite::notify {

std::uint64_t Mailbox::held_by(const std::string& sender) const {
  const auto found = senders_.find(sender);
  return found == senders_.end() ? 0 : found->second.bytes;
}

bool Mailbox::fits(const std::string& sender, std::uint64_t needed) const {
  return base::share_allows(held_by(sender), needed, bytes_, limits_.inbox_bytes_max);
}

/// Whoever sends more than fits loses his own oldest messages, as many bytes as he adds; who has
/// none in here, the oldest of all go.
void Mailbox::drop_for(const std::string& sender, std::uint64_t needed) {
  std::uint64_t freed = 0;
  while (needed > limits_.inbox_bytes_max - bytes_ || (freed < needed && !fits(sender, needed))) {
    const bool has_some = held_by(sender) > 0;
    freed += cost(remove_oldest_of(has_some ? sender : std::string(messages_.front().sender)));
    counters_.notifications_dropped.add();
  }
}

Message Mailbox::remove_oldest_of(const std::string& sender) {
  const auto found = senders_.find(sender);
  ORBITE_CHECK(found != senders_.end());
  const Messages::iterator oldest = found->second.messages.front();
  Message message = std::move(*oldest);
  const std::uint64_t cost_bytes = cost(message);
  bytes_ -= cost_bytes;
  found->second.bytes -= cost_bytes;
  found->second.messages.pop_front();
  messages_.erase(oldest);
  if (found->second.messages.empty()) {
    senders_.erase(found);
  }
  return message;
}

void Mailbox::append(Message message) {
  const std::uint64_t cost_bytes = cost(message);
  Messages added;
  added.push_back(std::move(message));
  Sender& from = senders_[added.front().sender];
  from.messages.push_back(added.begin());
  // Nothing below can fail.
  messages_.splice(messages_.end(), added);
  from.bytes += cost_bytes;
  bytes_ += cost_bytes;
}

Result<void> Mailbox::deliver(std::string_view sender, std::span<const std::uint8_t> message) {
  if (message.size() > limits_.message_bytes_max) {
    return fail(ErrorCode::kInvalidArgument,
                "notification of %zu bytes, notifications.message_bytes_max is %llu",
                message.size(), static_cast<unsigned long long>(limits_.message_bytes_max));
  }
  Message entry{std::string(sender), {message.begin(), message.end()}};
  const std::uint64_t needed = cost(entry);
  const std::lock_guard lock(mutex_);
  if (!fits(entry.sender, needed) && (drained_ever_ || needed > limits_.inbox_bytes_max)) {
    counters_.notifications_refused.add();
    return fail(ErrorCode::kBudgetExhausted,
                "inbox_bytes: %llu asked, %llu of %llu in use, %llu of them by this sender, which "
                "may have half of what the others leave (notifications.inbox_bytes_max)",
                static_cast<unsigned long long>(needed), static_cast<unsigned long long>(bytes_),
                static_cast<unsigned long long>(limits_.inbox_bytes_max),
                static_cast<unsigned long long>(held_by(entry.sender)));
  }
  drop_for(entry.sender, needed);
  if (base::planted(base::Bug::kNotifyTwice)) {
    append(entry);
  }
  append(std::move(entry));
  counters_.notifications_received.add();
  return {};
}

std::optional<Message> Mailbox::take(Sizes capacity, Sizes& needed) {
  const std::lock_guard lock(mutex_);
  drained_ever_ = true;
  needed = {};
  if (messages_.empty()) {
    return std::nullopt;
  }
  const Message& front = messages_.front();
  needed = {front.sender.size(), front.bytes.size()};
  if (needed.sender_bytes > capacity.sender_bytes ||
      needed.message_bytes > capacity.message_bytes) {
    return std::nullopt;
  }
  return remove_oldest_of(std::string(front.sender));
}

std::uint64_t Mailbox::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::size_t Mailbox::messages() const {
  const std::lock_guard lock(mutex_);
  return messages_.size();
}

}  // namespace orbite::notify
