// SPDX-License-Identifier: Apache-2.0
#include "bench/endpoint.hpp"

#include <sys/resource.h>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "config/address.hpp"
#include "platform/system.hpp"

namespace orbite::tool::bench {
namespace {

constexpr base::Nanoseconds kCloseTimeout = 5 * base::kSecond;

}  // namespace

Result<Endpoint> Endpoint::create(const std::string& name, const Config& config) {
  ORBITE_ASSIGN_OR_RETURN(std::unique_ptr<TransferEngine> engine,
                          TransferEngine::create({.name = name, .config = config}));
  return Endpoint(std::move(engine));
}

Endpoint::~Endpoint() {
  if (engine_ != nullptr && engine_->close(kCloseTimeout).phase != ClosePhase::kClosed) {
    for (Area* area : areas_) {
      area->keep();
    }
  }
}

Result<Handle> Endpoint::register_area(Area& area) {
  MemoryDescriptor memory;
  memory.address = area.address();
  memory.length = area.bytes().size();
  ORBITE_ASSIGN_OR_RETURN(const Handle registration, engine_->register_memory(memory));
  areas_.push_back(&area);
  return registration;
}

Result<Config> read_config(const std::optional<std::string>& file) {
  const std::optional<std::string> source = file ? file : platform::environment_config();
  return source ? load_config_file(*source) : Result<Config>(Config{});
}

Config on_loopback(Config config) {
  config.listen = {};
  config.listen.address = "127.0.0.1";
  config.advertise = {};
  config.tcp.source_address.clear();
  return config;
}

Config at_address(Config config, const std::string& host) {
  if (config::is_unicast_address(host)) {
    if (config.listen.address.empty()) {
      config.listen.address = host;
    }
    if (config.advertise.addresses.empty()) {
      config.advertise.addresses = {host};
    }
  }
  return config;
}

Config by_transport(Config config, Transport transport) {
  if (transport != Transport::kAuto) {
    config.shm.enabled = transport == Transport::kShm;
    config.cma.enabled = transport == Transport::kCma;
    config.tcp.enabled = true;
    config.transfer.routes = Config().transfer.routes;
  }
  return config;
}

Pages pages_for(Transport transport) {
  return transport == Transport::kShm ? Pages::kShared : Pages::kOrdinary;
}

std::uint64_t process_cpu_ns() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto ns = [](const timeval& time) {
    return static_cast<std::uint64_t>(time.tv_sec) * base::kSecond +
           static_cast<std::uint64_t>(time.tv_usec) * base::kMicrosecond;
  };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

}  // namespace orbite::tool::bench
