// SPDX-License-Identifier: Apache-2.0
#include "orders/user.hpp"

#include "base/assert.hpp"

namespace orbite::test {

User::User(sim::Script script, sim::SimTransport::World hooks)
    : transport_(planner_, script, std::move(hooks)) {
  planner_.set_transport(transport_.kind(), &transport_);
}

void User::register_near(const MemoryDescriptor& memory) { near_ = registry_.add(memory).value(); }

void User::import_far(const wire::ConnectionBlob& connection, const wire::RangeBlob& blob) {
  peer_ = std::make_shared<peer::Peer>("far", connection, false);
  peer_->set_link(transport_.open(*peer_).value());
  std::shared_ptr<peer::Peer> replaced;
  peer_handle_ = peers_.add(peer_, replaced).value();
  const auto bounds = base::ByteRange::make(blob.address, blob.length).value();
  range_ = ranges_.insert(std::make_shared<peer::RemoteRange>(peer_, blob, bounds)).value();
}

void User::prepare(Operation operation, const std::vector<Pair>& pairs) {
  transfer::Batch batch(registry_, ranges_, *peer_);
  for (const Pair& pair : pairs) {
    const auto added =
        batch.add(operation, {pair.near, pair.length, near_}, {pair.far, pair.length, range_});
    ORBITE_CHECK(added.has_value());
  }
  ORBITE_CHECK(batch.seal().has_value());
  auto prepared = std::make_shared<transfer::Prepared>();
  prepared->request_charge = admission_.requests.take(1).value();
  prepared->descriptor_charge = admission_.descriptors.take(pairs.size()).value();
  prepared->operation = operation;
  prepared->peer = peer_;
  prepared->bytes = batch.bytes();
  prepared->tasks = batch.tasks();
  prepared->route = {transport_.kind(), policy::QosClass::kBulk};
  batch.move_into(prepared->extents, prepared->locals, prepared->remotes);
  requests_.push_back({std::move(prepared), nullptr, false});
}

Result<void> User::check_postable(const Request& request) const {
  if (request.released) {
    return fail(Error(ErrorCode::kStaleHandle));
  }
  if (closing_) {
    return fail(Error(ErrorCode::kEngineClosing));
  }
  if (request.execution != nullptr) {
    if (!request.execution->terminal()) {
      return fail(Error(ErrorCode::kActive));
    }
    if (request.execution->outcome().logical != Logical::kSuccess) {
      return fail(Error(ErrorCode::kNotRepostable));
    }
  }
  ORBITE_TRY(request.prepared->peer->check_live());
  for (const auto& remote : request.prepared->remotes) {
    if (remote->fenced()) {
      return fail(Error(ErrorCode::kRegistrationFenced));
    }
  }
  return {};
}

Result<std::vector<memory::RangeLoan>> User::take_loans(const transfer::Prepared& prepared) {
  std::vector<memory::RangeLoan> loans;
  for (const auto& local : prepared.locals) {
    ORBITE_ASSIGN_OR_RETURN(
        memory::RangeLoan loan,
        registry_.borrow(local,
                         prepared.operation == Operation::kWrite ? memory::Direction::kRead
                                                                 : memory::Direction::kWrite,
                         memory::Borrower::kLocal));
    loans.push_back(std::move(loan));
  }
  return loans;
}

Result<void> User::post(std::uint32_t index, std::optional<std::vector<std::uint8_t>> message) {
  Request& request = requests_[index];
  ORBITE_TRY(check_postable(request));
  transfer::Execution::Options options;
  options.prepared = request.prepared;
  options.peer = request.prepared->peer;
  options.route = request.prepared->route;
  if (message.has_value()) {
    ORBITE_ASSIGN_OR_RETURN(options.outbox_charge,
                            admission_.outbox_bytes.take(message->size() + kMessageOverhead));
  }
  options.notification = std::move(message);
  ORBITE_ASSIGN_OR_RETURN(options.loans, take_loans(*request.prepared));
  ORBITE_ASSIGN_OR_RETURN(options.bytes_charge,
                          admission_.bytes_in_flight.take(request.prepared->bytes));
  request.execution = std::make_shared<transfer::Execution>(std::move(options));
  planner_.enqueue(flow(), request.execution);
  planner_.pump(transport_, flow());
  return check(index);
}

void User::stop(const std::shared_ptr<transfer::Execution>& execution, ErrorCode code) {
  execution->stop(code);
  planner_.forget(flow(), *execution);
  if (!execution->terminal()) {
    transport_.drop_unposted(flow(), *execution);
  }
}

Result<void> User::cancel(std::uint32_t index) {
  const Request& request = requests_[index];
  if (request.released) {
    return fail(Error(ErrorCode::kStaleHandle));
  }
  if (request.execution == nullptr) {
    return fail(Error(ErrorCode::kNotPosted));
  }
  if (!request.execution->terminal()) {
    stop(request.execution, ErrorCode::kCanceled);
  }
  return {};
}

Result<void> User::check(std::uint32_t index) {
  const Request& request = requests_[index];
  if (request.released) {
    return fail(Error(ErrorCode::kStaleHandle));
  }
  if (request.execution != nullptr && !request.execution->terminal()) {
    transfer::WorkLimit limit{1 << 20, 8};
    transport_.drive(flow(), limit, transfer::Driver::kCaller);
  }
  registry_.reap();
  return {};
}

Result<void> User::release(std::uint32_t index) {
  Request& request = requests_[index];
  if (request.released) {
    return fail(Error(ErrorCode::kStaleHandle));
  }
  if (request.execution != nullptr && !request.execution->terminal()) {
    return fail(Error(ErrorCode::kActive));
  }
  request.released = true;
  request.prepared = nullptr;
  request.execution = nullptr;
  return {};
}

Result<RegistrationState> User::deregister() { return registry_.deregister(near_); }

Result<void> User::unload() {
  ORBITE_TRY(peers_.remove(peer_handle_));
  return {};
}

Result<void> User::invalidate() {
  ORBITE_ASSIGN_OR_RETURN(const std::shared_ptr<peer::RemoteRange> range, ranges_.take(range_));
  range->fence();
  return {};
}

void User::close() {
  closing_ = true;
  peers_.retire_all();
  registry_.fence_all();
  for (const Request& request : requests_) {
    if (request.execution != nullptr && !request.execution->terminal()) {
      stop(request.execution, ErrorCode::kCanceled);
    }
  }
}

void User::confirm_fenced() { transport_.confirm_fenced(flow()); }

Outcome User::look(std::uint32_t index) const {
  const Request& request = requests_[index];
  return request.execution != nullptr ? request.execution->outcome() : Outcome{};
}

RegistrationState User::registration_state() const {
  return registry_.state(near_).value_or(RegistrationState::kRetired);
}

}  // namespace orbite::test
