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
#include "wire/record.hpp"

namespace orbite::peer {
namespace {

constexpr base::Nanoseconds kAskAgain = base::kMillisecond;
/// The longest rest after a silence, in handshake timeouts; the first one is as long as the
/// silence was.
constexpr std::uint64_t kSilenceRestMax = 64;

/// A message was lost because we had no room for what came with it.
bool is_lack(int native_errno) {
  return native_errno == EMFILE || native_errno == ENFILE || native_errno == ENOMEM ||
         native_errno == ENOBUFS;
}

std::string link_key(const wire::ConnectionBlob& owner) {
  const std::vector<std::uint8_t> bytes = wire::encode(owner);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

class BorrowLinks::Desk {
 public:
  /// The one for this connection blob, held.
  std::shared_ptr<BorrowLink::Hold> hold(const std::shared_ptr<Desk>& self,
                                         const wire::ConnectionBlob& owner,
                                         base::Backoff silence_rests);
  /// The worker looks at it soon. Does nothing for one that is not known any more.
  void list(BorrowLink& link) noexcept {
    const std::lock_guard lock(mutex_);
    if (link.is_known_ && !std::exchange(link.is_listed_, true)) {
      link.next_listed_ = std::exchange(first_, &link);
    }
    // Release: pairs with the acquire in has_listed().
    wanted_.store(true, std::memory_order_release);
  }
  /// Since the last time. Of all that was listed before, next_listed() is told.
  bool has_listed() noexcept { return wanted_.exchange(false, std::memory_order_acquire); }
  /// nullptr: no more.
  BorrowLink* next_listed() noexcept {
    const std::lock_guard lock(mutex_);
    BorrowLink* const link = first_;
    if (link != nullptr) {
      first_ = std::exchange(link->next_listed_, nullptr);
      link->is_listed_ = false;
    }
    return link;
  }
  /// The link, which is not known any more, if nobody holds it: nobody can come to.
  std::shared_ptr<BorrowLink> take_if_unheld(BorrowLink& link);
  /// Any one.
  std::shared_ptr<BorrowLink> take();

 private:
  using Links = std::unordered_map<std::string, std::shared_ptr<BorrowLink>>;
  /// Under the mutex.
  std::shared_ptr<BorrowLink> forget(Links::iterator entry) noexcept;

  std::atomic<bool> wanted_{false};
  std::mutex mutex_;
  Links links_;
  BorrowLink* first_ = nullptr;  ///< of those that are listed, which are known
};

struct BorrowLink::Hold {
  Hold(std::shared_ptr<BorrowLinks::Desk> its_desk, std::shared_ptr<BorrowLink> its_link) noexcept
      : desk(std::move(its_desk)), link(std::move(its_link)) {}
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  ~Hold() { desk->list(*link); }

  const std::shared_ptr<BorrowLinks::Desk> desk;
  std::shared_ptr<BorrowLink> link;
};

/// Everything is allocated before the lock: a hold that is let go of takes it.
std::shared_ptr<BorrowLink::Hold> BorrowLinks::Desk::hold(const std::shared_ptr<Desk>& self,
                                                          const wire::ConnectionBlob& owner,
                                                          base::Backoff silence_rests) {
  std::string key = link_key(owner);
  const auto made = std::make_shared<BorrowLink>(owner, silence_rests);
  auto hold = std::make_shared<BorrowLink::Hold>(self, made);
  std::shared_ptr<BorrowLink::Hold> held;
  const std::lock_guard lock(mutex_);
  if (const auto known = links_.find(key); known != links_.end()) {
    held = known->second->hold_.lock();
    if (held != nullptr) {
      return held;
    }
    hold->link = known->second;
  } else {
    links_.emplace(std::move(key), made);
    made->is_known_ = true;
  }
  hold->link->hold_ = hold;
  return hold;
}

std::shared_ptr<BorrowLink> BorrowLinks::Desk::forget(Links::iterator entry) noexcept {
  std::shared_ptr<BorrowLink> link = std::move(entry->second);
  links_.erase(entry);
  link->is_known_ = false;
  return link;
}

std::shared_ptr<BorrowLink> BorrowLinks::Desk::take_if_unheld(BorrowLink& link) {
  std::unique_lock lock(mutex_);
  if (!link.hold_.expired()) {
    return nullptr;
  }
  lock.unlock();
  const std::string key = link_key(link.owner_);
  lock.lock();
  // Listed again meanwhile: its turn comes.
  return link.hold_.expired() && !link.is_listed_ ? forget(links_.find(key)) : nullptr;
}

std::shared_ptr<BorrowLink> BorrowLinks::Desk::take() {
  const std::lock_guard lock(mutex_);
  return links_.empty() ? nullptr : forget(links_.begin());
}

Error BorrowLink::refusal() const {
  const std::lock_guard lock(mutex_);
  return refusal_.value_or(Error(ErrorCode::kOk));
}

std::optional<Error> BorrowLink::shared_refusal() const {
  const std::lock_guard lock(mutex_);
  return is_late_ ? Error(ErrorCode::kPeerSilent) : shared_refusal_;
}

BorrowLinks::BorrowLinks(LinkEnvironment environment)
    : environment_(std::move(environment)), desk_(std::make_shared<Desk>()) {}

BorrowLinks::~BorrowLinks() {
  while (desk_->next_listed() != nullptr) {
  }
  while (const auto link = desk_->take()) {
    drop(*link, Error(ErrorCode::kEngineClosing));
  }
}

// ---- From any thread

Result<std::shared_ptr<BorrowLink>> BorrowLinks::want(const wire::ConnectionBlob& owner) {
  if (!(owner.host == environment_.host)) {
    return fail(ErrorCode::kUnsupported, "another host, or another network namespace");
  }
  const base::Nanoseconds silence_ns = environment_.handshake_timeout_ns;
  const auto hold =
      desk_->hold(desk_, owner, base::Backoff(silence_ns, kSilenceRestMax * silence_ns));
  want_again(*hold->link);
  return std::shared_ptr<BorrowLink>(hold, hold->link.get());
}

void BorrowLinks::want_again(BorrowLink& link) {
  {
    const std::lock_guard lock(link.mutex_);
    if (link.state() == BorrowLink::State::kRefused &&
        environment_.clock.now_ns() >= link.rests_until_ns_) {
      link.state_.store(BorrowLink::State::kIdle, std::memory_order_release);
    }
    if (link.state() != BorrowLink::State::kIdle) {
      return;
    }
  }
  desk_->list(link);
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
    return link.is_decided() &&
           (!link.ready() || link.is_late_ || (link.to_ask_.empty() && link.asked_.empty()));
  });
}

void BorrowLinks::fetch(BorrowLink& link, const std::shared_ptr<RemoteRange>& range) {
  {
    const std::lock_guard lock(link.mutex_);
    if (link.state() == BorrowLink::State::kEnded || !link.is_answered_) {
      return;
    }
    // While the link is not ready nobody takes them off; the memory of a range that was released
    // is not kept for longer than it takes to double.
    if (!link.ready() && std::has_single_bit(link.to_ask_.size())) {
      std::erase_if(link.to_ask_, [](const auto& waiting) { return waiting.expired(); });
    }
    link.to_ask_.push_back(range);
    if (!link.ready()) {
      return;
    }
  }
  desk_->list(link);
  environment_.wake();
}

// ---- The worker

void BorrowLinks::set_state(BorrowLink& link, BorrowLink::State state) {
  const std::lock_guard lock(link.mutex_);
  store_state(link, state);
}

/// Under its mutex.
void BorrowLinks::store_state(BorrowLink& link, BorrowLink::State state) {
  // Release: see ready().
  link.state_.store(state, std::memory_order_release);
  link.changed_.notify_all();
}

/// Nothing new is begun by it. It is refused, or, where it was ready, ended: then copies may be
/// under way, and what they use stays.
void BorrowLinks::end(BorrowLink& link, const Error& error) {
  const bool was_ready = link.ready();
  set_due(link, 0);
  watched_.erase(link.id_);
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
    } else if (error.code() == ErrorCode::kPeerSilent) {
      // Whoever connects the peer meanwhile does not wait for another silence.
      link.rests_until_ns_ = environment_.clock.now_ns() + link.silence_rests_.next();
    }
    store_state(link, was_ready ? BorrowLink::State::kEnded : BorrowLink::State::kRefused);
  }
}

/// Nobody copies by it any more.
void BorrowLinks::drop(BorrowLink& link, const Error& error) {
  if (link.is_watched()) {
    end(link, error);
  }
  if (link.socket_ != platform::kNoSocket) {
    environment_.network.close(std::exchange(link.socket_, platform::kNoSocket));
  }
  const std::lock_guard lock(link.mutex_);
  if (!link.refusal_.has_value()) {
    link.refusal_ = error;
  }
  link.to_ask_.clear();
  store_state(link, BorrowLink::State::kEnded);
}

void BorrowLinks::begin(BorrowLink& link) {
  set_state(link, BorrowLink::State::kConnecting);
  link.since_ns_ = environment_.clock.now_ns();
  link.stage_ = BorrowLink::Stage::kServerHello;
  link.id_ = next_id_++;
  Result<void> greeted;
  try {
    watched_.emplace(link.id_, &link);
    set_due(link, link.since_ns_ + environment_.handshake_timeout_ns);
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
  const auto found = watched_.find(token & ~kTokenKinds);
  if (found == watched_.end()) {
    return;  // one that has ended may have had two reasons to at a time
  }
  BorrowLink& link = *found->second;
  if ((token & kTokenKinds) == kTokenLinkProcess) {
    end(link, Error(ErrorCode::kPeerDisconnected));
    return;
  }
  try {
    receive(link);
  } catch (const std::bad_alloc&) {
    desk_->list(link);  // of what it has taken something may be due
    throw;
  }
  look_after(link, environment_.clock.now_ns());
}

void BorrowLinks::receive(BorrowLink& link) {
  std::array<std::uint8_t, kLinkMessageBytesMax> buffer;
  for (int i = 0; i < kLinkMessagesPerEvent && link.is_watched(); ++i) {
    platform::Neighbors::Files files;
    const platform::IoResult got = environment_.neighbors.receive(link.socket_, buffer, files);
    if (got.kind == platform::IoResult::Kind::kWouldBlock) {
      return;
    }
    if (got.kind == platform::IoResult::Kind::kBytes) {
      on_message(link, std::span(buffer).first(got.bytes), files);
    } else if (!link.ready() || !is_lack(got.native_errno) ||
               !lose_answer(link, Error::make_native(ErrorCode::kSystem, got.native_errno,
                                                     "no room for what came with it"))) {
      end(link,
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
      static_cast<void>(
          lose_answer(link, Error::make(ErrorCode::kOutOfMemory, "no memory for it")));
      return;  // copies go on
    }
    taken = fail(ErrorCode::kOutOfMemory, "a message of a link");
  }
  if (!taken) {
    end(link, taken.error());
    // Last: its text may find no memory.
    base::log(base::LogLevel::kInfo, "no link to the neighbour of epoch %s: %s",
              base::to_hex(link.owner_.epoch.bytes).c_str(),
              base::error_line(taken.error()).c_str());
  }
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
  {
    const std::lock_guard lock(link.mutex_);
    link.silence_rests_.reset();
  }
  set_state(link, BorrowLink::State::kReady);
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

base::Nanoseconds BorrowLinks::on_tick(base::Nanoseconds now_ns) {
  if (desk_->has_listed()) {
    while (BorrowLink* const link = desk_->next_listed()) {
      look_after(*link, now_ns);
    }
  }
  while (!due_.empty() && due_.begin()->first <= now_ns) {
    look_after(*watched_.at(due_.begin()->second), now_ns);
  }
  return due_.empty() ? kLinkIdleSleep : std::min(kLinkIdleSleep, due_.begin()->first - now_ns);
}

/// What had no memory comes again at the next tick.
void BorrowLinks::look_after(BorrowLink& link, base::Nanoseconds now_ns) {
  ++looks_;
  try {
    if (const auto unheld = desk_->take_if_unheld(link)) {
      drop(link, Error(ErrorCode::kPeerRetired));
    } else {
      do_what_is_due(link, now_ns);
    }
  } catch (const std::bad_alloc&) {
    desk_->list(link);
    throw;
  }
}

void BorrowLinks::do_what_is_due(BorrowLink& link, base::Nanoseconds now_ns) {
  if (link.state() == BorrowLink::State::kIdle) {
    begin(link);
  } else if (link.state() == BorrowLink::State::kConnecting && now_ns >= link.due_ns_) {
    end(link, Error(ErrorCode::kPeerSilent));
  } else if (link.ready()) {
    ask(link);
    set_due(link, next_due(link, now_ns));
  }
}

/// Of one that is ready, after ask(): when to look again; 0: when something comes.
base::Nanoseconds BorrowLinks::next_due(BorrowLink& link, base::Nanoseconds now_ns) {
  const std::lock_guard lock(link.mutex_);
  base::Nanoseconds due_ns = 0;
  if (may_ask(link)) {
    due_ns = now_ns + kAskAgain;
  }
  if (!link.asked_.empty() && !link.is_late_) {
    if (now_ns < link.answer_due_ns_) {
      return due_ns == 0 ? link.answer_due_ns_ : std::min(due_ns, link.answer_due_ns_);
    }
    link.is_late_ = true;
    link.changed_.notify_all();
  }
  return due_ns;
}

/// 0: nothing is.
void BorrowLinks::set_due(BorrowLink& link, base::Nanoseconds due_ns) {
  if (link.due_ns_ == due_ns) {
    return;
  }
  auto place = due_.extract({std::exchange(link.due_ns_, 0), link.id_});
  if (due_ns != 0 && !place.empty()) {
    place.value().first = due_ns;
    due_.insert(std::move(place));
  } else if (due_ns != 0) {
    due_.emplace(due_ns, link.id_);
  }
  link.due_ns_ = due_ns;
}

}  // namespace orbite::peer
