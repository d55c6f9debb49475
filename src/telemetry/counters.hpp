// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace orbite::telemetry {

/// A count that only grows. Relaxed: it orders nothing and each is read on its own.
class Counter {
 public:
  void add(std::uint64_t amount = 1) noexcept {
    value_.fetch_add(amount, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t value() const noexcept {
    return value_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> value_{0};
};

/// X(name, meaning)
#define ORBITE_COUNTERS(X)                                                            \
  X(executions_posted, "executions admitted")                                         \
  X(executions_succeeded, "executions that ended in success")                         \
  X(executions_failed, "executions that ended in failure")                            \
  X(executions_canceled, "executions that ended canceled")                            \
  X(bytes_written, "bytes of successful WRITEs")                                      \
  X(bytes_read, "bytes of successful READs")                                          \
  X(requests_adopted, "requests abandoned by their callers and kept until retired")   \
  X(notifications_sent, "notifications acknowledged by a peer")                       \
  X(notifications_failed, "notifications that were not delivered")                    \
  X(notifications_received, "notifications put into the inbox")                       \
  X(notifications_dropped, "oldest notifications dropped from a never drained inbox") \
  X(notifications_refused, "notifications refused because the inbox is full")         \
  X(lanes_connected, "lanes that finished their handshake")                           \
  X(lanes_failed, "lanes that ended with an error")                                   \
  X(lanes_idle_closed, "lanes closed because they were idle")                         \
  X(lanes_drained, "lanes ended by the peer's answer to a drain")                     \
  X(served_accepted, "connections accepted")                                          \
  X(served_rejected, "connections that failed the handshake")                         \
  X(served_frames, "frames served for peers")                                         \
  X(served_frames_refused, "frames refused: range, key, access or fence")             \
  X(protocol_violations, "connections closed because the peer broke the protocol")    \
  X(peers_confirmed_fenced, "peers that an operator declared fenced")

struct Counters {
#define ORBITE_COUNTER_MEMBER(name, meaning) Counter name;
  ORBITE_COUNTERS(ORBITE_COUNTER_MEMBER)
#undef ORBITE_COUNTER_MEMBER
};

}  // namespace orbite::telemetry
