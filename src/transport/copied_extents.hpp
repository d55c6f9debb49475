// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "base/assert.hpp"
#include "copy/copier.hpp"
#include "transfer/execution.hpp"
#include "transport/copy_transport.hpp"

namespace orbite::transport {

/// Copies the bytes of a slice within our address space. `address_of(extent)` is where the remote
/// end of an extent lies in it. The caller makes sure that nothing of it is unmapped meanwhile.
template <typename AddressOf>
void copy_extents(const transfer::Slice& slice, const copy::Copier& copier, const OnCopy& on_copy,
                  AddressOf address_of) {
  constexpr std::uint32_t kPartsMax = 64;  // that the copier is told of at a time
  const transfer::Prepared& prepared = *slice.execution->prepared();
  std::array<copy::Part, kPartsMax> parts;
  // Who is told of each copy is told just before it.
  const std::uint32_t parts_max = on_copy ? 1 : kPartsMax;
  for (transfer::ExtentCursor extents = slice.extents; !extents.at_end();) {
    std::uint32_t count = 0;
    std::uint64_t bytes = 0;
    while (count < parts_max && !extents.at_end()) {
      const transfer::Extent extent = extents.take();
      std::uint64_t target = extent.local_address;
      std::uint64_t source = address_of(extent);
      if (prepared.operation == Operation::kWrite) {
        std::swap(target, source);
      }
      if (on_copy) {
        on_copy(target, source, extent.length);
      }
      parts[count] = {reinterpret_cast<std::byte*>(target),        // NOLINT
                      reinterpret_cast<const std::byte*>(source),  // NOLINT
                      static_cast<std::size_t>(extent.length)};
      bytes += extent.length;
      ++count;
    }
    copy::PartCursor cursor({parts.data(), count});
    const std::uint64_t copied = copier.copy(cursor, bytes, prepared.bytes);
    ORBITE_CHECK(copied == bytes);
  }
}

}  // namespace orbite::transport
