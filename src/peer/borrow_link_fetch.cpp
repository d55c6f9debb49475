// SPDX-License-Identifier: Apache-2.0
// The shared allocations of an owner: what is asked of it, and what it answers.
#include <cstring>
#include <unordered_map>
#include <utility>

#include "base/error_line.hpp"
#include "base/log.hpp"
#include "base/planted.hpp"
#include "peer/borrow_link.hpp"
#include "wire/record.hpp"

namespace orbite::peer {
namespace {

/// Questions on their way at a time: as many answers fit into any socket.
constexpr std::size_t kAskedMax = 16;

wire::RegistrationRef ref_of(const wire::RangeBlob& blob) {
  wire::RegistrationRef ref;
  ref.index = blob.index;
  ref.generation = blob.generation;
  std::memcpy(ref.key, blob.key.bytes.data(), sizeof(ref.key));
  return ref;
}

}  // namespace

/// Under its mutex. Something waits to be asked, and there is room for another answer.
bool BorrowLinks::may_ask(const BorrowLink& link) {
  return !link.to_ask_.empty() && link.asked_.size() < kAskedMax;
}

/// Sends what waits to be asked.
void BorrowLinks::ask(BorrowLink& link) {
  while (ask_next(link)) {
  }
}

/// False: nothing waits, or there is no room for it now.
bool BorrowLinks::ask_next(BorrowLink& link) {
  // Goes after the lock: it may be the last hold of all that its peer holds.
  std::shared_ptr<RemoteRange> range;
  const std::lock_guard lock(link.mutex_);
  if (!may_ask(link)) {
    return false;
  }
  range = link.to_ask_.front().lock();
  if (range != nullptr) {
    wire::LinkFetch question;
    question.registration = ref_of(range->blob());
    link.asked_.push_back(range);
    if (link.asked_.size() == 1) {
      await_answer(link);
    }
    const platform::IoResult sent =
        environment_.neighbors.send(link.socket_, wire::bytes_of(question), {});
    if (sent.kind != platform::IoResult::Kind::kBytes) {
      link.asked_.pop_back();
      return false;  // asked again soon, unless the link has ended
    }
  }
  link.to_ask_.pop_front();
  link.changed_.notify_all();
  return true;
}

Result<void> BorrowLinks::take_allocation(BorrowLink& link, std::span<const std::uint8_t> message,
                                          const platform::Neighbors::Files& files) {
  ORBITE_ASSIGN_OR_RETURN(const auto answer,
                          wire::record_of<wire::LinkAllocation>(message, "link allocation"));
  ORBITE_TRY(wire::check_link_allocation(answer));
  if (answer.status != 0 && answer.registration.generation == 0) {
    stop_asking(link, static_cast<ErrorCode>(answer.status));
    return {};
  }
  std::shared_ptr<RemoteRange> range;
  {
    const std::lock_guard lock(link.mutex_);
    if (link.asked_.empty()) {
      return fail(ErrorCode::kProtocolViolation, "an answer that nobody asked for");
    }
    range = link.asked_.front().lock();
  }
  std::optional<Error> refusal;
  if (answer.status != 0) {
    refusal = Error::make(static_cast<ErrorCode>(answer.status), "the neighbour does not share it");
  } else if (range != nullptr) {
    const wire::RegistrationRef asked = ref_of(range->blob());
    if (files.size() != 1 || std::memcmp(&asked, &answer.registration, sizeof(asked)) != 0) {
      return fail(ErrorCode::kProtocolViolation, "an answer to another question");
    }
    if (auto mapped = map_shared(link, answer, *files[0], *range); !mapped) {
      refusal = mapped.error();
    }
  }
  if (refusal.has_value()) {
    base::log(base::LogLevel::kInfo, "a shared allocation of a neighbour is out of reach: %s",
              base::error_line(*refusal).c_str());
  }
  // Not before it is mapped: whoever connects the peer has waited for that.
  settle(link, refusal);
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

/// They come in the order of the questions. The range of the first one stays out of reach. False:
/// nobody had asked.
bool BorrowLinks::lose_answer(BorrowLink& link, const Error& error) {
  base::log(base::LogLevel::kWarn, "an answer of a neighbour is lost: %s",
            base::error_line(error).c_str());
  return settle(link, error);
}

/// Of the range that was asked for first nothing is awaited any more: it is mapped, or why not.
/// False: nobody had asked.
bool BorrowLinks::settle(BorrowLink& link, const std::optional<Error>& refusal) {
  const std::lock_guard lock(link.mutex_);
  if (link.asked_.empty()) {
    return false;
  }
  if (refusal.has_value()) {
    link.shared_refusal_ = refusal;
  }
  link.asked_.pop_front();
  await_answer(link);
  link.changed_.notify_all();
  return true;
}

/// Under its mutex. The next answer's time begins.
void BorrowLinks::await_answer(BorrowLink& link) {
  link.is_late_ = false;
  link.answer_due_ns_ = environment_.clock.now_ns() + environment_.handshake_timeout_ns;
}

/// Its owner said so. What it answered before can be used, and what it can be reached by.
void BorrowLinks::stop_asking(BorrowLink& link, ErrorCode why) {
  {
    const std::lock_guard lock(link.mutex_);
    link.is_answered_ = false;
    link.is_late_ = false;
    link.shared_refusal_ = Error(why);
    link.to_ask_.clear();
    link.asked_.clear();
    link.changed_.notify_all();
  }
  // Last: its text may find no memory.
  base::log(base::LogLevel::kWarn, "the neighbour of epoch %s answers nothing any more: %s",
            base::to_hex(link.owner_.epoch.bytes).c_str(), base::error_line(Error(why)).c_str());
}

}  // namespace orbite::peer
