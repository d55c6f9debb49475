// SPDX-License-Identifier: Apache-2.0
// Hunts in copies through mappings: two engines of this process, of which one borrows the shared
// allocations of the other.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <utility>

#include "engine/access.hpp"
#include "orbite/shared_memory.hpp"
#include "planted/hunts.hpp"

namespace orbite::test {
namespace {

constexpr std::uint64_t kBytes = 4096;

class MappedHunt {
 public:
  MappedHunt() {
    Config config;
    config.listen.address = "127.0.0.1";
    EngineEnvironment environment = system_environment();
    environment.on_copy = [this](std::uint64_t, std::uint64_t, std::uint64_t) {
      if (inside) {
        std::exchange(inside, {})();
      }
    };
    borrower = EngineAccess::create({"borrower", config}, std::move(environment)).value();
    config.limits.registrations_max = 1;
    owner = TransferEngine::create({"owner", config}).value();
    local.fill(7);
    near_registration = borrower->register_memory(memory_of(local.data())).value();
    peer = borrower->import_peer("owner", owner->connection_blob()).value();
  }

  /// Registers an allocation, and has the borrower map it.
  void lend(const SharedMemory& pages) {
    registration = owner->register_memory(memory_of(pages.data())).value();
    const auto blob = owner->export_memory(registration).value();
    range = borrower->import_range(peer, blob, address_of(pages.data()), kBytes).value();
    EXPECT_TRUE(borrower->connect_peer(peer, 0).has_value());
  }
  /// Writes all of the newest one, by its mapping.
  void write(const SharedMemory& pages) {
    const Descriptor near{address_of(local.data()), kBytes, near_registration};
    const Descriptor far{address_of(pages.data()), kBytes, range};
    const Handle request =
        borrower->prepare({Operation::kWrite, peer, {&near, 1}, {&far, 1}}).value();
    const auto posted = borrower->post(request, {});
    EXPECT_TRUE(posted.has_value() && posted->terminal());
    EXPECT_STREQ(posted->route, "shm");
  }
  [[nodiscard]] bool has_landed_in(const SharedMemory& pages) const {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(pages.data());  // NOLINT
    return std::equal(local.begin(), local.end(), bytes);
  }

  std::array<std::uint8_t, kBytes> local{};
  std::function<void()> inside;  ///< the next copy
  std::unique_ptr<TransferEngine> owner;
  std::unique_ptr<TransferEngine> borrower;
  Handle near_registration;
  Handle registration;
  Handle peer;
  Handle range;

 private:
  static std::uint64_t address_of(const void* bytes) {
    return reinterpret_cast<std::uint64_t>(bytes);  // NOLINT
  }
  static MemoryDescriptor memory_of(const void* bytes) {
    MemoryDescriptor memory;
    memory.address = address_of(bytes);
    memory.length = kBytes;
    return memory;
  }
};

}  // namespace

Findings deregistration_inside_a_mapped_copy() {
  Findings findings;
  findings.how = "its owner deregisters what is being copied";
  const SharedMemory pages = allocate_shm_memory(kBytes, {}).value();
  MappedHunt hunt;
  hunt.lend(pages);
  hunt.inside = [&] {
    if (hunt.owner->deregister_memory(hunt.registration).value() == RegistrationState::kRetired) {
      findings.violations.push_back({"S3", "it retired while a copy was under way"});
    }
  };
  hunt.write(pages);
  return findings;
}

Findings next_registration_of_a_slot() {
  Findings findings;
  findings.how = "two allocations, one after the other in one slot";
  const SharedMemory first = allocate_shm_memory(kBytes, {}).value();
  const SharedMemory second = allocate_shm_memory(kBytes, {}).value();
  MappedHunt hunt;
  hunt.lend(first);
  EXPECT_EQ(hunt.owner->deregister_memory(hunt.registration).value(), RegistrationState::kRetired);
  hunt.lend(second);
  hunt.write(second);
  if (!hunt.has_landed_in(second)) {
    findings.violations.push_back({"S1", "bytes landed elsewhere"});
  }
  if (hunt.has_landed_in(first)) {
    findings.violations.push_back({"S3", "bytes landed in what had retired"});
  }
  return findings;
}

}  // namespace orbite::test
