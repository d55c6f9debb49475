// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/backoff.hpp"
#include "base/log.hpp"
#include "transfer/transport.hpp"
#include "transport/tcp/channel.hpp"
#include "transport/tcp/environment.hpp"
#include "transport/tcp/io_cursor.hpp"
#include "wire/frame.hpp"
#include "wire/handshake.hpp"

namespace orbite::transport::tcp {

/// How long a control lane rests before it connects, or asks for a drain, once more: briefly at
/// first, since the kernel of a killed peer takes connections for a moment longer than it keeps
/// the lanes, and twice as long each time.
inline constexpr base::Nanoseconds kControlRestMin = 2 * base::kMillisecond;
inline constexpr base::Nanoseconds kControlRestMax = base::kSecond;

/// Finds the lane that a poll event is for. An entry keeps the lane's channel alive while an event
/// is handled.
class LaneDirectory {
 public:
  /// A fresh id for a connection of `lane`; events carry it in their token, drains name it.
  std::uint64_t enter(Lane& lane, std::weak_ptr<transfer::Flow> channel);
  void leave(std::uint64_t lane_id);
  /// nullptr when it is gone. `keep_alive` must outlive the use of the lane.
  Lane* find(std::uint64_t lane_id, std::shared_ptr<transfer::Flow>& keep_alive);

 private:
  struct Entry {
    Lane* lane;
    std::weak_ptr<transfer::Flow> channel;
  };
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, Entry> entries_;
  std::uint64_t next_id_ = 1;
};

/// One connection of ours to a peer, with pipelined frames out and responses in, in order.
///
///   Closed ──work──▶ Connecting ──▶ Hello ──▶ Ready ──idle──▶ Closed
///                        │            │         │ FIN from the peer: proof; frames fail
///                        ▼            ▼         ▼          and retire
///                      Closed       Closed    Closed
///   Ready ──silence──▶ Silent: its executions have failed, no new frame is begun; a response still
///                      retires its frame; Closed by the peer's FIN or its Drained answer
///   Ready or Silent ──error, reset──▶ Lost: as Silent, without a socket
///
/// Whoever holds the drive mutex owns all of it; nobody waits for that mutex but the worker.
class Lane final : private transfer::CompletionPath {
 public:
  Lane(Environment& environment, transfer::Planner& planner, LaneDirectory& directory,
       Channel& channel, wire::LaneClass lane_class);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane();

  [[nodiscard]] wire::LaneClass lane_class() const noexcept { return class_; }

  /// One bounded step, if nobody else is at it. A caller's step takes the lane off the poller.
  void drive(transfer::WorkLimit& limit, transfer::Driver driver);
  /// The worker's look: an event, or its regular tick. Waits for the mutex (a step is bounded).
  void on_event(transfer::WorkLimit& limit);
  void on_tick(base::Nanoseconds now_ns, bool caller_is_active);

  /// The control lane is about to ask for that connection's drain. False: no need any more.
  bool begin_drain(std::uint64_t lane_id);
  // Each retires what is unproved, with a proof of its own:
  void end_by_proof(std::uint64_t lane_id);  ///< the peer answered a drain of that connection
  void end_if_reset();                       ///< it reset the connection, and listens no more
  void end_if_reset_at(std::size_t address_index);  ///< the same, of a connection made there
  void end_by_decree();                             ///< an operator says that it is fenced
  /// Closes the socket at the end of the transport; what is unproved stays so.
  void shut();

  // For lanes of class control.
  /// Connects, and asks for each lane of the channel that is unproved.
  void want_drains();

  // Hints for others than the owner. Relaxed: each is looked at on its own.
  [[nodiscard]] bool has_socket() const noexcept {
    return has_socket_.load(std::memory_order_relaxed);
  }
  enum class Fitness : std::uint8_t { kClosed, kConnecting, kReady, kStuck };
  [[nodiscard]] Fitness fitness() const noexcept {
    return fitness_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool ready() const noexcept { return fitness() == Fitness::kReady; }
  /// Frames in flight or unproved, or a connection being made.
  [[nodiscard]] bool busy() const noexcept { return busy_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t unproved_count() const noexcept {
    return unproved_.load(std::memory_order_relaxed);
  }
  /// The connection whose drain would prove something, or 0.
  [[nodiscard]] std::uint64_t unproved_lane_id() const noexcept {
    return unproved_lane_id_.load(std::memory_order_relaxed);
  }

  /// What is unproved here, and why. From any thread.
  [[nodiscard]] Trouble trouble() const {
    const std::lock_guard lock(trouble_mutex_);
    return trouble_;
  }

 private:
  enum class State : std::uint8_t { kClosed, kConnecting, kHello, kReady, kSilent, kLost };
  enum class FrameKind : std::uint8_t { kWrite, kRead, kNotify, kDescribe, kDrain };

  struct Frame {
    std::uint64_t id = 0;
    transfer::Slice* slice = nullptr;    ///< nullptr: a description or a drain
    std::shared_ptr<DescribeCall> call;  ///< of a description
    std::uint64_t drained_lane_id = 0;
    FrameKind kind = FrameKind::kWrite;
    bool completed = false;  ///< reported to its execution, retirement still open
  };

  // All below: under drive_mutex_.
  void step(transfer::WorkLimit& limit);
  bool start_connect();
  bool open_socket(const platform::SocketAddress& address);
  void finish_connect();
  void connect_failed(ErrorCode code, int native_errno, const char* what);
  void attempt_failed(ErrorCode code, int native_errno, const char* what);
  void control_attempt_failed(bool finds_nobody);
  void forget_attempt();
  bool send_hello();
  bool receive_hello();
  void become_ready();

  bool send_some(transfer::WorkLimit& limit);
  bool build_next_frame();
  void build_payload_frame(transfer::Slice& slice);
  void build_describe_frame(std::shared_ptr<DescribeCall> call);
  void build_drain_frame(std::uint64_t lane_id);
  void fill_tables(const transfer::Slice& slice);
  void start_frame(Frame frame, wire::RequestHeader header);
  template <typename Build>
  bool try_build(Build build);
  void drop_unsent(transfer::Slice& slice, ErrorCode code);

  bool receive_some(transfer::WorkLimit& limit);
  bool handle_responses();
  bool begin_response(const wire::ResponseHeader& header);
  bool finish_front(const wire::ResponseHeader& header);
  void finish_slice(const Frame& front, const wire::ResponseHeader& header);
  bool finish_describe(DescribeCall& call, ErrorCode code);
  void finish_drain(std::uint64_t lane_id, ErrorCode code);
  void rest_control();
  void end_rest_of_control();
  void add_local_parts(const transfer::Slice& slice, IoCursor& cursor) const;

  void peer_ended(const char* what);
  void lost(ErrorCode code, int native_errno, const char* what);
  void fall_silent();
  void end_silence();
  void end_unproved();
  void withdraw_untouched(ErrorCode code, int native_errno);
  void complete_all(bool ended, ErrorCode code, int native_errno);
  void retire_all();
  [[nodiscard]] transfer::SliceResult failure_of(const Frame& frame, bool is_front, bool ended,
                                                 ErrorCode code, int native_errno) const;
  void reset_io();
  void close_socket();
  void fail_pending_if_alone(ErrorCode code, int native_errno);
  void update_interest();
  void publish();
  void publish_trouble(bool stuck);
  void check_timers(base::Nanoseconds now_ns);
  void log_end(base::LogLevel level, const char* what, ErrorCode code, int native_errno) const;
  void answer_kick();
  [[nodiscard]] bool is_open() const noexcept {
    return state_ == State::kReady || state_ == State::kSilent;
  }
  [[nodiscard]] bool wants_connection();
  [[nodiscard]] policy::QosClass qos() const noexcept {
    return class_ == wire::LaneClass::kBulk ? policy::QosClass::kBulk : policy::QosClass::kLatency;
  }

  Environment& environment_;
  LaneDirectory& directory_;
  Channel& channel_;
  const wire::LaneClass class_;

  std::mutex drive_mutex_;
  State state_ = State::kClosed;
  platform::Socket socket_ = platform::kNoSocket;
  std::uint64_t lane_id_ = 0;  ///< of the current (or last, unproved) connection
  std::size_t address_index_ = 0;
  ErrorCode attempt_code_ = ErrorCode::kOk;  ///< why the addresses tried so far failed
  int attempt_errno_ = 0;
  bool attempt_finds_nobody_ = true;  ///< at any of the addresses tried so far
  base::Nanoseconds state_since_ns_ = 0;
  /// When bytes last moved or the lane last became busy, of the watched clock.
  base::Nanoseconds progress_ns_ = 0;
  base::Nanoseconds retry_after_ns_ = 0;
  bool armed_ = false;  ///< the worker wants events
  bool send_blocked_ = false;
  bool frame_touched_ = false;  ///< some byte of the frame in send_ was sent
  int send_errno_ = 0;          ///< sending failed; what was received before is still to be read
  bool reset_by_peer_ = false;  ///< how the connection was lost
  bool drain_asked_ = false;    ///< of the peer, for this connection
  bool was_ready_ = false;      ///< some connection of this lane was
  std::uint32_t interest_ = 0;  ///< as the poller has it
  ErrorCode stuck_code_ = ErrorCode::kOk;  ///< why it is Silent or Lost
  int stuck_errno_ = 0;
  bool in_trouble_ = false;  ///< as trouble_ says

  wire::ClientHello hello_{};
  std::vector<std::uint8_t> head_;  ///< header, table and extents of the frame being sent
  std::vector<std::uint8_t> trailer_;
  IoCursor send_;
  std::uint64_t send_payload_bytes_ = 0;
  std::uint64_t send_trailer_bytes_ = 0;
  std::deque<Frame> in_flight_;  ///< in the order sent; the last may be partly sent
  std::uint64_t in_flight_bytes_ = 0;
  std::uint64_t next_frame_id_ = 1;

  ReceiveBuffer received_;
  bool in_response_ = false;  ///< payload of the front frame is arriving
  wire::ResponseHeader response_{};
  IoCursor receive_;
  std::vector<iovec> scratch_;
  std::vector<wire::RegistrationRef> table_scratch_;
  std::vector<wire::WireExtent> extent_scratch_;
  bool drains_wanted_ = false;
  base::Nanoseconds drain_after_ns_ = 0;
  base::Backoff control_rest_{kControlRestMin, kControlRestMax};

  // Written by the holder of the drive mutex, while the lane is stuck or has just been.
  mutable std::mutex trouble_mutex_;
  Trouble trouble_;

  // Set by who found the mutex taken, looked at by the holder after it let go: one of the two sees
  // the other, so both sides are sequentially consistent.
  std::atomic<bool> kicked_{false};
  std::atomic<bool> has_socket_{false};
  std::atomic<Fitness> fitness_{Fitness::kClosed};
  std::atomic<bool> busy_{false};
  std::atomic<std::uint64_t> unproved_{0};
  std::atomic<std::uint64_t> unproved_lane_id_{0};
};

}  // namespace orbite::transport::tcp
