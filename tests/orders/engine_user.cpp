// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "base/assert.hpp"
#include "engine/access.hpp"
#include "orders/user.hpp"

namespace orbite::test {
namespace {

/// Sockets that nobody is at the other end of.
class NoNetwork final : public platform::Network {
 public:
  using Socket = platform::Socket;
  using IoResult = platform::IoResult;
  using SocketAddress = platform::SocketAddress;

  Result<Socket> listen(const SocketAddress& /*address*/) override { return next_++; }
  Result<SocketAddress> local_address(Socket /*socket*/) override {
    return SocketAddress::loopback(4, 1);
  }
  Result<Socket> accept(Socket /*listener*/, SocketAddress& /*peer*/) override {
    return fail(Error(ErrorCode::kNotFound));
  }
  Result<Socket> connect(const SocketAddress& /*address*/,
                         const SocketAddress* /*source*/) override {
    return fail(Error(ErrorCode::kPeerUnreachable));
  }
  IoResult connect_result(Socket /*socket*/) override { return {}; }
  IoResult send(Socket /*socket*/, std::span<const iovec> /*buffers*/) override { return {}; }
  IoResult receive(Socket /*socket*/, std::span<const iovec> /*buffers*/) override { return {}; }
  void shutdown_send(Socket /*socket*/) override {}
  void close(Socket /*socket*/) override {}
  void configure(Socket /*socket*/, const SocketOptions& /*options*/) override {}
  Result<Socket> make_poller() override { return next_++; }
  Result<void> poller_add(Socket /*poller*/, Socket /*socket*/, std::uint32_t /*events*/,
                          std::uint64_t /*token*/) override {
    return {};
  }
  void poller_modify(Socket /*poller*/, Socket /*socket*/, std::uint32_t /*events*/,
                     std::uint64_t /*token*/) override {}
  void poller_remove(Socket /*poller*/, Socket /*socket*/) override {}
  std::size_t poller_wait(Socket /*poller*/, std::span<platform::PollEvent> /*events*/,
                          base::Nanoseconds /*timeout_ns*/) override {
    return 0;
  }
  Result<Socket> make_wakeup() override { return next_++; }
  void signal(Socket /*wakeup*/) override {}
  void clear(Socket /*wakeup*/) override {}

 private:
  Socket next_ = 1;
};

/// One thread: whoever would wait finds things as they are.
class NoWaiter final : public base::Waiter {
 public:
  bool wait_for(std::unique_lock<std::mutex>& /*lock*/, std::condition_variable& /*changed*/,
                base::Nanoseconds /*timeout_ns*/, const std::function<bool()>& ready) override {
    return ready();
  }
};

class EngineUser final : public User {
 public:
  EngineUser(const sim::Script& script, sim::SimTransport::World hooks)
      : engine_(EngineAccess::create({"near", config()}, environment()).value()),
        transport_(EngineAccess::planner(*engine_), script, std::move(hooks)) {
    EngineAccess::planner(*engine_).set_transport(transport_.kind(), &transport_);
  }
  ~EngineUser() override { ORBITE_CHECK(EngineAccess::destroy_dead(std::move(engine_))); }

  void register_near(const MemoryDescriptor& memory) override {
    near_ = engine_->register_memory(memory).value();
  }
  void import_far(const wire::ConnectionBlob& connection, const wire::RangeBlob& blob) override {
    // It has an address, which nobody will connect to.
    wire::ConnectionBlob reachable = connection;
    reachable.port = 1;
    reachable.addresses = {{4, {127, 0, 0, 1}}};
    peer_ = engine_->import_peer("far", wire::encode(reachable)).value();
    range_ = engine_->import_range(peer_, wire::encode(blob), blob.address, blob.length).value();
    flow_ = transport_.open(peer::Peer("far", connection, false)).value();
  }
  void prepare(Operation operation, const std::vector<Pair>& pairs) override {
    std::vector<Descriptor> near;
    std::vector<Descriptor> far;
    for (const Pair& pair : pairs) {
      near.push_back({pair.near, pair.length, near_});
      far.push_back({pair.far, pair.length, range_});
    }
    requests_.push_back(engine_->prepare({operation, peer_, near, far}).value());
  }

  Result<void> post(std::uint32_t request, Message message) override {
    PostOptions options;
    if (message.has_value()) {
      options.notification = *message;
    }
    ORBITE_TRY(engine_->post(requests_[request], options));
    return {};
  }
  Result<void> cancel(std::uint32_t request) override {
    return engine_->cancel(requests_[request]);
  }
  Result<void> check(std::uint32_t request) override {
    ORBITE_TRY(engine_->check(requests_[request]));
    return {};
  }
  Result<void> release(std::uint32_t request) override {
    return engine_->release(requests_[request]);
  }
  Result<RegistrationState> deregister() override { return engine_->deregister_memory(near_); }
  Result<void> unload() override { return engine_->retire_peer(peer_); }
  Result<void> invalidate() override { return engine_->release_range(range_); }
  void close() override { engine_->close(0); }
  void turn() override { EngineAccess::work(*engine_); }

  [[nodiscard]] Outcome look(std::uint32_t request) const override {
    return engine_->query(requests_[request]).value_or(Outcome{});
  }
  [[nodiscard]] RegistrationState registration_state() const override {
    return engine_->registration_state(near_).value_or(RegistrationState::kRetired);
  }
  [[nodiscard]] Pools pools() const override {
    const transfer::Admission& admission = EngineAccess::admission(*engine_);
    return {admission.requests.used(),          admission.descriptors.used(),
            admission.bytes_in_flight.used(),   admission.outbox_bytes.used(),
            EngineAccess::slices_out(*engine_), EngineAccess::impl(*engine_).registry.counts()};
  }
  [[nodiscard]] std::uint64_t message_overhead() const override { return 256; }
  [[nodiscard]] sim::SimTransport& transport() override { return transport_; }
  [[nodiscard]] const sim::SimTransport& transport() const override { return transport_; }
  [[nodiscard]] transfer::Flow& flow() override { return *flow_; }

 private:
  static Config config() {
    Config config;
    config.listen.address = "127.0.0.1";
    return config;
  }
  EngineEnvironment environment() {
    return {network_,
            clock_,
            random_,
            waiter_,
            [] { return Result<base::HostIdentity>(base::HostIdentity{}); },
            [] { return std::vector<platform::SocketAddress>(); },
            {},
            false};
  }

  NoNetwork network_;
  base::ManualClock clock_;
  base::SeededRandom random_{1};
  NoWaiter waiter_;
  std::unique_ptr<TransferEngine> engine_;
  sim::SimTransport transport_;
  Handle near_;
  Handle peer_;
  Handle range_;
  std::shared_ptr<transfer::Flow> flow_;
  std::vector<Handle> requests_;
};

}  // namespace

std::unique_ptr<User> make_engine_user(const sim::Script& script, sim::SimTransport::World hooks) {
  return std::make_unique<EngineUser>(script, std::move(hooks));
}

}  // namespace orbite::test
