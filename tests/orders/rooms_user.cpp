// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "base/assert.hpp"
#include "orders/user.hpp"
#include "peer/peer.hpp"
#include "support/flows.hpp"
#include "transfer/admission.hpp"
#include "transfer/batch.hpp"
#include "transfer/transport.hpp"

namespace orbite::test {
namespace {

class RoomsUser final : public User {
 public:
  RoomsUser(const sim::Script& script, sim::SimTransport::World hooks)
      : transport_(planner_, script, std::move(hooks)) {
    planner_.set_transport(transport_.kind(), &transport_);
  }

  void register_near(const MemoryDescriptor& memory) override;
  void import_far(const wire::ConnectionBlob& connection, const wire::RangeBlob& blob) override;
  void prepare(Operation operation, const std::vector<Pair>& pairs) override;

  Result<void> post(std::uint32_t index, Message message) override;
  Result<void> cancel(std::uint32_t index) override;
  Result<void> check(std::uint32_t index) override;
  Result<void> release(std::uint32_t index) override;
  Result<RegistrationState> deregister() override { return registry_.deregister(near_); }
  Result<void> unload() override;
  Result<void> invalidate() override;
  void close() override;
  void turn() override { registry_.reap(); }

  [[nodiscard]] Outcome look(std::uint32_t index) const override;
  [[nodiscard]] RegistrationState registration_state() const override {
    return registry_.state(near_).value_or(RegistrationState::kRetired);
  }
  [[nodiscard]] Pools pools() const override {
    return {admission_.requests.used(),
            admission_.descriptors.used(),
            admission_.bytes_in_flight.used(),
            admission_.outbox_bytes.used(),
            planner_.slices_out(),
            registry_.counts()};
  }
  [[nodiscard]] std::uint64_t message_overhead() const override { return kMessageOverhead; }
  [[nodiscard]] sim::SimTransport& transport() override { return transport_; }
  [[nodiscard]] const sim::SimTransport& transport() const override { return transport_; }
  [[nodiscard]] transfer::Flow& flow() override { return test::only_flow(*peer_); }

 private:
  static constexpr std::uint64_t kMessageOverhead = 16;

  struct Request {
    std::shared_ptr<const transfer::Prepared> prepared;
    std::shared_ptr<transfer::Execution> execution;
    bool released = false;
  };
  [[nodiscard]] Result<void> check_postable(const Request& request) const;
  Result<memory::RangeLoans> take_loans(const transfer::Prepared& prepared);
  void stop(const std::shared_ptr<transfer::Execution>& execution, ErrorCode code);

  base::SeededRandom random_{1};
  memory::Registry registry_{{.registrations_max = 4}, random_};
  transfer::Admission admission_{{"requests", "", 8},
                                 {"descriptors", "", 64},
                                 {"bytes_in_flight", "", 4096},
                                 {"outbox_bytes", "", 4096}};
  transfer::Planner planner_;
  sim::SimTransport transport_;
  peer::SegmentManager peers_{4};
  peer::RangeTable ranges_{"imported range", 4, ""};
  Handle near_;
  Handle peer_handle_;
  Handle range_;
  std::shared_ptr<peer::Peer> peer_;
  std::vector<Request> requests_;
  bool closing_ = false;
};

void RoomsUser::register_near(const MemoryDescriptor& memory) {
  near_ = registry_.add(memory).value();
}

void RoomsUser::import_far(const wire::ConnectionBlob& connection, const wire::RangeBlob& blob) {
  peer_ = std::make_shared<peer::Peer>("far", connection, false);
  test::set_flow(*peer_, transport_.open(*peer_).value());
  std::shared_ptr<peer::Peer> replaced;
  peer_handle_ = peers_.add(peer_, replaced).value();
  const auto bounds = base::ByteRange::make(blob.address, blob.length).value();
  range_ = ranges_.insert(std::make_shared<peer::RemoteRange>(peer_, blob, bounds)).value();
}

void RoomsUser::prepare(Operation operation, const std::vector<Pair>& pairs) {
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

Result<void> RoomsUser::check_postable(const Request& request) const {
  if (closing_) {
    return fail(Error(ErrorCode::kEngineClosing));
  }
  if (request.released) {
    return fail(Error(ErrorCode::kStaleHandle));
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

Result<memory::RangeLoans> RoomsUser::take_loans(const transfer::Prepared& prepared) {
  memory::RangeLoans loans;
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

Result<void> RoomsUser::post(std::uint32_t index, Message message) {
  Request& request = requests_[index];
  ORBITE_TRY(check_postable(request));
  transfer::Execution::Options options;
  options.prepared = request.prepared;
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
  planner_.begin(transport_, flow(), request.execution);
  return check(index);
}

void RoomsUser::stop(const std::shared_ptr<transfer::Execution>& execution, ErrorCode code) {
  execution->stop(code);
  planner_.forget(*execution);
  if (!execution->terminal()) {
    transport_.drop_unposted(flow(), *execution);
  }
}

Result<void> RoomsUser::cancel(std::uint32_t index) {
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

Result<void> RoomsUser::check(std::uint32_t index) {
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

Result<void> RoomsUser::release(std::uint32_t index) {
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

Result<void> RoomsUser::unload() {
  ORBITE_TRY(peers_.remove(peer_handle_));
  return {};
}

Result<void> RoomsUser::invalidate() {
  ORBITE_ASSIGN_OR_RETURN(const std::shared_ptr<peer::RemoteRange> range, ranges_.take(range_));
  range->fence();
  return {};
}

void RoomsUser::close() {
  closing_ = true;
  peers_.retire_all();
  registry_.fence_all();
  for (const Request& request : requests_) {
    if (request.execution != nullptr && !request.execution->terminal()) {
      stop(request.execution, ErrorCode::kCanceled);
    }
  }
}

Outcome RoomsUser::look(std::uint32_t index) const {
  const Request& request = requests_[index];
  return request.execution != nullptr ? request.execution->outcome() : Outcome{};
}

}  // namespace

std::unique_ptr<User> make_rooms_user(const sim::Script& script, sim::SimTransport::World hooks) {
  return std::make_unique<RoomsUser>(script, std::move(hooks));
}

}  // namespace orbite::test
