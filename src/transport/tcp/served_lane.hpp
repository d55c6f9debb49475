// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/assert.hpp"
#include "base/share.hpp"
#include "memory/registry.hpp"
#include "transfer/transport.hpp"
#include "transport/tcp/environment.hpp"
#include "transport/tcp/io_cursor.hpp"
#include "wire/frame.hpp"
#include "wire/handshake.hpp"

namespace orbite::transport::tcp {

/// What the unfinished notifications of all served lanes may hold together, shared by client
/// epochs. The worker's alone.
class TrailerBudget {
 public:
  explicit TrailerBudget(std::uint64_t bytes_max) : max_(bytes_max) {}
  bool take(const base::SourceEpoch& client, std::uint64_t bytes) {
    std::uint64_t& held = held_[client];
    if (!base::share_allows(held, bytes, used_, max_)) {
      forget_if_empty(client);
      return false;
    }
    held += bytes;
    used_ += bytes;
    return true;
  }
  void give_back(const base::SourceEpoch& client, std::uint64_t bytes) noexcept {
    if (bytes == 0) {
      return;
    }
    std::uint64_t& held = held_.find(client)->second;
    ORBITE_CHECK(held >= bytes && used_ >= bytes);
    held -= bytes;
    used_ -= bytes;
    forget_if_empty(client);
  }
  [[nodiscard]] std::uint64_t used() const noexcept { return used_; }

 private:
  void forget_if_empty(const base::SourceEpoch& client) noexcept {
    const auto found = held_.find(client);
    if (found->second == 0) {
      held_.erase(found);
    }
  }

  const std::uint64_t max_;
  std::uint64_t used_ = 0;
  std::map<base::SourceEpoch, std::uint64_t> held_;  ///< of those that hold something
};

/// One connection that a peer opened to us. Only the worker touches it.
///
///   Hello ──▶ Proof ──▶ Ready ──▶ Ended
///
/// In Ready: a header, its tables, the payload straight into the borrowed ranges (or into a sink
/// when the frame was refused), the trailer (or a sink, when it is not wanted), then the response.
/// A frame's loans are held from its tables to its last byte and are back before its response is
/// sent, so that a deregistration that saw no loan sees no later byte either. A lane of class
/// control carries DRAIN, DESCRIBE and PING alone.
class ServedLane {
 public:
  enum class End : std::uint8_t {
    kNone,
    kPeerClosed,
    kFailed,
    kRejected,  ///< the handshake failed
    kViolation,
    kTimedOut,
    kThrown,  ///< out of memory, most likely
    kClosedByUs
  };

  struct Callbacks {
    /// Whether a hello may go on: room, lane id not drained. The status goes to the peer.
    std::function<ErrorCode(const wire::ClientHello&)> admit;
    /// Whether the lane, whose peer has proved itself, may become ready: there may be less room
    /// now.
    std::function<ErrorCode(const ServedLane&)> prove;
    /// Ends the served lane of that client with that id, now and for ever.
    std::function<ErrorCode(const base::SourceEpoch&, std::uint64_t lane_id)> drain;
  };

  /// Takes the socket, unless it throws.
  ServedLane(Environment& environment, const Callbacks& callbacks, TrailerBudget& budget,
             platform::Socket socket, std::uint64_t id, std::string address);
  ServedLane(const ServedLane&) = delete;
  ServedLane& operator=(const ServedLane&) = delete;
  ~ServedLane();

  // on_event and check_timers may throw std::bad_alloc; then the lane has to be ended.
  void on_event(transfer::WorkLimit& limit);
  /// Looks at the socket before it judges: the time may have passed while we did not run.
  void check_timers(base::Nanoseconds now_ns);
  void end(End reason, const char* what) noexcept;

  [[nodiscard]] bool ended() const noexcept { return state_ == State::kEnded; }
  [[nodiscard]] End end_reason() const noexcept { return end_reason_; }
  [[nodiscard]] bool authenticated() const noexcept { return state_ == State::kReady; }
  /// It was ready once; stays true when it has ended.
  [[nodiscard]] bool proved() const noexcept { return proved_; }
  /// Whether hello() is a hello that was admitted. What it says is proved once authenticated().
  [[nodiscard]] bool has_hello() const noexcept {
    return state_ == State::kProof || state_ == State::kReady;
  }
  [[nodiscard]] bool is_control() const noexcept {
    return hello_.lane_class == static_cast<std::uint8_t>(wire::LaneClass::kControl);
  }
  [[nodiscard]] bool is_latency() const noexcept {
    return hello_.lane_class == static_cast<std::uint8_t>(wire::LaneClass::kLatency);
  }
  /// In the middle of a frame: bytes of ours may be written or read.
  [[nodiscard]] bool in_frame() const noexcept {
    return state_ == State::kReady && (phase_ != Phase::kHeader || owes());
  }
  [[nodiscard]] const wire::ClientHello& hello() const noexcept { return hello_; }
  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  [[nodiscard]] base::Nanoseconds since_ns() const noexcept { return since_ns_; }

 private:
  enum class State : std::uint8_t { kHello, kProof, kReady, kEnded };
  enum class Phase : std::uint8_t { kHeader, kTables, kPayload, kSink, kTrailer, kTrailerSink };

  bool receive_some(transfer::WorkLimit& limit);
  bool flush(transfer::WorkLimit& limit);
  bool serve_buffered(transfer::WorkLimit& limit);
  /// One step on what is buffered; false when it needs more bytes or the lane has ended.
  bool parse();
  bool parse_hello();
  bool parse_proof();
  bool parse_header();
  bool parse_tables();
  bool parse_payload();
  bool sink_buffered();
  bool parse_sink();
  bool parse_trailer();
  ErrorCode borrow_and_map(std::span<const wire::RegistrationRef> table,
                           std::span<const wire::WireExtent> extents, memory::Direction direction);
  void serve_read(ErrorCode refusal);
  bool parse_trailer_sink();
  void serve_write_end();
  void acknowledge_write();
  void begin_trailer();
  bool grow_trailer();
  void sink_trailer(ErrorCode refusal);
  void drop_trailer() noexcept;
  void finish_trailer(ErrorCode notification);
  void serve_describe(std::span<const wire::RegistrationRef> table);
  void serve_trailer_frame();
  ErrorCode deliver_trailer();
  void next_frame();
  void respond(wire::ResponseType type, ErrorCode status, RemoteEffect effect,
               std::uint64_t prefix_bytes, std::uint32_t payload_bytes);
  void violation(const Error& error);
  void update_interest();
  /// Bytes that the peer has not taken yet.
  [[nodiscard]] bool owes() const noexcept { return !send_.done() || !responses_.empty(); }
  [[nodiscard]] bool overdue(base::Nanoseconds now_ns) const noexcept;
  [[nodiscard]] std::size_t trailer_bytes_max() const noexcept;
  [[nodiscard]] int shown_name_bytes() const noexcept;

  Environment& environment_;
  const Callbacks& callbacks_;
  TrailerBudget& budget_;
  platform::Socket socket_;
  const std::uint64_t id_;
  const std::string address_;
  State state_ = State::kHello;
  bool proved_ = false;
  End end_reason_ = End::kNone;
  base::Nanoseconds since_ns_;
  base::Nanoseconds progress_ns_;  ///< when bytes last moved, of the watched clock
  std::uint32_t interest_ = 0;

  wire::ClientHello hello_{};
  wire::ServerHello server_hello_{};

  Phase phase_ = Phase::kHeader;
  wire::RequestHeader header_{};
  std::uint64_t last_frame_id_ = 0;     ///< of this connection: ids only rise
  ErrorCode refusal_ = ErrorCode::kOk;  ///< why the frame's payload goes to the sink
  std::vector<memory::RangeLoan> loans_;
  IoCursor payload_;
  std::uint64_t sink_left_ = 0;        ///< of the payload or the trailer
  std::vector<std::uint8_t> trailer_;  ///< grows as bytes arrive
  std::size_t trailer_filled_ = 0;
  std::uint64_t trailer_charge_ = 0;            ///< taken from budget_ for trailer_
  ErrorCode trailer_refusal_ = ErrorCode::kOk;  ///< why the trailer goes to the sink
  ReceiveBuffer received_;
  std::vector<iovec> scratch_;

  std::vector<std::uint8_t> responses_;  ///< small responses not sent yet, and a READ's header
  IoCursor send_;                        ///< what is being sent: responses_, then a READ's payload
  std::vector<std::uint8_t> sending_;    ///< the storage of send_'s first part
  IoCursor read_payload_;                ///< follows responses_ in the next send_
  std::vector<memory::RangeLoan> waiting_read_loans_;  ///< of read_payload_
  std::vector<memory::RangeLoan> read_loans_;          ///< of the payload in send_
};

}  // namespace orbite::transport::tcp
