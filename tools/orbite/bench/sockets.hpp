// SPDX-License-Identifier: Apache-2.0
// Stream sockets with bounded waits. All are non-blocking and close-on-exec.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/clock.hpp"
#include "bench/file_descriptor.hpp"
#include "bench/options.hpp"
#include "orbite/error.hpp"

namespace orbite::tool::bench {

base::Nanoseconds now_ns();

/// Waits for POLLIN or POLLOUT until the deadline. kDeadlineExceeded.
Result<void> wait_for(int socket, short events, base::Nanoseconds deadline_ns);

/// All of the bytes. kPeerDisconnected, kDeadlineExceeded, kSystem.
Result<void> send_all(int socket, std::span<const std::uint8_t> bytes,
                      base::Nanoseconds deadline_ns);
/// Some of the bytes, at least one; 0 at the end of the stream.
Result<std::size_t> receive_some(int socket, std::span<std::uint8_t> bytes,
                                 base::Nanoseconds deadline_ns);
/// All of them; kPeerDisconnected when the stream ends before.
Result<void> receive_all(int socket, std::span<std::uint8_t> bytes, base::Nanoseconds deadline_ns);

/// `at.host` is an address or a name.
Result<FileDescriptor> connect_to(const HostPort& at, base::Nanoseconds deadline_ns);
Result<FileDescriptor> listen_on(const HostPort& at);
/// Waits for as long as it takes when the deadline is 0.
Result<FileDescriptor> accept_from(int listener, base::Nanoseconds deadline_ns);

/// This end's, or the other end's, address. 127.0.0.1 for a socket that is not of the Internet.
Result<HostPort> local_end(int socket);
Result<HostPort> remote_end(int socket);
std::string text_of(const HostPort& at);
bool is_loopback(const HostPort& at);

}  // namespace orbite::tool::bench
