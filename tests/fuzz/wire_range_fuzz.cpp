// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/assert.hpp"
#include "fuzz/wire_blob.hpp"
#include "wire/metadata.hpp"

namespace {

using namespace orbite::wire;

void run(std::span<const std::uint8_t> input) {
  const auto decoded = decode_range(input);
  if (!decoded) {
    ORBITE_CHECK(decoded.error().code() == orbite::ErrorCode::kBadMetadata ||
                 decoded.error().code() == orbite::ErrorCode::kIncompatible);
    ORBITE_CHECK(!decoded.error().context().empty());
    return;
  }
  ORBITE_CHECK(decoded->generation != 0);
  ORBITE_CHECK(decoded->length != 0);
  ORBITE_CHECK(decoded->address + decoded->length > decoded->address);
  // One value has one encoding: whatever is accepted is what we would have written.
  ORBITE_CHECK(std::ranges::equal(encode(*decoded), input));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span input(data, size);
  run(input);
  run(orbite::fuzz::resealed(input, kRangeMagic));
  return 0;
}
