// SPDX-License-Identifier: Apache-2.0
#include "bench/server.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include "base/result.hpp"
#include "bench/session.hpp"
#include "bench/sockets.hpp"

namespace orbite::tool::bench {
namespace {

Result<void> serve_one(FileDescriptor socket, const Config& config, std::uint64_t memory_max) {
  ORBITE_ASSIGN_OR_RETURN(const HostPort local, local_end(socket.get()));
  Session session(Channel(std::move(socket)),
                  {.config = at_address(config, local.host), .memory_max = memory_max});
  return session.run();
}

}  // namespace

Result<void> run_server(const Options& options, const Told& told) {
  ORBITE_ASSIGN_OR_RETURN(const Config config, read_config(options.config_file));
  ORBITE_ASSIGN_OR_RETURN(const FileDescriptor listener, listen_on(options.at));
  ORBITE_ASSIGN_OR_RETURN(const HostPort bound, local_end(listener.get()));
  told("bench serves on " + text_of(bound) +
       ", without authentication; for networks that you trust");
  for (std::uint64_t served = 0; options.clients == 0 || served < options.clients; ++served) {
    ORBITE_ASSIGN_OR_RETURN(FileDescriptor socket, accept_from(listener.get(), 0));
    const Result<HostPort> client = remote_end(socket.get());
    const std::string name = client ? text_of(*client) : "a client";
    if (const auto done = serve_one(std::move(socket), config, options.memory_max); !done) {
      told(name + ": " + done.error().message());
    } else {
      told(name + " has ended");
    }
  }
  return {};
}

Result<void> run_served(const Options& options) {
  ORBITE_ASSIGN_OR_RETURN(const Config config, read_config(options.config_file));
  const int socket = options.served_descriptor;
  int type = 0;
  socklen_t bytes = sizeof(type);
  if (::getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &bytes) != 0 || type != SOCK_STREAM ||
      ::fcntl(socket, F_SETFD, FD_CLOEXEC) != 0 ||
      ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK) != 0) {
    return fail(ErrorCode::kInvalidArgument, "descriptor %d is no stream socket", socket);
  }
  Session session(Channel(FileDescriptor(socket)),
                  {.config = by_transport(on_loopback(config), options.transport),
                   .memory_max = options.memory_max,
                   .pages = pages_for(options.transport),
                   .lends = true});
  return session.run();
}

}  // namespace orbite::tool::bench
