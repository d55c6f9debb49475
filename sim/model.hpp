// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orbite/engine.hpp"

namespace orbite::sim {

// What the applications know: made from their own calls and from what these answered, never from
// the inside of an engine.

/// One life of a host: its index and how often it has been started.
struct Life {
  std::uint32_t host = 0;
  std::uint32_t number = 0;
  friend bool operator==(const Life&, const Life&) = default;
};

struct RegistrationModel {
  std::uint64_t id = 0;
  Life life;
  Handle handle;
  std::uint64_t begin = 0;  ///< offsets in the arena
  std::uint64_t end = 0;
  std::uint8_t access = kAccessAll;
  std::vector<std::uint8_t> blob;  ///< what peers are told
  bool deregistered = false;
  std::uint32_t retired_calls = 0;
  bool ended = false;  ///< its engine is gone

  [[nodiscard]] bool retired() const noexcept { return retired_calls > 0; }
};
using RegistrationPtr = std::shared_ptr<RegistrationModel>;

/// A pair of ranges of a request, as offsets in the arenas of the two hosts.
struct ExtentModel {
  std::uint64_t local = 0;
  std::uint64_t remote = 0;
  std::uint64_t length = 0;
  std::uint64_t offset = 0;  ///< in the request
  RegistrationPtr local_registration;
  RegistrationPtr remote_registration;
};

struct NotificationModel {
  std::uint64_t id = 0;
  Life from;
  Life to;
  std::uint32_t delivered = 0;
};
using NotificationPtr = std::shared_ptr<NotificationModel>;

struct ExecutionModel {
  std::uint64_t id = 0;
  std::vector<std::uint8_t> source;  ///< its bytes when it was posted, in request order
  std::vector<bool> sent;            ///< bytes that left the source
  std::vector<bool> landed;          ///< bytes that came into the destination
  std::uint64_t landed_count = 0;
  NotificationPtr notification;
  Outcome last;                ///< as it was last reported
  bool reported = false;       ///< it was at least once
  bool told_terminal = false;  ///< the application may reuse the buffers
};

struct RequestModel {
  std::uint64_t id = 0;
  Operation operation = Operation::kRead;
  Life owner;
  Life peer;  ///< the owner itself for a transfer to oneself
  Handle handle;
  std::vector<ExtentModel> extents;
  std::uint64_t bytes = 0;
  std::shared_ptr<ExecutionModel> execution;  ///< the newest
  bool abandoned = false;                     ///< or its owner has died: nobody will be told
};
using RequestPtr = std::shared_ptr<RequestModel>;

/// A piece of an arena that belongs to a request, from its prepare to its end. No two overlap.
struct Claim {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  RequestPtr request;
  std::size_t extent = 0;
  bool is_local = false;

  [[nodiscard]] bool is_source() const noexcept {
    return is_local == (request->operation == Operation::kWrite);
  }
};

/// The claims of one life of a host, in the order of their addresses.
class ClaimMap {
 public:
  /// nullptr: nobody's.
  [[nodiscard]] const Claim* find(std::uint64_t offset) const;
  [[nodiscard]] bool free(std::uint64_t begin, std::uint64_t end) const;
  void add(Claim claim);
  /// Of a request; what is taken out is returned.
  std::vector<Claim> remove(const RequestModel& request);
  void remove_extent(const RequestModel& request, std::size_t extent);
  [[nodiscard]] const std::vector<Claim>& all() const noexcept { return claims_; }
  void clear() { claims_.clear(); }

 private:
  std::vector<Claim> claims_;
};

}  // namespace orbite::sim
