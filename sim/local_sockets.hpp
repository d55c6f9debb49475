// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "platform/neighbors.hpp"
#include "sim/host_network.hpp"
#include "sim/neighborhood.hpp"

namespace orbite::sim {

/// Two ends that carry whole messages in order, between processes of one machine. What they tell
/// each other arrives in its order, some time later or at once.
class LocalConnection : public std::enable_shared_from_this<LocalConnection> {
 public:
  using Files = platform::Neighbors::Files;
  using IoResult = platform::IoResult;
  using RecordPtr = Neighborhood::RecordPtr;

  /// Side 0 is who connects, side 1 who listens.
  LocalConnection(Neighborhood& neighborhood, const RecordPtr& client, const RecordPtr& server);

  /// The side has a socket now.
  void attach(std::uint32_t side, HostNetwork& network, platform::Socket socket);
  /// It has none any more, and the other side hears of it.
  void close(std::uint32_t side);
  /// As close(), without a word.
  void forget(std::uint32_t side);

  IoResult send(std::uint32_t side, std::span<const std::uint8_t> message, const Files& files);
  IoResult receive(std::uint32_t side, std::span<std::uint8_t> buffer, Files& files);
  [[nodiscard]] std::uint32_t ready_events(std::uint32_t side) const;
  [[nodiscard]] const RecordPtr& process(std::uint32_t side) const { return ends_[side].process; }

 private:
  struct Message {
    std::vector<std::uint8_t> bytes;
    Files files;
  };
  struct End {
    RecordPtr process;
    HostNetwork* network = nullptr;  ///< nullptr: no socket yet, or no more
    platform::Socket socket = platform::kNoSocket;
    std::deque<Message> travelling;  ///< to it
    std::deque<Message> received;
    bool accepted = false;
    bool closed = false;
    bool lost = false;      ///< something that was sent to it was never read
    bool told_end = false;  ///< it knows that the other end was closed
    int error = 0;          ///< to be told once
    base::Nanoseconds last_arrival_ns = 0;
  };
  [[nodiscard]] bool has_room(const End& end) const;
  /// `arrive` happens when what the other side tells this one now reaches it.
  template <typename Arrive>
  void tell(std::uint32_t side, Arrive arrive);
  void poke(std::uint32_t side);

  Neighborhood& neighborhood_;
  const std::uint32_t machine_;
  End ends_[2];
};

/// A socket of one side.
class LocalEnd final : public Guest {
 public:
  LocalEnd(std::shared_ptr<LocalConnection> its_connection, std::uint32_t its_side)
      : connection(std::move(its_connection)), side(its_side) {}
  ~LocalEnd() override;
  [[nodiscard]] std::uint32_t ready_events() const override;
  void closed() override { connection->close(side); }

  const std::shared_ptr<LocalConnection> connection;
  const std::uint32_t side;
};

/// A name at which connections wait.
class LocalListener final : public Guest {
 public:
  LocalListener(Neighborhood& neighborhood, HostNetwork& network, Neighborhood::RecordPtr process,
                std::string name);
  ~LocalListener() override;
  [[nodiscard]] std::uint32_t ready_events() const override;
  void closed() override;

  void bound(platform::Socket socket) { socket_ = socket; }
  [[nodiscard]] const Neighborhood::RecordPtr& process() const noexcept { return process_; }
  [[nodiscard]] bool has_room() const;
  void enter(std::shared_ptr<LocalConnection> connection);
  /// nullptr: nobody waits.
  [[nodiscard]] std::shared_ptr<LocalConnection> next() const;
  void taken() { backlog_.pop_front(); }

 private:
  Neighborhood& neighborhood_;
  HostNetwork& network_;
  const Neighborhood::RecordPtr process_;
  const std::string name_;
  platform::Socket socket_ = platform::kNoSocket;
  std::deque<std::shared_ptr<LocalConnection>> backlog_;
};

}  // namespace orbite::sim
