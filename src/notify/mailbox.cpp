// SPDX-License-Identifier: Apache-2.0
#include "notify/mailbox.hpp"

#include "base/planted.hpp"

namespace orbite::notify {

Result<void> Mailbox::deliver(std::string_view sender, std::span<const std::uint8_t> message) {
  if (message.size() > limits_.message_bytes_max) {
    return fail(ErrorCode::kInvalidArgument, "notification of %zu bytes, at most %llu are allowed",
                message.size(), static_cast<unsigned long long>(limits_.message_bytes_max));
  }
  Message entry{std::string(sender), {message.begin(), message.end()}};
  const std::uint64_t needed = cost(entry);
  const std::lock_guard lock(mutex_);
  if (needed > limits_.inbox_bytes_max - bytes_) {
    if (drained_ever_ || needed > limits_.inbox_bytes_max) {
      counters_.notifications_refused.add();
      return fail(ErrorCode::kBudgetExhausted, "inbox: %llu bytes asked, %llu of %llu in use",
                  static_cast<unsigned long long>(needed), static_cast<unsigned long long>(bytes_),
                  static_cast<unsigned long long>(limits_.inbox_bytes_max));
    }
    while (needed > limits_.inbox_bytes_max - bytes_) {
      bytes_ -= cost(messages_.front());
      messages_.pop_front();
      counters_.notifications_dropped.add();
    }
  }
  bytes_ += needed;
  if (base::planted(base::Bug::kNotifyTwice)) {
    messages_.push_back(entry);
  }
  messages_.push_back(std::move(entry));
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
  Message& front = messages_.front();
  needed = {front.sender.size(), front.bytes.size()};
  if (needed.sender_bytes > capacity.sender_bytes ||
      needed.message_bytes > capacity.message_bytes) {
    return std::nullopt;
  }
  bytes_ -= cost(front);
  Message message = std::move(front);
  messages_.pop_front();
  return message;
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
