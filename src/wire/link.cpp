// SPDX-License-Identifier: Apache-2.0
#include "wire/link.hpp"

#include "wire/record.hpp"

namespace orbite::wire {
Result<void> check_link_welcome(const LinkWelcome& welcome) {
  constexpr const char* kWhat = "link welcome";
  ORBITE_TRY(check_magic(kWhat, welcome.magic, kLinkWelcomeMagic));
  ORBITE_TRY(check_range(kWhat, "seats", welcome.seats, 1, kLinkSeatsMax));
  ORBITE_TRY(
      check_range(kWhat, "directory_words", welcome.directory_words, 1, kLinkDirectoryWordsMax));
  return check_range(kWhat, "probe_address", welcome.probe_address, 1,
                     UINT64_MAX - sizeof(welcome.probe));
}

Result<void> check_link_fetch(const LinkFetch& fetch) {
  constexpr const char* kWhat = "link fetch";
  ORBITE_TRY(check_magic(kWhat, fetch.magic, kLinkFetchMagic));
  return check_range(kWhat, "reserved", fetch.reserved, 0, 0);
}

Result<void> check_link_allocation(const LinkAllocation& allocation) {
  constexpr const char* kWhat = "link allocation";
  ORBITE_TRY(check_magic(kWhat, allocation.magic, kLinkAllocationMagic));
  if (!is_error_code(allocation.status)) {
    return fail(ErrorCode::kProtocolViolation, "%s: status is %u, which is no error code", kWhat,
                unsigned{allocation.status});
  }
  return check_range(kWhat, "reserved", allocation.reserved, 0, 0);
}

}  // namespace orbite::wire
