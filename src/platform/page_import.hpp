// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "base/byte_range.hpp"
#include "base/result.hpp"
#include "platform/neighbors.hpp"

namespace orbite::platform {

struct ImportedPages {
  std::shared_ptr<const PageFile> file;  ///< by a descriptor of its own
  std::uint64_t offset = 0;              ///< of the range in the file
};

/// Proves from the kernel's own tables that `range` of this process is a mapping of the file behind
/// `fd`, which stays the caller's as the mapping does. kInvalidArgument: that is no descriptor, or
/// not of a memfd that is sealed against shrinking and growing and may be read and written;
/// kInvalidRange: the range is not one run of that file, shared, readable and writable; kSystem.
/// May throw std::bad_alloc.
Result<ImportedPages> import_pages(int fd, const base::ByteRange& range);

}  // namespace orbite::platform
