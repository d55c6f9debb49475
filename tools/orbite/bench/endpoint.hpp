// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/area.hpp"
#include "bench/options.hpp"
#include "orbite/config.hpp"
#include "orbite/engine.hpp"

namespace orbite::tool::bench {

/// An engine and areas registered with it. The areas must outlive it; those that something may
/// still touch at its end stay mapped.
class Endpoint {
 public:
  static Result<Endpoint> create(const std::string& name, const Config& config);
  Endpoint(Endpoint&&) = default;
  Endpoint& operator=(Endpoint&&) = delete;
  ~Endpoint();

  Result<Handle> register_area(Area& area);
  [[nodiscard]] TransferEngine& engine() const { return *engine_; }

 private:
  explicit Endpoint(std::unique_ptr<TransferEngine> engine) : engine_(std::move(engine)) {}

  std::unique_ptr<TransferEngine> engine_;
  std::vector<Area*> areas_;
};

/// That of the file, or else of the environment's file, or else the defaults.
Result<Config> read_config(const std::optional<std::string>& file);
/// Whatever the configuration says, engines of one host meet on loopback, at ports of their own.
Config on_loopback(Config config);
/// What the configuration leaves open becomes the address that the control connection proved good.
Config at_address(Config config, const std::string& host);

/// With no way to another process but that one, and TCP, by which engines meet and notify.
Config by_transport(Config config, Transport transport);
/// What memory both sides have for it.
Pages pages_for(Transport transport);

/// CPU time of this process, all threads, user and system.
std::uint64_t process_cpu_ns();

}  // namespace orbite::tool::bench
