// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "telemetry/counters.hpp"

namespace orbite::notify {

struct Message {
  std::string sender;
  std::vector<std::uint8_t> bytes;
};

/// The notifications that peers sent, oldest first, within a byte budget that senders share: none
/// has more of it than half of what the others leave, beyond its first message. A mailbox that
/// nobody has ever drained drops old messages to make room, since many applications never look;
/// once somebody has looked, a message that does not fit is refused and its sender is told.
class Mailbox {
 public:
  struct Limits {
    std::uint64_t message_bytes_max;
    std::uint64_t inbox_bytes_max;
  };
  Mailbox(Limits limits, telemetry::Counters& counters) : limits_(limits), counters_(counters) {}

  /// kInvalidArgument for a message over its limit, kBudgetExhausted when it does not fit,
  /// kOutOfMemory when there is none for it; then nothing is dropped for it either.
  Result<void> deliver(std::string_view sender, std::span<const std::uint8_t> message);

  struct Sizes {
    std::size_t sender_bytes = 0;
    std::size_t message_bytes = 0;
  };
  /// The oldest message if it fits `capacity`; else nothing, with its sizes (0, 0: no message) in
  /// `needed`.
  std::optional<Message> take(Sizes capacity, Sizes& needed);

  [[nodiscard]] std::uint64_t bytes() const;
  [[nodiscard]] std::size_t messages() const;

 private:
  using Messages = std::list<Message>;
  /// Of a sender with messages.
  struct Sender {
    std::list<Messages::iterator> messages;  ///< oldest first
    std::uint64_t bytes = 0;                 ///< sum of cost() over them
  };
  using Senders = std::map<std::string, Sender>;
  /// A message and its nodes in all lists, made beforehand.
  struct Entry {
    explicit Entry(Message message);
    Messages message;
    std::list<Messages::iterator> place;
    Senders sender;
  };

  /// What a message costs beyond its bytes, so that empty ones are not free.
  static constexpr std::uint64_t kOverheadBytes = 128;
  static std::uint64_t cost(const Message& message) {
    return message.sender.size() + message.bytes.size() + kOverheadBytes;
  }

  Result<void> deliver_entry(Message message);
  // All of these with mutex_ held.
  [[nodiscard]] std::uint64_t held_by(const std::string& sender) const;
  [[nodiscard]] bool fits(const std::string& sender, std::uint64_t needed) const;
  void drop_for(const std::string& sender, std::uint64_t needed);
  Message remove_oldest_of(Senders::iterator from) noexcept;
  void append(Entry entry) noexcept;

  const Limits limits_;
  telemetry::Counters& counters_;
  mutable std::mutex mutex_;
  Messages messages_;
  Senders senders_;
  std::uint64_t bytes_ = 0;  ///< sum of cost() over messages_
  bool drained_ever_ = false;
};

}  // namespace orbite::notify
