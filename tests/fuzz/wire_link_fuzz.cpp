// SPDX-License-Identifier: Apache-2.0
// LinkWelcome, LinkFetch, LinkAllocation, one after the other, as far as the input reaches.
#include <cstddef>
#include <cstdint>

#include "base/assert.hpp"
#include "fuzz/wire_input.hpp"
#include "wire/link.hpp"

namespace {

using namespace orbite::wire;
using orbite::fuzz::Input;
using orbite::fuzz::take;

template <typename Record, typename Check, typename Holds>
bool check_next(Input& input, Check check, Holds holds) {
  Record record;
  if (!take(input, record)) {
    return false;
  }
  if (const auto result = check(record); !result) {
    ORBITE_CHECK(result.error().code() == orbite::ErrorCode::kProtocolViolation);
    ORBITE_CHECK(!result.error().context().empty());
  } else {
    ORBITE_CHECK(holds(record));
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  const bool more =
      check_next<LinkWelcome>(input, check_link_welcome,
                              [](const LinkWelcome& welcome) {
                                return welcome.seats >= 1 && welcome.seats <= kLinkSeatsMax &&
                                       welcome.directory_words >= 1 &&
                                       welcome.directory_words <= kLinkDirectoryWordsMax &&
                                       welcome.probe_address != 0;
                              }) &&
      check_next<LinkFetch>(input, check_link_fetch,
                            [](const LinkFetch& fetch) { return fetch.reserved == 0; });
  if (more) {
    check_next<LinkAllocation>(input, check_link_allocation,
                               [](const LinkAllocation& answer) { return answer.reserved == 0; });
  }
  return 0;
}
