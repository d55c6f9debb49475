// SPDX-License-Identifier: Apache-2.0
#include "peer/borrow_link.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/assert.hpp"
#include "base/error_line.hpp"
#include "base/log.hpp"
#include "base/planted.hpp"
#include "wire/record.hpp"

namespace orbite::peer {
namespace {

/// Questions on their way at a time: as many answers fit into any socket.
constexpr std::size_t kAskedMax = 16;
constexpr base::Nanoseconds kAskAgain = base::kMillisecond;

/// A message was lost because we had no room for what came with it.
bool is_lack(int native_errno) {
  return native_errno == EMFILE || native_errno == ENFILE || native_errno == ENOMEM ||
         native_errno == ENOBUFS;
}

std::string link_key(const wire::ConnectionBlob& owner) {
  const std::vector<std::uint8_t> bytes = wire::encode(owner);
  return {bytes.begin(), bytes.end()};
}

wire::RegistrationRef ref_of(const wire::RangeBlob& blob) {
  wire::RegistrationRef ref;
  ref.index = blob.index;
  ref.generation = blob.generation;
  std::memcpy(ref.key, blob.key.bytes.data(), sizeof(ref.key));
  return ref;
}

}  // namespace

Error BorrowLink::refusal() const {
  const std::lock_guard lock(mutex_);
  return refusal_.value_or(Error(ErrorCode::kOk));
}

BorrowLinks::~BorrowLinks() {
  for (const auto& [key, link] : links_) {
    drop(*link, Error(ErrorCode::kEngineClosing));
  }
}

// ---- From any thread

Result<std::shared_ptr<BorrowLink>> BorrowLinks::want(const wire::ConnectionBlob& owner) {
  if (!(owner.host == environment_.host)) {
    return fail(ErrorCode::kUnsupported, "another host, or another network namespace");
  }
  std::shared_ptr<BorrowLink> link;
  {
    std::string key = link_key(owner);
    const std::lock_guard lock(mutex_);
    if (const auto known = links_.find(key); known != links_.end()) {
      link = known->second;
    } else {
      link = std::make_shared<BorrowLink>(owner);
      links_.emplace(std::move(key), link);
    }
  }
  want_again(*link);
  return link;
}

void BorrowLinks::want_again(BorrowLink& link) {
  {
    const std::lock_guard lock(link.mutex_);
    BorrowLink::State refused = BorrowLink::State::kRefused;
    link.state_.compare_exchange_strong(refused, BorrowLink::State::kIdle,
                                        std::memory_order_acq_rel, std::memory_order_acquire);
  }
  // Release: pairs with the acquire in on_tick(), which then finds it idle.
  wanted_.store(true, std::memory_order_release);
  environment_.wake();
}

void BorrowLinks::connect(BorrowLink& link, base::Nanoseconds timeout_ns) {
  want_again(link);
  std::unique_lock lock(link.mutex_);
  environment_.waiter.wait_for(lock, link.changed_, timeout_ns, [&] { return link.is_decided(); });
}

void BorrowLinks::connect_and_fetch(BorrowLink& link, base::Nanoseconds timeout_ns) {
  want_again(link);
  std::unique_lock lock(link.mutex_);
  environment_.waiter.wait_for(lock, link.changed_, timeout_ns, [&] {
    return link.is_decided() && (!link.ready() || (link.to_ask_.empty() && link.asked_.empty()));
  });
}

void BorrowLinks::fetch(BorrowLink& link, const std::shared_ptr<RemoteRange>& range) {
  {
    const std::lock_guard lock(link.mutex_);
    if (link.state() == BorrowLink::State::kEnded) {
      return;
    }
    // While the link is not ready nobody takes them off; the memory of a range that was released
    // is not kept for longer than it takes to double.
    if (!link.ready() && std::has_single_bit(link.to_ask_.size())) {
      std::erase_if(link.to_ask_, [](const auto& waiting) { return waiting.expired(); });
    }
    link.to_ask_.push_back(range);
  }
  wanted_.store(true, std::memory_order_release);
  environment_.wake();
}

// ---- The worker

std::vector<std::shared_ptr<BorrowLink>> BorrowLinks::all() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<BorrowLink>> links;
  links.reserve(links_.size());
  for (const auto& [key, link] : links_) {
    links.push_back(link);
  }
  return links;
}

void BorrowLinks::set_state(BorrowLink& link, BorrowLink::State state) {
  const std::lock_guard lock(link.mutex_);
  // Release: see ready().
  link.state_.store(state, std::memory_order_release);
  link.changed_.notify_all();
}

/// Nothing new is begun by it. It is refused, or, where it was ready, ended: then copies may be
/// under way, and what they use stays.
void BorrowLinks::end(BorrowLink& link, const Error& error) {
  const bool was_ready = link.ready();
  if (link.socket_ != platform::kNoSocket) {
    environment_.network.poller_remove(environment_.poller, link.socket_);
  }
  if (link.process_ != nullptr) {
    environment_.network.poller_remove(environment_.poller, link.process_->end());
  }
  if (!was_ready) {
    link.process_.reset();
    if (link.socket_ != platform::kNoSocket) {
      environment_.network.close(std::exchange(link.socket_, platform::kNoSocket));
    }
  }
  base::log(base::LogLevel::kDebug, "no link to a neighbour any more: %s",
            base::error_line(error).c_str());
  {
    const std::lock_guard lock(link.mutex_);
    link.refusal_ = error;
    if (was_ready) {
      link.to_ask_.clear();
      link.asked_.clear();
    }
  }
  set_state(link, was_ready ? BorrowLink::State::kEnded : BorrowLink::State::kRefused);
}

/// Nobody copies by it any more.
void BorrowLinks::drop(BorrowLink& link, const Error& error) {
  if (link.is_watched()) {
    end(link, error);
  }
  if (link.socket_ != platform::kNoSocket) {
    environment_.network.close(std::exchange(link.socket_, platform::kNoSocket));
  }
  set_state(link, BorrowLink::State::kEnded);
}

void BorrowLinks::begin(BorrowLink& link) {
  set_state(link, BorrowLink::State::kConnecting);
  link.since_ns_ = environment_.clock.now_ns();
  link.stage_ = BorrowLink::Stage::kServerHello;
  link.id_ = next_id_++;
  Result<void> greeted;
  try {
    greeted = greet(link);
  } catch (const std::bad_alloc&) {
    greeted = fail(ErrorCode::kOutOfMemory, "a link");
  }
  if (!greeted) {
    end(link, greeted.error());
  }
}

Result<void> BorrowLinks::greet(BorrowLink& link) {
  ORBITE_ASSIGN_OR_RETURN(link.socket_,
                          environment_.neighbors.connect(link_name(link.owner_.epoch)));
  ORBITE_TRY(environment_.network.poller_add(environment_.poller, link.socket_, platform::kPollIn,
                                             kTokenLink | link.id_));
  wire::ClientHello& hello = link.hello_;
  hello = {};
  hello.client_epoch = environment_.epoch;
  hello.expected_epoch = link.owner_.epoch;
  environment_.random.fill(hello.nonce);
  hello.host = environment_.host;
  hello.lane_class = static_cast<std::uint8_t>(wire::LaneClass::kLink);
  hello.name_bytes = static_cast<std::uint16_t>(
      std::min<std::size_t>(environment_.name.size(), wire::kHelloNameBytesMax));
  std::memcpy(hello.name, environment_.name.data(), hello.name_bytes);
  const platform::IoResult sent =
      environment_.neighbors.send(link.socket_, wire::bytes_of(hello), {});
  if (sent.kind != platform::IoResult::Kind::kBytes) {
    return fail(
        Error::make_native(ErrorCode::kPeerDisconnected, sent.native_errno, "no hello sent"));
  }
  return {};
}

void BorrowLinks::on_event(std::uint64_t token) {
  const std::uint64_t id = token & ~kTokenKinds;
  std::shared_ptr<BorrowLink> link;
  for (auto& known : all()) {
    if (known->id_ == id) {
      link = std::move(known);
    }
  }
  // One that has ended may have had two reasons to at a time.
  if (link == nullptr || !link->is_watched()) {
    return;
  }
  if ((token & kTokenKinds) == kTokenLinkProcess) {
    end(*link, Error(ErrorCode::kPeerDisconnected));
    return;
  }
  std::array<std::uint8_t, kLinkMessageBytesMax> buffer;
  for (int i = 0; i < kLinkMessagesPerEvent && link->is_watched(); ++i) {
    platform::Neighbors::Files files;
    const platform::IoResult got = environment_.neighbors.receive(link->socket_, buffer, files);
    if (got.kind == platform::IoResult::Kind::kWouldBlock) {
      return;
    }
    if (got.kind == platform::IoResult::Kind::kBytes) {
      on_message(*link, std::span(buffer).first(got.bytes), files);
    } else if (link->ready() && is_lack(got.native_errno)) {
      lose_answer(*link, Error::make_native(ErrorCode::kSystem, got.native_errno,
                                            "an answer of a neighbour is lost"));
    } else {
      end(*link,
          Error::make_native(ErrorCode::kPeerDisconnected, got.native_errno, "its link ended"));
    }
  }
}

void BorrowLinks::on_message(BorrowLink& link, std::span<const std::uint8_t> message,
                             const platform::Neighbors::Files& files) {
  Result<void> taken;
  try {
    taken = take(link, message, files);
  } catch (const std::bad_alloc&) {
    if (link.ready()) {
      // Of an answer, which is off the list by now. Copies go on; what waits is asked soon.
      wanted_.store(true, std::memory_order_release);
      return;
    }
    taken = fail(ErrorCode::kOutOfMemory, "a message of a link");
  }
  if (!taken) {
    base::log(base::LogLevel::kInfo, "no link to the neighbour of epoch %s: %s",
              base::to_hex(link.owner_.epoch.bytes).c_str(),
              base::error_line(taken.error()).c_str());
    end(link, taken.error());
  }
}

/// They come in the order of the questions. The range of the first one stays out of reach.
void BorrowLinks::lose_answer(BorrowLink& link, const Error& error) {
  base::log(base::LogLevel::kWarn, "%s", base::error_line(error).c_str());
  {
    const std::lock_guard lock(link.mutex_);
    if (!link.asked_.empty()) {
      link.asked_.pop_front();
    }
  }
  ask(link);
}

Result<void> BorrowLinks::take(BorrowLink& link, std::span<const std::uint8_t> message,
                               const platform::Neighbors::Files& files) {
  switch (link.stage_) {
    case BorrowLink::Stage::kServerHello:
      return take_server_hello(link, message);
    case BorrowLink::Stage::kWelcome:
      return take_welcome(link, message, files);
    case BorrowLink::Stage::kReady:
      return take_allocation(link, message, files);
  }
  return {};
}

Result<void> BorrowLinks::take_server_hello(BorrowLink& link,
                                            std::span<const std::uint8_t> message) {
  ORBITE_ASSIGN_OR_RETURN(const auto answer,
                          wire::record_of<wire::ServerHello>(message, "server hello"));
  ORBITE_TRY(wire::check_server_hello(answer));
  if (answer.server_epoch != link.owner_.epoch ||
      !wire::verify_server(link.owner_.secret, link.hello_, answer)) {
    return fail(ErrorCode::kHandshakeRejected, "who waits there does not know the owner's secret");
  }
  if (answer.status != 0) {
    return fail(static_cast<ErrorCode>(answer.status), "the neighbour refuses");
  }
  wire::ClientProof proof;
  wire::sign_client(link.owner_.secret, link.hello_, answer, proof);
  const platform::IoResult sent =
      environment_.neighbors.send(link.socket_, wire::bytes_of(proof), {});
  if (sent.kind != platform::IoResult::Kind::kBytes) {
    return fail(
        Error::make_native(ErrorCode::kPeerDisconnected, sent.native_errno, "no proof sent"));
  }
  link.stage_ = BorrowLink::Stage::kWelcome;
  return {};
}

Result<void> BorrowLinks::take_welcome(BorrowLink& link, std::span<const std::uint8_t> message,
                                       const platform::Neighbors::Files& files) {
  using platform::Neighbors;
  ORBITE_ASSIGN_OR_RETURN(const auto welcome,
                          wire::record_of<wire::LinkWelcome>(message, "welcome"));
  ORBITE_TRY(wire::check_link_welcome(welcome));
  const std::uint64_t directory_bytes =
      sizeof(borrowing::DirectoryHead) + welcome.directory_words * sizeof(borrowing::DirectoryWord);
  const std::uint64_t seat_bytes = welcome.seats * sizeof(borrowing::Seat);
  if (files.size() != 2 || files[0]->bytes() < directory_bytes || files[1]->bytes() < seat_bytes) {
    return fail(ErrorCode::kProtocolViolation, "the welcome's files are not what it says");
  }
  ORBITE_ASSIGN_OR_RETURN(link.directory_pages_,
                          environment_.neighbors.map(*files[0], Neighbors::PageAccess::kRead,
                                                     Neighbors::AfterFork::kAbsent));
  ORBITE_ASSIGN_OR_RETURN(link.seat_pages_,
                          environment_.neighbors.map(*files[1], Neighbors::PageAccess::kReadWrite,
                                                     Neighbors::AfterFork::kAbsent));
  // SAFETY: both were seen to be large enough, cannot shrink, and are page aligned.
  const auto* const words = reinterpret_cast<const borrowing::DirectoryWord*>(  // NOLINT
      link.directory_pages_->pages().data() + sizeof(borrowing::DirectoryHead));
  auto* const seats =
      reinterpret_cast<borrowing::Seat*>(link.seat_pages_->pages().data());  // NOLINT
  link.seats_.emplace(std::span(words, welcome.directory_words), std::span(seats, welcome.seats));
  reach_process(link, welcome);
  link.stage_ = BorrowLink::Stage::kReady;
  set_state(link, BorrowLink::State::kReady);
  ask(link);
  return {};
}

/// The proof that the kernel lets us, and that it is that process whose directory we have.
void BorrowLinks::reach_process(BorrowLink& link, const wire::LinkWelcome& welcome) {
  auto process = environment_.neighbors.process_of(link.socket_);
  if (!process) {
    link.process_refusal_ = process.error();
    return;
  }
  std::array<std::uint8_t, sizeof(welcome.probe)> seen{};
  const iovec here{seen.data(), seen.size()};
  // NOLINTNEXTLINE: an address of that process.
  const iovec there{reinterpret_cast<void*>(welcome.probe_address), seen.size()};
  const platform::ProcessCopy copied = (*process)->read({&here, 1}, {&there, 1});
  if (copied.bytes != seen.size()) {
    link.process_refusal_ = Error::make_native(
        copied.native_errno == EPERM ? ErrorCode::kNotAllowed : ErrorCode::kSystem,
        copied.native_errno, "the kernel does not let us read process %d%s", (*process)->number(),
        copied.native_errno == EPERM ? " (another user, or kernel.yama.ptrace_scope)" : "");
    return;
  }
  if (std::memcmp(seen.data(), welcome.probe, seen.size()) != 0) {
    link.process_refusal_ =
        Error::make(ErrorCode::kProtocolViolation, "process %d is not the owner of the memory",
                    (*process)->number());
    return;
  }
  if (auto added = environment_.network.poller_add(environment_.poller, (*process)->end(),
                                                   platform::kPollIn, kTokenLinkProcess | link.id_);
      !added) {
    link.process_refusal_ = added.error();
    return;
  }
  link.process_ = std::move(*process);
}

/// Sends what waits to be asked.
void BorrowLinks::ask(BorrowLink& link) {
  const std::lock_guard lock(link.mutex_);
  while (link.asked_.size() < kAskedMax && !link.to_ask_.empty()) {
    const std::shared_ptr<RemoteRange> range = link.to_ask_.front().lock();
    if (range != nullptr) {
      wire::LinkFetch question;
      question.registration = ref_of(range->blob());
      link.asked_.push_back(range);
      const platform::IoResult sent =
          environment_.neighbors.send(link.socket_, wire::bytes_of(question), {});
      if (sent.kind != platform::IoResult::Kind::kBytes) {
        link.asked_.pop_back();
        break;  // asked again soon, unless the link has ended
      }
    }
    link.to_ask_.pop_front();
  }
  link.changed_.notify_all();
}

Result<void> BorrowLinks::take_allocation(BorrowLink& link, std::span<const std::uint8_t> message,
                                          const platform::Neighbors::Files& files) {
  ORBITE_ASSIGN_OR_RETURN(const auto answer,
                          wire::record_of<wire::LinkAllocation>(message, "link allocation"));
  ORBITE_TRY(wire::check_link_allocation(answer));
  std::shared_ptr<RemoteRange> range;
  {
    const std::lock_guard lock(link.mutex_);
    if (link.asked_.empty()) {
      return fail(ErrorCode::kProtocolViolation, "an answer that nobody asked for");
    }
    range = link.asked_.front().lock();
    link.asked_.pop_front();
  }
  if (range != nullptr && answer.status == 0) {
    const wire::RegistrationRef asked = ref_of(range->blob());
    if (files.size() != 1 || std::memcmp(&asked, &answer.registration, sizeof(asked)) != 0) {
      return fail(ErrorCode::kProtocolViolation, "an answer to another question");
    }
    if (auto mapped = map_shared(link, answer, *files[0], *range); !mapped) {
      base::log(base::LogLevel::kInfo, "a shared allocation of a neighbour is out of reach: %s",
                base::error_line(mapped.error()).c_str());
    }
  }
  ask(link);
  return {};
}

Result<void> BorrowLinks::map_shared(BorrowLink& link, const wire::LinkAllocation& answer,
                                     const platform::PageFile& file, RemoteRange& range) {
  const wire::RangeBlob& blob = range.blob();
  std::erase_if(link.mappings_, [](const auto& known) { return known.second.expired(); });
  const std::uint64_t number =
      base::planted(base::Bug::kMappingOfAnEarlierGeneration) ? blob.index : answer.allocation;
  std::shared_ptr<platform::PageMapping> mapping = link.mappings_[number].lock();
  if (mapping == nullptr) {
    ORBITE_ASSIGN_OR_RETURN(
        std::unique_ptr<platform::PageMapping> made,
        environment_.neighbors.map(file, platform::Neighbors::PageAccess::kReadWrite,
                                   platform::Neighbors::AfterFork::kAbsent));
    mapping = std::move(made);
    link.mappings_[number] = mapping;
  }
  const std::uint64_t bytes = mapping->pages().size();
  if (answer.offset > bytes || blob.length > bytes - answer.offset) {
    return fail(ErrorCode::kProtocolViolation, "offset %llu + %llu in an allocation of %llu bytes",
                static_cast<unsigned long long>(answer.offset),
                static_cast<unsigned long long>(blob.length),
                static_cast<unsigned long long>(bytes));
  }
  const std::uint64_t address =
      reinterpret_cast<std::uint64_t>(mapping->pages().data()) + answer.offset;  // NOLINT
  range.map(std::move(mapping), address);
  return {};
}

base::Nanoseconds BorrowLinks::on_tick(base::Nanoseconds now_ns) {
  // Acquire: pairs with the releases of want() and fetch().
  if (!wanted_.exchange(false, std::memory_order_acquire) && now_ns < look_ns_) {
    return look_ns_ - now_ns;
  }
  const base::Nanoseconds sleep_ns = look_after_all(now_ns);
  look_ns_ = now_ns + sleep_ns;
  return sleep_ns;
}

/// Those that nobody else holds: nobody can come to hold them meanwhile.
std::vector<std::shared_ptr<BorrowLink>> BorrowLinks::take_unheld() {
  std::vector<std::shared_ptr<BorrowLink>> taken;
  const std::lock_guard lock(mutex_);
  for (auto next = links_.begin(); next != links_.end();) {
    const auto current = next++;
    if (current->second.use_count() == 1) {
      taken.push_back(current->second);
      links_.erase(current);
    }
  }
  return taken;
}

base::Nanoseconds BorrowLinks::look_after_all(base::Nanoseconds now_ns) {
  base::Nanoseconds sleep_ns = kLinkIdleSleep;
  look_ns_ = 0;  // where there is no memory for this look
  for (const auto& link : all()) {
    if (link->state() == BorrowLink::State::kIdle) {
      begin(*link);
    }
    if (link->state() == BorrowLink::State::kConnecting) {
      const base::Nanoseconds due_ns = link->since_ns_ + environment_.handshake_timeout_ns;
      if (now_ns >= due_ns) {
        end(*link, Error(ErrorCode::kPeerSilent));
      } else {
        sleep_ns = std::min(sleep_ns, due_ns - now_ns);
      }
    } else if (link->ready()) {
      ask(*link);
      const std::lock_guard lock(link->mutex_);
      sleep_ns = link->to_ask_.empty() || link->asked_.size() >= kAskedMax
                     ? sleep_ns
                     : std::min(sleep_ns, kAskAgain);
    }
  }
  for (const auto& link : take_unheld()) {
    drop(*link, Error(ErrorCode::kPeerRetired));
  }
  return sleep_ns;
}

}  // namespace orbite::peer
