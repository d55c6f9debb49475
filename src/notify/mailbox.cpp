// SPDX-License-Identifier: Apache-2.0
#include "notify/mailbox.hpp"

#include <new>
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
    const auto own = senders_.find(sender);
    freed += cost(
        remove_oldest_of(own != senders_.end() ? own : senders_.find(messages_.front().sender)));
    counters_.notifications_dropped.add();
  }
}

Message Mailbox::remove_oldest_of(Senders::iterator from) noexcept {
  ORBITE_CHECK(from != senders_.end());
  Sender& sender = from->second;
  const Messages::iterator oldest = sender.messages.front();
  Message message = std::move(*oldest);
  const std::uint64_t cost_bytes = cost(message);
  bytes_ -= cost_bytes;
  sender.bytes -= cost_bytes;
  sender.messages.pop_front();
  messages_.erase(oldest);
  if (sender.messages.empty()) {
    senders_.erase(from);
  }
  return message;
}

Mailbox::Entry::Entry(Message added) {
  sender.try_emplace(added.sender);
  message.push_back(std::move(added));
  place.push_back(message.begin());
}

void Mailbox::append(Entry entry) noexcept {
  const std::uint64_t cost_bytes = cost(entry.message.front());
  Sender& from = senders_.insert(entry.sender.extract(entry.sender.begin())).position->second;
  from.messages.splice(from.messages.end(), entry.place);
  messages_.splice(messages_.end(), entry.message);
  from.bytes += cost_bytes;
  bytes_ += cost_bytes;
}

Result<void> Mailbox::deliver(std::string_view sender, std::span<const std::uint8_t> message) {
  if (message.size() > limits_.message_bytes_max) {
    return fail(ErrorCode::kInvalidArgument,
                "notification of %zu bytes, notifications.message_bytes_max is %llu",
                message.size(), static_cast<unsigned long long>(limits_.message_bytes_max));
  }
  try {
    return deliver_entry(Message{std::string(sender), {message.begin(), message.end()}});
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, "a notification of %zu bytes", message.size());
  }
}

/// Throws std::bad_alloc with nothing changed.
Result<void> Mailbox::deliver_entry(Message message) {
  const std::string sender = message.sender;
  const std::uint64_t needed = cost(message);
  std::optional<Entry> twin;
  if (base::planted(base::Bug::kNotifyTwice)) {
    twin.emplace(message);
  }
  Entry entry(std::move(message));
  const std::lock_guard lock(mutex_);
  if (!fits(sender, needed) && (drained_ever_ || needed > limits_.inbox_bytes_max)) {
    counters_.notifications_refused.add();
    return fail(ErrorCode::kBudgetExhausted,
                "inbox_bytes: %llu asked, %llu of %llu in use, %llu of them by this sender, which "
                "may have half of what the others leave (notifications.inbox_bytes_max)",
                static_cast<unsigned long long>(needed), static_cast<unsigned long long>(bytes_),
                static_cast<unsigned long long>(limits_.inbox_bytes_max),
                static_cast<unsigned long long>(held_by(sender)));
  }
  drop_for(sender, needed);
  if (twin.has_value()) {
    append(std::move(*twin));
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
  return remove_oldest_of(senders_.find(front.sender));
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
