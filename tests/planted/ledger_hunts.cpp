// SPDX-License-Identifier: Apache-2.0
// A hunt in the borrow ledger: a neighbour that is inside when the owner deregisters, and comes
// again afterwards.
#include <array>

#include "base/random.hpp"
#include "peer/borrow_ledger.hpp"
#include "planted/hunts.hpp"

namespace orbite::test {

Findings borrower_inside_a_deregistration() {
  Findings findings;
  findings.how = "one borrower, one registration";
  base::SeededRandom random(1);
  memory::Registry registry({.registrations_max = 2}, random);
  std::array<peer::borrowing::DirectoryWord, 2> directory{};
  std::array<peer::borrowing::Seat, 1> memory_of_seats{};
  peer::BorrowLedger ledger(directory);
  peer::BorrowSeats seats(directory, memory_of_seats);
  std::array<std::uint8_t, 16> bytes{};
  MemoryDescriptor memory;
  memory.address = reinterpret_cast<std::uint64_t>(bytes.data());
  memory.length = bytes.size();
  bool is_retired = false;
  memory.retired = [&] { is_retired = true; };
  const Handle handle = registry.add(memory).value();
  if (!ledger.reserve() || !ledger.open(handle)) {
    return {};
  }
  ledger.add_borrower(memory_of_seats).value();
  {
    const auto stay = seats.enter({&handle, 1});
    ledger.close(registry
                     .borrow(registry.find(handle).value(), memory::Direction::kRead,
                             memory::Borrower::kLocal)
                     .value());
    registry.deregister(handle).value();
    ledger.reconcile();
    registry.reap();
    if (is_retired) {
      findings.violations.push_back({"S3", "it retired while its borrower was inside"});
    }
  }
  ledger.reconcile();
  registry.reap();
  if (seats.enter({&handle, 1})) {
    findings.violations.push_back({"S1", "it was entered after its retirement"});
  }
  return findings;
}

}  // namespace orbite::test
