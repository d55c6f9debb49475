// SPDX-License-Identifier: Apache-2.0
#include "peer/lender.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "base/error_line.hpp"
#include "base/log.hpp"
#include "memory/registry.hpp"
#include "wire/record.hpp"

namespace orbite::peer {
namespace {

constexpr std::uint32_t kSeats = BorrowSeats::kSeatsMax;
constexpr int kAcceptsPerEvent = 16;
/// While somebody may be inside of what we have closed.
constexpr base::Nanoseconds kHeldPeriod = base::kMillisecond;
/// From one look at those that are muted to the next, and what each may have sent meanwhile: more
/// than its socket has room for.
constexpr base::Nanoseconds kMutedPeriod = base::kSecond;
constexpr int kMutedMessagesMax = 4096;
/// How long nobody is accepted after the system had no descriptor or no memory.
constexpr base::Nanoseconds kListenerRest = 100 * base::kMillisecond;

static_assert(sizeof(wire::ClientHello) <= kLinkMessageBytesMax);

bool is_end(const platform::IoResult& got) {
  return got.kind == platform::IoResult::Kind::kEnded || got.native_errno == ECONNRESET;
}

borrowing::DirectoryHead& head_of(const platform::PageMapping& pages) {
  // SAFETY: the file begins with one, of zero bytes.
  return *reinterpret_cast<borrowing::DirectoryHead*>(pages.pages().data());  // NOLINT
}

std::span<borrowing::DirectoryWord> words_of(const platform::PageMapping& pages,
                                             std::uint64_t count) {
  // SAFETY: the file has room for that many words behind its head, all zero bytes, which is an
  // atomic 0; it is page aligned.
  auto* const first = reinterpret_cast<borrowing::DirectoryWord*>(  // NOLINT
      pages.pages().data() + sizeof(borrowing::DirectoryHead));
  return {first, static_cast<std::size_t>(count)};
}

}  // namespace

Result<std::unique_ptr<Lender>> Lender::create(LinkEnvironment environment) {
  const std::uint64_t bytes = sizeof(borrowing::DirectoryHead) +
                              environment.registrations_max * sizeof(borrowing::DirectoryWord);
  ORBITE_ASSIGN_OR_RETURN(std::shared_ptr<const platform::PageFile> file,
                          environment.neighbors.make_pages("orbite-directory", bytes, {}));
  ORBITE_ASSIGN_OR_RETURN(
      std::unique_ptr<platform::PageMapping> pages,
      environment.neighbors.map(*file, platform::Neighbors::PageAccess::kReadWrite,
                                platform::Neighbors::AfterFork::kAbsent));
  ORBITE_TRY(environment.neighbors.forbid_writes(*file));
  std::unique_ptr<Lender> lender(
      new Lender(std::move(environment), std::move(file), std::move(pages)));
  ORBITE_TRY(lender->listen());
  return lender;
}

Lender::Lender(LinkEnvironment environment, std::shared_ptr<const platform::PageFile> directory,
               std::unique_ptr<platform::PageMapping> pages)
    : environment_(std::move(environment)),
      directory_(std::move(directory)),
      pages_(std::move(pages)),
      ledger_(words_of(*pages_, environment_.registrations_max)) {
  environment_.random.fill(head_of(*pages_).probe);
}

Lender::~Lender() {
  stop_accepting();
  while (!all_.empty()) {
    end(all_.begin()->first, "we end");
  }
  ledger_.reconcile();
}

Result<void> Lender::listen() {
  ORBITE_ASSIGN_OR_RETURN(listener_, environment_.neighbors.listen(link_name(environment_.epoch)));
  return environment_.network.poller_add(environment_.poller, listener_, platform::kPollIn,
                                         kTokenLenderListener);
}

void Lender::stop_accepting() {
  if (listener_ != platform::kNoSocket) {
    environment_.network.poller_remove(environment_.poller, listener_);
    environment_.network.close(std::exchange(listener_, platform::kNoSocket));
  }
}

// ---- The ledger, from any thread

void Lender::open(Handle registration) noexcept {
  // Relaxed: whoever closes all that the ledger has opened sees this through the ledger's mutex.
  std::uint32_t highest = highest_.load(std::memory_order_relaxed);
  while (highest < registration.index &&
         !highest_.compare_exchange_weak(highest, registration.index, std::memory_order_relaxed)) {
  }
  if (!ledger_.open(registration)) {
    base::log(base::LogLevel::kWarn, "neighbours cannot borrow registration %u",
              registration.index);
  }
}

void Lender::close(memory::RangeLoan loan) noexcept {
  ledger_.close(std::move(loan));
  if (ledger_.reconcile()) {
    environment_.wake();
  }
}

void Lender::close_all(memory::Registry& registry) noexcept {
  ledger_.open_no_more();
  head_of(*pages_).closes.store(1, std::memory_order_release);
  const auto words = words_of(*pages_, environment_.registrations_max);
  const std::size_t count = std::min<std::size_t>(
      words.size(), std::size_t{highest_.load(std::memory_order_relaxed)} + 1);
  for (std::size_t index = 0; index < count; ++index) {
    // Relaxed: only we write it; whoever closes at the same time is told apart by the ledger.
    const std::uint32_t generation = words[index].load(std::memory_order_relaxed);
    if (generation == 0) {
      continue;
    }
    const Handle handle{static_cast<std::uint32_t>(index), generation};
    if (auto found = registry.find(handle); found) {
      if (auto loan = registry.borrow(*found, memory::Direction::kRead, memory::Borrower::kLocal);
          loan) {
        ledger_.close(std::move(*loan));
      }
    }
  }
  if (ledger_.reconcile()) {
    environment_.wake();
  }
}

// ---- The worker

void Lender::on_event(std::uint64_t token) {
  const std::uint64_t id = token & ~kTokenKinds;
  if ((token & kTokenKinds) == kTokenLenderListener) {
    accept_waiting();
    return;
  }
  if ((token & kTokenKinds) == kTokenBorrowerProcess) {
    end(id, "its process has ended");
    return;
  }
  ++looks_;
  std::array<std::uint8_t, kLinkMessageBytesMax> buffer;
  for (int i = 0; i < kLinkMessagesPerEvent; ++i) {
    const auto found = all_.find(id);
    if (found == all_.end() || found->second.stage == Stage::kMuted) {
      return;
    }
    platform::Neighbors::Files files;
    const platform::IoResult got =
        environment_.neighbors.receive(found->second.socket, buffer, files);
    if (got.kind == platform::IoResult::Kind::kWouldBlock) {
      return;
    }
    if (got.kind == platform::IoResult::Kind::kBytes) {
      on_message(id, found->second, std::span(buffer).first(got.bytes), !files.empty());
    } else if (is_end(got)) {
      end(id, "closed by it");
    } else {
      // A message that was lost is no end: it may be inside of our memory.
      on_message(id, found->second, {}, true);
    }
  }
}

void Lender::accept_waiting() {
  for (int i = 0; i < kAcceptsPerEvent; ++i) {
    // First: a socket that was accepted always has an owner. Where there is no memory for it, the
    // id is the next one's.
    unproved_.insert(next_id_);
    const auto entry = all_.try_emplace(next_id_).first;
    auto socket = environment_.neighbors.accept(listener_);
    if (!socket) {
      all_.erase(entry);
      unproved_.erase(next_id_);
      if (socket.error().code() == ErrorCode::kSystem) {
        rests_until_ns_ = environment_.clock.now_ns() + kListenerRest;
        environment_.network.poller_modify(environment_.poller, listener_, 0, kTokenLenderListener);
      }
      return;
    }
    const std::uint64_t id = next_id_++;
    entry->second.socket = *socket;
    entry->second.since_ns = environment_.clock.now_ns();
    if (!environment_.network.poller_add(environment_.poller, *socket, platform::kPollIn,
                                         kTokenBorrower | id)) {
      end(id, "it cannot be polled");
    }
    make_room();
  }
}

/// The oldest that has not proved itself makes room: strangers cannot keep a neighbour out.
void Lender::make_room() {
  if (unproved_.size() > environment_.handshakes_max) {
    end(*unproved_.begin(), "too many connections in their handshake");
  }
}

void Lender::on_message(std::uint64_t id, Borrower& borrower, std::span<const std::uint8_t> message,
                        bool has_files) {
  Result<void> taken;
  try {
    taken = has_files ? fail(ErrorCode::kProtocolViolation, "a borrower sends no files")
                      : take(id, borrower, message);
  } catch (const std::bad_alloc&) {
    taken = fail(ErrorCode::kOutOfMemory, "a message of its link");
  }
  if (taken) {
    return;
  }
  if (borrower.in_ledger == 0) {
    end(id, base::error_line(taken.error()).c_str());
    return;
  }
  mute(id, borrower, taken.error());
}

/// It is told, if there is room, so that nobody there waits for an answer.
void Lender::mute(std::uint64_t id, Borrower& borrower, const Error& error) {
  base::log(base::LogLevel::kWarn, "neighbour '%.64s' (%llu) is not answered any more: %s",
            borrower.hello.name, static_cast<unsigned long long>(id),
            base::error_line(error).c_str());
  borrower.stage = Stage::kMuted;
  wire::LinkAllocation last;
  last.status = static_cast<std::uint16_t>(error.code());
  static_cast<void>(environment_.neighbors.send(borrower.socket, wire::bytes_of(last), {}));
  environment_.network.poller_remove(environment_.poller, borrower.socket);
  if (muted_.empty()) {
    muted_look_ns_ = environment_.clock.now_ns() + kMutedPeriod;
  }
  muted_.insert(std::move(borrower.place));
}

/// For its end, which stands behind all that it has sent.
void Lender::look_at_muted(std::uint64_t id) {
  ++looks_;
  const Borrower& borrower = all_.at(id);
  std::array<std::uint8_t, kLinkMessageBytesMax> buffer;
  for (int i = 0; i < kMutedMessagesMax; ++i) {
    platform::Neighbors::Files files;
    const platform::IoResult got = environment_.neighbors.receive(borrower.socket, buffer, files);
    if (is_end(got)) {
      end(id, "closed by it");
      return;
    }
    if (got.kind == platform::IoResult::Kind::kWouldBlock) {
      return;
    }
  }
}

Result<void> Lender::take(std::uint64_t id, Borrower& borrower,
                          std::span<const std::uint8_t> message) {
  switch (borrower.stage) {
    case Stage::kHello:
      return take_hello(borrower, message);
    case Stage::kProof:
      return take_proof(id, borrower, message);
    case Stage::kServed:
      return take_fetch(borrower, message);
    case Stage::kMuted:
      break;
  }
  return {};
}

Result<void> Lender::take_hello(Borrower& borrower, std::span<const std::uint8_t> message) {
  ORBITE_ASSIGN_OR_RETURN(borrower.hello,
                          wire::record_of<wire::ClientHello>(message, "link hello"));
  ORBITE_TRY(wire::check_link_hello(borrower.hello));
  ErrorCode status = ErrorCode::kOk;
  if (borrower.hello.expected_epoch != environment_.epoch) {
    status = ErrorCode::kPeerEpochChanged;
  } else if (!(borrower.hello.host == environment_.host)) {
    status = ErrorCode::kUnsupported;
  } else if (borrowers() >= environment_.borrowers_max) {
    status = ErrorCode::kBudgetExhausted;
  }
  borrower.answer.status = static_cast<std::uint16_t>(status);
  borrower.answer.server_epoch = environment_.epoch;
  environment_.random.fill(borrower.answer.nonce);
  wire::sign_server(environment_.secret, borrower.hello, borrower.answer);
  const platform::IoResult sent =
      environment_.neighbors.send(borrower.socket, wire::bytes_of(borrower.answer), {});
  if (sent.kind != platform::IoResult::Kind::kBytes) {
    return fail(Error::make_native(ErrorCode::kSystem, sent.native_errno, "no room for an answer"));
  }
  if (status != ErrorCode::kOk) {
    return fail(status, "refused");
  }
  borrower.stage = Stage::kProof;
  return {};
}

Result<void> Lender::take_proof(std::uint64_t id, Borrower& borrower,
                                std::span<const std::uint8_t> message) {
  ORBITE_ASSIGN_OR_RETURN(const wire::ClientProof proof,
                          wire::record_of<wire::ClientProof>(message, "link proof"));
  ORBITE_TRY(wire::check_client_proof(proof));
  if (!wire::verify_client(environment_.secret, borrower.hello, borrower.answer, proof)) {
    return fail(ErrorCode::kHandshakeRejected, "it does not know our secret");
  }
  return welcome(id, borrower);
}

Result<void> Lender::welcome(std::uint64_t id, Borrower& borrower) {
  // Without it the end of the connection alone tells of the end of the process.
  if (auto process = environment_.neighbors.process_of(borrower.socket); process) {
    borrower.process = std::move(*process);
    ORBITE_TRY(environment_.network.poller_add(environment_.poller, borrower.process->end(),
                                               platform::kPollIn, kTokenBorrowerProcess | id));
  }
  ORBITE_ASSIGN_OR_RETURN(
      const std::shared_ptr<const platform::PageFile> file,
      environment_.neighbors.make_pages("orbite-seats", kSeats * sizeof(borrowing::Seat), {}));
  ORBITE_ASSIGN_OR_RETURN(borrower.seats,
                          environment_.neighbors.map(*file, platform::Neighbors::PageAccess::kRead,
                                                     platform::Neighbors::AfterFork::kAbsent));
  // SAFETY: as large as that, page aligned, and zero bytes are empty seats.
  const auto* const seats = reinterpret_cast<const borrowing::Seat*>(  // NOLINT
      borrower.seats->pages().data());
  ORBITE_ASSIGN_OR_RETURN(borrower.in_ledger, ledger_.add_borrower({seats, kSeats}));
  borrower.place = unproved_.extract(id);
  wire::LinkWelcome record;
  record.seats = kSeats;
  record.directory_words = environment_.registrations_max;
  record.probe_address = reinterpret_cast<std::uint64_t>(pages_->pages().data());  // NOLINT
  const auto& probe = head_of(*pages_).probe;
  std::memcpy(record.probe, probe.data(), probe.size());
  borrower.stage = Stage::kServed;
  borrowers_.fetch_add(1, std::memory_order_relaxed);
  const platform::IoResult sent =
      environment_.neighbors.send(borrower.socket, wire::bytes_of(record), {directory_, file});
  if (sent.kind != platform::IoResult::Kind::kBytes) {
    return fail(Error::make_native(ErrorCode::kSystem, sent.native_errno, "no room for an answer"));
  }
  return {};
}

Result<void> Lender::take_fetch(Borrower& borrower, std::span<const std::uint8_t> message) {
  ORBITE_ASSIGN_OR_RETURN(const wire::LinkFetch fetch,
                          wire::record_of<wire::LinkFetch>(message, "link fetch"));
  ORBITE_TRY(wire::check_link_fetch(fetch));
  wire::LinkAllocation answer;
  answer.registration = fetch.registration;
  platform::Neighbors::Files files;
  auto shared = environment_.share(fetch.registration);
  if (shared) {
    answer.allocation = shared->allocation;
    answer.offset = shared->offset;
    files.push_back(shared->file);
  } else {
    answer.status = static_cast<std::uint16_t>(shared.error().code());
  }
  const platform::IoResult sent =
      environment_.neighbors.send(borrower.socket, wire::bytes_of(answer), files);
  if (sent.kind != platform::IoResult::Kind::kBytes) {
    return fail(Error::make_native(ErrorCode::kSystem, sent.native_errno,
                                   "no room for an answer: it asks and does not listen"));
  }
  return {};
}

/// Its connection or its process has ended, and with it its last copy.
void Lender::end(std::uint64_t id, const char* why) noexcept {
  unproved_.erase(id);
  muted_.erase(id);
  const auto found = all_.find(id);
  if (found == all_.end()) {
    return;
  }
  Borrower& borrower = found->second;
  base::log(base::LogLevel::kDebug, "link from '%.64s' ended: %s", borrower.hello.name, why);
  if (borrower.process != nullptr) {
    environment_.network.poller_remove(environment_.poller, borrower.process->end());
  }
  if (borrower.stage != Stage::kMuted) {
    environment_.network.poller_remove(environment_.poller, borrower.socket);
  }
  environment_.network.close(borrower.socket);
  if (borrower.in_ledger != 0) {
    ledger_.remove_borrower(borrower.in_ledger);
    borrowers_.fetch_sub(1, std::memory_order_relaxed);
  }
  all_.erase(found);
}

base::Nanoseconds Lender::on_tick(base::Nanoseconds now_ns) {
  base::Nanoseconds sleep_ns = kLinkIdleSleep;
  if (rests_until_ns_ != 0 && listener_ != platform::kNoSocket) {
    if (now_ns >= rests_until_ns_) {
      rests_until_ns_ = 0;
      environment_.network.poller_modify(environment_.poller, listener_, platform::kPollIn,
                                         kTokenLenderListener);
    } else {
      sleep_ns = std::min(sleep_ns, rests_until_ns_ - now_ns);
    }
  }
  while (!unproved_.empty()) {
    const std::uint64_t oldest = *unproved_.begin();
    const auto found = all_.find(oldest);
    ++looks_;
    const base::Nanoseconds due_ns =
        found == all_.end() ? 0 : found->second.since_ns + environment_.handshake_timeout_ns;
    if (now_ns < due_ns) {
      sleep_ns = std::min(sleep_ns, due_ns - now_ns);
      break;
    }
    end(oldest, "its handshake took too long");
  }
  if (!muted_.empty() && now_ns >= muted_look_ns_) {
    muted_look_ns_ = now_ns + kMutedPeriod;
    for (auto next = muted_.begin(); next != muted_.end();) {
      look_at_muted(*next++);
    }
  }
  if (!muted_.empty()) {
    sleep_ns = std::min(sleep_ns, muted_look_ns_ - now_ns);
  }
  return ledger_.reconcile() ? std::min(sleep_ns, kHeldPeriod) : sleep_ns;
}

}  // namespace orbite::peer
