// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "platform/neighbors.hpp"

namespace orbite::platform {

/// The operating system's; its sockets are those of SystemNetwork. Safe from any thread. A child
/// made by fork() has none of its sockets, files and processes (limits: open_descriptors.hpp), and
/// of its mappings those that it was to inherit. Files must have been made or received here.
class SystemNeighbors final : public Neighbors {
 public:
  Result<Socket> listen(std::string_view name) override;
  Result<Socket> accept(Socket listener) override;
  Result<Socket> connect(std::string_view name) override;
  Result<std::unique_ptr<Process>> process_of(Socket socket) override;
  IoResult send(Socket socket, std::span<const std::uint8_t> message, const Files& files) override;
  IoResult receive(Socket socket, std::span<std::uint8_t> buffer, Files& files) override;
  Result<std::shared_ptr<const PageFile>> make_pages(std::string_view name, std::uint64_t bytes,
                                                     PageOptions options) override;
  Result<std::unique_ptr<PageMapping>> map(const PageFile& file, PageAccess access,
                                           AfterFork after_fork) override;
  Result<void> forbid_writes(const PageFile& file) override;
};

}  // namespace orbite::platform
