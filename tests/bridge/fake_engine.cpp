// SPDX-License-Identifier: Apache-2.0
// orbite::TransferEngine as a double, so that the bridge is tested alone: what it lets through,
// what it makes of each answer, and that nothing thrown inside gets out.

#include "fake_engine.hpp"

#include <memory>
#include <utility>

#include "base/result.hpp"

namespace orbite {

using testing::fake_engine;

namespace {

void called(std::string_view call) {
  // Relaxed: a count.
  fake_engine().calls.fetch_add(1, std::memory_order_relaxed);
  if (fake_engine().on_call) {
    fake_engine().on_call(call);
  }
}

Result<void> done() {
  if (fake_engine().failure.has_value()) {
    return fail(*fake_engine().failure);
  }
  return {};
}

template <typename T>
Result<T> answer(const T& value) {
  if (fake_engine().failure.has_value()) {
    return fail(*fake_engine().failure);
  }
  return value;
}

}  // namespace

class TransferEngine::Impl {};

TransferEngine::TransferEngine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
  // Relaxed: a count, like the decrement.
  fake_engine().alive.fetch_add(1, std::memory_order_relaxed);
}

TransferEngine::~TransferEngine() { fake_engine().alive.fetch_sub(1, std::memory_order_relaxed); }

Result<std::unique_ptr<TransferEngine>> TransferEngine::create(EngineOptions options) {
  called("create");
  ORBITE_TRY(done());
  fake_engine().name = std::move(options.name);
  fake_engine().config = std::move(options.config);
  return std::unique_ptr<TransferEngine>(new TransferEngine(std::make_unique<Impl>()));
}

Result<Handle> TransferEngine::register_memory(const MemoryDescriptor& memory) {
  called("register_memory");
  fake_engine().memory = memory;
  return answer(fake_engine().handle);
}

Result<RegistrationState> TransferEngine::deregister_memory(Handle registration) {
  called("deregister_memory");
  fake_engine().handle_seen = registration;
  return answer(fake_engine().registration_state);
}

Result<RegistrationState> TransferEngine::registration_state(Handle registration) const {
  called("registration_state");
  fake_engine().handle_seen = registration;
  return answer(fake_engine().registration_state);
}

Result<std::vector<std::uint8_t>> TransferEngine::export_memory(Handle registration) const {
  called("export_memory");
  fake_engine().handle_seen = registration;
  return answer(fake_engine().blob);
}

const std::vector<std::uint8_t>& TransferEngine::connection_blob() const noexcept {
  fake_engine().calls.fetch_add(1, std::memory_order_relaxed);
  return fake_engine().blob;
}

Result<Handle> TransferEngine::self_peer() {
  called("self_peer");
  return answer(fake_engine().handle);
}

Result<Handle> TransferEngine::import_peer(std::string_view name,
                                           std::span<const std::uint8_t> blob) {
  called("import_peer");
  fake_engine().text_seen = name;
  fake_engine().bytes_seen.assign(blob.begin(), blob.end());
  return answer(fake_engine().handle);
}

Result<void> TransferEngine::connect_peer(Handle peer, std::uint64_t timeout_ns) {
  called("connect_peer");
  fake_engine().peer_seen = peer;
  fake_engine().number_seen = timeout_ns;
  return done();
}

Result<void> TransferEngine::retire_peer(Handle peer) {
  called("retire_peer");
  fake_engine().peer_seen = peer;
  return done();
}

Result<void> TransferEngine::confirm_peer_fenced(Handle peer) {
  called("confirm_peer_fenced");
  fake_engine().peer_seen = peer;
  return done();
}

Result<void> TransferEngine::confirm_epoch_fenced(const std::array<std::uint8_t, 16>& epoch) {
  called("confirm_epoch_fenced");
  fake_engine().bytes_seen.assign(epoch.begin(), epoch.end());
  return done();
}

std::vector<UnresolvedPeer> TransferEngine::unresolved_peers() const {
  called("unresolved_peers");
  return fake_engine().unresolved;
}

Result<Handle> TransferEngine::import_range(Handle peer, std::span<const std::uint8_t> blob,
                                            std::uint64_t address, std::uint64_t length) {
  called("import_range");
  fake_engine().peer_seen = peer;
  fake_engine().bytes_seen.assign(blob.begin(), blob.end());
  fake_engine().address_seen = address;
  fake_engine().number_seen = length;
  return answer(fake_engine().handle);
}

Result<Handle> TransferEngine::local_range(Handle registration) {
  called("local_range");
  fake_engine().handle_seen = registration;
  return answer(fake_engine().handle);
}

Result<void> TransferEngine::release_range(Handle range) {
  called("release_range");
  fake_engine().handle_seen = range;
  return done();
}

Result<Handle> TransferEngine::prepare(const PrepareOptions& options) {
  called("prepare");
  fake_engine().operation_seen = options.operation;
  fake_engine().peer_seen = options.peer;
  fake_engine().local_seen.assign(options.local.begin(), options.local.end());
  fake_engine().remote_seen.assign(options.remote.begin(), options.remote.end());
  return answer(fake_engine().handle);
}

Result<Outcome> TransferEngine::post(Handle request, const PostOptions& options) {
  called("post");
  fake_engine().handle_seen = request;
  fake_engine().number_seen = options.timeout_ns;
  fake_engine().notification_seen.reset();
  if (options.notification.has_value()) {
    fake_engine().notification_seen.emplace(options.notification->begin(),
                                            options.notification->end());
  }
  return answer(fake_engine().outcome);
}

Result<Outcome> TransferEngine::check(Handle request) {
  called("check");
  static_cast<void>(request);
  return answer(fake_engine().outcome);
}

Result<Outcome> TransferEngine::query(Handle request) const {
  called("query");
  fake_engine().handle_seen = request;
  return answer(fake_engine().outcome);
}

Result<void> TransferEngine::cancel(Handle request) {
  called("cancel");
  fake_engine().handle_seen = request;
  return done();
}

Result<void> TransferEngine::release(Handle request) {
  called("release");
  fake_engine().handle_seen = request;
  return done();
}

Result<void> TransferEngine::abandon(Handle request) {
  called("abandon");
  fake_engine().handle_seen = request;
  return done();
}

Result<void> TransferEngine::send_notification(Handle peer, std::span<const std::uint8_t> message) {
  called("send_notification");
  fake_engine().peer_seen = peer;
  fake_engine().bytes_seen.assign(message.begin(), message.end());
  return done();
}

std::optional<Notification> TransferEngine::receive_notification() {
  NotificationSizes needed;
  return receive_notification({~std::size_t{0}, ~std::size_t{0}}, needed);
}

std::optional<Notification> TransferEngine::receive_notification(NotificationSizes capacity,
                                                                 NotificationSizes& needed) {
  called("receive_notification");
  std::vector<Notification>& inbox = fake_engine().inbox;
  if (inbox.empty()) {
    return std::nullopt;
  }
  needed = {inbox.front().sender.size(), inbox.front().message.size()};
  if (needed.sender_bytes > capacity.sender_bytes ||
      needed.message_bytes > capacity.message_bytes) {
    return std::nullopt;
  }
  Notification oldest = std::move(inbox.front());
  inbox.erase(inbox.begin());
  return oldest;
}

CloseStatus TransferEngine::close(std::uint64_t timeout_ns) {
  called("close");
  fake_engine().number_seen = timeout_ns;
  return fake_engine().close_status;
}

std::string TransferEngine::info_json() const {
  called("info_json");
  return fake_engine().info;
}

Result<Telemetry> TransferEngine::telemetry() const {
  called("telemetry");
  return answer(fake_engine().telemetry);
}

const char* version() noexcept { return "9.8.7"; }

std::string process_routes() {
  called("process_routes");
  return fake_engine().routes;
}

namespace testing {

FakeEngine& fake_engine() {
  static FakeEngine instance;
  return instance;
}

void reset_fake_engine() {
  FakeEngine& fake = fake_engine();
  const FakeEngine fresh;
  fake.on_call = nullptr;
  fake.failure.reset();
  fake.handle = fresh.handle;
  fake.registration_state = fresh.registration_state;
  fake.close_status = fresh.close_status;
  fake.outcome = fresh.outcome;
  fake.blob = fresh.blob;
  fake.inbox.clear();
  fake.unresolved.clear();
  fake.info = fresh.info;
  fake.routes = fresh.routes;
  fake.telemetry = fresh.telemetry;
  fake.config = Config{};
}

}  // namespace testing
}  // namespace orbite
