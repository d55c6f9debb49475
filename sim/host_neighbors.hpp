// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/neighbors.hpp"
#include "sim/host_network.hpp"
#include "sim/neighborhood.hpp"
#include "sim/page_file.hpp"

namespace orbite::sim {

/// What one process has of the others of its machine. Its sockets are among those of its
/// HostNetwork, whose end is also the end here.
///
/// What is copied is told to the network's observers of both processes: bytes leave the memory of
/// one and land in that of the other.
class HostNeighbors final : public platform::Neighbors {
 public:
  using Socket = platform::Socket;
  using IoResult = platform::IoResult;

  struct Hooks {
    /// Now and then there is no memory for pages; empty: there always is.
    std::function<bool()> lacks_memory;
    /// This process stands still for so long, the others do not; empty: it never does.
    std::function<void(base::Nanoseconds time_ns)> stop;
    /// Whether the process may be killed at this moment; empty: it may.
    std::function<bool()> may_die;
    /// It was, inside a copy of which so many bytes are made. It has no sockets any more. May be
    /// empty.
    std::function<void(std::uint64_t bytes, std::uint64_t bytes_max)> killed;
  };

  HostNeighbors(Neighborhood& neighborhood, HostNetwork& network, Hooks hooks);
  /// Ends the process.
  ~HostNeighbors() override;

  Result<Socket> listen(std::string_view name) override;
  Result<Socket> accept(Socket listener) override;
  Result<Socket> connect(std::string_view name) override;
  Result<std::unique_ptr<platform::Process>> process_of(Socket socket) override;
  IoResult send(Socket socket, std::span<const std::uint8_t> message, const Files& files) override;
  IoResult receive(Socket socket, std::span<std::uint8_t> buffer, Files& files) override;
  Result<std::shared_ptr<const platform::PageFile>> make_pages(std::string_view name,
                                                               std::uint64_t bytes,
                                                               PageOptions options) override;
  Result<std::unique_ptr<platform::PageMapping>> map(const platform::PageFile& file,
                                                     PageAccess access,
                                                     AfterFork after_fork) override;
  Result<void> forbid_writes(const platform::PageFile& file) override;

  /// Memory of the process that others may copy, beside what it maps of page files. Of everything
  /// else that it has, only a few bytes at a time can be read.
  void add_memory(std::uint64_t address, std::uint64_t bytes);
  /// Pages that are part of that memory, for as long as the process lives.
  void add_pages(std::shared_ptr<const SimPageFile> file) { pages_.push_back(std::move(file)); }

  /// Where an address lies in pages that this process has mapped.
  struct Mapped {
    const SimPageFile* whole;
    std::uint64_t offset;
  };
  /// Nothing, unless all of it lies in one mapping.
  [[nodiscard]] std::optional<Mapped> find_mapped(std::uint64_t address,
                                                  std::uint64_t length) const noexcept;
  /// Its engine is about to copy between its own memory and pages of another process, when this
  /// returns: what an ambush does then is done here. `make(count)` copies the first `count` bytes:
  /// all that will be if the process dies, and else those that are in place while it stands still.
  void begin_mapped_copy(std::uint64_t bytes, const std::function<void(std::uint64_t)>& make);

  /// What happens to this process at a copy that the system does not refuse.
  struct Ambush {
    std::uint32_t copies_before = 0;  ///< that pass unharmed
    bool kills = false;               ///< inside, when a part of the bytes is copied
    base::Nanoseconds stop_before_ns = 0;
    base::Nanoseconds stop_after_ns = 0;  ///< when a part of the bytes is copied through a mapping
  };
  void lay(const Ambush& ambush) { ambush_ = ambush; }
  void call_off() noexcept { ambush_.reset(); }
  /// Its memory cannot be reached by others.
  void forbid_copies(bool forbidden) noexcept { record_->forbids_copies = forbidden; }

  /// The step in which the process died is over: what it still wrote after its death into pages
  /// that others have is undone. Before anybody else does anything.
  void bury();

  // For the neighborhood and for processes.
  /// How many bytes from `address` on are this process's memory, in one piece, `length` at most.
  [[nodiscard]] std::uint64_t reachable(std::uint64_t address, std::uint64_t length,
                                        bool writes) const noexcept;
  platform::ProcessCopy copy(const ProcessRecord& target, std::span<const iovec> local,
                             std::span<const iovec> remote, bool writes);
  [[nodiscard]] HostNetwork& network() noexcept { return network_; }

 private:
  class Mapping;
  class Memory;
  struct Range {
    std::uint64_t begin;
    std::uint64_t end;
  };
  /// Pages as they were when the process died.
  struct LastState {
    std::shared_ptr<const SimPageFile> file;
    std::vector<std::byte> bytes;
  };

  void died();
  void keep_state(std::shared_ptr<const SimPageFile> file);
  void die_inside(std::uint64_t bytes, std::uint64_t bytes_max);
  /// What a kernel that is short of something makes of the files of a message. 0, or its errno.
  int spoil(Files& files);
  [[nodiscard]] bool lacks_memory() const;
  [[nodiscard]] bool lacks_descriptors();
  [[nodiscard]] Ambush take_ambush();
  /// False: it did not.
  bool stop(base::Nanoseconds time_ns);
  platform::ProcessCopy move_bytes(HostNeighbors& target, std::span<const iovec> local,
                                   std::span<const iovec> remote, bool writes,
                                   std::uint64_t bytes_max);
  std::uint64_t move_piece(HostNeighbors& target, const iovec& local, const iovec& remote,
                           bool writes);

  Neighborhood& neighborhood_;
  HostNetwork& network_;
  const Hooks hooks_;
  const Neighborhood::RecordPtr record_;
  std::vector<Range> memory_;
  std::vector<const Mapping*> mappings_;
  std::vector<std::shared_ptr<const SimPageFile>> pages_;
  std::optional<Ambush> ambush_;
  std::vector<LastState> last_states_;
};

}  // namespace orbite::sim
