// SPDX-License-Identifier: Apache-2.0
#include "orders/world.hpp"

#include <algorithm>
#include <cstring>

#include "base/assert.hpp"

namespace orbite::test {
namespace {

constexpr std::uint64_t kPairBytes = 6;
constexpr std::uint64_t kStride = 10;  ///< a pair and the guard behind it
constexpr std::uint64_t kRequestBytes = 40;

template <typename Array>
std::uint64_t address_of(const Array& memory, std::uint64_t offset) {
  return reinterpret_cast<std::uint64_t>(memory.data()) + offset;
}

void mix(std::uint64_t& digest, std::uint64_t value) {
  digest = (digest ^ value) * 0x9E3779B97F4A7C15ULL;
  digest ^= digest >> 29;
}

sim::Script stepped() {
  sim::Script script;
  script.stepped = true;
  script.limits = {64, 1, 4};  // each pair is a slice
  return script;
}

MemoryDescriptor descriptor_of(std::uint64_t address, std::uint64_t length,
                               std::function<void()> retired) {
  MemoryDescriptor memory;
  memory.address = address;
  memory.length = length;
  memory.retired = std::move(retired);
  return memory;
}

wire::RangeBlob blob_of(const memory::Registration& registration, const base::SourceEpoch& epoch) {
  wire::RangeBlob blob;
  blob.epoch = epoch;
  blob.index = registration.handle().index;
  blob.generation = registration.handle().generation;
  blob.key = registration.key();
  blob.address = registration.range().address();
  blob.length = registration.range().length();
  blob.access = registration.access();
  return blob;
}

Checker::Mask mask_of(std::uint64_t offset, std::uint64_t bytes) {
  return ((Checker::Mask{1} << bytes) - 1) << offset;
}

}  // namespace

World::World(const Scenario& scenario)
    : scenario_(scenario),
      checker_([this](std::uint32_t number) -> Checker::Outstanding {
        const transfer::Execution* const execution = executions_[number].pointer;
        if (execution == nullptr) {
          return {};
        }
        return {user_->transport().outstanding(*execution) > 0,
                far_alive_ && user_->transport().on_wire(*execution) > 0};
      }),
      user_((scenario.is_engine ? make_engine_user : make_rooms_user)(stepped(), hooks())) {
  for (std::size_t i = 0; i < kBytes; ++i) {
    near_.at(i) = static_cast<std::uint8_t>(i);
    far_.at(i) = static_cast<std::uint8_t>(128 + i);
  }
  near_model_ = near_;
  far_model_ = far_;
  const auto destroyed = [this](Checker::Side side) {
    return [this, side] {
      if (is_watched_) {
        checker_.destroyed(side);
      }
    };
  };
  user_->register_near(
      descriptor_of(address_of(near_, 0), kBytes, destroyed(Checker::Side::kNear)));
  far_handle_ =
      far_registry_.add(descriptor_of(address_of(far_, 0), kBytes, destroyed(Checker::Side::kFar)))
          .value();
  wire::ConnectionBlob connection;
  connection.epoch.bytes[0] = 1;
  user_->import_far(connection,
                    blob_of(*far_registry_.find(far_handle_).value(), connection.epoch));
  for (std::uint64_t r = 0; r < scenario.requests; ++r) {
    Request& request = requests_.emplace_back();
    request.posts_left = scenario.posts;
    for (std::uint64_t i = 0; i < scenario.slices; ++i) {
      // In reverse order at the far side: neighbours at most on one.
      const std::uint64_t begin = 4 + r * kRequestBytes;
      request.pairs.push_back({address_of(near_, begin + i * kStride),
                               address_of(far_, begin + (scenario.slices - 1 - i) * kStride),
                               kPairBytes});
    }
    user_->prepare(scenario.operation, request.pairs);
  }
}

World::~World() {
  user_->transport().reset_peer(user_->flow());
  is_watched_ = false;
}

// ---- The wire

sim::SimTransport::World World::hooks() {
  sim::SimTransport::World hooks;
  hooks.registry_of = [this](const base::SourceEpoch&) {
    return far_alive_ ? &far_registry_ : nullptr;
  };
  hooks.deliver = [this](const transfer::Execution& execution) { return deliver(execution); };
  hooks.on_access = [this](const sim::Access& access) { on_access(access); };
  hooks.on_enter = [this](const transfer::Slice& slice) {
    ++steps_;
    checker_.entered(number_of(slice.execution.get()), mask_of(slice.offset, slice.bytes));
  };
  hooks.fate_of = [this](const transfer::Slice& slice) { return fate_of(slice); };
  return hooks;
}

sim::Fate World::fate_of(const transfer::Slice& slice) {
  ++steps_;
  if (slice.offset == 0 && slice.bytes > 0) {
    // The first of an execution that is being posted: from here on the world knows it.
    for (Execution& older : executions_) {
      older.pointer = older.pointer == slice.execution.get() ? nullptr : older.pointer;
    }
    executions_.push_back({slice.execution.get(), posting_});
  }
  const std::uint64_t bytes = slice.bytes;
  if (slice.offset == 0 && bytes > 0) {
    switch (scenario_.ending) {
      case Ending::kSuccess:
        break;
      case Ending::kShort:
        return {{ErrorCode::kShortTransfer, 0, 2, RemoteEffect::kPrefix, false}, 2};
      case Ending::kUnknown:
        return {{ErrorCode::kPeerDisconnected, 0, 0, RemoteEffect::kUnknown, false}, 4};
      case Ending::kLost:
        return {{ErrorCode::kPeerSilent, 0, 0, RemoteEffect::kUnknown, false}, 4, true};
    }
  }
  return {{ErrorCode::kOk, 0, bytes, RemoteEffect::kComplete, false}, bytes};
}

void World::on_access(const sim::Access& access) {
  ++steps_;
  const std::uint32_t number = number_of(access.execution);
  const Request& request = requests_[executions_[number].request];
  const Pair& pair = request.pairs[access.offset / kPairBytes];
  const std::uint64_t inside = access.offset % kPairBytes;
  const bool writes = scenario_.operation == Operation::kWrite;
  const std::uint64_t near = writes ? access.source : access.target;
  const std::uint64_t far = writes ? access.target : access.source;
  checker_.memory(near == pair.near + inside && far == pair.far + inside &&
                  inside + access.length <= pair.length);
  checker_.accessed(number, mask_of(access.offset, access.length));
  const std::uint64_t near_offset = pair.near + inside - address_of(near_, 0);
  const std::uint64_t far_offset = pair.far + inside - address_of(far_, 0);
  for (std::uint64_t i = 0; i < access.length; ++i) {
    if (writes) {
      far_model_.at(far_offset + i) = near_model_.at(near_offset + i);
    } else {
      near_model_.at(near_offset + i) = far_model_.at(far_offset + i);
    }
  }
}

Result<void> World::deliver(const transfer::Execution& execution) {
  ++steps_;
  auto delivered = far_mailbox_.deliver("near", *execution.notification());
  notify::Mailbox::Sizes sizes;
  while (const auto message = far_mailbox_.take({SIZE_MAX, SIZE_MAX}, sizes)) {
    checker_.notified(message->bytes.front());
  }
  return delivered;
}

const transfer::Execution* World::current(std::uint32_t request) const {
  const auto& executions = requests_[request].executions;
  return executions.empty() ? nullptr : executions_[executions.back()].pointer;
}

std::uint32_t World::number_of(const transfer::Execution* execution) const {
  for (std::uint32_t i = 0; i < executions_.size(); ++i) {
    if (executions_[i].pointer == execution) {
      return i;
    }
  }
  ORBITE_CHECK(false);
}

// ---- Events

std::vector<Event> World::possible() const {
  std::vector<Event> events;
  for (std::uint8_t r = 0; r < scenario_.requests; ++r) {
    for (const auto& [act, step] : {std::pair{Act::kEnter, sim::Step::kEnter},
                                    {Act::kLand, sim::Step::kLand},
                                    {Act::kComplete, sim::Step::kComplete},
                                    {Act::kRetire, sim::Step::kRetire}}) {
      const transfer::Execution* const execution = current(r);
      if (execution != nullptr && user_->transport().can(*execution, step)) {
        events.push_back({act, r});
      }
    }
  }
  for (const Act act : scenario_.calls) {
    if (!is_of_request(act)) {
      if (!done_.at(static_cast<std::size_t>(act))) {
        events.push_back({act, 0});
      }
      continue;
    }
    for (std::uint8_t r = 0; r < scenario_.requests; ++r) {
      const bool left = act == Act::kPost ? requests_[r].posts_left > 0
                                          : !request_done_.at(r).at(static_cast<std::size_t>(act));
      if (left) {
        events.push_back({act, r});
      }
    }
  }
  return events;
}

void World::happen(Event event) {
  switch (event.act) {
    case Act::kEnter:
      user_->transport().take(*current(event.request), sim::Step::kEnter);
      break;
    case Act::kLand:
      user_->transport().take(*current(event.request), sim::Step::kLand);
      break;
    case Act::kComplete:
      user_->transport().take(*current(event.request), sim::Step::kComplete);
      break;
    case Act::kRetire:
      user_->transport().take(*current(event.request), sim::Step::kRetire);
      break;
    default:
      make_call(event);
      break;
  }
  user_->turn();
  far_registry_.reap();
  look();
}

void World::make_call(Event event) {
  (is_of_request(event.act) ? request_done_.at(event.request) : done_)
      .at(static_cast<std::size_t>(event.act)) = true;
  const std::uint64_t before = steps_;
  switch (event.act) {
    case Act::kPost:
      --requests_[event.request].posts_left;
      post(event.request);
      checker_.bounded("post", steps_ - before, scenario_.slices + (scenario_.notifies ? 1U : 0U));
      break;
    case Act::kCancel:
      answer(event, user_->cancel(event.request));
      break;
    case Act::kCheck:
      answer(event, user_->check(event.request));
      checker_.bounded("check", steps_ - before, 0);
      break;
    case Act::kRelease:
      release(event.request);
      checker_.bounded("release", steps_ - before, 0);
      break;
    case Act::kDeregisterNear:
      deregister(Checker::Side::kNear);
      break;
    case Act::kDeregisterFar:
      deregister(Checker::Side::kFar);
      break;
    case Act::kUnload:
      answer(event, user_->unload());
      checker_.unloaded();
      break;
    case Act::kInvalidate:
      answer(event, user_->invalidate());
      checker_.unloaded();
      break;
    case Act::kClose:
      user_->close();
      checker_.closed();
      checker_.deregistered(Checker::Side::kNear);
      break;
    case Act::kRestart:
      restart();
      break;
    default:
      ORBITE_CHECK(false);
  }
}

void World::post(std::uint32_t index) {
  posting_ = index;
  Request& request = requests_[index];
  const auto number = static_cast<std::uint8_t>(executions_.size());
  std::optional<std::vector<std::uint8_t>> message;
  if (scenario_.notifies) {
    message.emplace({number});
  }
  const Result<void> posted = user_->post(index, std::move(message));
  answer({Act::kPost, static_cast<std::uint8_t>(index)}, posted);
  if (!posted) {
    return;
  }
  if (executions_.size() == number) {
    executions_.push_back({nullptr, index});  // nothing of it reached the transport
  }
  request.executions.push_back(
      checker_.posted({index, scenario_.operation, all_of(request), scenario_.notifies}));
}

Checker::Mask World::all_of(const Request& request) const {
  return mask_of(0, request.pairs.size() * kPairBytes);
}

void World::release(std::uint32_t index) {
  const Result<void> released = user_->release(index);
  answer({Act::kRelease, static_cast<std::uint8_t>(index)}, released);
  if (released) {
    requests_[index].released = true;
    checker_.released(index);
  }
}

void World::deregister(Checker::Side side) {
  const Result<RegistrationState> state =
      side == Checker::Side::kNear ? user_->deregister() : far_registry_.deregister(far_handle_);
  checker_.deregistered(side);
  if (state) {
    checker_.shown(side, *state);
  }
  answers_ += (side == Checker::Side::kNear ? 1 : 64) *
              (state ? static_cast<std::uint64_t>(*state) + 1 : 9);
}

void World::restart() {
  user_->transport().reset_peer(user_->flow());
  far_alive_ = false;
  checker_.far_died();
}

void World::answer(Event event, const Result<void>& result) {
  std::uint64_t& answers = is_of_request(event.act) ? requests_[event.request].answers : answers_;
  // A sum: the order in which they were given does not matter.
  answers += (static_cast<std::uint64_t>(event.act) * 64 + 1) *
             (result ? 1 : 2 + static_cast<std::uint64_t>(result.error().code())) * 7919;
}

// ---- The checker's looks

void World::look() {
  for (std::uint32_t r = 0; r < requests_.size(); ++r) {
    const Request& request = requests_[r];
    if (!request.executions.empty() && !request.released) {
      checker_.shown(request.executions.back(), user_->look(r));
    }
  }
  checker_.shown(Checker::Side::kNear, user_->registration_state());
  if (far_alive_) {
    checker_.shown(Checker::Side::kFar,
                   far_registry_.state(far_handle_).value_or(RegistrationState::kRetired));
  }
  checker_.memory(near_ == near_model_ && far_ == far_model_);
  look_at_pools();
}

void World::look_at_pools() {
  std::uint64_t bytes = 0;
  std::uint64_t messages = 0;
  std::uint64_t loans = 0;
  std::uint64_t far_loans = 0;
  std::uint64_t held = 0;
  for (const Request& request : requests_) {
    held += request.released ? 0 : 1;
    for (const std::uint32_t number : request.executions) {
      if (checker_.active(number)) {
        bytes += request.pairs.size() * kPairBytes;
        messages += scenario_.notifies ? 1 + user_->message_overhead() : 0;
        ++loans;
      }
      if (const transfer::Execution* const execution = executions_[number].pointer) {
        far_loans += user_->transport().on_wire(*execution);
      }
    }
  }
  const User::Pools pools = user_->pools();
  const memory::Registry::Counts& near = pools.registry;
  const memory::Registry::Counts far = far_registry_.counts();
  const auto registered = [this](Checker::Side side) {
    return checker_.destroyed_times(side) == 0 ? 1U : 0U;
  };
  checker_.pool("bytes in flight", pools.bytes_in_flight, bytes);
  checker_.pool("outbox bytes", pools.outbox_bytes, messages);
  checker_.pool("requests", pools.requests, held);
  checker_.pool("descriptors", pools.descriptors, held * scenario_.slices);
  checker_.pool("near loans", near.loans, loans);
  checker_.pool("far loans", far.loans, far_loans);
  checker_.pool("near registrations", near.live + near.fenced + near.unquiesced,
                registered(Checker::Side::kNear));
  checker_.pool("far registrations", far.live + far.fenced + far.unquiesced,
                registered(Checker::Side::kFar));
  checker_.pool("slices", pools.slices, user_->transport().outstanding());
}

// ---- The end

bool World::step_any() {
  for (std::uint8_t r = 0; r < requests_.size(); ++r) {
    const transfer::Execution* const execution = current(r);
    if (execution == nullptr) {
      continue;
    }
    for (const auto step :
         {sim::Step::kEnter, sim::Step::kLand, sim::Step::kComplete, sim::Step::kRetire}) {
      if (user_->transport().can(*execution, step)) {
        user_->transport().take(*execution, step);
        return true;
      }
    }
  }
  return false;
}

void World::heal() {
  while (step_any()) {
    look();
  }
  user_->transport().confirm_fenced(user_->flow());
  while (step_any()) {
    look();
  }
  look();
  for (std::uint32_t r = 0; r < requests_.size(); ++r) {
    if (!requests_[r].released) {
      release(r);
    }
  }
  deregister(Checker::Side::kNear);
  deregister(Checker::Side::kFar);
  look();
  checker_.ended();
}

std::uint64_t World::signature() const {
  std::vector<std::uint64_t> parts;
  for (std::uint32_t r = 0; r < requests_.size(); ++r) {
    const Request& request = requests_[r];
    std::uint64_t part = request.answers;
    mix(part, request.posts_left);
    mix(part, request.released ? 1 : 0);
    for (const bool done : request_done_.at(r)) {
      mix(part, done ? 1 : 0);
    }
    for (const std::uint32_t number : request.executions) {
      mix(part, checker_.digest(number));
    }
    if (const transfer::Execution* const execution = current(r)) {
      mix(part, user_->transport().digest(*execution));
    }
    parts.push_back(part);
  }
  // The requests are alike: what one does the other could have done.
  std::sort(parts.begin(), parts.end());
  std::uint64_t digest = answers_;
  for (const std::uint64_t part : parts) {
    mix(digest, part);
  }
  for (const bool done : done_) {
    mix(digest, done ? 1 : 0);
  }
  for (const Checker::Side side : {Checker::Side::kNear, Checker::Side::kFar}) {
    mix(digest, checker_.destroyed_times(side));
  }
  return digest;
}

}  // namespace orbite::test
