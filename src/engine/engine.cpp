// SPDX-License-Identifier: Apache-2.0
#include "orbite/engine.hpp"

#include <array>
#include <atomic>
#include <new>
#include <system_error>

#include "base/log.hpp"
#include "engine/impl.hpp"
#include "engine/process.hpp"
#include "engine/quarantine.hpp"
#include "platform/system.hpp"

namespace orbite {
namespace {

/// How long the destructor lets go of what peers do with our memory, once the close's own time is
/// over. Cutting them off is always safe for us: we stop receiving.
constexpr std::uint64_t kAbortTimeoutNs = base::kSecond;

std::array<std::atomic<std::uint64_t>, policy::kTransportKinds>& route_counts() noexcept {
  static std::array<std::atomic<std::uint64_t>, policy::kTransportKinds> counts{};
  return counts;
}

/// What there was no memory for is refused, with nothing changed by it.
template <typename Call>
auto guarded(const char* what, Call call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, "%s", what);
  }
}

}  // namespace

void count_route(policy::TransportKind transport) noexcept {
  // Relaxed: a count of its own.
  route_counts()[static_cast<std::size_t>(transport)].fetch_add(1, std::memory_order_relaxed);
}

std::string process_routes() {
  std::string text;
  for (std::size_t i = 0; i < policy::kTransportKinds; ++i) {
    const std::uint64_t count = route_counts()[i].load(std::memory_order_relaxed);
    if (count > 0) {
      text += text.empty() ? "" : ",";
      text += policy::transport_name(static_cast<policy::TransportKind>(i));
      text += ":" + std::to_string(count);
    }
  }
  return text;
}

const char* version() noexcept { return ORBITE_VERSION; }

Result<std::unique_ptr<TransferEngine>> TransferEngine::create(EngineOptions options) try {
  Quarantine::of_process().reap();
  const std::size_t quarantined = Quarantine::of_process().size();
  if (quarantined > options.config.limits.quarantined_engines_max) {
    return fail(ErrorCode::kBudgetExhausted,
                "quarantine: %zu engines of this process have work whose end nobody has proved, "
                "%llu are allowed (limits.quarantined_engines_max)",
                quarantined,
                static_cast<unsigned long long>(options.config.limits.quarantined_engines_max));
  }
  auto impl = std::make_unique<Impl>(std::move(options), system_environment());
  ORBITE_TRY(impl->start());
  return std::unique_ptr<TransferEngine>(new TransferEngine(std::move(impl)));
} catch (const std::bad_alloc&) {
  return fail(ErrorCode::kOutOfMemory, "creating an engine");
} catch (const std::system_error& error) {
  return fail(Error::make_native(ErrorCode::kSystem, error.code().value(), "creating an engine"));
}

TransferEngine::TransferEngine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

TransferEngine::~TransferEngine() {
  if (impl_ == nullptr) {
    return;
  }
  // The worker does not exist in a forked child and its locks may be held for ever: touch nothing.
  if (!impl_->check_process()) {
    const Impl* const left = impl_.release();
    static_cast<void>(left);
    return;
  }
  CloseStatus status = impl_->close(impl_->options.config.close.timeout_ms * base::kMillisecond);
  if (status.phase == ClosePhase::kDrainingServed) {
    impl_->abort_served();
    status = impl_->close(kAbortTimeoutNs);
  }
  if ((status.phase != ClosePhase::kClosed && status.phase != ClosePhase::kRetiring) ||
      impl_->lends()) {
    base::log(base::LogLevel::kError,
              "engine '%.64s' keeps %u executions and %u registrations in quarantine: no proof "
              "that nothing touches their buffers",
              impl_->options.name.c_str(), status.executions_unresolved,
              status.registrations_unresolved);
    platform::pin_library();
    impl_->enter_quarantine();
    // Its worker goes on seeking the proof: owners, charges and code stay.
    Quarantine::Place place = std::move(impl_->place_in_quarantine);
    Quarantine::of_process().keep<[](const Impl& engine) { return engine.worker_ended(); }>(
        std::move(place), std::move(impl_));
    return;
  }
  base::log(base::LogLevel::kInfo, "engine '%.64s' is closed", impl_->options.name.c_str());
}

Result<Handle> TransferEngine::register_memory(const MemoryDescriptor& memory) {
  return guarded("register memory", [&] { return impl_->register_memory(memory); });
}

Result<RegistrationState> TransferEngine::deregister_memory(Handle registration) {
  return impl_->deregister_memory(registration);
}

Result<RegistrationState> TransferEngine::registration_state(Handle registration) const {
  ORBITE_TRY(impl_->check_process());
  return impl_->registry.state(registration);
}

Result<std::vector<std::uint8_t>> TransferEngine::export_memory(Handle registration) const {
  return guarded("export memory", [&] { return impl_->export_memory(registration); });
}

const std::vector<std::uint8_t>& TransferEngine::connection_blob() const noexcept {
  return impl_->connection_blob;
}

Result<Handle> TransferEngine::self_peer() {
  return guarded("self peer", [&] { return impl_->self_peer(); });
}

Result<Handle> TransferEngine::import_peer(std::string_view name,
                                           std::span<const std::uint8_t> blob) {
  return guarded("import peer", [&] { return impl_->import_peer(name, blob); });
}

Result<void> TransferEngine::connect_peer(Handle peer, std::uint64_t timeout_ns) {
  return guarded("connect peer", [&] { return impl_->connect_peer(peer, timeout_ns); });
}

Result<void> TransferEngine::retire_peer(Handle peer) {
  return guarded("retire peer", [&] { return impl_->retire_peer(peer); });
}

Result<void> TransferEngine::confirm_peer_fenced(Handle peer) {
  return guarded("confirm peer fenced", [&] { return impl_->confirm_peer_fenced(peer); });
}

Result<void> TransferEngine::confirm_epoch_fenced(const std::array<std::uint8_t, 16>& epoch) {
  return guarded("confirm epoch fenced",
                 [&] { return impl_->confirm_epoch_fenced(base::SourceEpoch{epoch}); });
}

std::vector<UnresolvedPeer> TransferEngine::unresolved_peers() const {
  return impl_->check_process() ? impl_->unresolved_peers() : std::vector<UnresolvedPeer>{};
}

Result<Handle> TransferEngine::import_range(Handle peer, std::span<const std::uint8_t> blob,
                                            std::uint64_t address, std::uint64_t length) {
  return guarded("import range", [&] { return impl_->import_range(peer, blob, address, length); });
}

Result<Handle> TransferEngine::local_range(Handle registration) {
  return guarded("local range", [&] { return impl_->local_range(registration); });
}

Result<void> TransferEngine::release_range(Handle range) {
  return guarded("release range", [&] { return impl_->release_range(range); });
}

Result<Handle> TransferEngine::prepare(const PrepareOptions& options) {
  return guarded("prepare", [&] { return impl_->prepare(options); });
}

Result<Outcome> TransferEngine::post(Handle request, const PostOptions& options) {
  return guarded("post", [&] { return impl_->post(request, options); });
}

Result<Outcome> TransferEngine::check(Handle request) {
  return guarded("check", [&] { return impl_->check(request); });
}

Result<Outcome> TransferEngine::query(Handle request) const {
  return guarded("query", [&] { return impl_->query(request); });
}

Result<void> TransferEngine::cancel(Handle request) {
  return guarded("cancel", [&] { return impl_->cancel(request); });
}

Result<void> TransferEngine::release(Handle request) {
  return guarded("release", [&] { return impl_->release(request); });
}

Result<void> TransferEngine::abandon(Handle request) {
  return guarded("abandon", [&] { return impl_->abandon(request); });
}

Result<void> TransferEngine::send_notification(Handle peer, std::span<const std::uint8_t> message) {
  return guarded("send notification", [&] { return impl_->send_notification(peer, message); });
}

std::optional<Notification> TransferEngine::receive_notification() {
  NotificationSizes needed;
  return receive_notification({SIZE_MAX, SIZE_MAX}, needed);
}

std::optional<Notification> TransferEngine::receive_notification(NotificationSizes capacity,
                                                                 NotificationSizes& needed) {
  needed = {};
  if (!impl_->check_process()) {
    return std::nullopt;
  }
  notify::Mailbox::Sizes sizes;
  auto message = impl_->mailbox.take({capacity.sender_bytes, capacity.message_bytes}, sizes);
  needed = {sizes.sender_bytes, sizes.message_bytes};
  if (!message.has_value()) {
    return std::nullopt;
  }
  return Notification{std::move(message->sender), std::move(message->bytes)};
}

CloseStatus TransferEngine::close(std::uint64_t timeout_ns) {
  return impl_->check_process() ? impl_->close(timeout_ns) : CloseStatus{};
}

std::string TransferEngine::info_json() const {
  return impl_->check_process() ? impl_->info_json() : std::string("{}");
}

Result<Telemetry> TransferEngine::telemetry() const {
  ORBITE_TRY(impl_->check_process());
  return guarded("telemetry", [&] { return Result<Telemetry>(impl_->telemetry()); });
}

}  // namespace orbite
