// SPDX-License-Identifier: Apache-2.0
// What engines of one host do with each other's memory: ours for them, and the ways into theirs.
#include <cstring>

#include "base/error_line.hpp"
#include "base/log.hpp"
#include "engine/impl.hpp"

namespace orbite {

/// Without them peers on our host use TCP as those on other hosts do: nothing here can fail a
/// start.
void TransferEngine::Impl::start_neighbors() {
  if (environment.neighbors == nullptr) {
    lender_unavailable_ = "there are no neighbours in this environment";
    return;
  }
  if (!options.config.cma.enabled && !options.config.shm.enabled) {
    lender_unavailable_ = "cma.enabled and shm.enabled are false";
    return;
  }
  if (auto lender = peer::Lender::create(link_environment()); lender) {
    lender_ = std::move(*lender);
  } else {
    lender_unavailable_ = lender.error().message();
    base::log(base::LogLevel::kWarn, "engine '%.64s': neighbours cannot borrow its memory: %s",
              options.name.c_str(), base::error_line(lender.error()).c_str());
  }
  links_ = std::make_unique<peer::BorrowLinks>(link_environment());
  if (options.config.cma.enabled) {
    cma_ = std::make_unique<transport::cma::CmaTransport>(
        planner_, clock, options.config.tcp.slice_bytes, *links_, copying());
    planner_.set_transport(policy::TransportKind::kCma, cma_.get());
  }
  if (options.config.shm.enabled) {
    shm_ = std::make_unique<transport::shm::ShmTransport>(
        planner_, clock, options.config.tcp.slice_bytes, *links_, environment.on_copy, copying());
    planner_.set_transport(policy::TransportKind::kShm, shm_.get());
  }
}

peer::LinkEnvironment TransferEngine::Impl::link_environment() {
  peer::LinkEnvironment given{network,
                              *environment.neighbors,
                              clock,
                              random,
                              environment.waiter,
                              options.name,
                              epoch_,
                              secret_,
                              host_,
                              poller_,
                              options.config.tcp.handshake_timeout_ms * base::kMillisecond,
                              options.config.tcp.handshakes_max,
                              options.config.limits.peers_max,
                              options.config.limits.registrations_max,
                              {},
                              [this] { wake_worker(); }};
  given.share = [this](const wire::RegistrationRef& asked) { return share(asked); };
  return given;
}

/// Nothing for ordinary memory.
memory::SharedPart TransferEngine::Impl::shared_part(const MemoryDescriptor& memory) const {
  const auto range = base::ByteRange::make(memory.address, memory.length);
  if (!environment.find_shared || !options.config.shm.enabled || !range) {
    return {};
  }
  return environment.find_shared(*range).value_or(memory::SharedPart());
}

Result<peer::SharedRange> TransferEngine::Impl::share(const wire::RegistrationRef& asked) const {
  base::RegistrationKey key;
  std::memcpy(key.bytes.data(), asked.key, key.bytes.size());
  // Who may read it gets all of it: that it may not write is the neighbour's engine to keep, as it
  // is with the memory that the kernel lets it write.
  ORBITE_ASSIGN_OR_RETURN(
      const memory::RangeLoan loan,
      registry.borrow_remote(Handle{asked.index, asked.generation}, key, memory::Direction::kRead));
  const memory::SharedPart& shared = loan.registration().shared();
  if (shared.allocation == nullptr) {
    return fail(ErrorCode::kUnsupported, "ordinary memory");
  }
  return peer::SharedRange{shared.allocation->file, shared.allocation->id, shared.offset};
}

/// Before anybody knows of the registration. A close that fences everything meanwhile closes what
/// it finds open; what it did not find is closed here.
void TransferEngine::Impl::lend(Handle handle) noexcept {
  const auto registration = registry.find(handle);
  if (registration) {
    auto loan = registry.borrow(*registration, memory::Direction::kRead, memory::Borrower::kLocal);
    if (loan) {
      lender_->open(handle);
      if ((*registration)->fenced()) {
        lender_->close(std::move(*loan));
      }
      return;
    }
  }
  lender_->cancel_reservation();
}

Result<RegistrationState> TransferEngine::Impl::deregister_memory(Handle handle) {
  ORBITE_TRY(check_process());
  if (lender_ != nullptr) {
    // Before the fence: the loan keeps it from retiring while a neighbour is inside.
    if (auto found = registry.find(handle); found) {
      if (auto loan = registry.borrow(*found, memory::Direction::kRead, memory::Borrower::kLocal);
          loan) {
        lender_->close(std::move(*loan));
      }
    }
  }
  return registry.deregister(handle);
}

}  // namespace orbite
