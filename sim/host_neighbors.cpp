// SPDX-License-Identifier: Apache-2.0
#include "sim/host_neighbors.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/assert.hpp"
#include "sim/allocation_fault.hpp"
#include "sim/local_sockets.hpp"

namespace orbite::sim {
namespace {

using platform::IoResult;
using platform::ProcessCopy;

constexpr std::size_t kNameBytesMax = 100;
/// More is never sent.
constexpr std::size_t kMessageBytesMax = 200'000;
/// So much of a process's own data can be read at a time: words with which it proves who it is.
constexpr std::uint64_t kPeekBytesMax = 64;
constexpr std::uint64_t kHugePageBytes = std::uint64_t{2} << 20;

IoResult failed(int native_errno) { return {IoResult::Kind::kFailed, 0, native_errno}; }

std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

std::uint64_t sum_of(std::span<const iovec> parts) {
  std::uint64_t bytes = 0;
  for (const iovec& part : parts) {
    bytes += part.iov_len;
  }
  return bytes;
}

/// Reads what may not be there any more.
std::uint64_t peek(void* to, const void* from, std::uint64_t bytes) {
  const iovec local{to, bytes};
  const iovec remote{const_cast<void*>(from), bytes};
  const ssize_t count = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
  ORBITE_CHECK(count >= 0 || errno == EFAULT);
  return count > 0 ? static_cast<std::uint64_t>(count) : 0;
}

/// A place in a list of parts.
class Cursor {
 public:
  explicit Cursor(std::span<const iovec> parts) : parts_(parts) { skip_empty(); }
  [[nodiscard]] bool at_end() const noexcept { return parts_.empty(); }
  /// What is left of the part, at most `bytes_max`.
  [[nodiscard]] iovec piece(std::uint64_t bytes_max) const {
    const iovec& part = parts_.front();
    return {static_cast<std::byte*>(part.iov_base) + done_,
            std::min<std::uint64_t>(part.iov_len - done_, bytes_max)};
  }
  void advance(std::uint64_t bytes) {
    done_ += bytes;
    skip_empty();
  }

 private:
  void skip_empty() {
    while (!parts_.empty() && done_ == parts_.front().iov_len) {
      parts_ = parts_.subspan(1);
      done_ = 0;
    }
  }
  std::span<const iovec> parts_;
  std::uint64_t done_ = 0;
};

/// For a poller: the process has ended.
class ProcessEnd final : public Guest {
 public:
  explicit ProcessEnd(Neighborhood::RecordPtr record) : record_(std::move(record)) {}
  ~ProcessEnd() override {
    std::erase_if(record_->watchers, [this](const ProcessRecord::Watcher& watcher) {
      return watcher.network == network_ && watcher.socket == socket_;
    });
  }
  void bound(HostNetwork& network, platform::Socket socket) {
    network_ = &network;
    socket_ = socket;
    record_->watchers.push_back({network_, socket_});
  }
  [[nodiscard]] std::uint32_t ready_events() const override {
    return record_->ended ? platform::kPollIn : 0;
  }
  void closed() override {}

 private:
  const Neighborhood::RecordPtr record_;
  HostNetwork* network_ = nullptr;
  platform::Socket socket_ = platform::kNoSocket;
};

/// What one process, `holder`, has of another one.
class SimProcess final : public platform::Process {
 public:
  SimProcess(Neighborhood::RecordPtr holder, Neighborhood::RecordPtr target, platform::Socket end)
      : holder_(std::move(holder)), target_(std::move(target)), end_(end) {}
  ~SimProcess() override {
    if (holder_->process != nullptr) {
      holder_->process->network().close(end_);
    }
  }

  [[nodiscard]] std::int32_t number() const noexcept override { return target_->number; }
  [[nodiscard]] platform::Socket end() const noexcept override { return end_; }
  [[nodiscard]] bool ended() const noexcept override { return target_->ended; }
  ProcessCopy read(std::span<const iovec> local, std::span<const iovec> remote) override {
    return copy(local, remote, false);
  }
  ProcessCopy write(std::span<const iovec> local, std::span<const iovec> remote) override {
    return copy(local, remote, true);
  }

 private:
  ProcessCopy copy(std::span<const iovec> local, std::span<const iovec> remote, bool writes) {
    if (holder_->process == nullptr) {
      return {0, ESRCH};
    }
    return holder_->process->copy(*target_, local, remote, writes);
  }

  const Neighborhood::RecordPtr holder_;
  const Neighborhood::RecordPtr target_;
  const platform::Socket end_;
};

}  // namespace

// ---- Mappings

class HostNeighbors::Mapping final : public platform::PageMapping {
 public:
  Mapping(Neighborhood::RecordPtr holder, std::shared_ptr<const SimPageFile> pages,
          PageAccess access)
      : writable(access == PageAccess::kReadWrite),
        file(std::move(pages)),
        memory(file->map(writable)),
        holder_(std::move(holder)) {
    holder_->process->mappings_.push_back(this);
  }
  ~Mapping() override {
    if (holder_->process != nullptr) {
      std::erase(holder_->process->mappings_, this);
    }
    file->unmap(memory);
  }
  [[nodiscard]] std::span<std::byte> pages() const noexcept override {
    return {memory, file->bytes()};
  }

  const bool writable;
  const std::shared_ptr<const SimPageFile> file;
  std::byte* const memory;

 private:
  const Neighborhood::RecordPtr holder_;
};

// ---- The process

HostNeighbors::HostNeighbors(Neighborhood& neighborhood, HostNetwork& network, Hooks hooks)
    : neighborhood_(neighborhood),
      network_(network),
      hooks_(std::move(hooks)),
      record_(neighborhood.add(*this, network.machine())) {
  network_.at_end([this] { died(); });
}

HostNeighbors::~HostNeighbors() {
  network_.kill();
  bury();
  neighborhood_.remove(*this);
}

void HostNeighbors::keep_state(std::shared_ptr<const SimPageFile> file) {
  const std::byte* const first = file->memory();
  std::vector<std::byte> bytes(first, first + file->bytes());
  last_states_.push_back({std::move(file), std::move(bytes)});
}

void HostNeighbors::died() {
  for (const Mapping* const mapping : mappings_) {
    if (mapping->writable) {
      keep_state(mapping->file);
    }
  }
  mappings_.clear();
  for (auto& file : std::exchange(pages_, {})) {
    keep_state(std::move(file));
  }
  neighborhood_.process_died(record_);
}

void HostNeighbors::bury() {
  for (const LastState& last : std::exchange(last_states_, {})) {
    std::memcpy(last.file->memory(), last.bytes.data(), last.bytes.size());
  }
}

bool HostNeighbors::lacks_memory() const { return hooks_.lacks_memory && hooks_.lacks_memory(); }

bool HostNeighbors::lacks_descriptors() {
  return neighborhood_.random().chance(
      neighborhood_.fabric().machine(network_.machine()).accept_failures);
}

// ---- Sockets by name

Result<platform::Socket> HostNeighbors::listen(std::string_view name) {
  const AllocationShelter shelter;
  ORBITE_CHECK(!name.empty() && name.size() <= kNameBytesMax);
  network_.count_call();
  if (network_.dead()) {
    return fail(ErrorCode::kSystem, "no such process");
  }
  if (neighborhood_.names().contains({network_.machine(), std::string(name)})) {
    return fail(Error::make_native(ErrorCode::kAddressInUse, EADDRINUSE, "cannot listen on '%.*s'",
                                   static_cast<int>(name.size()), name.data()));
  }
  auto listener =
      std::make_unique<LocalListener>(neighborhood_, network_, record_, std::string(name));
  LocalListener& bound = *listener;
  const Socket socket = network_.admit(std::move(listener));
  bound.bound(socket);
  return socket;
}

Result<platform::Socket> HostNeighbors::accept(Socket listener) {
  const AllocationShelter shelter;
  auto* const waiting = network_.guest<LocalListener>(listener, "accept");
  const auto connection = waiting != nullptr ? waiting->next() : nullptr;
  if (connection == nullptr) {
    return fail(ErrorCode::kNotFound, "nobody is waiting");
  }
  if (lacks_descriptors()) {
    return fail(Error::make_native(ErrorCode::kSystem, EMFILE, "cannot accept"));
  }
  waiting->taken();
  const Socket socket = network_.admit(std::make_unique<LocalEnd>(connection, 1));
  connection->attach(1, network_, socket);
  return socket;
}

Result<platform::Socket> HostNeighbors::connect(std::string_view name) {
  const AllocationShelter shelter;
  ORBITE_CHECK(!name.empty() && name.size() <= kNameBytesMax);
  network_.count_call();
  if (network_.dead()) {
    return fail(ErrorCode::kSystem, "no such process");
  }
  const auto found = neighborhood_.names().find({network_.machine(), std::string(name)});
  const bool listened = found != neighborhood_.names().end();
  if (!listened || neighborhood_.fabric().machine(network_.machine()).ignores_connects ||
      !found->second->has_room()) {
    return fail(Error::make_native(ErrorCode::kPeerUnreachable, listened ? EAGAIN : ECONNREFUSED,
                                   "cannot connect to '%.*s'", static_cast<int>(name.size()),
                                   name.data()));
  }
  ++neighborhood_.counts.connections;
  auto connection =
      std::make_shared<LocalConnection>(neighborhood_, record_, found->second->process());
  const Socket socket = network_.admit(std::make_unique<LocalEnd>(connection, 0));
  connection->attach(0, network_, socket);
  found->second->enter(std::move(connection));
  return socket;
}

Result<std::unique_ptr<platform::Process>> HostNeighbors::process_of(Socket socket) {
  const AllocationShelter shelter;
  const auto* const end = network_.guest<LocalEnd>(socket, "process_of");
  if (end == nullptr) {
    return fail(ErrorCode::kSystem, "no connection");
  }
  if (!neighborhood_.kernel(network_.machine()).has_process_handles) {
    return fail(Error::make_native(ErrorCode::kUnsupported, ENOPROTOOPT,
                                   "the kernel has no handles of processes"));
  }
  if (lacks_descriptors()) {
    return fail(Error::make_native(ErrorCode::kSystem, EMFILE, "cannot watch a process"));
  }
  if (lacks_memory()) {
    return fail(Error::make_native(ErrorCode::kOutOfMemory, ENOMEM, "cannot watch a process"));
  }
  const Neighborhood::RecordPtr& target = end->connection->process(1 - end->side);
  if (target->ended && neighborhood_.random().chance(500)) {
    return fail(Error::make_native(ErrorCode::kPeerDisconnected, ESRCH, "the process is gone"));
  }
  auto watched = std::make_unique<ProcessEnd>(target);
  ProcessEnd& watch = *watched;
  const Socket watching = network_.admit(std::move(watched));
  watch.bound(network_, watching);
  return std::make_unique<SimProcess>(record_, target, watching);
}

IoResult HostNeighbors::send(Socket socket, std::span<const std::uint8_t> message,
                             const Files& files) {
  const AllocationShelter shelter;
  ORBITE_CHECK(!message.empty() && files.size() <= kFilesMax);
  const auto* const end = network_.guest<LocalEnd>(socket, "send");
  if (end != nullptr && message.size() > kMessageBytesMax) {
    return failed(EMSGSIZE);
  }
  return end != nullptr ? end->connection->send(end->side, message, files) : failed(EBADF);
}

IoResult HostNeighbors::receive(Socket socket, std::span<std::uint8_t> buffer, Files& files) {
  const AllocationShelter shelter;
  const auto* const end = network_.guest<LocalEnd>(socket, "receive");
  if (end == nullptr) {
    return failed(EBADF);
  }
  const IoResult received = end->connection->receive(end->side, buffer, files);
  if (const int native_errno = spoil(files); native_errno != 0) {
    ++neighborhood_.counts.pages_lost;
    files.clear();  // and the message is lost
    return failed(native_errno);
  }
  return received;
}

int HostNeighbors::spoil(Files& files) {
  if (files.empty()) {
    return 0;
  }
  if (lacks_descriptors() || lacks_memory()) {
    return EMFILE;
  }
  Random& random = neighborhood_.random();
  const std::uint32_t failures = neighborhood_.kernel(network_.machine()).page_failures;
  if (failures == 0 || !random.chance(failures)) {
    return 0;
  }
  if (!random.chance(600)) {
    return random.chance(800) ? ENOMEM : EBADF;
  }
  const auto* const sent = dynamic_cast<const SimPageFile*>(files.back().get());
  ORBITE_CHECK(sent != nullptr);
  const std::uint64_t bytes = random.between(1, sent->bytes());
  files.back() = std::make_shared<const SimPageFile>(sent->whole().shared_from_this(), bytes);
  ++neighborhood_.counts.pages_shortened;
  return 0;
}

// ---- Pages

Result<std::shared_ptr<const platform::PageFile>> HostNeighbors::make_pages(std::string_view name,
                                                                            std::uint64_t bytes,
                                                                            PageOptions options) {
  const AllocationShelter shelter;
  network_.count_call();
  const std::string text(name.substr(0, kNameBytesMax));
  if (bytes == 0 || (options.huge && bytes % kHugePageBytes != 0)) {
    return fail(ErrorCode::kInvalidArgument, "%llu bytes of %s pages for '%s'",
                static_cast<unsigned long long>(bytes), options.huge ? "huge" : "small",
                text.c_str());
  }
  if (options.huge && !neighborhood_.kernel(network_.machine()).has_huge_pages) {
    return fail(Error::make_native(ErrorCode::kUnsupported, ENOMEM, "no huge pages for '%s'",
                                   text.c_str()));
  }
  if (network_.dead() || lacks_memory()) {
    return fail(
        Error::make_native(ErrorCode::kOutOfMemory, ENOMEM, "no pages for '%s'", text.c_str()));
  }
  return std::make_shared<const SimPageFile>(bytes);
}

Result<std::unique_ptr<platform::PageMapping>> HostNeighbors::map(const platform::PageFile& file,
                                                                  PageAccess access,
                                                                  AfterFork /*after_fork*/) {
  const AllocationShelter shelter;
  network_.count_call();
  const auto* const pages = dynamic_cast<const SimPageFile*>(&file);
  ORBITE_CHECK(pages != nullptr);
  if (access == PageAccess::kReadWrite && pages->writes_forbidden()) {
    return fail(Error::make_native(ErrorCode::kNotAllowed, EPERM, "pages that can only be read"));
  }
  if (network_.dead() || lacks_memory()) {
    return fail(Error::make_native(ErrorCode::kOutOfMemory, ENOMEM, "no room for a mapping"));
  }
  ++neighborhood_.counts.mappings;
  return std::make_unique<Mapping>(record_, pages->shared_from_this(), access);
}

Result<void> HostNeighbors::forbid_writes(const platform::PageFile& file) {
  network_.count_call();
  const auto* const pages = dynamic_cast<const SimPageFile*>(&file);
  ORBITE_CHECK(pages != nullptr);
  if (!neighborhood_.kernel(network_.machine()).can_forbid_writes) {
    return fail(Error::make_native(ErrorCode::kUnsupported, EINVAL, "cannot forbid writes"));
  }
  if (!network_.dead()) {
    pages->forbid_writes();
  }
  return {};
}

// ---- Copies

void HostNeighbors::add_memory(std::uint64_t address, std::uint64_t bytes) {
  memory_.push_back({address, address + bytes});
}

std::uint64_t HostNeighbors::reachable(std::uint64_t address, std::uint64_t length,
                                       bool writes) const noexcept {
  const auto part_of = [&](std::uint64_t begin, std::uint64_t end) {
    return address >= begin && address < end ? std::min(length, end - address) : 0;
  };
  std::uint64_t bytes = 0;
  for (const Range& range : memory_) {
    bytes = std::max(bytes, part_of(range.begin, range.end));
  }
  for (const Mapping* const mapping : mappings_) {
    if (mapping->writable || !writes) {
      const std::uint64_t begin = address_of(mapping->memory);
      bytes = std::max(bytes, part_of(begin, begin + mapping->file->bytes()));
    }
  }
  return bytes;
}

HostNeighbors::Ambush HostNeighbors::take_ambush() {
  if (!ambush_.has_value()) {
    return {};
  }
  if (ambush_->copies_before > 0) {
    --ambush_->copies_before;
    return {};
  }
  if (ambush_->kills && hooks_.may_die && !hooks_.may_die()) {
    return {};
  }
  const Ambush ambush = *ambush_;
  ambush_.reset();
  return ambush;
}

ProcessCopy HostNeighbors::copy(const ProcessRecord& target, std::span<const iovec> local,
                                std::span<const iovec> remote, bool writes) {
  const AllocationShelter shelter;
  const std::uint64_t bytes = sum_of(local);
  ORBITE_CHECK(local.size() <= platform::Process::kPartsMax &&
               remote.size() <= platform::Process::kPartsMax && bytes == sum_of(remote));
  network_.count_call();
  const auto refusal = [&] {
    if (target.process == nullptr || network_.dead()) {
      return ESRCH;
    }
    const bool forbidden =
        target.forbids_copies || neighborhood_.kernel(target.machine).forbids_copies;
    return forbidden ? EPERM : 0;
  };
  if (const int refused = refusal(); refused != 0) {
    return {0, refused};
  }
  const Ambush ambush = take_ambush();
  stop(ambush.stop_before_ns);
  if (const int refused = refusal(); refused != 0) {
    return {0, refused};
  }
  const std::uint64_t bytes_max = ambush.kills ? neighborhood_.random().below(bytes + 1) : bytes;
  const ProcessCopy copied = move_bytes(*target.process, local, remote, writes, bytes_max);
  neighborhood_.counts.copies += copied.bytes > 0 ? 1 : 0;
  neighborhood_.counts.bytes_copied += copied.bytes;
  if (ambush.kills) {
    die_inside(copied.bytes, bytes);
    return {0, ESRCH};
  }
  stop(ambush.stop_after_ns);
  return copied;
}

void HostNeighbors::begin_mapped_copy(std::uint64_t bytes,
                                      const std::function<void(std::uint64_t)>& make) {
  if (network_.dead()) {
    return;
  }
  Neighborhood::Counts& counts = neighborhood_.counts;
  Random& random = neighborhood_.random();
  const Ambush ambush = take_ambush();
  counts.stopped_inside_mapped += stop(ambush.stop_before_ns) ? 1 : 0;
  ++counts.mapped_copies;
  counts.mapped_bytes += bytes;
  if (ambush.kills) {
    const std::uint64_t made = random.below(bytes + 1);
    make(made);
    ++counts.killed_inside_mapped;
    die_inside(made, bytes);
  } else if (ambush.stop_after_ns > 0) {
    make(random.below(bytes));
    counts.stopped_inside_mapped += stop(ambush.stop_after_ns) ? 1 : 0;
  }
}

std::optional<HostNeighbors::Mapped> HostNeighbors::find_mapped(
    std::uint64_t address, std::uint64_t length) const noexcept {
  for (const Mapping* const mapping : mappings_) {
    const std::uint64_t begin = address_of(mapping->memory);
    const std::uint64_t bytes = mapping->file->bytes();
    if (address >= begin && length <= bytes && address - begin <= bytes - length) {
      return Mapped{&mapping->file->whole(), address - begin};
    }
  }
  return std::nullopt;
}

void HostNeighbors::die_inside(std::uint64_t bytes, std::uint64_t bytes_max) {
  ++neighborhood_.counts.killed_inside;
  network_.kill();
  if (hooks_.killed) {
    hooks_.killed(bytes, bytes_max);
  }
}

bool HostNeighbors::stop(base::Nanoseconds time_ns) {
  if (time_ns == 0 || !hooks_.stop) {
    return false;
  }
  ++neighborhood_.counts.stopped_inside;
  hooks_.stop(time_ns);
  return true;
}

ProcessCopy HostNeighbors::move_bytes(HostNeighbors& target, std::span<const iovec> local,
                                      std::span<const iovec> remote, bool writes,
                                      std::uint64_t bytes_max) {
  ProcessCopy copied;
  Cursor ours(local);
  Cursor theirs(remote);
  while (copied.bytes < bytes_max && !ours.at_end()) {
    iovec near = ours.piece(bytes_max - copied.bytes);
    const iovec far = theirs.piece(near.iov_len);
    near.iov_len = far.iov_len;
    const std::uint64_t moved = move_piece(target, near, far, writes);
    copied.bytes += moved;
    if (moved < far.iov_len) {
      copied.native_errno = EFAULT;
      break;
    }
    ours.advance(moved);
    theirs.advance(moved);
  }
  return copied;
}

/// Two parts of one length; returns how much of it was there.
std::uint64_t HostNeighbors::move_piece(HostNeighbors& target, const iovec& local,
                                        const iovec& remote, bool writes) {
  const std::uint64_t near = address_of(local.iov_base);
  const std::uint64_t far = address_of(remote.iov_base);
  const std::uint64_t bytes = target.reachable(far, remote.iov_len, writes);
  if (bytes == 0) {
    return !writes && remote.iov_len <= kPeekBytesMax && !neighborhood_.known(far)
               ? peek(local.iov_base, remote.iov_base, remote.iov_len)
               : 0;
  }
  const HostNetwork::Observer& ours = network_.observer();
  const HostNetwork::Observer& theirs = target.network_.observer();
  if (writes) {
    ours.on_send(near, bytes);
    std::memcpy(remote.iov_base, local.iov_base, bytes);
    theirs.on_receive(far, bytes);
  } else {
    theirs.on_send(far, bytes);
    std::memcpy(local.iov_base, remote.iov_base, bytes);
    ours.on_receive(near, bytes);
  }
  return bytes;
}

}  // namespace orbite::sim
