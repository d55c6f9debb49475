// SPDX-License-Identifier: Apache-2.0
#include "transport/cma/cma_transport.hpp"

#include <array>
#include <cerrno>
#include <utility>

#include "base/assert.hpp"

namespace orbite::transport::cma {
namespace {

using Parts = std::array<iovec, platform::Process::kPartsMax>;

/// One side of a slice: neighbours in the list that are neighbours in memory are one part.
class Side {
 public:
  void add(std::uint64_t address, std::uint64_t bytes) {
    if (count_ > 0 && end_ == address) {
      parts_[count_ - 1].iov_len += bytes;
    } else {
      // NOLINTNEXTLINE: of the other process, or checked against our registration.
      parts_[count_++] = {reinterpret_cast<void*>(address), bytes};
    }
    end_ = address + bytes;
  }
  [[nodiscard]] std::span<const iovec> parts() const { return {parts_.data(), count_}; }

 private:
  Parts parts_;  // NOLINT: filled as far as count_
  std::size_t count_ = 0;
  std::uint64_t end_ = 0;
};

ErrorCode code_of(int native_errno) {
  switch (native_errno) {
    case ESRCH:
      return ErrorCode::kPeerDisconnected;
    case EPERM:
      return ErrorCode::kNotAllowed;
    case ENOMEM:
      return ErrorCode::kOutOfMemory;
    default:
      return ErrorCode::kIoFailed;
  }
}

}  // namespace

CmaTransport::CmaTransport(transfer::Planner& planner, const base::Clock& clock,
                           std::uint64_t slice_bytes, peer::BorrowLinks& links, Copying copying)
    : CopyTransport(planner, clock, std::move(copying)), slice_bytes_(slice_bytes), links_(links) {
  let_workers_in();
}

CmaTransport::~CmaTransport() { keep_workers_out(); }

Result<std::shared_ptr<transfer::Flow>> CmaTransport::open(const peer::Peer& peer) {
  return open_borrow_flow(kind(), links_, peer);
}

transfer::SliceLimits CmaTransport::slice_limits() const noexcept {
  return {slice_bytes_, platform::Process::kPartsMax, peer::BorrowSeats::kNamesMax};
}

bool CmaTransport::reaches(transfer::Flow& flow, const transfer::Prepared& /*prepared*/) {
  const peer::BorrowLink& link = static_cast<BorrowFlow&>(flow).link();
  return link.ready() && link.process() != nullptr;
}

Result<void> CmaTransport::connect(transfer::Flow& flow, base::Nanoseconds timeout_ns) {
  links_.connect(static_cast<BorrowFlow&>(flow).link(), timeout_ns);
  return {};
}

std::optional<transfer::SliceResult> CmaTransport::copy(CopyFlow& flow,
                                                        const transfer::Slice& slice) {
  peer::BorrowLink& link = static_cast<BorrowFlow&>(flow).link();
  const auto stay = enter(link, slice);
  if (!stay) {
    return not_entered(stay.error());
  }
  Side here;
  Side there;
  for (transfer::ExtentCursor extents = slice.extents; !extents.at_end();) {
    const transfer::Extent extent = extents.take();
    here.add(extent.local_address, extent.length);
    there.add(extent.remote_address, extent.length);
  }
  platform::Process& process = *link.process();
  const platform::ProcessCopy copied = slice.execution->operation() == Operation::kWrite
                                           ? process.write(here.parts(), there.parts())
                                           : process.read(here.parts(), there.parts());
  transfer::SliceResult result;
  result.prefix_bytes = copied.bytes;
  if (copied.bytes == slice.bytes) {
    result.effect = RemoteEffect::kComplete;
    return result;
  }
  result.code = code_of(copied.native_errno);
  result.native_errno = copied.native_errno;
  result.effect = copied.bytes == 0 ? RemoteEffect::kNone : RemoteEffect::kPrefix;
  return result;
}

}  // namespace orbite::transport::cma
