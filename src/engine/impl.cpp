// SPDX-License-Identifier: Apache-2.0
#include "engine/impl.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/assert.hpp"
#include "base/brief_lock.hpp"
#include "base/error_line.hpp"
#include "base/log.hpp"
#include "base/planted.hpp"
#include "engine/process.hpp"
#include "platform/processors.hpp"
#include "platform/system.hpp"
#include "transfer/batch.hpp"
#include "wire/metadata.hpp"

namespace orbite {
namespace {

// What one call of the API may move before it returns.
constexpr transfer::WorkLimit kPostLimit{std::uint64_t{1} << 20, 8};
constexpr transfer::WorkLimit kCheckLimit{std::uint64_t{2} << 20, 16};

/// Charged for each notification in the outbox beyond its bytes, so that empty ones are not free.
constexpr std::uint64_t kNotificationOverhead = 256;

}  // namespace

TransferEngine::Impl::Impl(EngineOptions engine_options, EngineEnvironment engine_environment)
    : options(std::move(engine_options)),
      environment(std::move(engine_environment)),
      registry({options.config.limits.registrations_max}, random),
      peers(options.config.limits.peers_max),
      ranges("imported range", options.config.limits.ranges_max, "limits.ranges_max"),
      mailbox({options.config.notifications.message_bytes_max,
               options.config.notifications.inbox_bytes_max},
              counters),
      process_generation_(platform::process_generation()),
      routes_(options.config),
      admission_{{"requests", "limits.requests_max", options.config.limits.requests_max},
                 {"descriptors", "limits.descriptors_max", options.config.limits.descriptors_max},
                 {"bytes_in_flight", "limits.bytes_in_flight_max",
                  options.config.limits.bytes_in_flight_max},
                 {"outbox_bytes", "notifications.outbox_bytes_max",
                  options.config.notifications.outbox_bytes_max}},
      requests_("request", options.config.limits.requests_max, "limits.requests_max") {}

TransferEngine::Impl::~Impl() {
  stop_worker_.store(true, std::memory_order_release);
  if (worker_.joinable()) {
    network.signal(wakeup_);
    worker_.join();
  }
  // Their copy workers may still look at TCP.
  local_.reset();
  shm_.reset();
  cma_.reset();
  tcp_.reset();
  links_.reset();
  lender_.reset();
  if (wakeup_ != platform::kNoSocket) {
    network.close(wakeup_);
  }
  if (poller_ != platform::kNoSocket) {
    network.close(poller_);
  }
}

Result<void> TransferEngine::Impl::start() {
  if (options.name.empty() || options.name.size() > kNameBytesMax) {
    return fail(ErrorCode::kInvalidArgument, "engine name of %zu bytes, allowed 1..%zu",
                options.name.size(), kNameBytesMax);
  }
  if (base::LogLevel level{}; base::parse_log_level(options.config.log.level, level)) {
    base::set_log_level(level);
  }
  random.fill(epoch_.bytes);
  random.fill(secret_);
  ORBITE_ASSIGN_OR_RETURN(host_, environment.host_identity());
  ORBITE_ASSIGN_OR_RETURN(poller_, network.make_poller());
  ORBITE_ASSIGN_OR_RETURN(wakeup_, network.make_wakeup());
  ORBITE_TRY(network.poller_add(poller_, wakeup_, platform::kPollIn, 0));

  start_copy_workers();
  if (options.config.local.enabled) {
    start_local();
  }
  ORBITE_TRY(start_tcp());
  start_neighbors();
  ORBITE_ASSIGN_OR_RETURN(connection_, make_connection_blob());
  connection_blob = wire::encode(connection_);
  if (environment.starts_worker) {
    worker_ = platform::start_thread("orbite", [this] {
      // Relaxed: shown, and nothing hangs on it.
      worker_boost_.store(platform::boost_thread_priority(
                              static_cast<std::uint32_t>(options.config.worker.priority_boost)),
                          std::memory_order_relaxed);
      run_worker();
      worker_ended_.store(true, std::memory_order_release);
    });
  }
  base::log(base::LogLevel::kInfo, "engine '%.64s' of epoch %s %s%s", options.name.c_str(),
            base::to_hex(epoch_.bytes).c_str(),
            tcp_ != nullptr ? "listens on " : "does not listen: ",
            tcp_ != nullptr ? tcp_->listening().line().c_str() : tcp_unavailable_.c_str());
  return {};
}

void TransferEngine::Impl::start_copy_workers() {
  const auto workers_max = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(options.config.copy.workers_max, platform::usable_processors() - 1));
  if (environment.starts_worker && workers_max > 0) {
    copy_workers_ = std::make_unique<copy::Workers>(
        workers_max, copy::Workers::system(clock, environment.waiter));
  }
}

transport::Copying TransferEngine::Impl::copying() {
  const Config::Copy& config = options.config.copy;
  return {copy::Copier(copy::Thresholds::make(config, platform::last_level_cache_bytes())),
          copy_workers_.get(), config.workers_min_bytes,
          [this] {
            if (copies_wait_unwatched() || (tcp_ != nullptr && tcp_->needs_worker())) {
              wake_worker();
            }
          },
          environment.processors_are_short};
}

bool TransferEngine::Impl::copies_wait_unwatched() const {
  const auto copies = copy_transports();
  return std::any_of(copies.begin(), copies.end(),
                     [](auto* each) { return each != nullptr && each->waits_unwatched(); });
}

void TransferEngine::Impl::start_local() {
  local_ = std::make_unique<transport::local::LocalTransport>(
      planner_, clock, options.config.tcp.slice_bytes,
      [this](std::span<const std::uint8_t> message) {
        return mailbox.deliver(options.name, message);
      },
      environment.on_copy, copying());
  planner_.set_transport(policy::TransportKind::kLocal, local_.get());
}

Result<void> TransferEngine::Impl::start_tcp() {
  if (!options.config.tcp.enabled) {
    tcp_unavailable_ = "tcp.enabled is false";
    return {};
  }
  transport::tcp::Environment given{network,
                                    clock,
                                    watched_clock,
                                    random,
                                    environment.waiter,
                                    registry,
                                    counters,
                                    options.config,
                                    options.name,
                                    epoch_,
                                    secret_,
                                    host_,
                                    poller_,
                                    {}};
  given.processors_are_short = environment.processors_are_short;
  given.deliver = [this](const wire::Envelope& envelope) -> Result<void> {
    const std::string sender(envelope.sender_name);
    if (!peers.epoch_is_current(sender, envelope.sender_epoch)) {
      return fail(ErrorCode::kPeerEpochChanged, "'%.64s' has restarted since", sender.c_str());
    }
    return mailbox.deliver(envelope.sender_name, envelope.message);
  };
  ORBITE_ASSIGN_OR_RETURN(tcp_, transport::tcp::TcpTransport::create(std::move(given), planner_,
                                                                     [this] { wake_worker(); }));
  planner_.set_transport(policy::TransportKind::kTcp, tcp_.get());
  return {};
}

Result<wire::ConnectionBlob> TransferEngine::Impl::make_connection_blob() const {
  wire::ConnectionBlob blob;
  blob.epoch = epoch_;
  blob.secret = secret_;
  blob.host = host_;
  if (tcp_ == nullptr) {
    return blob;
  }
  const platform::SocketAddress& listening = tcp_->listening();
  blob.port = options.config.advertise.port != 0 ? options.config.advertise.port : tcp_->port();
  blob.loopback_reachable =
      (listening.is_any() || listening.is_loopback()) && blob.port == tcp_->port();
  const auto add = [&](const platform::SocketAddress& address) {
    if (blob.addresses.size() < wire::kAddressesMax) {
      blob.addresses.push_back(wire::Address{address.family(), address.bytes()});
    }
  };
  if (!options.config.advertise.addresses.empty()) {
    for (const std::string& literal : options.config.advertise.addresses) {
      ORBITE_ASSIGN_OR_RETURN(const platform::SocketAddress address,
                              platform::SocketAddress::parse(literal, blob.port));
      add(address);
    }
  } else if (!listening.is_any()) {
    add(listening);
  } else {
    for (const platform::SocketAddress& address : environment.default_route_addresses()) {
      add(address);
    }
  }
  return blob;
}

Result<void> TransferEngine::Impl::check_process() const {
  if (platform::process_generation() != process_generation_) {
    return fail(ErrorCode::kForked, "create an engine of its own in the child process");
  }
  return {};
}

Result<void> TransferEngine::Impl::check_usable() const {
  ORBITE_TRY(check_process());
  if (closing_.load(std::memory_order_acquire)) {
    return fail(ErrorCode::kEngineClosing, "engine '%.64s'", options.name.c_str());
  }
  return {};
}

// ---- Memory

Result<Handle> TransferEngine::Impl::register_memory(const MemoryDescriptor& memory) {
  ORBITE_TRY(check_usable());
  if (lender_ != nullptr) {
    ORBITE_TRY(lender_->reserve());
  }
  auto handle = registry.add(memory, shared_part(memory));
  if (lender_ != nullptr) {
    if (handle) {
      lend(*handle);
    } else {
      lender_->cancel_reservation();
    }
  }
  return handle;
}

Result<std::vector<std::uint8_t>> TransferEngine::Impl::export_memory(Handle handle) const {
  ORBITE_TRY(check_process());
  ORBITE_ASSIGN_OR_RETURN(const std::shared_ptr<memory::Registration> registration,
                          registry.find(handle));
  wire::RangeBlob blob;
  blob.epoch = epoch_;
  blob.index = registration->handle().index;
  blob.generation = registration->handle().generation;
  blob.key = registration->key();
  blob.address = registration->range().address();
  blob.length = registration->range().length();
  blob.device_id = registration->device_id();
  blob.kind = static_cast<std::uint8_t>(registration->kind());
  blob.access = registration->access();
  if (auto loan = registry.borrow(registration, memory::Direction::kRead, memory::Borrower::kLocal);
      loan) {
    blob.shared = lender_ != nullptr && registration->shared().allocation != nullptr;
  }
  return wire::encode(blob);
}

// ---- Requests

Result<Handle> TransferEngine::Impl::prepare(const PrepareOptions& prepare_options) {
  ORBITE_TRY(check_usable());
  if (prepare_options.local.size() != prepare_options.remote.size()) {
    return fail(ErrorCode::kLengthMismatch, "%zu local and %zu remote descriptors",
                prepare_options.local.size(), prepare_options.remote.size());
  }
  const std::size_t count = prepare_options.local.size();
  if (count > options.config.limits.descriptors_per_request_max) {
    return fail(ErrorCode::kBudgetExhausted,
                "%zu descriptors in one request, limits.descriptors_per_request_max is %llu", count,
                static_cast<unsigned long long>(options.config.limits.descriptors_per_request_max));
  }
  ORBITE_ASSIGN_OR_RETURN(std::shared_ptr<peer::Peer> peer, peers.find(prepare_options.peer));
  ORBITE_TRY(peer->check_live());

  auto prepared = std::make_shared<transfer::Prepared>();
  ORBITE_ASSIGN_OR_RETURN(prepared->request_charge, admission_.requests.take(1));
  ORBITE_ASSIGN_OR_RETURN(prepared->descriptor_charge, admission_.descriptors.take(count));
  transfer::Batch batch(registry, ranges, *peer);
  for (std::size_t i = 0; i < count; ++i) {
    ORBITE_TRY(
        batch.add(prepare_options.operation, prepare_options.local[i], prepare_options.remote[i]));
  }
  ORBITE_TRY(batch.seal());
  ORBITE_ASSIGN_OR_RETURN(prepared->route, routes_.choose(peer->is_self(), batch.bytes()));
  if (batch.bytes() > admission_.bytes_in_flight.max()) {
    return fail(ErrorCode::kBudgetExhausted,
                "%llu bytes in one request, limits.bytes_in_flight_max is %llu",
                static_cast<unsigned long long>(batch.bytes()),
                static_cast<unsigned long long>(admission_.bytes_in_flight.max()));
  }
  prepared->operation = prepare_options.operation;
  prepared->peer = std::move(peer);
  prepared->bytes = batch.bytes();
  prepared->tasks = batch.tasks();
  batch.move_into(prepared->extents, prepared->locals, prepared->remotes);

  auto request = std::make_shared<Request>();
  request->prepared = std::move(prepared);
  return requests_.insert(std::move(request));
}

Result<void> TransferEngine::Impl::check_repostable(const Request& request) const {
  if (request.execution != nullptr && !base::planted(base::Bug::kReuseRequestWhileActive)) {
    if (!request.execution->terminal()) {
      return fail(ErrorCode::kActive, "the last execution has not retired");
    }
    if (!request.execution->succeeded()) {
      const std::string_view text = error_text(request.execution->outcome().code);
      return fail(ErrorCode::kNotRepostable, "the last execution ended with: %.*s",
                  static_cast<int>(text.size()), text.data());
    }
  }
  ORBITE_TRY(request.prepared->peer->check_live());
  for (const auto& remote : request.prepared->remotes) {
    if (remote->fenced()) {
      return fail(ErrorCode::kRegistrationFenced, "an imported range of peer '%.64s' was released",
                  request.prepared->peer->name().c_str());
    }
  }
  return {};
}

Result<memory::RangeLoans> TransferEngine::Impl::take_loans(const transfer::Prepared& prepared) {
  const bool is_write = prepared.operation == Operation::kWrite;
  memory::RangeLoans loans;
  loans.reserve(prepared.locals.size() + (prepared.peer->is_self() ? prepared.remotes.size() : 0));
  for (const auto& local : prepared.locals) {
    ORBITE_ASSIGN_OR_RETURN(
        memory::RangeLoan loan,
        registry.borrow(local, is_write ? memory::Direction::kRead : memory::Direction::kWrite,
                        memory::Borrower::kLocal));
    loans.push_back(std::move(loan));
  }
  if (prepared.peer->is_self()) {
    for (const auto& remote : prepared.remotes) {
      ORBITE_ASSIGN_OR_RETURN(
          memory::RangeLoan loan,
          registry.borrow(remote->own(),
                          is_write ? memory::Direction::kWrite : memory::Direction::kRead,
                          memory::Borrower::kRemote));
      loans.push_back(std::move(loan));
    }
  }
  return loans;
}

Result<TransferEngine::Impl::Posting> TransferEngine::Impl::accept_notification(
    std::optional<std::span<const std::uint8_t>> message, transfer::Share& share) {
  Posting posting;
  if (!message.has_value()) {
    return posting;
  }
  if (message->size() > options.config.notifications.message_bytes_max) {
    return fail(ErrorCode::kInvalidArgument,
                "notification of %zu bytes, notifications.message_bytes_max is %llu",
                message->size(),
                static_cast<unsigned long long>(options.config.notifications.message_bytes_max));
  }
  ORBITE_ASSIGN_OR_RETURN(
      posting.outbox_charge,
      admission_.outbox_bytes.take(message->size() + kNotificationOverhead, &share));
  posting.notification.emplace(message->begin(), message->end());
  return posting;
}

Result<Outcome> TransferEngine::Impl::post(Handle handle, const PostOptions& post_options) {
  ORBITE_TRY(check_usable());
  ORBITE_ASSIGN_OR_RETURN(const std::shared_ptr<Request> request, requests_.find(handle));
  Admitted admitted;
  {
    const std::lock_guard lock(request->mutex);
    if (request->released) {
      return fail(ErrorCode::kStaleHandle, "the request was released meanwhile");
    }
    ORBITE_TRY(check_repostable(*request));
    transfer::Execution::Options launch_options;
    launch_options.prepared = request->prepared;
    launch_options.route = route_now(*request->prepared);
    transfer::PeerShares& shares = transfer::flows_of(*request->prepared->peer).shares();
    ORBITE_ASSIGN_OR_RETURN(Posting posting,
                            accept_notification(post_options.notification, shares.outbox_bytes));
    launch_options.notification = std::move(posting.notification);
    launch_options.outbox_charge = std::move(posting.outbox_charge);
    ORBITE_ASSIGN_OR_RETURN(launch_options.loans, take_loans(*request->prepared));
    ORBITE_ASSIGN_OR_RETURN(
        launch_options.bytes_charge,
        admission_.bytes_in_flight.take(request->prepared->bytes, &shares.bytes_in_flight));
    launch_options.posted_ns = clock.now_ns();
    const std::uint64_t timeout_ns =
        post_options.timeout_ns != 0
            ? post_options.timeout_ns
            : options.config.transfer.default_timeout_ms * base::kMillisecond;
    launch_options.deadline_ns =
        timeout_ns == 0 ? 0 : base::saturating_add(launch_options.posted_ns, timeout_ns);
    ORBITE_ASSIGN_OR_RETURN(admitted, admit(std::move(launch_options)));
    request->execution = admitted.execution;
    count_route(admitted.execution->route().transport);
  }
  launch(admitted);
  return admitted.execution->outcome();
}

/// By the best way there is at this moment. It is never changed afterwards.
policy::Route TransferEngine::Impl::route_now(const transfer::Prepared& prepared) const {
  const transfer::PeerFlows& flows = transfer::flows_of(*prepared.peer);
  for (const policy::TransportKind kind : routes_.preferred(prepared.peer->is_self())) {
    transfer::Flow* const flow = flows.find(kind);
    if (flow != nullptr && planner_.transport(kind)->reaches(*flow, prepared)) {
      return {kind, prepared.route.qos, prepared.route.control};
    }
  }
  return prepared.route;
}

/// Before launch(), and the only way to it. The execution is active before anything of it can
/// complete, and before a close, or an operator who declares its peer fenced, looks for those to
/// stop: kEngineClosing or kPeerRetired when it comes later. When there is no memory for it, it
/// throws and nothing of it has happened; once it is active, nothing can fail any more.
Result<TransferEngine::Impl::Admitted> TransferEngine::Impl::admit(
    transfer::Execution::Options&& launch_options) {
  launch_options.on_terminal = [this](transfer::Execution& done) { on_terminal(done); };
  auto execution = std::make_shared<transfer::Execution>(std::move(launch_options));
  bool is_next_deadline = false;
  {
    const auto lock = base::lock_briefly(active_mutex_);
    ORBITE_TRY(check_usable());
    ORBITE_TRY(execution->peer().check_live());
    is_next_deadline =
        execution->deadline_ns() != 0 && execution->deadline_ns() < active_.next_deadline_ns();
    active_.add(execution);
    if (execution->prepared() != nullptr) {
      counters_of(*execution).count_posted();
    }
  }
  return Admitted{std::move(execution), is_next_deadline};
}

/// The only way into the planner. Without a lock: bytes may move.
void TransferEngine::Impl::launch(const Admitted& admitted) {
  const auto& execution = admitted.execution;
  transfer::Flow& flow = transfer::flow_of(execution->peer(), execution->route().transport);
  planner_.begin(transport_of(*execution), flow, execution);
  if (execution->terminal()) {
    return;
  }
  drive(*execution, kPostLimit);
  // The worker sleeps until a later one. What is done by now has no deadline any more.
  if (admitted.is_next_deadline && !execution->terminal()) {
    wake_worker();
  }
}

/// What moves bytes ends a slice for which it has no memory; whatever else asks for some is left to
/// the worker: the execution is posted, and its caller must learn of it.
void TransferEngine::Impl::drive(const transfer::Execution& execution,
                                 transfer::WorkLimit limit) noexcept {
  const policy::Route& route = execution.route();
  const transfer::Driver driver = route.qos == policy::QosClass::kLatency
                                      ? transfer::Driver::kLatencyCaller
                                      : transfer::Driver::kCaller;
  try {
    transport_of(execution).drive(transfer::flow_of(execution.peer(), route.transport), limit,
                                  driver);
    if (route.control != route.transport && execution.only_notifies()) {
      planner_.transport(route.control)
          ->drive(transfer::flow_of(execution.peer(), route.control), limit,
                  transfer::Driver::kLatencyCaller);
    }
  } catch (const std::bad_alloc&) {
    wake_worker();
  }
  // Who copies may have ended the bytes of others, whose notification is left to the worker.
  const bool copies = route.transport != policy::TransportKind::kTcp;
  const bool ended = execution.terminal();
  const bool left_to_tcp = (!ended || copies) && tcp_ != nullptr && tcp_->needs_worker();
  const bool left_to_copies = !ended && copies && copies_wait_unwatched();
  if (left_to_tcp || left_to_copies) {
    wake_worker();
  }
}

Result<Outcome> TransferEngine::Impl::check(Handle handle) {
  ORBITE_TRY(check_process());
  ORBITE_ASSIGN_OR_RETURN(const std::shared_ptr<Request> request, requests_.find(handle));
  std::shared_ptr<transfer::Execution> execution;
  {
    const std::lock_guard lock(request->mutex);
    execution = request->execution;
  }
  if (execution == nullptr) {
    Outcome outcome;
    outcome.bytes_total = request->prepared->bytes;
    return outcome;
  }
  if (!execution->terminal()) {
    drive(*execution, kCheckLimit);
  }
  return execution->outcome();
}

Result<Outcome> TransferEngine::Impl::query(Handle handle) const {
  ORBITE_TRY(check_process());
  ORBITE_ASSIGN_OR_RETURN(const std::shared_ptr<Request> request, requests_.find(handle));
  const std::lock_guard lock(request->mutex);
  if (request->execution == nullptr) {
    Outcome outcome;
    outcome.bytes_total = request->prepared->bytes;
    return outcome;
  }
  return request->execution->outcome();
}

std::shared_ptr<transfer::Execution> TransferEngine::Impl::next_active(
    std::uint64_t number, const base::SourceEpoch* epoch) const {
  const std::lock_guard lock(active_mutex_);
  auto next = active_.after(number);
  while (next != nullptr && epoch != nullptr && next->peer().epoch() != *epoch) {
    next = active_.after(next->number());
  }
  return next;
}

/// All are stopped first: what is dropped then makes room, and none of them may take it. One that
/// was only queued is terminal by that, so a transport is asked only for those few that it holds.
/// What becomes active meanwhile may be missed, or be stopped when its turn comes.
void TransferEngine::Impl::stop_active(ErrorCode code, const base::SourceEpoch* epoch) {
  for (auto next = next_active(0, epoch); next != nullptr;
       next = next_active(next->number(), epoch)) {
    stop_planning(*next, code);
  }
  for (auto next = next_active(0, epoch); next != nullptr;
       next = next_active(next->number(), epoch)) {
    stop_execution(*next, code);
  }
}

void TransferEngine::Impl::stop_planning(transfer::Execution& execution, ErrorCode code) {
  execution.stop(code);
  planner_.forget(execution);
}

/// Only what is stopped is dropped: of anything else the end would be nobody's wish.
void TransferEngine::Impl::stop_execution(transfer::Execution& execution, ErrorCode code) {
  stop_planning(execution, code);
  if (!execution.terminal()) {
    const policy::Route& route = execution.route();
    for (const policy::TransportKind kind : {route.transport, route.control}) {
      planner_.transport(kind)->drop_unposted(transfer::flow_of(execution.peer(), kind), execution);
    }
  }
}

Result<void> TransferEngine::Impl::cancel(Handle handle) {
  ORBITE_TRY(check_process());
  ORBITE_ASSIGN_OR_RETURN(const std::shared_ptr<Request> request, requests_.find(handle));
  std::shared_ptr<transfer::Execution> execution;
  {
    const std::lock_guard lock(request->mutex);
    execution = request->execution;
  }
  if (execution == nullptr) {
    return fail(ErrorCode::kNotPosted, "nothing to cancel");
  }
  if (!execution->terminal()) {
    stop_execution(*execution, ErrorCode::kCanceled);
  }
  return {};
}

Result<void> TransferEngine::Impl::release(Handle handle) {
  ORBITE_TRY(check_process());
  ORBITE_ASSIGN_OR_RETURN(const std::shared_ptr<Request> request, requests_.find(handle));
  {
    const std::lock_guard lock(request->mutex);
    if (request->released) {
      return fail(ErrorCode::kStaleHandle, "the request was released meanwhile");
    }
    if (request->execution != nullptr && !request->execution->terminal()) {
      return fail(ErrorCode::kActive, "the execution has not retired");
    }
    request->released = true;
  }
  ORBITE_TRY(requests_.take(handle));
  return {};
}

Result<void> TransferEngine::Impl::abandon(Handle handle) {
  ORBITE_TRY(check_process());
  ORBITE_ASSIGN_OR_RETURN(const std::shared_ptr<Request> request, requests_.find(handle));
  {
    const std::lock_guard lock(request->mutex);
    if (request->released) {
      return fail(ErrorCode::kStaleHandle, "the request was released meanwhile");
    }
    request->released = true;
    if (request->execution != nullptr && !request->execution->terminal()) {
      counters.requests_adopted.add();  // active_ keeps it
    }
  }
  ORBITE_TRY(requests_.take(handle));
  return {};
}

// ---- Notifications

Result<void> TransferEngine::Impl::send_notification(Handle handle,
                                                     std::span<const std::uint8_t> message) {
  ORBITE_TRY(check_usable());
  ORBITE_ASSIGN_OR_RETURN(const std::shared_ptr<peer::Peer> peer, peers.find(handle));
  ORBITE_TRY(peer->check_live());
  transfer::Execution::Options launch_options;
  ORBITE_ASSIGN_OR_RETURN(launch_options.route, routes_.choose(peer->is_self(), 0));
  ORBITE_ASSIGN_OR_RETURN(
      Posting posting,
      accept_notification(message, transfer::flows_of(*peer).shares().outbox_bytes));
  launch_options.peer = peer;
  launch_options.notification = std::move(posting.notification);
  launch_options.outbox_charge = std::move(posting.outbox_charge);
  ORBITE_ASSIGN_OR_RETURN(const Admitted admitted, admit(std::move(launch_options)));
  launch(admitted);
  return {};
}

// ---- Ends of executions

/// Of an execution that has one.
void TransferEngine::Impl::count_notification(const transfer::Execution& execution,
                                              const Outcome& outcome) noexcept {
  if (outcome.logical == Logical::kSuccess) {
    counters.notifications_sent.add();
  } else if (outcome.logical == Logical::kFailed) {
    counters.notifications_failed.add();
    if (execution.prepared() == nullptr) {
      base::log(base::LogLevel::kWarn, "notification to peer '%.64s' not delivered: %s",
                execution.peer().name().c_str(),
                base::error_line(Error(outcome.code, outcome.native_errno)).c_str());
    }
  }
}

/// Under active_mutex_.
void TransferEngine::Impl::count_end(const transfer::Execution& execution, const Outcome& outcome,
                                     base::Nanoseconds now_ns) noexcept {
  telemetry::RouteCounters& route = counters_of(execution);
  switch (outcome.logical) {
    case Logical::kSuccess:
      route.count_success(execution.bytes(), now_ns - execution.posted_ns());
      break;
    case Logical::kCanceled:
      route.count_canceled();
      break;
    case Logical::kFailed:
      route.count_failure(outcome.code);
      break;
    case Logical::kNone:
      ORBITE_CHECK(false);
  }
}

void TransferEngine::Impl::on_terminal(transfer::Execution& execution) noexcept {
  const Outcome outcome = execution.outcome();
  if (execution.notification().has_value()) {
    count_notification(execution, outcome);
  }
  const base::Nanoseconds now_ns = clock.now_ns();
  std::shared_ptr<transfer::Execution> last;  // released outside the lock
  const auto lock = base::lock_briefly(active_mutex_);
  if (execution.prepared() != nullptr) {
    count_end(execution, outcome, now_ns);
  }
  last = active_.remove(execution);
  ++changes_;
  changed_.notify_all();
}

std::vector<std::shared_ptr<transfer::Execution>> TransferEngine::Impl::active_executions() const {
  const std::lock_guard lock(active_mutex_);
  std::vector<std::shared_ptr<transfer::Execution>> executions;
  executions.reserve(active_.size());
  for (auto next = active_.after(0); next != nullptr; next = active_.after(next->number())) {
    executions.push_back(next);
  }
  return executions;
}

}  // namespace orbite
