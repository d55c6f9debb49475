// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/assert.hpp"

namespace orbite::transport::tcp {

/// What one receive may take into a buffer while no payload is expected: a small frame whole, in
/// one call, and of a large one no more than the head, since its payload is then received in place.
inline constexpr std::size_t kHeadBytesMax = 4096 + 256;
/// Parts of a scatter list that one call takes.
inline constexpr std::size_t kPartsPerCall = 1024;

/// A scatter list and how far it has been sent or filled. Keeps its storage between uses.
class IoCursor {
 public:
  void clear() noexcept {
    parts_.clear();
    index_ = 0;
    remaining_ = 0;
  }
  void reserve(std::size_t parts) { parts_.reserve(parts); }

  void add(std::uint64_t address, std::uint64_t length) {
    if (length == 0) {
      return;
    }
    // SAFETY: the address lies in a range that the caller holds a loan on, or is a buffer of the
    // lane; bounds were checked where the list was made.
    parts_.push_back(iovec{reinterpret_cast<void*>(address), length});  // NOLINT
    remaining_ += length;
  }
  void add(const void* data, std::size_t length) {
    add(reinterpret_cast<std::uint64_t>(data), length);
  }

  /// What `other` has left goes to the end of this one.
  void append(const IoCursor& other) {
    for (std::size_t i = other.index_; i < other.parts_.size(); ++i) {
      add(other.parts_[i].iov_base, other.parts_[i].iov_len);
    }
  }

  [[nodiscard]] std::uint64_t remaining() const noexcept { return remaining_; }
  [[nodiscard]] bool done() const noexcept { return remaining_ == 0; }

  /// The next parts, at most `bytes_max` bytes of them and as many as one call takes. Valid until
  /// the next call on this object. The last part is cut in `scratch`, not in the list.
  [[nodiscard]] std::span<const iovec> next(std::size_t bytes_max, std::vector<iovec>& scratch,
                                            std::size_t parts_max) const {
    scratch.clear();
    std::size_t bytes = 0;
    for (std::size_t i = index_; i < parts_.size() && scratch.size() < parts_max; ++i) {
      iovec part = parts_[i];
      part.iov_len = std::min(part.iov_len, bytes_max - bytes);
      bytes += part.iov_len;
      scratch.push_back(part);
      if (bytes == bytes_max) {
        break;
      }
    }
    return scratch;
  }

  void advance(std::uint64_t bytes) noexcept {
    ORBITE_CHECK(bytes <= remaining_);
    remaining_ -= bytes;
    while (bytes > 0) {
      iovec& part = parts_[index_];
      const std::uint64_t step = std::min<std::uint64_t>(bytes, part.iov_len);
      part.iov_base = static_cast<std::uint8_t*>(part.iov_base) + step;
      part.iov_len -= step;
      bytes -= step;
      if (part.iov_len == 0) {
        ++index_;
      }
    }
  }

  /// Copies into the list; returns how much of `data` it took.
  std::size_t copy_in(std::span<const std::uint8_t> data) noexcept {
    const std::size_t total = std::min<std::uint64_t>(data.size(), remaining_);
    std::size_t copied = 0;
    while (copied < total) {
      const iovec& part = parts_[index_];
      const std::size_t step = std::min(total - copied, part.iov_len);
      std::memcpy(part.iov_base, data.data() + copied, step);
      copied += step;
      advance(step);
    }
    return copied;
  }

 private:
  std::vector<iovec> parts_;
  std::size_t index_ = 0;
  std::uint64_t remaining_ = 0;
};

/// Bytes received and not consumed yet.
class ReceiveBuffer {
 public:
  explicit ReceiveBuffer(std::size_t capacity)
      : capacity_(capacity), storage_(new std::uint8_t[capacity]) {}

  [[nodiscard]] std::span<const std::uint8_t> data() const noexcept {
    return {storage_.get() + begin_, end_ - begin_};
  }
  [[nodiscard]] std::size_t size() const noexcept { return end_ - begin_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  void consume(std::size_t bytes) noexcept {
    ORBITE_CHECK(bytes <= size());
    begin_ += bytes;
    if (begin_ == end_) {
      begin_ = end_ = 0;
    }
  }
  /// Free space at the tail, all of it made contiguous, at most `bytes_max`.
  [[nodiscard]] iovec tail(std::size_t bytes_max) noexcept {
    if (begin_ > 0) {
      std::memmove(storage_.get(), storage_.get() + begin_, size());
      end_ -= begin_;
      begin_ = 0;
    }
    return iovec{storage_.get() + end_, std::min(capacity_ - end_, bytes_max)};
  }
  void grown(std::size_t bytes) noexcept {
    ORBITE_CHECK(bytes <= capacity_ - end_);
    end_ += bytes;
  }
  void clear() noexcept { begin_ = end_ = 0; }

  /// Reads one trivially copyable struct at the front, if it is there, and consumes it.
  template <typename Struct>
  bool take(Struct& out) noexcept {
    if (size() < sizeof(Struct)) {
      return false;
    }
    std::memcpy(&out, storage_.get() + begin_, sizeof(Struct));
    consume(sizeof(Struct));
    return true;
  }

 private:
  const std::size_t capacity_;
  /// Not filled: of an idle lane's buffer only the pages that bytes came into are in memory.
  std::unique_ptr<std::uint8_t[]> storage_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace orbite::transport::tcp
