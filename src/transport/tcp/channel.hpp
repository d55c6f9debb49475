// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transfer/caller_patience.hpp"
#include "transfer/slice_queue.hpp"
#include "transfer/transport.hpp"
#include "transport/tcp/environment.hpp"
#include "wire/frame.hpp"
#include "wire/metadata.hpp"

namespace orbite::transport::tcp {

class Lane;
class LaneDirectory;

/// One question to a peer about registrations of its own, and somebody waiting for the answer.
class DescribeCall {
 public:
  explicit DescribeCall(std::span<const wire::RegistrationRef> registrations)
      : registrations_(registrations.begin(), registrations.end()),
        described_(registrations.size()) {}

  [[nodiscard]] const std::vector<wire::RegistrationRef>& registrations() const noexcept {
    return registrations_;
  }
  /// Filled by the lane that asked, before it reports; read by the caller after wait().
  [[nodiscard]] std::vector<wire::DescribedRange>& described() noexcept { return described_; }

  void report(ErrorCode code);
  Result<void> wait(base::Waiter& waiter, base::Nanoseconds timeout_ns);

 private:
  const std::vector<wire::RegistrationRef> registrations_;
  std::vector<wire::DescribedRange> described_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<ErrorCode> code_;
};

/// Lanes whose frames can only be retired by a proof from elsewhere.
struct Trouble {
  std::uint64_t slices = 0;  ///< 0: no lane is
  // Of the lane that got into it first.
  ErrorCode code = ErrorCode::kOk;
  int native_errno = 0;
  base::Nanoseconds since_ns = 0;
  platform::SocketAddress address;
};

/// Our lanes to one peer epoch: one for latency work, some for bulk, one for control (drains), each
/// connected when it is first needed and closed when it has been idle.
class Channel final : public transfer::Flow, public std::enable_shared_from_this<Channel> {
 public:
  Channel(Environment& environment, transfer::Planner& planner, LaneDirectory& directory,
          const std::string& peer_name, const wire::ConnectionBlob& connection);
  ~Channel() override;

  // What the lanes need to know of the peer.
  [[nodiscard]] const std::string& peer_name() const noexcept { return peer_name_; }
  [[nodiscard]] const wire::ConnectionBlob& connection() const noexcept { return connection_; }
  /// In the order in which they are tried.
  [[nodiscard]] const std::vector<platform::SocketAddress>& addresses() const noexcept {
    return addresses_;
  }

  /// It shares our kernel and network namespace: all its addresses are loopback ones, and lead to
  /// no other machine by a tunnel.
  [[nodiscard]] bool is_local() const noexcept { return is_local_; }

  // Slices accepted and not yet on a lane.
  [[nodiscard]] bool has_room(policy::QosClass qos);
  void push(transfer::Slice& slice);
  /// The next slice for a lane of that class whose size is at most `bytes_max`, or nullptr.
  transfer::Slice* pull(policy::QosClass qos, std::uint64_t bytes_max);
  [[nodiscard]] bool has_pending(policy::QosClass qos);
  void push_describe(std::shared_ptr<DescribeCall> call);
  std::shared_ptr<DescribeCall> pull_describe();
  [[nodiscard]] bool has_describe();
  transfer::Slice* extract_pending_of(const transfer::Execution& execution);
  transfer::Slice* extract_all_pending(policy::QosClass qos);

  [[nodiscard]] const std::vector<std::unique_ptr<Lane>>& lanes() const noexcept { return lanes_; }
  [[nodiscard]] Lane& control_lane() const noexcept { return *lanes_.back(); }

  /// Drives each lane that has something to do. A caller takes the lanes over from the worker.
  void drive(transfer::WorkLimit& limit, transfer::Driver driver);
  /// For a caller who waits for latency work: its lane. Where the worker has no processor of its
  /// own (`alone`), he moves a little bulk as well, as long as his answer has not come: a worker
  /// that did it would take his processor, and give it back when its turn is over.
  void drive_while_waiting(transfer::WorkLimit& limit, bool alone);
  void confirm_fenced();
  [[nodiscard]] std::uint64_t unproved() const;
  [[nodiscard]] Trouble trouble() const;
  [[nodiscard]] std::uint32_t sockets() const;
  /// Something is queued, in flight, connecting or unproved.
  [[nodiscard]] bool busy();

  /// Waits at most `timeout_ns` for a lane, made by the worker, to be ready.
  Result<void> wait_connected(base::Nanoseconds timeout_ns);
  void want_connection() noexcept;
  void unwant_connection() noexcept { waiters_.fetch_sub(1, std::memory_order_relaxed); }
  /// Somebody waits: the latency lane connects although nothing is queued.
  [[nodiscard]] bool connection_wanted() const noexcept {
    return waiters_.load(std::memory_order_relaxed) > 0;
  }
  /// The latency lane became ready, or gave up with `error`.
  void report_connected();
  void report_unreachable(const Error& error);
  /// Everybody who waits, now or later, gets `error`.
  void end_waits(const Error& error);

  /// Callers at the lanes of that class. Who drives bulk drives them all.
  [[nodiscard]] const transfer::CallerTrace& callers(policy::QosClass qos) const noexcept {
    return callers_[static_cast<std::size_t>(qos)];
  }
  [[nodiscard]] base::Nanoseconds caller_seen_ns() const noexcept {
    return std::max(callers_[0].seen_ns(), callers_[1].seen_ns());
  }

  /// Whether this is the first of its lanes to fall silent since end_silence(). Relaxed: it decides
  /// how loud a line of the log is.
  [[nodiscard]] bool begin_silence() noexcept {
    return !silent_.exchange(true, std::memory_order_relaxed);
  }
  void end_silence() noexcept { silent_.store(false, std::memory_order_relaxed); }

  /// On the worker's list of channels to look after. See TcpTransport::list().
  std::atomic<bool> listed{false};

 private:
  [[nodiscard]] bool bulk_is_busy();
  void drive_latency(transfer::WorkLimit& limit, transfer::Driver driver);
  void drive_bulk(transfer::WorkLimit& limit, transfer::Driver driver);

  Environment& environment_;
  const std::string peer_name_;
  const wire::ConnectionBlob connection_;
  const bool is_local_;
  std::vector<platform::SocketAddress> addresses_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::array<transfer::CallerTrace, policy::kQosClasses> callers_;
  std::atomic<std::size_t> turn_{0};
  std::atomic<bool> silent_{false};

  std::mutex mutex_;
  std::array<transfer::SliceQueue, policy::kQosClasses> pending_;
  std::deque<std::shared_ptr<DescribeCall>> describes_;
  std::vector<std::weak_ptr<DescribeCall>> describes_asked_;
  bool waits_ended_ = false;

  std::atomic<std::uint32_t> waiters_{0};  ///< see busy()
  std::mutex connect_mutex_;
  std::condition_variable connect_changed_;
  std::uint64_t connect_reports_ = 0;
  std::optional<Error> connect_error_;
  std::optional<Error> waits_error_;
};

}  // namespace orbite::transport::tcp
