// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace orbite::nixl {

// NIXL keeps a plugin's objects as raw pointers, hands some of them back twice, and some after they
// were given up. A freed address may be in use again by then, so no address is handed out: a ticket
// takes the place of the pointer, a number that is never drawn twice in a process and never
// dereferenced by anybody. It is no valid address on any LP64 system that we know (bit 62 is set),
// so a stray dereference faults at once.
template <class Object>
Object* draw_ticket() noexcept {
  static std::atomic<uintptr_t> next{1};
  // Relaxed: only that no two draws are equal matters, a ticket publishes nothing.
  const uintptr_t number = next.fetch_add(1, std::memory_order_relaxed);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): never dereferenced, so there is nothing to optimise.
  return reinterpret_cast<Object*>((uintptr_t{1} << 62) | (number << 4));
}

// The live objects of one kind of one engine: what a ticket stands for. Thread-safe.
template <class Object, class Entry>
class TicketTable {
 public:
  // nullptr: out of memory, and the caller still has to end what the entry stands for.
  [[nodiscard]] Object* add(Entry entry) noexcept {
    Object* const ticket = draw_ticket<Object>();
    try {
      const std::unique_lock lock(mutex_);
      entries_.emplace(ticket, std::move(entry));
    } catch (...) {
      return nullptr;
    }
    return ticket;
  }

  // None for nullptr and for whatever is not, or no longer, a ticket of this table.
  std::optional<Entry> find(const Object* ticket) const {
    const std::shared_lock lock(mutex_);
    const auto found = entries_.find(ticket);
    return found == entries_.end() ? std::nullopt : std::optional<Entry>(found->second);
  }

  // The ticket is void afterwards.
  std::optional<Entry> take(const Object* ticket) {
    const std::unique_lock lock(mutex_);
    const auto found = entries_.find(ticket);
    if (found == entries_.end()) {
      return std::nullopt;
    }
    std::optional<Entry> entry(std::move(found->second));
    entries_.erase(found);
    return entry;
  }

  std::vector<Entry> take_all() {
    const std::unique_lock lock(mutex_);
    std::vector<Entry> all;
    all.reserve(entries_.size());
    for (auto& [ticket, entry] : entries_) {
      all.push_back(std::move(entry));
    }
    entries_.clear();
    return all;
  }

  // Calls visit(index, entry) for the tickets that ticket_of(0 .. count - 1) gives, in order, under
  // one lock, and looks up only where the ticket changes. Returns the index of the first one that
  // is not live, or `count`.
  template <class TicketOf, class Visit>
  size_t for_each(size_t count, TicketOf&& ticket_of, Visit&& visit) const {
    const std::shared_lock lock(mutex_);
    const Object* last = nullptr;
    auto found = entries_.end();
    for (size_t i = 0; i < count; ++i) {
      const Object* const ticket = ticket_of(i);
      if (ticket != last || found == entries_.end()) {
        found = entries_.find(ticket);
        if (found == entries_.end()) {
          return i;
        }
        last = ticket;
      }
      visit(i, found->second);
    }
    return count;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<const Object*, Entry> entries_;
};

}  // namespace orbite::nixl
